"""How a session is used: its types, catalog and executors, its progress, and what users are told by it."""
