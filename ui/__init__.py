"""A table's writers, services, locks and conflicts on a page that moves, and as a trace; starts with `ui.server`."""
