"""A comparison of systems as one offline HTML page: tables, linked charts, the sources of the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..charts.frontier import frontier_chart, frontier_rows
from ..charts.gists import frontier_gist
from ..charts.lag import lag_rows
from ..charts.marks import Mark, marks_of, named_marks
from ..charts.shares import part_rows
from ..charts.style import plain_value
from ..compare.rows import SLOT_SHARES, TRAINER_SHARES
from ..compare.text import drift_of, knobs_text, notes, paired_lines, speed_lines, work_lines
from ..files import write_atomically
from ..presets.registry import find_preset
from ..results.frontier import ESS, THROUGHPUT
from ..results.numbers import formatted
from ..results.words import CAUSES, METRICS
from .figures import difference_figure, lag_figure, shares_figure
from .page import Figure, Table, checked_page, linked_page

if TYPE_CHECKING:
    import xarray

    from ..compare.systems import System

MOST_LAGS = 6
NAME = ("--report", "comparison.html")  # the option that names the page, and an example


def write_comparison_page(
    ds: xarray.Dataset,
    rows: Sequence[Mapping[str, Any]],
    systems: Sequence[System],
    path: str | Path,
    *,
    workload: str = "",
    line: str = "",
    confidence: float = 0.95,
) -> Path:
    """Write the page.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`.compare.systems.compare_systems` gives.
    rows : sequence of mappings
        As :func:`.compare.rows.comparison_rows` gives.
    systems : sequence of System
    path : path
        ``something.html``.
    workload : str
        The sentence that names what all systems have in common.
    line : str
        The command that makes the page again.
    confidence : float
        Of the rows' intervals.

    Raises
    ------
    ConfigError
        For a bad file name.
    """

    target = checked_page(path, *NAME)
    labels = {place: row["label"] for place, row in enumerate(rows)}
    heading = f"{len(rows)} systems on the same rollouts"
    said = notes(rows, workload, drift_of(systems[0].config), confidence)
    page = linked_page(
        "comparison.html",
        f"{heading} · lagsweep",
        _figures(ds, rows, confidence),
        lambda _: labels,
        heading=heading,
        introduction=[("dim", ", ".join(labels.values())), *(("", sentence) for sentence in said)],
        against=rows[0]["against"],
        sources=[_source(system) for system in systems],
        line=line,
        **_tables(rows),
    )
    write_atomically(target, page)
    return target


def _tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the tables; a row lights up with its system in the charts."""
    lags = [
        [
            row["label"],
            formatted(row["mean_rollout_lag"], ".2f"),
            formatted(row["mean_rollout_lag_publications"], ".2f"),
            *(str(row[name]) for name in ("lag_median", "lag_99")),
            str(row["lag_largest"]) if row["lag_shares"] else "-",
            "none" if row["lag_bound"] is None else f"{row['lag_bound']} ({row['bound_kind']})",
        ]
        for row in rows
    ]
    found = {
        "speed": (["s/update", "tokens/s", "effective tokens/s", "ESS"], speed_lines(rows)),
        "paired": (["s/update", "tokens/s", "ESS", "mean lag"], paired_lines(rows)),
        "lag": (["mean", "mean, publications", "median", "99 %", "largest", "bound"], lags),
        "work": (["waste", "length bias", "rollouts per batch"], work_lines(rows)),
    }
    places = {row["label"]: place for place, row in enumerate(rows)}
    return {
        name: Table(
            [("system", "text whole"), *((title, "") for title in titles)],
            lines,
            [places[line[0]] for line in lines],
        )
        for name, (titles, lines) in found.items()
    }


def _source(system: System) -> dict[str, Any]:
    """Name a system's source, knobs, bound, and what is left out."""
    preset = find_preset(system.preset)
    source = preset.repository
    if preset.commit != "none":
        source += f" at {preset.commit} ({preset.date})"
    knobs = f" with {knobs_text(system.knobs)}" if system.knobs else " with its defaults"
    bound = f"Lag bound: {preset.lag_bound} ({preset.bound_kind})."
    sentence = f"{preset.title}{knobs}. Rules read from {source}. {bound} Left out:"
    return {"label": system.label, "sentence": sentence, "left_out": preset.leaves_out}


