"""The words and tables of a report's page: verdict, frontier, failures, provenance, commands.

A sentence comes with its kind (a class of the page, "command" for something to paste, or nothing).
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.errors import many
from ..recommend.parts import worst_scenarios
from ..recommend.text import bound_sentence, question
from ..results.cells import GOODPUT, cell_coordinates, not_recorded, not_recorded_note
from ..results.commands import Commands
from ..results.frontier import ESS, THROUGHPUT
from ..results.frontier_table import halted_text
from ..results.left_out import nothing_done
from ..results.numbers import digits_for, fixed, missing, number, percent_interval, with_half_width
from ..results.words import axis_words, describe_settings, short_label
from ..runs.status import FAILED
from ..spec.exclusions import exclusion_reasons
from ..spec.writing import spec_to_toml
from .content import EFFECTIVE, Content
from .page import Table

MOST_FAILURES = 30
Sentences = list[tuple[str, str]]


def report_values(content: Content) -> dict[str, Any]:
    """Return everything that the report's template shows, but for its figures."""
    caption, frontier = _frontier(content)
    return {
        "name": content.spec.name,
        "summary": _summary(content),
        "warnings": _warnings(content),
        "verdict": _verdict(content),
        "assumptions": _assumptions(content),
        "frontier_words": caption,
        "frontier": frontier,
        "failures": _failures(content),
        "provenance": _provenance(content),
        "commands": _commands(content),
    }


def _summary(content: Content) -> str:
    """Say what was run."""
    spec, status = content.spec, content.status
    axes = " × ".join(spec.design.columns)
    excluded = int(spec.excluded.sum())
    left_out = f", {excluded:,} more excluded" if excluded else ""
    kept = f"{spec.design.size - excluded:,} configurations ({axes}{left_out})"
    what = kept if axes else "One configuration"
    wanted = sum(status.values()) - status.get("excluded", 0)
    return f"{what} × {len(spec.seeds):,} seeds: {status['done']:,} of {wanted:,} runs done."


def _warnings(content: Content) -> list[str]:
    """Say where runs are missing or failed."""
    status, warnings = content.status, []
    if status["not run"] or not content.ds.attrs.get("complete", True):
        missing, are = many(status["not run"], "run"), "is" if status["not run"] == 1 else "are"
        missing_runs = f"{missing} {are} missing" if status["not run"] else "the run was not finished"
        warnings.append(f"This sweep is incomplete: {missing_runs}. All figures are of what is done.")
    if status["failed"]:
        warnings.append(f"{many(status['failed'], 'run')} failed; see below.")
    if len(content.spec.seeds) == 1:
        warnings.append("One seed: there are no intervals, and nothing can be told apart.")
    return warnings


def _verdict(content: Content) -> Sentences:
    """Say which configuration wins, by how much, and how sure that is."""
    best = content.best
    said = [("dim", f"{question(best)}:")]
    if best.cell is None:
        said.append(("choice", "This sweep has no answer."))
        said += [("", bound_sentence(bound, True)) for bound in best.bounds]
    else:
        own = {name: value for name, value in best.settings.items() if name not in best.scenario_axes}
        scenario = {name: value for name, value in best.settings.items() if name in best.scenario_axes}
        where = f"At {describe_settings(scenario)}: " if scenario else ""
        said += [("choice", describe_settings(own)), ("figure", where + _figures(content))]
        sentences = [*_against(content), _ties(content)]
        sentences += [bound_sentence(bound, False) for bound in best.bounds]
        said += [("", sentence) for sentence in (*sentences, *_scenarios(content)) if sentence]
    for doubt in best.doubts:
        said.append(("", f"Not settled: {doubt.text}"))
        said += [("command", doubt.command)] if doubt.command else []
    return said


def _figures(content: Content) -> str:
    best, figures = content.best, content.best.figures
    half = (best.high - best.low) / 2
    value = with_half_width(best.value, half, digits_for([best.value], [half]))
    ess = with_half_width(figures[ESS], figures[f"{ESS}_half_width"], 4)
    interval = f" ({content.confidence:.0%} interval)" if not missing(half) else ""
    steps = f"{fixed(figures['seconds_per_update'], 1)} s per update"
    if GOODPUT in figures:
        goodput = with_half_width(figures[GOODPUT], figures[f"{GOODPUT}_half_width"], 3)
        steps = f"goodput {goodput}, {steps} (lost ones too)"
    return (
        f"{value} {best.units}{interval} at ESS {ess}, mean lag {fixed(figures['mean_lag'], 2)}, "
        f"{steps}, "
        f"{fixed(figures['rollouts_per_batch'], 1)} rollouts per batch."
    )


