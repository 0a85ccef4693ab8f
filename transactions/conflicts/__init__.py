"""Conflicts: which writes may not be committed beside each other, who decides, and what it cost."""
