"""What ``lagsweep calibrate`` prints: the fits, the held steps, what the data leave open."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..engines.text import digits
from ..results.text import grid, terminal_width, wrapped
from .backtest import publication_beside
from .phases import inside
from .ranges import PREDICTED
from .waits import is_material

if TYPE_CHECKING:
    from .backtest import HeldRow
    from .calibration import Calibration
    from .fits import Fit
    from .ranges import Span

NOTHING = 0.01  # of a step: what is less is nothing
# Units that are read best in others.
_READ_AS = {"s": (1e6, "µs")}


def amount(fit: Fit) -> str:
    """Return a fit as it is read: its value and interval, or the range alone where the data fix no value.

    Examples
    --------
    >>> from lagsweep.sweeps.calibrate.fits import Fit
    >>> amount(Fit("fetch", 2.0, 1.9, 2.1, "s a step", 20, ""))
    '2.00 s a step, 1.90 to 2.10'
    >>> amount(Fit("fetch", 0.0, 0.0, 2.1, "s a step", 20, "", open=True))
    '0 to 2.10 s a step'
    """
    value, interval, unit = reading(fit)
    return f"{interval} {unit}" if fit.open else f"{value} {unit}, {interval}"


def reading(fit: Fit) -> tuple[str, str, str]:
    """Return a fit's value, its interval and its unit as they are read best."""
    scale, unit = _READ_AS[fit.unit] if fit.unit in _READ_AS and abs(fit.high) < 0.01 else (1.0, fit.unit)
    value, low, high = (figure(scale * one) for one in (fit.value, fit.low, fit.high))
    if math.isinf(fit.high):
        return value, interval(scale * fit.low, fit.high), unit
    return value, low if low == high else f"{low} to {high}", unit


def figure(value: float) -> str:
    """Write a figure with three digits; small ones of percent as they are."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else digits(value)


def fit_table(found: Calibration) -> tuple[list[str], list[list[str]]]:
    """Return the table of what was fitted: header and rows."""
    header = ["fitted", "value", "unit", "95 % interval", "steps"]
    rows = []
    for one in found.fits:
        value, interval, unit = reading(one)
        rows.append([one.name, "open" if one.open else value, unit, interval, f"{one.rows:,}"])
    return header, rows


def error_of(row: HeldRow) -> str:
    """Return an error in percent, or nothing where a range has none."""
    return f"{100 * row.error:+.1f}%" if row.identified and math.isfinite(row.error) else "-"


def told(row: HeldRow) -> str:
    """Return a prediction: a figure where the data fix it, else the range."""
    return figure(row.predicted) if row.identified else interval(row.low, row.high)


def verdict(row: HeldRow) -> str:
    """Return one held quantity as a sentence's end."""
    words = f"measured {figure(row.measured)} {row.unit}, predicted {told(row)}"
    return words + (
        f" ({error_of(row)})" if row.identified else f" (open: {row.by})" if row.by else " (open)"
    )


def backtest_table(found: Calibration) -> tuple[list[str], list[list[str]]]:
    """Return the table of the held steps: header and rows."""
    header = ["held steps", "measured", "predicted", "error", "open by"]
    rows = [
        [
            f"{one.name}, {one.unit}",
            figure(one.measured),
            told(one),
            error_of(one),
            "" if one.identified else one.by,
        ]
        for one in found.tests
    ]
    return header, rows


def prediction_table(found: Calibration) -> tuple[list[str], list[list[str]]]:
    """Return the table of what the run does as it is: header and rows."""
    header = ["as it is", "value", "unit", "range", "open by"]
    rows = []
    for name, one in found.predictions.items():
        if not math.isfinite(one.value):
            continue
        words, unit = PREDICTED[name]
        rows.append([words, range_of(one), unit, interval(one.low, one.high), _by(one)])
    return header, rows


def interval(low: float, high: float) -> str:
    """Write the ends of a range, or that there are none.

    Examples
    --------
    >>> interval(1.5, 2.0), interval(3.0, float("inf")), interval(0.0, float("inf"))
    ('1.50 to 2.00', 'from 3.00 on', 'not told')
    """
    if math.isinf(high):
        return f"from {figure(low)} on" if low > 0 else "not told"
    return f"{figure(low)} to {figure(high)}"


def range_of(span: Span) -> str:
    """Return a prediction's figure, or ``open``."""
    return figure(span.value) if span.identified else "open"


