"""`lakelatch torture`: real processes on real servers, a nemesis that injects faults, and a checker."""