def _against(content: Content) -> list[str]:
    for one in content.differences:
        if one.shown.cell == content.best.cell and one.metric == THROUGHPUT:
            share = percent_interval(one.share, one.low, one.high)
            return [f"Trained tokens per second against {content.reference}: {share}."]
    return []


def _ties(content: Content) -> str:
    best = content.best
    if best.seeds_done < 2 or best.admissible < 2:
        return "It is the only admissible setting." if best.admissible == 1 else ""
    rule = f"paired by seed, {content.confidence:.0%} for all {best.comparisons} comparisons together"
    sentences = []
    if best.identical:
        sentences.append(f"{_more(best.identical)} the very same runs.")
    if best.equal:
        some = [tie for tie in best.ties if tie.equal][:5]
        named = "; ".join(describe_settings(tie.settings) for tie in some)
        which = ", such as" if best.equal > len(some) else ":"
        sentences.append(
            f"{_more(best.equal)} the same {best.objective} and ESS at every seed, but not the same runs"
            f"{which} {named}."
        )
    different = [tie for tie in best.ties if not tie.identical and not tie.equal]
    if different:
        named = "; ".join(
            f"{describe_settings(tie.settings)} {percent_interval(tie.share, tie.low, tie.high)}"
            + (f" (and {tie.twins} more with its very runs)" if tie.twins else "")
            for tie in different[:5]
        )
        count = f"{best.different - best.equal:,} of {best.admissible:,} admissible settings"
        sentence = f"{count} cannot be told apart from it ({rule}): {named}"
        sentences.append(f"{sentence}; …" if len(different) > 5 else f"{sentence}.")
    elif best.admissible > 1 + best.identical + best.equal:
        sentences.append(f"Every {'further' if sentences else 'other'} admissible setting is worse ({rule}).")
    return " ".join(sentences)


def _more(count: int) -> str:
    return "1 more setting gives" if count == 1 else f"{count:,} more settings give"


def _scenarios(content: Content) -> list[str]:
    best = content.best
    if not best.scenarios:
        return []
    lines = [f"{', '.join(best.scenario_axes)} is nobody's choice; the loss against the best of each value:"]
    shown, rest = worst_scenarios(best.scenarios)
    for one in shown:
        loss = "none" if one.best.identical else percent_interval(one.loss, one.loss_low, one.loss_high)
        lines.append(f"{describe_settings(one.scenario)}: {loss}")
    return [*lines, *([f"{rest:,} more, none with a larger loss."] if rest else [])]


def _assumptions(content: Content) -> Sentences:
    sentences = [
        f"ESS is the expected normalized effective sample size at {content.best.ess_basis}.",
    ]
    if content.found.level_1:
        sentences.append(
            "The lag limit is enforced by discarding only; most systems throttle starts instead."
        )
    if content.found.baseline is not None:
        sentences.append(
            "The sequential baseline is disaggregated: its GPUs wait, they do not change sides as a "
            "colocated system's do."
        )
    hint = content.best.law_hint
    if hint is not None:
        sentences.append(hint.text)
    command = [("command", hint.command)] if hint is not None and hint.command else []
    return [("dim", " ".join(sentences)), *command]


