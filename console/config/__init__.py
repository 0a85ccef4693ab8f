"""`lakelatch.toml`: tables by name, their options, and secrets by reference."""
