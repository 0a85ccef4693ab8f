"""Writing rows: tasks, base files, relocation, rebase, replace, up to the commit."""