def _frontier(content: Content) -> tuple[Sentences, Table | None]:
    """Return the frontier and what else is named, fastest first, the baseline above."""
    found, axes = content.found, content.found.axes
    if not content.shown:
        return [("", nothing_done(found) or "No configuration trained a batch.")], None
    rows = [dict(one.row) for one in content.shown]
    digits = {
        metric: digits_for([row[metric] for row in rows], [row[f"{metric}_half_width"] for row in rows])
        for metric in (found.throughput, EFFECTIVE, found.ess)
    }
    titles = ["#", *(axis_words(name).title.partition(",")[0] for name in axes), "tokens/s"]
    titles += ["effective tokens/s", "ESS", "mean lag", "s per update", "rollouts per batch"]
    header = [(title, "") for title in titles]
    differs = {one.shown.cell: one for one in content.differences if one.metric == THROUGHPUT}
    if differs:
        header.append((f"tokens/s against {content.reference}", "whole"))
    halts = any(row["halted_runs"] for row in rows)
    if halts:
        header.append(("runs that stalled or trained nothing", ""))
    lines: list[list[str]] = []
    if found.baseline is not None:
        figures = _row_figures(found.baseline, found, digits)
        more = [*([""] if differs else []), *([""] if halts else [])]
        lines.append(["seq.", *("" for _ in axes), *figures, *more])
    for one, row in zip(content.shown, rows):
        differ = differs.get(one.cell)
        share = percent_interval(differ.share, differ.low, differ.high) if differ else "–"
        figures = [*_row_figures(row, found, digits), *([share] if differs else [])]
        figures += [halted_text(row)] if halts else []
        lines.append([str(one.number), *(number(row[name]) for name in axes), *figures])
    cells = [*([] if found.baseline is None else [None]), *(one.cell for one in content.shown)]
    caption = (
        f"{_on_frontier(content)} Shown are those whose figures differ, and the choice; ± is "
        f"the half width of the {content.confidence:.0%} Student interval over seeds. A row that you pick "
        "lights up in the charts."
    )
    return [("dim", caption)], Table(header, lines, cells, content.best.cell)


def _on_frontier(content: Content) -> str:
    """Say how many configurations are on the frontier, and of what."""
    found = content.found
    nobody = " and ".join(axis_words(name).title.partition(",")[0] for name in found.scenario_axes)
    if found.alone:
        return f"Nobody chooses {nobody}, of which each configuration has a value of its own: none compares."
    counted = f"{found.on_frontier().height:,} of {found.configurations:,} configurations are on"
    if not found.scenarios:
        return f"{counted} the frontier of throughput and ESS: no other has more of both."
    shown, total = len(content.scenarios), len(found.scenarios)
    rest = f" {shown} of the {total} scenarios are shown." if shown < total else ""
    return (
        f"Nobody chooses {nobody}: each of its {total} values is a scenario with a frontier of its own. "
        f"{counted} one: no other of the scenario has more of both throughput and ESS.{rest}"
    )


def _row_figures(row: dict[str, Any], found: Any, digits: dict[str, int]) -> list[str]:
    return [
        *(
            with_half_width(row[metric], row[f"{metric}_half_width"], digits[metric])
            for metric in (found.throughput, EFFECTIVE, found.ess)
        ),
        fixed(row["mean_lag"], 2),
        fixed(row["seconds_per_update"], 1),
        fixed(row["rollouts_per_batch"], 1),
    ]


def _failures(content: Content) -> dict[str, Any]:
    """Say which runs failed and why, which cells were left out, which runs are missing."""
    status = content.status
    halted = [("", sentence) for sentence in _halted(content)]
    found: dict[str, Any] = {"sentences": [("", "None: every run was done.")], "reasons": [], "more": ""}
    if not (status["failed"] or status["excluded"] or status["not run"]):
        found["sentences"] += halted
        return found
    counts = [f"{status[name]:,} {name}" for name in ("failed", "excluded", "not run") if status[name]]
    found["sentences"] = [("", f"Runs: {', '.join(counts)}.")]
    if status["excluded"]:
        found["sentences"] += [("", f"Left out: {reason}.") for reason in exclusion_reasons(content.spec)]
    if "reason" in content.ds and status["failed"]:
        reasons = content.ds["reason"].values.reshape(-1, content.ds.sizes["seed"])
        failed = np.argwhere(content.ds["status"].values.reshape(reasons.shape) == FAILED)
        by_reason = Counter(str(reasons[tuple(place)]) for place in failed)
        found["reasons"] = [f"{count:,} × {reason}" for reason, count in by_reason.most_common(10)]
        _, axes = cell_coordinates(content.ds)
        lines = [
            [
                describe_settings({name: values[row].item() for name, values in axes.items()}),
                str(content.ds["seed"].values[seed]),
                str(reasons[row, seed]),
            ]
            for row, seed in failed[:MOST_FAILURES]
        ]
        header = [("configuration", "text whole"), ("seed", ""), ("reason", "text whole")]
        found["table"] = Table(header, lines)
        left_out = len(failed) - MOST_FAILURES
        found["more"] = f"and {left_out:,} more." if left_out > 0 else ""
    found["sentences"] += halted
    return found


