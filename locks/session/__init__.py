"""Leases by sessions with a lock service: the provider, the session, and the contract of their backends."""
