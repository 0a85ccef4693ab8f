"""The commit log: its events and slots, what it says of the timeline, and both with the archived history."""
