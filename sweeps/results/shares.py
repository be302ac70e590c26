"""Where time and tokens go, as shares per cell: the trainer's time, the slots' time, the tokens generated.

Level 1 reports utilizations; an idle slot then always means that the cap holds it back (in `sequential`, that
the other phase is under way). The general loop reports seconds by cause, which sum to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.intervals import mean_interval
from ..runs.status import DONE
from .cells import alone, not_recorded, recorded_values
from .words import CAUSES

if TYPE_CHECKING:
    import xarray

# What a group is worked out from, beside its causes.
_WHOLE = {
    "trainer": ("trainer_utilization",),
    "slots": ("rollout_utilization",),
    "tokens": ("generated_tokens",),
}


def time_shares(ds: xarray.Dataset, rows: Sequence[int]) -> list[dict[str, dict[str, float]]]:
    """Return the shares of some cells, averaged over their seeds.

    Parameters
    ----------
    ds : xarray.Dataset
    rows : sequence of int
        Places in the order of the cells.

    Returns
    -------
    list of dict
        Per cell ``{"trainer": …, "slots": …, "tokens": …}``, each a mapping from a name to a share; the
        shares of one mapping sum to 1, or are NaN where nothing ran. A group is left out where the store
        was made without a part of it.
    """
    cells = [alone(ds, int(row)) for row in rows]

    def read(name: str) -> np.ndarray:
        return np.concatenate([recorded_values(cell, name) for cell in cells])

    if not cells:
        return []
    return _without_lost(shares_of(read, set(ds.data_vars), len(rows)), not_recorded(ds))


def _without_lost(
    shares: list[dict[str, dict[str, float]]], lost: Sequence[str]
) -> list[dict[str, dict[str, float]]]:
    """Leave out the groups of which a part is not recorded: what is left of them would not be the whole."""
    gone = {group for group, parts in CAUSES.items() if not {*parts, *_WHOLE[group]}.isdisjoint(lost)}
    return [{group: parts for group, parts in one.items() if group not in gone} for one in shares]


def baseline_shares(ds: xarray.Dataset) -> dict[str, dict[str, float]]:
    """Return the shares of the sequential baseline that was run beside the cells."""
    done = ds["baseline_status"].values == DONE
    lost = [name.removeprefix("baseline_") for name in not_recorded(ds) if name.startswith("baseline_")]
    nothing = np.full(done.shape, np.nan)

    def read(name: str) -> np.ndarray:
        values = nothing if name in lost else ds[f"baseline_{name}"].values.astype(np.float64)
        return np.where(done, values, np.nan).reshape(1, -1)

    shares = _without_lost(shares_of(read, {"level 1"}, 1), lost)[0]
    if "slots" in shares:
        slots = CAUSES["slots"]
        idle = shares["slots"].pop(slots["slots_token_cap_seconds"].words)
        shares["slots"][slots["slots_sequential_seconds"].words] = idle
    return shares


def shares_of(read: object, known: set[object], count: int) -> list[dict[str, dict[str, float]]]:
    """Turn metrics, read by name as (cells, seeds), into shares."""
    mean = lambda name: mean_interval(read(name))[0]  # type: ignore[operator]  # noqa: E731
    trained, discarded = mean("trained_tokens"), mean("discarded_tokens")
    found = {"trained_tokens": trained, "discarded_tokens": discarded}
    if "lost_tokens" in known:
        found["lost_tokens"] = np.nan_to_num(mean("lost_tokens"))  # some cells have no failures
    found["left"] = np.maximum(0.0, mean("generated_tokens") - sum(found.values()))
    training, busy = mean("trainer_utilization"), mean("rollout_utilization")
    level_1 = {"trainer_busy_seconds": training, "trainer_batch_seconds": 1 - training}
    level_1 |= {"slots_busy_seconds": busy, "slots_token_cap_seconds": 1 - busy}
    if "slots_busy_seconds" in known:
        # Cells of level 1 among others have no seconds by cause.
        without = np.isnan(mean("slots_busy_seconds"))
        for name in (name for group in ("trainer", "slots") for name in CAUSES[group] if name in known):
            found[name] = np.where(without, level_1.get(name, 0.0 * busy), mean(name))
    else:
        found |= level_1
    return [
        {
            group: _normalized(
                {one.words: float(found[name][k]) for name, one in parts.items() if name in found}
            )
            for group, parts in CAUSES.items()
        }
        for k in range(count)
    ]


def _normalized(parts: dict[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {name: value / total if total else float("nan") for name, value in parts.items()}
