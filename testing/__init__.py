"""Shipped for those who write a provider of their own: conformance suites, a clock to set, a lock that lies."""
