"""Services that are due, in one call or after a commit."""
