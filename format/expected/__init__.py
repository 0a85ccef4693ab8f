"""The files that a table has to have, and those of them that are missing."""
