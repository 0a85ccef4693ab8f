"""Which files of a table have to be there, and which of them are missing."""
