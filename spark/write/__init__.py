"""Frames into a table: by tasks of executors, or in the driver where they are small; merges."""
