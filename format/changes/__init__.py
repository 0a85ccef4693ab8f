"""What commits did to rows: the versions before and after, told from file slices."""
