"""From a configuration to a result: one run in detail, or many at once."""
