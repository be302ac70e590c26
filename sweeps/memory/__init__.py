"""A model's memory ledger."""
