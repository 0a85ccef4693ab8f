"""`lakelatch doctor`: what an experienced colleague would check on a table and on the options of its writers."""
