"""The plans of table services, as Hudi writes them, and whether a plan can be cancelled."""
