"""What a sweep around a run says, in a sentence or two and a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..results.drift_words import drift_words
from ..results.text import grid, terminal_width, wrapped
from .beside_the_table import same_runs, slots_note
from .lag_knob import LAG
from .text import NOTHING, doubts, figure, interval, published_share

if TYPE_CHECKING:
    import xarray

    from .ranges import Span
    from .what_if import Change, WhatIf

_ROLLOUTS = "for rollouts"
_PUBLICATION = "trainer_publication_seconds"
# What a trainer waits for, by the metric that says so.
CAUSES = {
    "trainer_running_groups_seconds": _ROLLOUTS,
    "trainer_batch_seconds": _ROLLOUTS,
    _PUBLICATION: "for publications",
    "trainer_fetch_seconds": "for batches to be fetched",
}
WAITS = ("trainer_running_groups_seconds", "trainer_batch_seconds", "trainer_fetch_seconds")
_BUSY = 0.8  # a share of busy slots below which generation is not what is short
_PER_TOKEN = " per trained token"  # where an axis changes what a step trains
_ALIKE = 0.005  # ends of a range this close are one figure
_MOST_TIMES = 100.0  # a longer step than that many is only said to be longer
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
    published = published_share(found.calibration)
    beside = f"; publications take {published:.0%}" if published >= NOTHING else ""
    if found.calibration.setup.in_turn:
        return f"your run generates for {share:.0%} of each step{beside or ' and trains in the rest'}"
    if share < NOTHING:
        return f"your trainer hardly waits{beside}"
    return f"your trainer waits {share:.0%} of each step{_causes(found.causes)}{beside}"


def cause_of(ds: xarray.Dataset, cell: int, *, publications: bool) -> str:
    """Name what the trainer of a simulated run waits for most; nothing where it does not wait.

    Parameters
    ----------
    ds : xarray.Dataset
    cell : int
        Its place.
    publications : bool
        Whether the wait of the log may hold publications: not where it has seconds of its own for them.
    """
    amounts: dict[str, float] = {}
    for name, words in CAUSES.items():
        if name in ds and (publications or name != _PUBLICATION):
            own = float(ds[name].mean("seed").values.reshape(-1)[cell])
            amounts[words] = amounts.get(words, 0.0) + own
    best = max(amounts, key=lambda words: amounts[words], default="")
    if not best or not amounts[best] > 0:
        return ""
    if best == _ROLLOUTS:
        # Slots that stand idle while the trainer waits: what it waits for are the last ones.
        busy = float(ds["rollout_utilization"].mean("seed").values.reshape(-1)[cell])
        return "for the slowest groups" if busy < _BUSY else "for generation"
    return best


def _causes(causes: Sequence[str]) -> str:
    """Write what a trainer waits for; several readings of one log as such.

    Examples
    --------
    >>> _causes(["for generation"])
    ' for generation'
    >>> _causes(["for the slowest groups", "for generation"])
    ' for rollouts'
    >>> _causes(["for generation", "for batches to be fetched"])
    ', for generation or for batches to be fetched: the log cannot tell which'
    """
    of_rollouts = ("for the slowest groups", "for generation")
    if len(causes) > 1 and set(causes) <= set(of_rollouts):
        return f" {_ROLLOUTS}"
    if len(causes) > 1:
        some = dict.fromkeys(_ROLLOUTS if set(of_rollouts) <= set(causes) and one in of_rollouts else one
                             for one in causes)  # fmt: skip
        return f", {' or '.join(some)}: the log cannot tell which"
    return f" {causes[0]}" if causes else ""


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
    assumed = _is_assumed(found, axis.name)
    # What counts is the trained tokens that still say something about the policy.
    best = max(running, key=_effective)
    words = _words(axis.name, best, own[axis.name], assumed)
    if _is_nothing(best):
        return f"{words} changes nothing"
    noun = AXES.get(axis.name, axis.name)
    token = _PER_TOKEN if axis.changes_work else ""
    if all(one.saved.high < NOTHING for one in running):
        return f"no other {noun} is faster{token}: {words} {_saves(best, token)}"
    if best.saved.high < NOTHING:
        # The range of another reaches to where it is faster: that it is not would be more than is known.
        best = max(running, key=lambda one: one.saved.high)
        words = _words(axis.name, best, own[axis.name], assumed)
    if best.saved.low < -_ALIKE:
        words = f"whether another {noun} is faster{token} the log does not tell: {words}"
    return f"{words} {_saves(best, token)} at {_ess(best)}"


def _effective(change: Change) -> float:
    """Return what a cell trains in a second, as far as it still says something about the policy.

    In shares of what the run as it is trains: what is saved is of a trained token where work differs.
    """
    return (change.ess.value if math.isfinite(change.ess.value) else 1.0) / (1 - change.saved.value)


def _is_assumed(found: WhatIf, name: str) -> bool:
    """Whether the run's own value on an axis is an assumption: the rules decide the lag."""
    return found.calibration.setup.assumes("preset" if name == LAG or name.startswith("preset.") else name)


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


