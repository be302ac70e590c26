"""Checkpoints of a run, and the drill that breaks and resumes one."""
