"""Lakelatch: many PySpark jobs write one lakehouse table at once, safely."""
