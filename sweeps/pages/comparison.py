"""A comparison of systems as one offline HTML page: tables, linked charts, the sources of the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError, message
from ..charts.style import plain_value
from ..compare.rows import SLOT_SHARES, TRAINER_SHARES
from ..compare.text import difference_text, knobs_text, mean_text, notes, number
from ..presets.registry import find_preset
from ..results.frontier import ESS, THROUGHPUT
from .html import bullets, command, paragraph, section, table, text
from .page import Figure, page_html

if TYPE_CHECKING:
    import xarray

    from ..compare.systems import System

MOST_LAGS = 6
_TRAINER = ("training", "waits for a publication", "waits for running groups", "waits: batch not full")
_SLOTS = (
    "busy",
    "idle: publication",
    "idle: most running groups",
    "idle: one batch at a time",
    "idle: queue cap",
    "idle: admission limits",
)


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
    from ..files import write_atomically

    target = checked_page(path)
    figures = _figures(ds, rows, confidence)
    by_name = {figure.name: figure.html() for figure in figures}
    labels = {place: row["label"] for place, row in enumerate(rows)}
    title = f"{len(rows)} systems on the same rollouts"
    body = [
        f"<h1>{text(title)}</h1>",
        paragraph(", ".join(labels.values()), "dim"),
        *(
            paragraph(sentence)
            for sentence in notes(rows, workload, systems[0].config.drift_per_version, confidence)
        ),
        section("Speed and freshness", _speed_table(rows), by_name["frontier"]),
        section(f"Against {rows[0]['against']}, seed by seed", _paired_table(rows), by_name["differences"]),
        section("Lag of trained rollouts", _lag_table(rows), by_name.get("lag", "")),
        section("Where time goes", f'<div class="pair">{by_name["trainer"]}{by_name["slots"]}</div>'),
        section("Work", _work_table(rows)),
        section("Where the rules are from", *(_source(system) for system in systems)),
        *([section("This page again", command(line))] if line else []),
    ]
    page = page_html(f"{title} · lagsweep", body, figures, labels)
    write_atomically(target, page.encode("utf-8"))
    return target


def checked_page(path: str | Path) -> Path:
    """Refuse a page's name before any work is done.

    Raises
    ------
    ConfigError
        If it does not end in .html, or its folder does not exist.
    """
    from ..frame_files import checked_folder

    target = Path(path)
    if target.suffix != ".html":
        raise ConfigError(message("--report", "must end in .html", str(target), "Name it comparison.html."))
    return checked_folder(target, "--report")


def _table(header: Sequence[tuple[str, str]], lines: Sequence[Sequence[str]], places: Sequence[int]) -> str:
    """Give a table whose rows light up with their systems in the charts."""
    return table(header, lines, marks=[{"data-cell": str(place)} for place in places])


def _speed_table(rows: Sequence[Mapping[str, Any]]) -> str:
    header = [("system", "text"), ("s/update", ""), ("tokens/s", ""), ("effective tokens/s", ""), ("ESS", "")]
    lines = [
        [
            row["label"],
            mean_text(row, "seconds_per_update", ".1f"),
            mean_text(row, THROUGHPUT, ".0f"),
            mean_text(row, "effective_tokens_per_second", ".0f"),
            mean_text(row, ESS, ".3f"),
        ]
        for row in rows
    ]
    return _table(header, lines, range(len(rows)))


def _paired_table(rows: Sequence[Mapping[str, Any]]) -> str:
    header = [("system", "text"), ("s/update", ""), ("tokens/s", ""), ("ESS", ""), ("mean lag", "")]
    places = [place for place, row in enumerate(rows) if row["label"] != row["against"]]
    lines = [
        [
            row["label"],
            difference_text(row, "seconds_per_update", relative=True),
            difference_text(row, THROUGHPUT, relative=True),
            difference_text(row, ESS, ".3f"),
            difference_text(row, "mean_rollout_lag", ".2f"),
        ]
        for row in (rows[place] for place in places)
    ]
    return _table(header, lines, places)


def _lag_table(rows: Sequence[Mapping[str, Any]]) -> str:
    header = [
        *(("system", "text"), ("mean", ""), ("mean, publications", ""), ("median", ""), ("99 %", "")),
        *(("largest", ""), ("bound", "")),
    ]
    lines = [
        [
            row["label"],
            number(row["mean_rollout_lag"], ".2f"),
            number(row["mean_rollout_lag_publications"], ".2f"),
            *(str(row[name]) for name in ("lag_median", "lag_99", "lag_largest")),
            "none" if row["lag_bound"] is None else f"{row['lag_bound']} ({row['bound_kind']})",
        ]
        for row in rows
    ]
    return _table(header, lines, range(len(rows)))


def _work_table(rows: Sequence[Mapping[str, Any]]) -> str:
    header = [("system", "text"), ("waste", ""), ("length bias", ""), ("rollouts per batch", "")]
    lines = [
        [
            row["label"],
            mean_text(row, "wasted_share", ".1%"),
            mean_text(row, "length_bias_law", ".3f"),
            number(row["rollouts_per_batch"], ".0f"),
        ]
        for row in rows
    ]
    return _table(header, lines, range(len(rows)))


def _source(system: System) -> str:
    """Name a system's source, knobs, bound, and what is left out."""
    preset = find_preset(system.preset)
    source = preset.repository
    if preset.commit != "none":
        source += f" at {preset.commit} ({preset.date})"
    knobs = f" with {knobs_text(system.knobs)}" if system.knobs else " with its defaults"
    bound = f"Lag bound: {preset.lag_bound} ({preset.bound_kind})."
    return "".join(
        [
            f"<h3>{text(system.label)}</h3>",
            paragraph(f"{preset.title}{knobs}. Rules read from {source}. {bound} Left out:"),
            bullets([text(item) for item in preset.leaves_out]),
        ]
    )


