"""Engines by themselves: requests simulated, logs of requests read, engines estimated."""
