"""Failures: how often to write a checkpoint and what it costs."""
