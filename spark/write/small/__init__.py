"""Frames of few rows, whose rows are written where the write began."""
