"""Transactions over several tables: their parts, and how they are decided."""