def _words(name: str, change: Change, own: Any, assumed: bool) -> str:
    form = WORDS.get(name, "{name} = {new} instead of {own}")
    shown = _value(own) + (" (assumed)" if assumed else "")
    return form.format(name=name, new=_value(change.settings[name]), own=shown)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _saves(change: Change, token: str = "") -> str:
    """Say how much of a step, or of a token's seconds, is saved, as a range."""
    low, high = change.saved.low, change.saved.high
    stalls = ", and may stall" if change.may_stall else ""
    if low < -1:
        return f"takes {times(1 - high, 1 - low)} times as long{token}{stalls}"
    if low >= 0 or abs(low) < _ALIKE:
        return f"saves {percents(max(low, 0.0), high)}{token}{stalls}"
    if high <= 0 or abs(high) < _ALIKE:
        return f"costs {percents(max(-high, 0.0), -low)}{token}{stalls}"
    return f"may cost {percents(-low, -low)} or save {percents(high, high)}{token}{stalls}"


def percents(low: float, high: float) -> str:
    """Write a range of shares in percent.

    Examples
    --------
    >>> percents(0.212, 0.258), percents(0.211, 0.2115), percents(-0.002, 0.03)
    ('21 to 26 %', '21 %', '0 to 3 %')
    """
    first, last = round(100 * low), round(100 * high)
    return f"{last} %" if first == last else f"{first} to {last} %"


def times(low: float, high: float) -> str:
    """Write a range of factors; beyond a hundred nothing is told but that.

    Examples
    --------
    >>> times(0.72, 25.03), times(1.0, 7.1), times(2.0, 400.0)
    ('0.7 to 25', '1.0 to 7.1', '2.0 to over 100')
    """

    def written(one: float) -> str:
        return "over 100" if one > _MOST_TIMES else f"{one:.0f}" if one >= 10 else f"{one:.1f}"

    first, last = written(low), written(high)
    return last if first == last else f"{first} to {last}"


def _ess(change: Change) -> str:
    return f"an ESS of {_ranged(change.ess, '.2f')}" if math.isfinite(change.ess.value) else "an unknown ESS"


def _ranged(span: Span, form: str) -> str:
    """Write a prediction: a figure where the data fix it, else its range."""
    low, high = f"{span.low:{form}}", f"{span.high:{form}}"
    return f"{span.value:{form}}" if span.identified or low == high else f"{low} to {high}"


def what_if_table(found: WhatIf) -> tuple[list[str], list[list[str]]]:
    """Return the table of cells: header and rows."""
    work = bool(found.other_work)
    header = [*(axis.name for axis in found.axes), "step, s", *(["eff. tokens/s"] if work else [])]
    header += ["saves a token" if work else "saves", "waits, %", "lag", "ESS"]
    rows = []
    for place, one in enumerate(found.changes):
        cells = [_value(value) for value in one.settings.values()]
        if one.stalled:
            rows.append([*cells, "stalls", *([""] * (len(header) - len(cells) - 1))])
            continue
        saved = "as it is" if place == found.base else _range(one)
        rows.append(
            [
                *cells,
                _amount(one.step),
                *([_amount(one.effective)] if work else []),
                saved,
                _percent(one.wait_share),
                _ranged(one.lag, ".2f"),
                _ranged(one.ess, ".3f"),
            ]
        )
    return header, rows


def _amount(span: Span) -> str:
    return figure(span.value) if span.identified else interval(span.low, span.high)


def _percent(span: Span) -> str:
    """Write a share in whole percent; as one figure where its ends are a percent or two apart."""
    low, high = round(100 * span.low), round(100 * span.high)
    return f"{round(100 * span.value)}" if high - low <= 2 else f"{low} to {high}"


def _range(change: Change) -> str:
    low, high = change.saved.low, change.saved.high
    stalls = ", may stall" if change.may_stall else ""
    return (f"{times(1 - high, 1 - low)} ×" if low < -1 else percents(low, high)) + stalls


def ess_note(found: WhatIf) -> str:
    """Say what the ESS rests on, and the rollouts at once where they follow an axis."""
    setup, config = found.calibration.setup, found.calibration.config
    drift, note = f"ESS at {drift_words(config)}", "."
    if config.drift is None:
        drift = f"ESS at a drift of {config.drift_per_version:g} a version"
        if "drift_per_version" not in setup.given:
            note = ", which is assumed (--drift-per-version)."
    longer = any(one.saved.low < -1 for one in found.changes if not one.stalled)
    if found.other_work:
        names = " and ".join(found.other_work)
        note += f" Saved are seconds of a trained token: steps of another {names} train other amounts."
    said = drift + note + (" ×: as many times as long." if longer else "")
    return " ".join(part for part in (said, slots_note(found)) if part)


def what_if_said(found: WhatIf) -> list[str]:
    """Return what is said first: that the model does not fit, where it does not, and what would change."""
    said = found.sentence
    return [*doubts(found.calibration), said[0].upper() + said[1:], *same_runs(found)]


def what_if_text(found: WhatIf) -> str:
    """Return what would change as text: the sentences, then every cell."""
    width = terminal_width()
    parts = [wrapped(one, width=width) for one in what_if_said(found)]
    parts += ["", grid(*what_if_table(found), width=width), "", wrapped(ess_note(found), width=width)]
    for one in found.calibration.assumed:
        parts.append(wrapped(f"assumed: {one}", indent="  ", first="- ", width=width))
    return "\n".join(parts)
