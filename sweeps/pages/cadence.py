"""The part of a report about failures: how often to checkpoint, what the rules say, what failures cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...kernels.intervals import mean_interval
from ..charts.cadence import cadence_chart, cadence_gist, cadence_marks, cadence_rows, optimum_rows
from ..charts.marks import Legend
from ..results.cadence import (
    EFFECTIVE,
    CadenceCurve,
    CadenceCurves,
    cadence_curves,
    least_loss,
    rate_words,
)
from ..results.cells import GOODPUT, cell_values, has_failures, recorded_values
from ..results.frontier import THROUGHPUT
from ..results.numbers import digits_for, fixed, missing, percent_interval, with_half_width
from ..results.words import describe_settings
from ..runs.many import simulate_batch
from ..spec.spec import SweepSpec
from .content import Content
from .page import Figure, Table

NAME = "cadence-"  # what the names of these figures begin with
MOST_SEEDS = 16  # of the runs without failures that are made for the page
_TITLES = {GOODPUT: "Goodput", EFFECTIVE: "Effective tokens per second"}


@dataclass(frozen=True)
class Unhindered:
    """Runs of the same settings without failures of the trainer and without checkpoints.

    Attributes
    ----------
    tokens : ndarray of float64, shape (seeds,)
        Trained tokens per second, of the sweep's first seeds.
    step_seconds : float
    """

    tokens: np.ndarray
    step_seconds: float


def failure_values(content: Content) -> dict[str, Any] | None:
    """Return what the page shows of failures, None where the sweep has none."""
    if not has_failures(content.ds):
        return None
    found = cadence_curves(content.ds, content.confidence)
    values: dict[str, Any] = {"costs": _costs(content), "sentences": [], "table": None, "figures": []}
    if found is None:
        return values
    plain = _unhindered(content.spec, int(found.curves[0].rows[found.curves[0].best]))
    values["sentences"] = [("", sentence) for sentence in _sentences(content, found, plain)]
    values["table"] = _table(content, found.curves, plain)
    values["figures"] = cadence_figures(found, content.confidence)
    return values


def cadence_figures(found: CadenceCurves, confidence: float) -> list[Figure]:
    """Draw effective tokens/s and goodput along the cadence; the page writes the legend."""
    marks = cadence_marks(found.curves)
    optima = optimum_rows(found.curves)
    caption = (
        "A line for each failure rate and scope; the large point is its best cadence, bars are "
        f"{confidence:.0%} intervals over seeds."
    )
    if optima:
        caption += " Dotted upright lines: the exact optimum of each rate, for a trainer that never waits."
    if found.at:
        caption += f" At {describe_settings(found.at)}."
    figures = []
    for metric in (EFFECTIVE, GOODPUT):
        rows = cadence_rows(found.curves, metric)
        draw = partial(_draw, rows, optima, marks, metric, confidence)
        title = f"{_TITLES[metric]} along the checkpoint cadence"
        gist = cadence_gist(rows, metric)
        name = NAME + metric.partition("_")[0]
        figures.append(Figure(name, title, caption, draw, gist=gist, marks=[Legend("", marks)]))
    return figures


def _draw(rows: Any, optima: Any, marks: Any, metric: str, confidence: float, linked: bool) -> Any:
    return cadence_chart(rows, optima, marks, metric=metric, confidence=confidence, linked=linked)


def _unhindered(spec: SweepSpec, row: int) -> Unhindered | None:
    """Run a cell without failures of the trainer; None with rules of the user's own: they are not at hand."""
    if spec.custom is not None:
        return None
    config = spec.config(row).replace(
        trainer_mtbf_seconds=None,
        restart_seconds=0.0,
        checkpoint_every_updates=None,
        checkpoint_seconds=0.0,
        checkpoint_scope="full",
    )
    seeds = np.array(spec.seeds[:MOST_SEEDS], np.uint64)
    metrics = simulate_batch([config], seeds).metrics
    step = float(np.nanmean(metrics["seconds_per_update"]))
    return Unhindered(metrics[THROUGHPUT][0], step)


def _loss(content: Content, curve: CadenceCurve, plain: Unhindered) -> tuple[float, float]:
    """Return the share of trained tokens that the best cadence loses against runs without failures.

    Returns
    -------
    mean, half_width : float
        Paired by seed.
    """
    own = cell_values(content.ds, THROUGHPUT)[curve.rows[curve.best]][: len(plain.tokens)]
    mean, half = mean_interval(1 - own / plain.tokens, content.confidence)
    return float(mean), float(half)


def _table(content: Content, curves: Sequence[CadenceCurve], plain: Unhindered | None) -> Table:
    header = [
        ("failures, what checkpoints hold", "text"), ("best: every … updates", ""),
        ("cannot be told from it", ""), ("effective tokens/s", ""), ("goodput", ""), ("Young", ""),
        ("Daly", ""), ("exact", ""),
    ]  # fmt: skip
    if plain is not None:
        header += [("costs, of trained tokens", ""), ("would cost if it never waited", "")]
    digits = digits_for(
        [curve.effective[curve.best] for curve in curves],
        [curve.effective_half[curve.best] for curve in curves],
    )
    lines = []
    for curve in curves:
        best = curve.best
        line = [
            curve.label,
            str(curve.cadences[best]),
            ", ".join(str(one) for one in curve.alike if one != curve.cadences[best]) or "–",
            with_half_width(float(curve.effective[best]), float(curve.effective_half[best]), digits),
            with_half_width(float(curve.goodput[best]), float(curve.goodput_half[best]), 3),
            *(fixed(curve.rules.get(rule), 1) for rule in ("young", "daly_higher", "exact")),
        ]
        if plain is not None:
            mean, half = _loss(content, curve, plain)
            interval = "" if missing(half) else f" ±{half:.1%}"
            line += [f"{mean:.1%}{interval}", f"{least_loss(curve, plain.step_seconds):.1%}"]
        lines.append(line)
    cells = [int(curve.cells[curve.best]) for curve in curves]
    return Table(header, lines, cells, content.best.cell)


