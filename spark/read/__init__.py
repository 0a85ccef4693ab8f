"""Reading: native plans where no logs are, merging on the executors where they are."""
