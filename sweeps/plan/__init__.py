"""From a model and GPUs to settings: engines, a trainer and a feasible sweep, each with its range."""
