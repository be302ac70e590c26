"""Several systems on the same rollouts."""
