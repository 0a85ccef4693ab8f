"""A run as a page to look at."""
