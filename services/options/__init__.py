"""What users say of table services, under Hudi's keys."""