def _sentences(content: Content, found: CadenceCurves, plain: Unhindered | None) -> list[str]:
    failing = [curve for curve in found.curves if curve.rules]
    sentences = []
    if failing:
        agree = [curve for curve in failing if agrees(curve)]
        sentences.append(
            "Young's, Daly's and the exact interval stand in updates, by the mean step at the best cadence "
            f"({_range([curve.step_seconds for curve in failing])} s without checkpoints and restarts). "
            f"The exact one is among the cadences that cannot be told from the best, or next to them, on "
            f"{len(agree)} of {len(failing)} lines."
        )
        sentences += [_off(curve) for curve in failing if curve not in agree]
    if plain is not None:
        sentences += [_hidden(content, curve, plain) for curve in failing]
        if failing:
            sentences.append(
                f"The comparison is with {len(plain.tokens)} runs without failures of the trainer and "
                "without checkpoints, made for this page at the same seeds."
            )
    return sentences + _scopes(content, found.curves)


def agrees(curve: CadenceCurve) -> bool:
    """Tell whether the exact optimum lies among the cadences that are as good as the best, or beside them."""
    tried = curve.cadences
    below, above = np.searchsorted(tried, [min(curve.alike), max(curve.alike)])
    low, high = tried[max(0, below - 1)], tried[min(len(tried) - 1, above + 1)]
    return bool(low <= curve.rules["exact"] <= high)


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"


def _off(curve: CadenceCurve) -> str:
    return (
        f"With {curve.label}, the best is every {curve.cadences[curve.best]} updates and the exact optimum "
        f"{curve.rules['exact']:.1f}: the rules take a trainer that always has data and a step that is the "
        "same in every state, and here it is not."
    )


def _hidden(content: Content, curve: CadenceCurve, plain: Unhindered) -> str:
    mean, half = _loss(content, curve, plain)
    rule = least_loss(curve, plain.step_seconds)
    half = 0.0 if missing(half) else half
    what = f"With {curve.label}: failures and checkpoints cost {mean:.1%} of the trained tokens"
    points = f"{abs(rule - mean) * 100:.1f} ±{half * 100:.1f} points"
    if rule - mean > half:
        return (
            f"{what}, where a trainer that never waits loses {rule:.1%}: {points} are hidden, since the "
            "queue fills while the trainer stands still, and it then waits less."
        )
    if mean - rule > half:
        back = "" if curve.scope == "full" else " The queue is gone after each failure and must fill anew."
        return f"{what}, where a trainer that never waits loses {rule:.1%}: {points} more.{back}"
    return f"{what}, as of a trainer that never waits ({rule:.1%}): nothing is hidden."


def _scopes(content: Content, curves: Sequence[CadenceCurve]) -> list[str]:
    """Say what is lost with the queue, at the best cadence of full checkpoints."""
    by_key = {(curve.mtbf_seconds, curve.scope): curve for curve in curves}
    found = []
    for (rate, scope), full in by_key.items():
        other = by_key.get((rate, "weights_only"))
        if scope != "full" or other is None:
            continue
        every = int(full.cadences[full.best])
        places = np.flatnonzero(other.cadences == every)
        if len(places):
            mean_full = np.nanmean(full.by_seed[full.best])
            share = (other.by_seed[places[0]] - full.by_seed[full.best]) / mean_full
            mean, half = (float(part) for part in mean_interval(share, content.confidence))
            found.append(
                f"With {rate_words(rate)}, every {every} updates: checkpoints of the weights only change "
                f"effective tokens/s by {percent_interval(mean, mean - half, mean + half)} against full ones."
            )
    return found


def _costs(content: Content) -> Table | None:
    """List what was lost in each configuration that the page names, as means over the seeds."""
    if not content.shown:
        return None
    names = ("lost_updates", "lost_tokens", "repeated_prompts")
    stills = ("trainer_checkpoint_seconds", "trainer_restart_seconds")
    values = {name: recorded_values(content.ds, name) for name in (GOODPUT, *names, *stills, "updates")}
    measured = recorded_values(content.ds, "seconds_per_update") * values["updates"]
    header = [("configuration", "text whole"), ("goodput", ""), ("lost updates, of all", "")]
    header += [("lost tokens a run", ""), ("prompts trained again a run", "")]
    header += [("checkpoints, of the time", ""), ("restarts, of the time", "")]
    lines = []
    for one in content.shown:
        row = {name: column[one.place] for name, column in values.items()}
        mean, half = mean_interval(row[GOODPUT], content.confidence)
        shares = [np.nansum(row[name]) / np.nansum(measured[one.place]) for name in stills]
        lost = np.nansum(row["lost_updates"]) / max(1.0, float(np.nansum(row["updates"])))
        lines.append(
            [
                one.label,
                with_half_width(float(mean), float(half), 3),
                f"{lost:.1%}",
                *(fixed(float(np.nanmean(row[name])), 0) for name in names[1:]),
                *(f"{share:.1%}" for share in shares),
            ]
        )
    return Table(header, lines, [one.cell for one in content.shown], content.best.cell)
