"""Faults to inject: storages that fail, locks that lie."""
