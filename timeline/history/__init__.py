"""The archived timeline: Hudi's LSM history of timeline layout 2."""
