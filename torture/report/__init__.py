"""A run as an HTML page."""
