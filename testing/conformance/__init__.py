"""The suites that every lock provider, storage and time generator must pass."""
