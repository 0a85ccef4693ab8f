"""All options of one call: gathered, parsed, given as keywords, or refused by name."""
