"""A sweep as data: base, axes, seeds, constraints, and the cells they make."""
