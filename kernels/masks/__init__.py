"""Which tokens of a completion count: masks, their algebra, and means under them."""
