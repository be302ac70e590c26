"""Bytes of model states, activations and KV caches, and parameters counted from a shape."""
