"""The histories that a round's processes write: writing them and reading them."""
