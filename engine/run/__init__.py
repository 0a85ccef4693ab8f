"""Results of work on a table: reports of files, results of commits, runs of services."""
