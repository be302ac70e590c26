"""What a chart shows, in a sentence or two with its figures: the text alternative of every chart.

A reader who cannot see a chart gets from its gist what others get at a glance: how many marks, the ends, and
which setting stands there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ...kernels.errors import many
from ..results.numbers import number, percent_interval
from ..results.words import METRICS, axis_words, metric_title, short_label
from .style import field

MOST_NAMED = 12
Rows = Sequence[Mapping[str, Any]]


def figure(value: float | None) -> str:
    """Write a figure to four digits.

    Examples
    --------
    >>> [figure(value) for value in (1273.4, 0.96942, 53210.0, None)]
    ['1,273', '0.9694', '53,210', 'none']
    """
    if value is None or not np.isfinite(value):
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def frontier_gist(rows: Rows, throughput: str, ess: str) -> str:
    """Say how many cells there are, and where the two ends of the frontier stand."""
    front = sorted((row for row in rows if row["on_frontier"]), key=lambda row: -row["y"])
    if not front:
        return f"{many(len(rows), 'configuration')}, none with both figures."
    words = f"{METRICS.get(throughput) or metric_title(throughput)} at {_ess(ess)}"
    ends = [f"{_named(row)} with {figure(row['y'])} {words} {figure(row['x'])}" for row in front]
    text = f"{many(len(rows), 'configuration')}, {len(front):,} on the frontier: fastest {ends[0]}"
    return f"{text}; freshest {ends[-1]}." if len(front) > 1 else f"{text}."


def _ess(name: str) -> str:
    return "ESS" if name.endswith("ess") else metric_title(name)


def _named(row: Mapping[str, Any]) -> str:
    return str(row.get("label") or "the base")


def heatmap_gist(rows: Rows, metric: str, x: str, y: str | None, title: str | None = None) -> str:
    """Say between which tiles a metric ranges."""
    axes = [name for name in (x, y) if name is not None]
    known = [row for row in rows if row[metric] is not None]
    head = f"{metric_title(metric)} over {' and '.join(axis_words(name).title for name in axes)}"
    head += f", {title}" if title else ""
    if not known:
        return f"{head}: no value."
    ends = (min(known, key=lambda row: row[metric]), max(known, key=lambda row: row[metric]))
    low, high = (f"{figure(row[metric])} at {short_label({a: row[a] for a in axes})}" for row in ends)
    return f"{head}: {many(len(rows), 'tile')}, from {low} to {high}."


def along_gist(rows: Rows, metric: str, axis: str) -> str:
    """Say how a metric goes from one end of an axis to the other, and where it is largest."""
    if not rows:
        return "No configuration has a value."
    places: dict[Any, list[float]] = {}
    for row in rows:
        places.setdefault(row[field(axis)], []).append(row["value"])
    means = {value: sum(own) / len(own) for value, own in sorted(places.items(), key=_by_size)}
    named = [f"{figure(mean)} at {_text(value)}" for value, mean in means.items()]
    if len(named) > MOST_NAMED:
        best = max(means, key=lambda value: means[value])
        named = [named[0], f"most, {figure(means[best])}, at {_text(best)}", named[-1]]
    return f"Mean {metric_title(metric)} along {axis_words(axis).title}: {', '.join(named)}."


def _by_size(pair: tuple[Any, Any]) -> tuple[bool, Any]:
    value = pair[0]
    return (not isinstance(value, int | float), value if isinstance(value, int | float) else str(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else number(value)


def shares_gist(rows: Rows) -> str:
    """Name the two largest parts of each bar."""
    bars = [(label, list(own)) for label, own in groupby(rows, key=lambda row: row["label"])]
    said = []
    for label, parts in bars[:MOST_NAMED]:
        largest = sorted(parts, key=lambda row: -(row["share"] or 0))[:2]
        words = [f"{row['what']} {row['share']:.0%}" for row in largest]
        said.append(f"{label}: {', '.join(words)}")
    return _joined(said, len(bars))


def lag_gist(rows: Rows) -> str:
    """Say of each cell which lag is the most frequent, and which the largest."""
    cells = [(label, list(own)) for label, own in groupby(rows, key=lambda row: row["label"])]
    said = []
    for label, own in cells[:MOST_NAMED]:
        most = max(own, key=lambda row: row["share"])
        largest = own[-1]["lag"]
        said.append(f"{label}: most at lag {most['lag']} ({most['share']:.0%}), the largest {largest}")
    return _joined(said, len(cells))


def difference_gist(rows: Rows, reference: str) -> str:
    """Give each difference with its interval."""
    said = [
        f"{row['label']}, {row['metric']}: {percent_interval(row['share'], row['low'], row['high'])}"
        for row in rows[: 2 * MOST_NAMED]
    ]
    return f"Against {reference}. {_joined(said, len(rows))}"


def _joined(said: Sequence[str], total: int) -> str:
    more = f"; and {total - len(said):,} more" if total > len(said) else ""
    return f"{'; '.join(said)}{more}."


def levels_gist(rows: Rows, levels: Mapping[str, str], end: float, limit: str = "") -> str:
    """Say how high levels over time were.

    Parameters
    ----------
    levels : mapping
        Column -> its words.
    end : float
        Seconds.
    limit : str
        What is said of the limit that is drawn.

    Examples
    --------
    >>> levels_gist([{"running": 3}, {"running": 5}], {"running": "rollouts run"}, 9.0)
    'Over 9 s, at most 5 rollouts run.'
    """
    highest = {name: max((row[name] for row in rows), default=0) for name in levels}
    parts = [f"at most {highest[name]:,} {words}" for name, words in levels.items()]
    return f"Over {figure(end)} s, {' and '.join(parts)}{limit}."


def match_gist(rows: Rows, words: str) -> str:
    """Say how far predictions lie from measurements."""
    ratios = np.array([row["predicted"] / row["measured"] for row in rows if row["measured"]])
    if not len(ratios):
        return f"{many(len(rows), 'request')}."
    low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    return (
        f"{many(len(rows), 'request')}: the predicted {words.partition(',')[0]} is {middle:.2f} of the "
        f"measured in the median, and between {low:.2f} and {high:.2f} of it for nine of ten."
    )


def timeline_gist(levels: Rows, batches: Rows, end: float) -> str:
    """Say what a run did: batches, lags, and how deep the queue was."""
    deepest = max((row["tokens_high"] for row in levels), default=0)
    counted = many(len(batches), "batch", "batches")
    text = f"One run of {figure(end)} s: the queue holds at most {deepest:,} tokens; {counted}"
    if not batches:
        return f"{text}."
    lags = [row["mean_lag"] for row in batches]
    return f"{text} with a mean lag between {figure(min(lags))} and {figure(max(lags))} versions."


def indices_gist(rows: Rows, method: str, metric: str) -> str:
    """Say which settings move a metric, the strongest first."""
    name = "ST" if method == "sobol" else "mu_star"
    words = "share of the variance with interactions" if method == "sobol" else "mean effect"
    named = [f"{row['axis']} {figure(row[name])}" for row in rows[:MOST_NAMED]]
    return f"{metric}, {words}: {', '.join(named)}."
