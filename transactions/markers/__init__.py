"""Markers: each data file is announced before it is made."""
