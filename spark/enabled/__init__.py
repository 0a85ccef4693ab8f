"""Spark's own words for tables of ours, in the sessions that asked for it: `lakelatch.enable`."""
