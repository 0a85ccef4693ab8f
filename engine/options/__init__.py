"""Options of calls, under Hudi's keys: parsed, checked and registered."""