def _halted(content: Content) -> list[str]:
    """Say which configurations stalled or trained nothing, and in how many of their runs."""
    import polars as pl

    axes = content.found.axes
    halted = content.found.frame.filter(pl.col("halted_runs") > 0)
    if not halted.height:
        return []
    worst = halted.sort("halted_runs", descending=True, maintain_order=True).head(MOST_FAILURES).to_dicts()
    named = "; ".join(
        f"{describe_settings({name: row[name] for name in axes}) or 'the base'} in {halted_text(row)}"
        for row in worst
    )
    rest = f"; and {halted.height - len(worst):,} more" if halted.height > len(worst) else ""
    return [
        f"Runs that stalled or trained nothing, in {halted.height:,} configurations: {named}{rest}. "
        "lagsweep simulate with such settings says why."
    ]


def _provenance(content: Content) -> dict[str, Any]:
    """Say what the figures rest on: law, settings, versions, commands, times."""
    attributes, spec = content.ds.attrs, content.spec
    versions = [
        f"{name.removesuffix('_version')} {attributes[name]}"
        for name in ("lagsweep_version", "numpy_version", "numba_version", "python_version")
        if name in attributes
    ]
    own = [f"Rules of the user's own: {spec.custom.describe()}"] if spec.custom else []
    lost = not_recorded(content.whole)
    own += [not_recorded_note(lost).capitalize()] if lost else []
    base = {name: value for name, value in spec.to_plain()["base"].items() if name != "response_length"}
    return {
        "fingerprint": attributes.get("fingerprint", spec.fingerprint),
        "seeds": _seeds(spec.seeds),
        "laws": spec.length_laws,
        "lines": [*own, f"Versions: {', '.join(versions)}", *_runs(content.store)],
        "settings": "\n".join(f"{name} = {_short(value)}" for name, value in base.items()),
    }


def _short(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) < 300 else shown[:297] + "..."


def _seeds(seeds: tuple[int, ...]) -> str:
    if len(seeds) > 3 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} … {seeds[-1]} ({len(seeds):,})"
    return ", ".join(str(seed) for seed in seeds[:8]) + (f", … ({len(seeds):,})" if len(seeds) > 8 else "")


def _runs(store: str | None) -> list[str]:
    """Read which commands worked on the store; the host's name stays out of a page that gets passed on."""
    if store is None:
        return []
    try:
        runs = json.loads((Path(store) / "run.json").read_text(encoding="utf-8"))["runs"]
    except (OSError, ValueError, KeyError):
        return []
    lines = []
    for run in runs[-5:]:
        parts = " ".join(str(part) for part in run.get("command", []))
        lines.append(
            f"{run.get('began', '?')} to {run.get('ended') or '?'}, {run.get('outcome', '?')}: {parts} "
            f"({run.get('platform', '?')}, {run.get('cpus', '?')} CPUs)"
        )
    return lines


def _commands(content: Content) -> dict[str, Any]:
    """Return the exact commands that make all of this again, go on with it, and look into one run."""

    spec = content.spec
    lines = Commands(spec, content.whole, content.store)
    seed = spec.seeds[0] if spec.seeds else 0
    cell = content.best.cell if content.best.cell is not None else int(np.ravel(spec.cell_ids)[0])
    return {
        "spec": _trimmed(spec_to_toml(spec)),
        "resume": lines.resume(),
        "seed": seed,
        "trace": lines.trace(cell, seed),
        "replay": lines.replay_in_python(cell, seed),
        "verify": lines.verify(),
    }


def _trimmed(spec: str, most: int = 40_000) -> str:
    """Keep a spec that embeds a long table of lengths from filling the page."""
    return (
        spec if len(spec) <= most else spec[:most] + "\n# ... cut; the whole file is spec.toml in the store\n"
    )


def cell_labels(content: Content, cells: set[int]) -> dict[int, str]:
    """Name the cells that charts can pick."""
    frame, axes = content.found.frame, content.found.axes
    rows = frame.filter(frame["cell"].is_in(list(cells))).iter_rows(named=True)
    return {row["cell"]: short_label({name: row[name] for name in axes}) for row in rows}
