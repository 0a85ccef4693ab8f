"""What a round's processes wrote down, and how it is read."""
