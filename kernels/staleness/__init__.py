"""Policy lag, importance weights and effective sample size."""
