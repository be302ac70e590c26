"""Tests for pipelines of other people: strategies, a state machine for buffers, made-up data."""
