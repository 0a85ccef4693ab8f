"""Running the services that are due: in one call, after a commit, or during a streaming query."""
