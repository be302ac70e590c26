"""Simulated runs as logs under a framework's own names: what a test of calibration knows all about."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

import lagsweep as ls

DATA = Path(__file__).parents[1] / "data" / "calibrate"
# The run of the page for newcomers, and what its reader is told of it.
EXAMPLE = DATA / "verl_fully_async.csv"
KNOWN = {
    "staleness_threshold": 0.5,
    "trigger_parameter_sync_step": 2,
    "group_size": 8,
    "rollout_workers": 512,
}
SETTINGS: dict[str, Any] = {
    **KNOWN,
    "batch_groups": 32,
    "prompt_tokens": 180,
    "decode_tokens_per_second": 55.0,
    "decode_slowdown_per_rollout": 0.002,
    "response_length": ls.LengthLaw.lognormal(median=700, sigma=0.7, minimum=1, maximum=4096),
    "train_overhead_seconds": 9.0,
    "train_tokens_per_second": 14_000.0,
    "train_spread": 0.06,
    "sync_seconds": 4.0,
    "seed": 7,
    "duration_seconds": 5e5,
    "stop_after_updates": 160,
}


def example_config() -> ls.PipelineConfig:
    """Return the configuration of the example's run."""
    return ls.preset_config("verl_fully_async", **SETTINGS)


@cache
def example_frame() -> pl.DataFrame:
    """Simulate the example's run and return its log under verl's names."""
    steps = ls.step_log_of(ls.simulate_pipeline(example_config(), rollouts=True))
    tokens = steps["trained_tokens"]
    return pl.DataFrame(
        {
            "training/global_step": steps["step"],
            "timing_s/step": steps["step_seconds"].round(3),
            "timing_s/gen": steps["wait_seconds"].round(3),
            "timing_s/update_actor": (0.8 * steps["training_seconds"]).round(3),
            "timing_s/old_log_prob": (0.2 * steps["training_seconds"]).round(3),
            "timing_s/timing_s/param_sync": steps["publication_seconds"].round(3),
            "response_length/mean": steps["response_tokens_mean"].round(3),
            "response_length/max": steps["response_tokens_max"],
            "response_length/clip_ratio": steps["clipped_fraction"].round(6),
            "prompt_length/mean": steps["prompt_tokens_mean"],
            "perf/total_num_tokens": tokens,
            "fully_async/trainer/idle_ratio": (steps["wait_seconds"] / steps["step_seconds"]).round(4),
        }
    )


def known_run(preset: str, **settings: Any) -> tuple[ls.PipelineConfig, pl.DataFrame]:
    """Simulate a small run and return its configuration and its log, without the first steps."""
    usual: dict[str, Any] = {
        "batch_groups": 8, "group_size": 4, "rollout_workers": 64, "prompt_tokens": 100,
        "decode_tokens_per_second": 40.0, "train_overhead_seconds": 2.0, "train_tokens_per_second": 5000.0,
        "train_spread": 0.04, "sync_seconds": 1.5, "seed": 3, "duration_seconds": 5e5,
        "stop_after_updates": 130,
        "response_length": ls.LengthLaw.lognormal(median=400, sigma=0.6, minimum=1, maximum=4096),
    }  # fmt: skip
    config = ls.preset_config(preset, **{**usual, **settings})
    return config, ls.step_log_of(ls.simulate_pipeline(config, rollouts=True))[10:]


if __name__ == "__main__":
    example_frame().write_csv(EXAMPLE)