def _figures(ds: xarray.Dataset, rows: Sequence[Mapping[str, Any]], confidence: float) -> list[Figure]:
    marks = named_marks([row["label"] for row in rows])
    found = [
        _frontier(rows, confidence),
        _differences(rows, marks, confidence),
        _shares(rows, "trainer", TRAINER_SHARES, "The trainer: at work, then what it waits for."),
        _shares(rows, "slots", SLOT_SHARES, "The rollout slots: busy, then what keeps idle ones closed."),
    ]
    lags = [
        one
        for place, row in enumerate(rows[:MOST_LAGS])
        for one in lag_rows(ds["lag_counts"].values[place], place, row["label"], confidence)
    ]
    if lags:
        caption = f"Share of the trained rollouts by lag; bars are {confidence:.0%} intervals over seeds." + (
            f" The first {MOST_LAGS} systems." if len(rows) > MOST_LAGS else ""
        )
        found.append(lag_figure("lag", "How old they were", caption, lags, marks, confidence))
    return found


def _shares(rows: Sequence[Mapping[str, Any]], group: str, shares: Mapping[str, str], caption: str) -> Figure:
    words = {name: CAUSES[group][metric].words for name, metric in shares.items() if name in rows[0]}
    bars = [
        one
        for place, row in enumerate(rows)
        for one in part_rows({what: row[name] for name, what in words.items()}, place, row["label"])
    ]
    return shares_figure(group, group, bars, caption)


def _frontier(rows: Sequence[Mapping[str, Any]], confidence: float) -> Figure:
    points = [(row[THROUGHPUT], row[ESS]) for row in rows]
    cells = [
        {
            "cell": place,
            "system": row["label"],
            **{name: row[name] for metric in (THROUGHPUT, ESS) for name in (metric, f"{metric}_half_width")},
            "mean_lag": row["mean_rollout_lag"],
            "seconds_per_update": row["seconds_per_update"],
            "rollouts_per_batch": row["rollouts_per_batch"],
            "on_frontier": not any(
                other[0] >= point[0] and other[1] >= point[1] and other != point for other in points
            ),
        }
        for place, (row, point) in enumerate(zip(rows, points))
    ]
    marks = marks_of({"system": [row["label"] for row in rows]})
    drawn = frontier_rows(cells, THROUGHPUT, ESS, ["system"], marks)
    for one, cell in zip(drawn, [cell for cell in cells if np.isfinite(cell[THROUGHPUT] + cell[ESS])]):
        one["label"] = cell["system"]
    caption = (
        "Up and right is better. Large points are beaten by no other in both; bars are "
        f"{confidence:.0%} intervals over seeds."
    )
    return Figure(
        "frontier",
        "Throughput against effective sample size",
        caption,
        lambda linked: frontier_chart(
            drawn,
            throughput=THROUGHPUT,
            ess=ESS,
            axes=["system"],
            marks=marks,
            confidence=confidence,
            linked=linked,
        ),
        gist=frontier_gist(drawn, THROUGHPUT, ESS),
        marks=[legend._replace(title="") for legend in marks.legends()],
    )


def _differences(rows: Sequence[Mapping[str, Any]], marks: Mapping[str, Mark], confidence: float) -> Figure:
    against = rows[0]["against"]
    drawn = []
    for metric, name in METRICS.items():
        for place, row in enumerate(rows):
            base = row[metric] - row[f"{metric}_difference"]
            if row["label"] == against or not base > 0:
                continue
            share = row[f"{metric}_difference"] / base
            half = float(np.nan_to_num(row[f"{metric}_difference_half_width"])) / base
            drawn.append(
                {
                    "cell": place,
                    "label": row["label"],
                    "metric": name,
                    "share": plain_value(share),
                    "low": plain_value(share - half),
                    "high": plain_value(share + half),
                }
            )
    caption = (
        f"Against {against}, seed by seed: every system of a seed sees the same rollouts. Bars are "
        f"{confidence:.0%} intervals of the mean."
    )
    return difference_figure(caption, drawn, marks, against, confidence)
