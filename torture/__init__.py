"""`lakelatch torture`: real processes on real servers, a storm over them, and a judge."""
