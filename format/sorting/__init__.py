"""Sorting rows: by columns or along a curve, also if they do not fit into memory."""
