"""Opening and making tables: properties, schema, columns."""
