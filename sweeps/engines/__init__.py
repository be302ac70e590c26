"""Inference engines beside measurements: request logs read, engines fitted and shown."""
