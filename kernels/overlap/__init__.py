"""Phases that overlap, their makespan, and the cost of the slowest."""
