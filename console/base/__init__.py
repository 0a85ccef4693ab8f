"""What each command is given, and how it ends."""
