"""The best cell under constraints, what ties with it, and what to doubt."""
