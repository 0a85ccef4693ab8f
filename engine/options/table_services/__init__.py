"""The options of table services."""
