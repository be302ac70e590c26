"""Where time and tokens go, as shares per cell: the trainer's time, the slots' time, the tokens generated.

Level 1 reports utilizations; an idle slot then always means that the cap holds it back (in `sequential`, that
the other phase is under way). The general engine reports seconds by cause, which sum to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .cells import cell_values, mean_interval

if TYPE_CHECKING:
    import xarray

_TRAINER_CAUSES = {
    "trainer_busy_seconds": "training",
    "trainer_publication_seconds": "waits for a publication",
    "trainer_running_groups_seconds": "waits for running groups",
    "trainer_batch_seconds": "waits: batch not full",
}
_SLOT_CAUSES = {
    "slots_busy_seconds": "busy",
    "slots_publication_seconds": "idle: publication",
    "slots_max_running_seconds": "idle: most running groups",
    "slots_one_batch_seconds": "idle: one batch at a time",
    "slots_token_cap_seconds": "idle: queue cap",
    "slots_sequential_seconds": "idle: other phase",
    "slots_limits_seconds": "idle: admission limits",
}
TRAINED, DISCARDED, OTHER = "trained", "discarded as too old", "left at the end"


def time_shares(ds: xarray.Dataset, rows: Sequence[int]) -> list[dict[str, dict[str, float]]]:
    """Give the shares of some cells, averaged over their seeds.

    Parameters
    ----------
    ds : xarray.Dataset
    rows : sequence of int
        Places in the order of the cells.

    Returns
    -------
    list of dict
        Per cell ``{"trainer": …, "slots": …, "tokens": …}``, each a mapping from a name to a share; the
        shares of one mapping sum to 1, or are NaN where nothing ran.
    """
    return shares_of(lambda name: cell_values(ds, name)[list(rows)], set(ds.data_vars), len(rows))


def baseline_shares(ds: xarray.Dataset) -> dict[str, dict[str, float]]:
    """Give the shares of the sequential baseline that was run beside the cells."""
    done = ds["baseline_status"].values == 1

    def read(name: str) -> np.ndarray:
        return np.where(done, ds[f"baseline_{name}"].values.astype(np.float64), np.nan).reshape(1, -1)

    shares = shares_of(read, {"level 1"}, 1)[0]
    shares["slots"]["idle: other phase"] = shares["slots"].pop("idle: queue cap")
    return shares


def shares_of(read: object, known: set[object], count: int) -> list[dict[str, dict[str, float]]]:
    """Turn metrics, read by name as (cells, seeds), into shares."""
    mean = lambda name: mean_interval(read(name))[0]  # type: ignore[operator]  # noqa: E731
    if "slots_busy_seconds" in known:
        trainer = {text: mean(name) for name, text in _TRAINER_CAUSES.items()}
        slots = {text: mean(name) for name, text in _SLOT_CAUSES.items()}
    else:
        training, busy = mean("trainer_utilization"), mean("rollout_utilization")
        trainer = {"training": training, "waits: batch not full": 1 - training}
        slots = {"busy": busy, "idle: queue cap": 1 - busy}
    trained, discarded = mean("trained_tokens"), mean("discarded_tokens")
    tokens = {
        TRAINED: trained,
        DISCARDED: discarded,
        OTHER: np.maximum(0.0, mean("generated_tokens") - trained - discarded),
    }
    groups = {"trainer": trainer, "slots": slots, "tokens": tokens}
    return [
        {group: _normalized({name: float(column[k]) for name, column in columns.items()})
         for group, columns in groups.items()}
        for k in range(count)
    ]  # fmt: skip


def _normalized(parts: dict[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {name: value / total if total else float("nan") for name, value in parts.items()}
