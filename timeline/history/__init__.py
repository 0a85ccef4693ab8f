"""What has left the active timeline: Hudi's LSM history of timeline layout 2."""
