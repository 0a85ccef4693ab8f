"""Services that remove: cleaning and archiving."""
