"""Pages that open offline in a browser."""
