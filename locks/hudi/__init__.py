"""Names and records of Java Hudi's locks, so that its writers and ours exclude each other."""
