"""Plans that are called off: requests, which are irrevocable, and carrying them out."""
