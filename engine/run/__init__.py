"""What work on a table comes to: reports of files, results of commits, runs of services."""
