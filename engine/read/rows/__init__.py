"""The rows of slices at a moment, as tasks give them: batches, images of changes."""
