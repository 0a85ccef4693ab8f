"""What callers ask for, under Hudi's keys: parsed, checked, and known by name."""
