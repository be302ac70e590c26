"""How old the trained rollouts were: the share of each lag, with its interval over seeds, for some cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ...kernels.intervals import intervals_of_pieces
from ..results.lag_shares import lag_shares
from .links import inline, listening, shade
from .marks import Mark, by_label, told_apart
from .style import HEIGHT, WIDTH, interval_tooltips, label_tooltip, plain_value

MOST_CELLS = 6
_MOST_BINS = 13


def lag_rows(counts: np.ndarray, cell: int, label: str, confidence: float = 0.95) -> list[dict[str, Any]]:
    """Turn a cell's lag counts into shares with intervals.

    Parameters
    ----------
    counts : ndarray of int64, shape (seeds, 65)
        Seeds without a trained rollout are left out.
    cell : int
    label : str
    confidence : float
    """
    shares = lag_shares(counts)
    return interval_rows(*intervals_of_pieces(lambda: [shares], confidence), cell, label)


def interval_rows(mean: np.ndarray, half: np.ndarray, cell: int, label: str) -> list[dict[str, Any]]:
    """Turn a cell's mean shares and their half widths into rows, up to the largest lag that was seen.

    Parameters
    ----------
    mean, half : ndarray of float64, shape (65,)
        NaN where no seed trained a rollout: then there are no rows.
    cell : int
    label : str
    """
    if np.isnan(mean).all():
        return []
    half = np.nan_to_num(half)  # one seed has no interval
    low, high = np.maximum(0.0, mean - half), np.minimum(1.0, mean + half)
    return [
        {
            "cell": cell,
            "label": label,
            "lag": lag,
            "share": plain_value(mean[lag]),
            "low": plain_value(low[lag]),
            "high": plain_value(high[lag]),
        }
        for lag in range(int(np.flatnonzero(mean).max()) + 1)
    ]


def lag_chart(
    rows: Sequence[Mapping[str, Any]],
    marks: Mapping[str, Mark],
    *,
    confidence: float = 0.95,
    linked: bool = False,
) -> alt.LayerChart:
    """Draw the shares: a line and points a cell, a bar for each interval.

    Parameters
    ----------
    rows : sequence of mappings
        As :func:`lag_rows` gives, of at most six cells.
    marks : mapping of str to Mark
        The colour and shape of each label.
    linked : bool
        Add the parameter that other charts set to highlight cells; the page writes the legend.
    """
    labels = list(dict.fromkeys(row["label"] for row in rows))
    used = sorted({row["lag"] for row in rows})
    data = inline(rows)
    x = alt.X(
        "lag:Q", title="lag when trained, versions", axis=_whole_ticks(used), scale=alt.Scale(nice=False)
    )
    y = alt.Y("share:Q", title="share of trained rollouts", axis=alt.Axis(format="%"))
    look = by_label(told_apart({label: marks[label] for label in labels}), dashes=True)
    legend = None if linked else alt.Legend(orient="top", columns=1, labelLimit=320)
    for name in ("color", "shape", "strokeDash"):
        look[name].legend = legend
    base = alt.Chart(data).encode(x, color=look["color"], opacity=shade(linked))
    return listening(
        alt.layer(
            base.mark_line(strokeWidth=1.5).encode(y, strokeDash=look["strokeDash"]),
            base.mark_rule(strokeWidth=1.5).encode(alt.Y("low:Q"), alt.Y2("high:Q")),
            base.mark_point(filled=True, size=55).encode(
                y,
                shape=look["shape"],
                tooltip=[
                    label_tooltip(),
                    alt.Tooltip("lag:Q", title="lag"),
                    *interval_tooltips("share", "share", ".2%", confidence),
                ],
            ),
        ).properties(width=WIDTH, height=HEIGHT - 60),
        linked,
    )


def _whole_ticks(used: Sequence[int]) -> alt.Axis:
    top = max(used, default=0)
    step = max(1, -(-top // _MOST_BINS))
    return alt.Axis(values=list(range(0, top + 1, step)), format="d", grid=False)
