"""Structured Streaming: sources, sinks, and the services that run during queries."""
