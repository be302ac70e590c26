"""Small runs with round numbers, of levels 2 and 3: two slots, one-second rollouts, batches by count."""

from __future__ import annotations

from lagsweep.sweeps.config.config import Limit, PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.runs.general import simulate_general

SHORT_LONG = LengthLaw.empirical([100, 200])

# One-second rollouts of 100 tokens, no overhead, no queue cap, batches by count, half a second to publish.
ROUND = {
    "rollout_workers": 2,
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "response_length": LengthLaw.fixed(100),
    "max_queue_tokens": None,
    "batch_tokens": None,
    "batch_groups": 2,
    "train_overhead_seconds": 0.5,
    "train_tokens_per_second": 1e12,
    "sync_seconds": 0.5,
    "max_policy_lag": 9,
    "duration_seconds": 20.0,
}
ONE_BATCH = {"limits": [Limit("started", "trained", 2)]}


def config_of(**changes):
    return PipelineConfig(**{**ROUND, **changes})


def run(**changes):
    return simulate_general(config_of(**changes), rollouts=True)


def seed_with(lengths, law=SHORT_LONG):
    """Find a seed whose first rollouts have these lengths."""
    return next(seed for seed in range(10_000) if law.sample(len(lengths), seed=seed).tolist() == lengths)
