"""What table services plan, as Hudi writes it, and whether a plan can be cancelled."""
