"""Rollout records in bulk."""
