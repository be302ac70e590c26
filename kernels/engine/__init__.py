"""Inference engines in steps: what a step takes, when something changes, memory, admission, preemption."""
