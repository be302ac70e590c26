"""The frontier as text that fits a terminal: sequential baseline first, then the frontier, then what is near.

Every figure carries its interval or its unit; the drift that the ESS assumes is named, and lag and rollouts
per batch stand beside it, since a small batch flatters an ESS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lagsweep.sweeps.text_table import (
    SHORT_AXES,
    WIDTH,
    describe_settings,
    digits_for,
    fixed,
    grid,
    grid_with_settings,
    missing,
    number,
    with_half_width,
    wrapped,
)

if TYPE_CHECKING:
    from lagsweep.sweeps.analysis import Frontier

HEADER = ("tokens/s", "ESS", "s/update", "lag", "roll./batch")
FRESH_ENOUGH = 0.9


def frontier_text(result: Frontier, *, rows: int = 12) -> str:
    """Write the frontier as a table of at most 80 columns, with the assumptions below it."""
    frontier = result.on_frontier().to_dicts()
    different = distinct_rows(result, frontier)
    shown = different[:rows]
    everything = [*shown, *([result.baseline] if result.baseline else [])]
    digits = {
        metric: digits_for(
            [row[metric] for row in everything], [row[f"{metric}_half_width"] for row in everything]
        )
        for metric in (result.throughput, result.ess)
    }
    header = list(HEADER)
    if result.throughput != "trained_tokens_per_second":
        header[0] = result.throughput
    lines: list[tuple[Any, list[str]]] = []
    if result.baseline is not None:
        lines.append(("seq.", _figures(result.baseline, result, digits)))
    lines += [([row[name] for name in result.axes], _figures(row, result, digits)) for row in shown]
    table = grid_with_settings(result.axes, header, lines)
    return "\n".join([table, *_worth_a_look(result), *_notes(result, frontier, different, shown)])


def distinct_rows(result: Frontier, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the first of rows that have the same figures (a cap that is never reached makes no difference)."""
    seen = set()
    kept = []
    for row in rows:
        key = tuple(row[name] for name in (result.throughput, result.ess, "mean_lag", "seconds_per_update"))
        if key not in seen:
            kept.append(row)
            seen.add(key)
    return kept


def _figures(row: dict[str, Any], result: Frontier, digits: dict[str, int]) -> list[str]:
    return [
        *(
            with_half_width(row[metric], row[f"{metric}_half_width"], digits[metric])
            for metric in (result.throughput, result.ess)
        ),
        fixed(row["seconds_per_update"], 1),
        fixed(row["mean_lag"], 2),
        fixed(row["rollouts_per_batch"], 1),
    ]


def worth_a_look(result: Frontier) -> list[tuple[str, dict[str, Any]]]:
    """Pick the cells that answer common wishes: the fastest, also of the fresh ones, and the freshest.

    Returns
    -------
    list of (wish, row)
        A wish that no cell fulfils is left out.
    """
    rows = [row for row in result.frame.iter_rows(named=True) if not missing(row[result.throughput])]
    rows = [row for row in rows if row[result.throughput] > 0 and not missing(row[result.ess])]
    if not rows:
        return []
    fresh = [row for row in rows if row[result.ess] >= FRESH_ENOUGH]
    found = [
        ("fastest", max(rows, key=lambda row: row[result.throughput])),
        *(
            [(f"fastest, ESS ≥ {FRESH_ENOUGH}", max(fresh, key=lambda row: row[result.throughput]))]
            if fresh
            else []
        ),
        ("effective tokens/s", max(rows, key=lambda row: row["effective_tokens_per_second"])),
        ("freshest", max(rows, key=lambda row: (row[result.ess], row[result.throughput]))),
    ]
    return found


def _worth_a_look(result: Frontier) -> list[str]:
    found = worth_a_look(result)
    if not found:
        return ["", "No configuration trained a batch."]
    header = ["tokens/s", "effective", "ESS"]
    lines = []
    for wish, row in found:
        figures = [
            fixed(row[result.throughput], 0),
            fixed(row["effective_tokens_per_second"], 0),
            fixed(row[result.ess], 3),
        ]
        lines.append((wish, {name: row[name] for name in result.axes}, figures))
    text = grid(
        ["worth a look", *(SHORT_AXES.get(name, name) for name in result.axes), *header],
        [
            [wish, *(number(value) for value in settings.values()), *figures]
            for wish, settings, figures in lines
        ],
        left=1,
    )
    if max(len(line) for line in text.splitlines()) <= WIDTH:
        return ["", text]
    table = grid(["worth a look", *header], [[wish, *figures] for wish, _, figures in lines], left=1)
    wishes: dict[str, list[str]] = {}
    for wish, settings, _ in lines:
        wishes.setdefault(describe_settings(settings), []).append(wish)
    legend = [wrapped(f"{'; '.join(names)}: {settings}", "   ", "") for settings, names in wishes.items()]
    return ["", table, "", *legend]


def _notes(
    result: Frontier,
    frontier: list[dict[str, Any]],
    different: list[dict[str, Any]],
    shown: list[dict[str, Any]],
) -> list[str]:
    cells = result.frame.height
    sentences = [
        f"{len(frontier)} of {cells} configurations are on the frontier of {result.throughput} and "
        f"{result.ess}: no other has more of both."
    ]
    if len(different) < len(frontier):
        sentences.append(
            f"Left out: {len(frontier) - len(different)} more with the very figures of one shown, from which "
            "they differ in a setting that never took effect."
        )
    if len(shown) < len(different):
        sentences.append(f"The fastest {len(shown)} of them are shown.")
    if result.seeds > 1:
        sentences.append(
            f"±: half width of the {result.confidence:.0%} Student interval over {result.seeds} seeds."
        )
    else:
        sentences.append("One seed gives no interval.")
    sentences.append(
        f"ESS: expected normalized ESS at drift_per_version = {_drift(result)}, an assumption, not a "
        "measurement." + (" The lag limit is enforced by discarding only." if result.level_1 else "")
    )
    if result.baseline is not None:
        sentences.append(
            "seq.: sequential baseline, disaggregated (its GPUs wait, they do not change sides)."
        )
    return ["", *(wrapped(sentence) for sentence in sentences)]


def _drift(result: Frontier) -> str:
    if "drift_per_version" in result.axes:
        return "the axis's value"
    return f"{result.drift_per_version:g}"
