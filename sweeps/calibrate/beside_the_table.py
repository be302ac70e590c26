"""What a table of what-ifs leaves unsaid: limits that do not bind, and the rollouts at once beside an axis.

Rows of a table that are alike may be so by chance, or because what differs never takes effect. Which it is
shows in the simulated runs: no figure of any seed differs, and nothing was held back or thrown away by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .axes_around import SLOTS_FIELD
from .lag_knob import LAG

if TYPE_CHECKING:
    from .what_if import WhatIf

_FIGURES = (
    "updates",
    "trained_tokens",
    "seconds_per_update",
    "mean_rollout_lag",
    "mean_expected_normalized_ess",
    "discarded_tokens",
)
_LAG, _QUEUE = "the lag limit", "the queue cap"
_LIMITS = {
    LAG: _LAG,
    "max_policy_lag": _LAG,
    "queue_cap": _QUEUE,
    "max_queue_tokens": _QUEUE,
    "max_queue_groups": _QUEUE,
}
# What shows that a limit did something; where runs are alike and all are 0, it did not. An admission by lag
# needs none: another limit lets others start.
_SIGNS = {
    _LAG: ("discarded_tokens", "discarded_groups", "cancelled_tokens"),
    _QUEUE: ("backpressure_seconds", "slots_token_cap_seconds", "slots_held_seconds", "evicted_tokens"),
}


def same_runs(found: WhatIf) -> list[str]:
    """Say of each axis which of its values give the same runs, figure for figure and at every seed.

    Parameters
    ----------
    found : WhatIf

    Returns
    -------
    list of str
        A sentence for each group of such values; none where all values differ.
    """
    shape = tuple(len(axis.values) for axis in found.axes)
    runs = _figures(found, shape, _FIGURES)
    stalled = np.array([one.stalled for one in found.changes]).reshape(shape)
    said = []
    for place, axis in enumerate(found.axes):
        halts = [bool(row.all()) for row in np.moveaxis(stalled, place, 0)]
        moved = np.moveaxis(runs, place, 0)
        # The axis first, then all combinations of the others with their runs.
        along = moved.reshape(shape[place], -1)
        own = np.array([row[_own(found, place)].reshape(-1) for row in moved])
        everywhere = _groups(along)
        groups = [(group, "") for group in everywhere]
        beside = ", with the rest as it is"
        groups += [(group, beside) for group in _groups(own) if group not in everywhere and len(shape) > 1]
        for group, where in groups:
            if any(halts[number] for number in group):  # the same nothing
                continue
            values = _listed([axis.values[number] for number in group])
            limit = _LIMITS.get(axis.name, "")
            signs = _figures(found, shape, _SIGNS.get(limit, ()))
            idle = bool(limit) and not np.moveaxis(signs, place, 0)[list(group)].any()
            why = f": {limit} does not bind there" if idle else ""
            said.append(f"{axis.name} = {values} give the very same runs{where}{why}.")
    return said


def slots_note(found: WhatIf) -> str:
    """Say how many rollouts run at once at each value of an axis that they follow; empty where none does.

    Parameters
    ----------
    found : WhatIf
    """
    for axis in found.axes:
        if slots := axis.along.get(SLOTS_FIELD):
            own = f"; {slots[axis.own]:,} for all of them, and one batch, are tried too"
            return (
                f"Rollouts at once were not given: they are what the rules allow at each {axis.name}, "
                f"{_listed(slots)} for {_listed(axis.values)}{own if axis.one_batch else ''}. "
                "--rollout-workers N keeps them."
            )
    return ""


def _own(found: WhatIf, place: int) -> tuple[int, ...]:
    return tuple(axis.own for number, axis in enumerate(found.axes) if number != place)


def _figures(found: WhatIf, shape: tuple[int, ...], names: Sequence[str]) -> np.ndarray:
    """Return figures of every cell's runs: (one dimension an axis, then seeds × figures)."""
    ds = found.dataset
    columns = [
        ds[name].transpose(..., "seed").values.astype(np.float64).reshape(*shape, -1)
        for name in names
        if name in ds
    ]
    return np.concatenate([np.zeros((*shape, 0)), *columns], axis=-1)


def _groups(runs: np.ndarray) -> list[tuple[int, ...]]:
    """Return the rows that are equal to others, in groups of two or more."""
    groups: dict[bytes, list[int]] = {}
    for number, row in enumerate(runs):
        groups.setdefault(np.ascontiguousarray(row).tobytes(), []).append(number)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _listed(values: Sequence[Any]) -> str:
    """Write values with their thousands apart.

    Examples
    --------
    >>> _listed([4, 1000, None])
    '4, 1,000 and none'
    """
    texts = [
        "none"
        if one is None
        else f"{one:,}"
        if isinstance(one, int) and not isinstance(one, bool)
        else str(one)
        for one in values
    ]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
