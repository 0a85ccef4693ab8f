"""Proof that a writer is alive, and the observer that decides that it is not."""
