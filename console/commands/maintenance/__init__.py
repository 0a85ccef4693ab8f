"""Commands of table services: one round, a loop over tables, cancellation."""
