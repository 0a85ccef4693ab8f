"""The demo with `--tables`: flights and what is known of them in sum are moved together, in one transaction."""
