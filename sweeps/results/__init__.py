"""A finished sweep read: dataset, cells, frontier, shares, tables of text."""
