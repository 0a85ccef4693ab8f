"""The `lakelatch` command."""
