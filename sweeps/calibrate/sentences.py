"""What a sweep around a run says, in a sentence or two and a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..results.drift_words import drift_words
from ..results.text import grid, terminal_width, wrapped
from .text import figure

if TYPE_CHECKING:
    from .what_if import Change, WhatIf

NOTHING = 0.01  # a change of a step by less than a hundredth
# What a trainer waits for, by the metric that says so.
CAUSES = {
    "trainer_running_groups_seconds": "for rollouts",
    "trainer_batch_seconds": "for rollouts",
    "trainer_publication_seconds": "for publications",
    "trainer_fetch_seconds": "for batches to be fetched",
}
WAITS = ("trainer_running_groups_seconds", "trainer_batch_seconds", "trainer_fetch_seconds")
_BUSY = 0.8  # a share of busy slots below which generation is not what is short
_ALIKE = 0.005  # ends of a range this close are one figure
# A change of an axis in words: with {new} and {own}.
WORDS = {
    "max_lag": "a lag of {new} instead of {own}",
    "queue_cap": "a queue of {new} tokens instead of {own}",
    "max_queue_tokens": "a queue of {new} tokens instead of {own}",
    "max_queue_groups": "a queue of {new} groups instead of {own}",
    "sync_cadence": "a publication every {new} updates instead of {own}",
    "rollout_workers": "{new} rollouts at once instead of {own}",
    "batch_groups": "batches of {new} groups instead of {own}",
    "group_size": "groups of {new} instead of {own}",
    "rollout_gpus": "{new} GPUs for rollouts instead of {own}",
    "trainer_gpus": "{new} GPUs for the trainer instead of {own}",
}
AXES = {
    "max_lag": "lag",
    "queue_cap": "queue",
    "max_queue_tokens": "queue",
    "max_queue_groups": "queue",
    "sync_cadence": "publication interval",
    "rollout_workers": "number of rollouts at once",
    "batch_groups": "batch",
    "group_size": "group",
}


def sentence(found: WhatIf) -> str:
    """Say what would change: the wait as it is, then each axis alone."""
    parts = [_as_it_is(found), *(_of_axis(found, place) for place in range(len(found.axes)))]
    return "; ".join(parts) + "."


def _as_it_is(found: WhatIf) -> str:
    estimates = found.calibration.estimates
    share = estimates.idle.value / max(estimates.step.value, 1e-9)
    what = "generates" if found.calibration.setup.in_turn else "waits"
    if found.calibration.setup.in_turn:
        return f"your run {what} for {share:.0%} of each step and trains in the rest"
    return (
        f"your trainer {what} {share:.0%} of each step{_cause(found)}"
        if share >= NOTHING
        else ("your trainer hardly waits")
    )


def _cause(found: WhatIf) -> str:
    """Name what it waits for, by the simulated run as it is."""
    ds = found.dataset
    amounts: dict[str, float] = {}
    for name, words in CAUSES.items():
        if name in ds:
            own = float(ds[name].mean("seed").values.reshape(-1)[found.base])
            amounts[words] = amounts.get(words, 0.0) + own
    best = max(amounts, key=lambda words: amounts[words], default="")
    if not best or not amounts[best] > 0:
        return ""
    if best == "for rollouts":
        # Slots that stand idle while the trainer waits: what it waits for are the last ones.
        busy = float(ds["rollout_utilization"].mean("seed").values.reshape(-1)[found.base])
        best = "for the slowest groups" if busy < _BUSY else "for generation"
    return f" {best}"


def _of_axis(found: WhatIf, place: int) -> str:
    """Say what one axis changes, the others as they are."""
    axis = found.axes[place]
    own = found.as_it_is.settings
    alone = [
        one
        for number, one in enumerate(found.changes)
        if number != found.base
        and all(value == own[name] for name, value in one.settings.items() if name != axis.name)
    ]
    running = [one for one in alone if not one.stalled and math.isfinite(one.saved.value)]
    if not running:
        return f"{axis.name}: no other value trains anything"
    if all(_is_nothing(one) for one in running):
        others = [value for number, value in enumerate(axis.values) if number != axis.own]
        return f"{_other(axis.name, others, axis.values[axis.own])} changes nothing"
    # What counts is the trained tokens that still say something about the policy.
    best = max(running, key=lambda one: (one.ess if math.isfinite(one.ess) else 1.0) / one.step.value)
    if _is_nothing(best):
        return f"{_words(axis.name, best, own[axis.name])} changes nothing"
    if best.saved.high < NOTHING:
        what = f"no other {AXES.get(axis.name, axis.name)} is faster"
        return f"{what}: {_words(axis.name, best, own[axis.name])} {_saves(best)}"
    return f"{_words(axis.name, best, own[axis.name])} {_saves(best)} at {_ess(best)}"


def _other(name: str, values: Sequence[Any], own: Any) -> str:
    """Name other values of an axis: larger ones, smaller ones, or others.

    Examples
    --------
    >>> _other("queue_cap", [2000, 4000], 1000), _other("max_lag", [0, 4], 1), _other("queue_cap", [9], None)
    ('a larger queue', 'another lag', 'a smaller queue')
    """
    noun = AXES.get(name, name)
    known = [float("inf") if one is None else one for one in (*values, own)]
    if all(isinstance(one, int | float) for one in known):
        if all(one > known[-1] for one in known[:-1]):
            return f"a larger {noun}"
        if all(one < known[-1] for one in known[:-1]):
            return f"a smaller {noun}"
    return f"another {noun}"


def _is_nothing(change: Change) -> bool:
    return abs(change.saved.value) < NOTHING and max(-change.saved.low, change.saved.high) < 2 * NOTHING


def _words(name: str, change: Change, own: Any) -> str:
    form = WORDS.get(name, "{name} = {new} instead of {own}")
    return form.format(name=name, new=_value(change.settings[name]), own=_value(own))


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _saves(change: Change) -> str:
    """Say how much of a step is saved, as a range."""
    low, high = change.saved.low, change.saved.high
    if low >= 0 or abs(low) < _ALIKE:
        return f"saves {percents(max(low, 0.0), high)}"
    if high <= 0 or abs(high) < _ALIKE:
        return f"costs {percents(max(-high, 0.0), -low)}"
    return f"may cost {-100 * low:.0f} % or save {100 * high:.0f} %"


def percents(low: float, high: float) -> str:
    """Write a range of shares in percent.

    Examples
    --------
    >>> percents(0.212, 0.258), percents(0.211, 0.2115)
    ('21 to 26 %', '21 %')
    """
    first, last = f"{100 * low:.0f}", f"{100 * high:.0f}"
    return f"{last} %" if first == last else f"{first} to {last} %"


def _ess(change: Change) -> str:
    return f"an ESS of {change.ess:.2f}" if math.isfinite(change.ess) else "an unknown ESS"


def what_if_table(found: WhatIf) -> tuple[list[str], list[list[str]]]:
    """Return the table of cells: header and rows."""
    header = [*(axis.name for axis in found.axes), "step, s", "saves, %", "waits, %", "lag", "ESS"]
    rows = []
    for place, one in enumerate(found.changes):
        cells = [_value(value) for value in one.settings.values()]
        if one.stalled:
            rows.append([*cells, "stalls", "", "", "", ""])
            continue
        saved = "as it is" if place == found.base else _range(one)
        rows.append(
            [
                *cells,
                figure(one.step.value),
                saved,
                f"{100 * one.wait_share:.0f}",
                f"{one.lag:.2f}",
                f"{one.ess:.3f}",
            ]
        )
    return header, rows


def _range(change: Change) -> str:
    low, high = f"{100 * change.saved.low:.0f}", f"{100 * change.saved.high:.0f}"
    return low if low == high else f"{low} to {high}"


def what_if_text(found: WhatIf) -> str:
    """Return what would change as text: the sentence, then every cell."""
    width = terminal_width()
    said = found.sentence
    parts = [wrapped(said[0].upper() + said[1:], width=width), "", grid(*what_if_table(found), width=width)]
    config = found.calibration.config
    drift = (
        f"ESS at a drift of {config.drift_per_version:g} a version, which is assumed (--drift-per-version)."
        if config.drift is None
        else f"ESS at {drift_words(config)}."
    )
    parts += [
        "",
        wrapped(drift, width=width),
    ]
    for one in found.calibration.setup.assumed:
        parts.append(wrapped(f"assumed: {one}", indent="  ", first="- ", width=width))
    return "\n".join(parts)
