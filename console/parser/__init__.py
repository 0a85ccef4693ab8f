"""What the command line takes: commands, options and arguments, and nothing of what they do."""
