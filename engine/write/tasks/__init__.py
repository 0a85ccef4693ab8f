"""What executors do: batches of rows become log files and base files."""
