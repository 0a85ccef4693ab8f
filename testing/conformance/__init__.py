"""What every lock provider, storage and time generator must pass."""
