"""Leases that keep writers out of each other's way, and registers that only grow."""
