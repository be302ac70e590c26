"""What a run of the general loop keeps for failures and checkpoints, and which of its batches were lost."""

from __future__ import annotations

import numpy as np

from ...kernels.pipeline import records
from ...kernels.pipeline.metrics import LAG_BINS
from ..config.config import PipelineConfig
from .parameters import saves_queue
from .result import lost_batches
from .run import enlarged

NO_FAILURES = np.zeros(1, records.FAILURES)
for _name in ("strike_time", "wait_time", "failure_time", "restart_time", "checkpoint_time"):
    NO_FAILURES[_name] = records.NEVER


def failure_arrays(config: PipelineConfig, leaves: int, groups: int) -> dict[str, np.ndarray]:
    """Make what failures and checkpoints keep; empty where nothing fails."""
    slots = config.rollout_workers if config.worker_mtbf_seconds is not None else 0
    places = 2 if config.trainer_mtbf_seconds is not None else 0
    groups = places * groups if saves_queue(config) else 0
    return {
        "failures": NO_FAILURES.copy() if config.has_failures else NO_FAILURES,
        "worker_tree": np.full(2 * leaves if slots else 0, records.NEVER, np.int64),
        "worker_counts": np.zeros(slots, np.int64),
        "saved_state": np.zeros(places, records.GENERAL_STATE),
        "saved_tokens": np.zeros(places, np.int64),
        "saved_trained": np.zeros(places, np.int64),
        "saved_histograms": np.zeros((places, records.H_OF_TRAINED, LAG_BINS), np.int64),
        "saved_groups": np.zeros(groups, records.GROUP),
        "saved_members": np.zeros(groups * config.group_size, records.MEMBER),
    }


def kept_batches(rows: np.ndarray, final_version: int) -> np.ndarray:
    """Leave out the batches that were lost; what was discarded with them counts with the next one kept."""
    kept = np.flatnonzero(~lost_batches(rows["update"], final_version))
    found = rows[kept].copy()
    discarded = np.concatenate([[0], np.cumsum(rows["discarded"])])[np.concatenate([[0], kept + 1])]
    found["discarded"] = np.diff(discarded)
    return found


def failing_parts(config: PipelineConfig) -> tuple[bool, ...]:
    """Name which arrays of failures a run has."""
    fails = config.trainer_mtbf_seconds is not None, config.worker_mtbf_seconds is not None
    return config.has_failures, *fails, saves_queue(config)


def runs_together(config: PipelineConfig) -> bool:
    """Tell whether nothing brings a run back to Python before its end: neither failures nor engines."""
    return not config.has_failures and config.engine is None


def enlarged_halves(rows: np.ndarray, count: int) -> np.ndarray:
    """Copy the two halves of an array into those of a longer one, of `count` rows each."""
    half = len(rows) // 2
    return np.concatenate([enlarged(rows[:half], count), enlarged(rows[half:], count)])
