"""Rollout masks of a sweep: which rollouts completed, were trained, were cut at the maximum length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.pipeline import records
from ..execute.unit_arrays import UnitArrays

MASKS = ("completed", "trained", "truncated")
UNFINISHED = (records.RUNNING, records.CANCELLED)  # outcomes of rollouts that never came to their end


def mask_columns(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Turn recorded rollouts into mask rows: whose run, which rollout, and the three flags."""
    outcome = columns["outcome"]
    completed = ~np.isin(outcome, UNFINISHED)
    return {
        "config": columns["config"],
        "seed_index": columns["seed_index"],
        "rollout": columns["number"],
        "completed": completed,
        "trained": outcome == records.TRAINED,
        "truncated": np.asarray(columns["truncated"], bool),
    }


def masks_of(arrays: UnitArrays, shape: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the masks of a sweep in memory, padded with False to the longest run: (axes…, seed, rollout)."""
    parts = [mask_columns(columns) for columns in arrays.tables.get("rollouts", [])]
    longest = max((int(part["rollout"].max()) + 1 for part in parts if len(part["rollout"])), default=0)
    masks = {}
    for name in MASKS:
        mask = np.zeros((*arrays.status.shape, longest), bool)
        for part in parts:
            mask[part["config"], part["seed_index"], part["rollout"]] = part[name]
        masks[name] = mask.reshape(*shape, longest)
    return masks