def _figures(ds: xarray.Dataset, rows: Sequence[Mapping[str, Any]], confidence: float) -> list[Figure]:
    from ..charts.lag import lag_chart, lag_rows
    from ..charts.shares import shares_chart

    lags = [
        one
        for place, row in enumerate(rows[:MOST_LAGS])
        for one in lag_rows(ds["lag_counts"].values[place], place, row["label"], confidence)
    ]
    trainer = _share_rows(rows, TRAINER_SHARES, _TRAINER)
    slots = _share_rows(rows, SLOT_SHARES, _SLOTS)
    interval = f"{confidence:.0%} intervals over seeds"
    found = [
        _frontier(rows, confidence),
        _differences(rows, confidence),
        Figure(
            "trainer",
            "Where the trainer's time goes",
            "The trainer: at work, then what it waits for.",
            lambda linked: shares_chart(trainer, "trainer", linked=linked),
        ),
        Figure(
            "slots",
            "Where the slots' time goes",
            "The rollout slots: busy, then what keeps idle ones closed.",
            lambda linked: shares_chart(slots, "slots", linked=linked),
        ),
    ]
    if lags:
        caption = f"Share of the trained rollouts by lag; bars are {interval}."
        if len(rows) > MOST_LAGS:
            caption += f" The first {MOST_LAGS} systems."
        found.append(
            Figure("lag", "How old they were", caption, lambda linked: lag_chart(lags, linked=linked))
        )
    return found


def _frontier(rows: Sequence[Mapping[str, Any]], confidence: float) -> Figure:
    from ..charts.frontier import frontier_chart, frontier_rows

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
    drawn = frontier_rows(cells, THROUGHPUT, ESS, ["system"])
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
            drawn, throughput=THROUGHPUT, ess=ESS, axes=["system"], confidence=confidence, linked=linked
        ),
    )


def _differences(rows: Sequence[Mapping[str, Any]], confidence: float) -> Figure:
    from ..charts.difference import difference_chart

    names = {
        THROUGHPUT: "trained tokens/s",
        "effective_tokens_per_second": "effective tokens/s (× expected ESS)",
    }
    against = rows[0]["against"]
    drawn = []
    for metric, name in names.items():
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
    return Figure(
        "differences",
        f"Differences from {against}",
        caption,
        lambda linked: difference_chart(drawn, reference=against, confidence=confidence, linked=linked),
    )


def _share_rows(
    rows: Sequence[Mapping[str, Any]], shares: Mapping[str, str], names: Sequence[str]
) -> list[dict[str, Any]]:
    return [
        {"cell": place, "label": row["label"], "what": what, "place": k, "share": plain_value(row[share])}
        for place, row in enumerate(rows)
        for k, (share, what) in enumerate(zip(shares, names))
        if row[share] > 0
    ]
