"""The streaming sink: numbered batches of an application, each written once."""
