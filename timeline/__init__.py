"""Table config, instants and their states, and the commit log."""
