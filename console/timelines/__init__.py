"""Timelines as the console shows them: their entries, as text and as a picture."""
