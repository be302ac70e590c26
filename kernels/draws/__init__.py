"""Random numbers by address (Philox blocks) and lengths drawn from a table."""
