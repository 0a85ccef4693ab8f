"""From rows to a commit: tasks, base files, relocation, rebase, replace."""