def _by(span: Span) -> str:
    return "" if span.identified else span.by


def sentences(found: Calibration) -> list[str]:
    """Say in words what the calibration rests on and what to make of it."""
    return [*doubts(found), *run_said(found)]


def run_said(found: Calibration) -> list[str]:
    """Say in words what the run is like, as its log shows it, and what the log does not tell of it."""
    estimates = found.estimates
    idle, step = estimates.idle.value, estimates.step.value
    kind = "generation" if found.setup.in_turn else "waiting"
    said = [
        f"A step takes {figure(step)} s, {idle / step:.0%} of it {kind}{_published(found)}. "
        f"Rules: {found.setup.preset}, "
        f"{found.setup.batch_groups:,} groups of {found.setup.group_size:,} a batch."
    ]
    fetch = estimates.fetch
    if fetch is not None and fetch.open and is_material(fetch.high, step):
        said.append(
            f"Every step waits {figure(fetch.high)} s or more. How much of that is the fetch of a batch and "
            "how much generation the log cannot tell: both readings are tried, and what differs between them "
            "is a range."
        )
    if not found.match.known:
        beside = "Beside fetches the" if idle > NOTHING * step else "The"
        said.append(
            f"{beside} trainer hardly waits: the log does not say how fast generation is, only that it is "
            "at least this fast."
        )
    segments = estimates.lengths.segments if estimates.lengths else ()
    if len(segments) > 1:
        means = ", ".join(f"{figure(mean)} from step {first:,}" for first, mean in segments)
        said.append(f"Lengths drift: mean response tokens {means}. The configuration has the last.")
    return said


def published_share(found: Calibration) -> float:
    """Return the share of a step that publications take inside it; 0 where they run beside."""
    publication = found.estimates.publication
    if publication is None or "publication_seconds" not in inside(found.steps, found.setup.holds):
        return 0.0
    return publication.seconds.value / publication.every / found.estimates.step.value


def _published(found: Calibration) -> str:
    share = published_share(found)
    return f", {share:.0%} publication" if share >= NOTHING else ""


def doubts(found: Calibration) -> list[str]:
    """Say plainly where the model does not meet its log; nothing where it does."""
    misses = found.misses
    if not misses:
        return _off(found)
    told = "; ".join(
        f"{one.name}: measured {figure(one.measured)} {one.unit}, predicted "
        f"{figure(one.low)} to {figure(one.high)}"
        for one in misses
    )
    return [
        "The model does not fit this log: do not trust what whatif says of it. On the held steps, which "
        f"nothing was fitted on, it misses {told}.",
        *_off(found),
    ]


def _off(found: Calibration) -> list[str]:
    """Say by how much the run as simulated misses the steps of its log; nothing where it meets them."""
    own = found.as_logged
    beside = publication_beside(found.setup, found.values)
    if not own.outside > NOTHING * own.measured:
        if not beside > NOTHING * own.measured:
            return []
        return [
            f"A step of the log ends before its publication, {figure(beside)} s: its "
            f"{figure(own.measured)} s are {figure(own.measured + beside)} s from step to step, "
            "which is what is simulated."
        ]
    trust = " The model does not fit this log." if found.fits_log is False and not found.misses else ""
    more = f", a publication of {figure(beside)} s aside" if beside > NOTHING * own.measured else ""
    return [
        f"As simulated the run misses its log: a step takes {figure(own.predicted)} s "
        f"({interval(own.low, own.high)}){more}, in the log {figure(own.measured)} s, "
        f"{own.outside / own.measured:.1%} beyond that range.{trust}"
    ]


def calibration_text(found: Calibration) -> str:
    """Return a calibration as text."""
    width = terminal_width()
    parts = [
        wrapped(
            f"Calibrated on {found.source}: {found.fitted:,} steps fitted, {found.held:,} held.", width=width
        ),
        *(wrapped(one, width=width) for one in sentences(found)),
        "",
        grid(*fit_table(found), left=[0, 2], width=width),
        "",
    ]
    if found.tests:
        parts += [grid(*backtest_table(found), left=[0, 4], width=width), ""]
    parts.append(grid(*prediction_table(found), left=[0, 2, 4], width=width))
    for title, lines in (("assumed", found.assumed), ("in the log", found.read)):
        if lines:
            parts += ["", f"{title}:"]
            parts += [wrapped(str(one), first="- ", indent="  ", width=width) for one in lines]
    return "\n".join(parts)
