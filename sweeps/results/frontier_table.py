"""The frontier as text that fits a terminal: sequential baseline first, then the frontier, then what is near.

Every figure carries its interval or its unit; the drift that the ESS assumes is named, and lag and rollouts
per batch stand beside it, since a small batch flatters an ESS.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .cells import GOODPUT
from .left_out import Rows, figures_of, interval_sentence, left_out_sentences, nothing_done, rows_of
from .numbers import all_equal, digits_for, fixed, number, with_half_width
from .text import UNBOUNDED, fits, grid, grid_with_settings, wrapped
from .words import axis_heading, describe_settings

if TYPE_CHECKING:
    import polars

    from .frontier import Frontier

HEADER = ("tokens/s", "ESS", "s/update", "lag", "roll./batch")
HALTED = "halted"  # runs that stalled or trained nothing
FRESH_ENOUGH = 0.9
MOST_SCENARIOS, FEWEST_ROWS = 6, 3


def frontier_text(result: Frontier, *, rows: int = 12) -> str:
    """Write the frontier as a table that fits the terminal, with the assumptions below it.

    Of several scenarios each has a table of its own.
    """
    if nothing := nothing_done(result):
        beside = [_table(result, []), ""] if result.baseline else []
        return "\n".join([*beside, nothing])
    parts = result.parts()[:MOST_SCENARIOS]
    each = rows if len(parts) == 1 else max(FEWEST_ROWS, rows // len(parts))
    texts, tables = [], []
    for values, part in parts:
        frontier = part.on_frontier()
        shown = distinct(part, frontier).head(each).to_dicts()
        tables.append(rows_of(part, frontier, each))
        heading = [wrapped(f"{describe_settings(values)}:"), ""] if values else []
        texts += [*heading, _table(part, shown), *_worth_a_look(part), *([""] if values else [])]
    return "\n".join([*texts, *_notes(result, tables)[1 if result.scenarios else 0 :]])


def _table(result: Frontier, shown: list[dict[str, Any]]) -> str:
    """Write the rows of one scenario under its baseline."""
    everything = [*shown, *([result.baseline] if result.baseline else [])]
    digits = {
        metric: digits_for(
            [row[metric] for row in everything], [row[f"{metric}_half_width"] for row in everything]
        )
        for metric in (result.throughput, result.ess)
    }
    header = list(HEADER)
    if _fails(result):
        header[2] = "goodput"
    if result.throughput != "trained_tokens_per_second":
        header[0] = result.throughput
    lines: list[tuple[Any, list[str]]] = []
    if result.baseline is not None:
        lines.append(("seq.", _figures(result.baseline, result, digits)))
    lines += [([row[name] for name in result.axes], _figures(row, result, digits)) for row in shown]
    if any(row["halted_runs"] for row in shown):
        header.append(HALTED)
        halted = ["", *map(halted_text, shown)] if result.baseline is not None else map(halted_text, shown)
        lines = [(settings, [*figures, text]) for (settings, figures), text in zip(lines, halted)]
    return grid_with_settings(result.axes, header, lines)


def _fails(result: Frontier) -> bool:
    """Tell whether the table shows goodput: seconds per update count lost updates too."""
    return GOODPUT in result.frame.columns


def _has_equal_seeds(result: Frontier) -> bool:
    """Tell whether a mean of the frontier or of a baseline has no interval, since all seeds are equal."""
    beside = [baseline for _, baseline in result.scenarios] if result.scenarios else [result.baseline]
    rows = [*result.on_frontier().to_dicts(), *(row for row in beside if row is not None)]
    return any(
        all_equal(row[metric], row[f"{metric}_half_width"])
        for row in rows
        for metric in (result.throughput, result.ess)
    )


def halted_text(row: dict[str, Any]) -> str:
    """Say how many of a cell's runs stalled or trained nothing, where any did."""
    return f"{row['halted_runs']} of {row['runs']}" if row["halted_runs"] else ""


def distinct(result: Frontier, frame: polars.DataFrame) -> polars.DataFrame:
    """Keep the first of rows that have the same figures; which of the others are its runs, `rows_of` says."""
    return frame.unique(figures_of(result), keep="first", maintain_order=True)


def _figures(row: dict[str, Any], result: Frontier, digits: dict[str, int]) -> list[str]:
    return [
        *(
            with_half_width(row[metric], row[f"{metric}_half_width"], digits[metric])
            for metric in (result.throughput, result.ess)
        ),
        fixed(row[GOODPUT], 3) if _fails(result) else fixed(row["seconds_per_update"], 1),
        fixed(row["mean_lag"], 2),
        fixed(row["rollouts_per_batch"], 1),
    ]


def worth_a_look(result: Frontier) -> list[tuple[str, dict[str, Any]]]:
    """Pick the cells that answer common wishes: the fastest, also of the fresh ones, and the freshest.

    Returns
    -------
    list of (wish, row)
        Wish by wish, of each scenario; a wish that no cell fulfils is left out.
    """
    return wished_for([part for _, part in result.parts()])


def wished_for(parts: Iterable[Frontier]) -> list[tuple[str, dict[str, Any]]]:
    """Pick the cells that answer common wishes of some scenarios, as :func:`worth_a_look` does of all."""
    by_scenario = [dict(_wishes(part)) for part in parts]
    wishes = dict.fromkeys(wish for found in by_scenario for wish in found)
    return [(wish, found[wish]) for wish in wishes for found in by_scenario if wish in found]


def _wishes(result: Frontier) -> list[tuple[str, dict[str, Any]]]:
    """Pick the cells of one scenario."""
    import polars as pl

    usable = result.frame.filter(
        pl.col(result.throughput).is_not_nan()
        & (pl.col(result.throughput) > 0)
        & pl.col(result.ess).is_not_nan()
        & (pl.col("halted_runs") < pl.col("runs"))
    )
    fresh = usable.filter(pl.col(result.ess) >= FRESH_ENOUGH)
    wishes = (
        ("fastest", usable, [result.throughput]),
        (f"fastest, ESS ≥ {FRESH_ENOUGH}", fresh, [result.throughput]),
        ("effective tokens/s", usable, ["effective_tokens_per_second"]),
        ("freshest", usable, [result.ess, result.throughput]),
    )
    return [
        (wish, frame.sort(by, descending=True, maintain_order=True).row(0, named=True))
        for wish, every, by in wishes
        if (frame := every.filter(pl.col(by[0]).is_not_nan())).height
    ]


def _worth_a_look(result: Frontier) -> list[str]:
    found = _wishes(result)
    if not found:
        trained = (result.frame[result.throughput].fill_nan(0.0) > 0).any()
        return [
            "",
            "Every configuration stalled in every run." if trained else "No configuration trained a batch.",
        ]
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
        ["worth a look", *map(axis_heading, result.axes), *header],
        [
            [wish, *(number(value) for value in settings.values()), *figures]
            for wish, settings, figures in lines
        ],
        left=[0],
        width=UNBOUNDED,
    )
    if fits(text):
        return ["", text]
    table = grid(["worth a look", *header], [[wish, *figures] for wish, _, figures in lines], left=[0])
    wishes: dict[str, list[str]] = {}
    for wish, settings, _ in lines:
        wishes.setdefault(describe_settings(settings), []).append(wish)
    legend = [wrapped(f"{'; '.join(names)}: {settings}", "   ", "") for settings, names in wishes.items()]
    return ["", table, "", *legend]


def _notes(result: Frontier, tables: list[Rows]) -> list[str]:
    """Say what the tables rest on and what they leave out."""
    import polars as pl

    frontier = sum(one.frontier for one in tables)
    sentences = [
        f"{frontier:,} of {result.configurations:,} configurations are on the frontier of "
        f"{result.throughput} and {result.ess}: no other has more of both."
    ]
    if result.alone:
        nobody = " and ".join(result.scenario_axes)
        sentences = [
            f"Nobody chooses {nobody}, and each configuration has a value of its own: no two can be compared."
        ]
    elif result.scenarios:
        total, nobody = len(result.scenarios), " and ".join(result.scenario_axes)
        rest = f"; the first {len(tables)} are shown" if len(tables) < total else ""
        sentences = [
            f"Nobody chooses {nobody}, so each of its {total:,} scenarios has a frontier of its own{rest}: "
            "configurations of which no other of the scenario has more of both "
            f"{result.throughput} and {result.ess}, {result.on_frontier().height:,} of "
            f"{result.configurations:,} in all. "
            "`lagsweep recommend` chooses one setting for all scenarios."
        ]
    sentences += left_out_sentences(result, tables)
    partly = result.frame.filter((pl.col("halted_runs") > 0) & (pl.col("halted_runs") < pl.col("runs")))
    if partly.height:
        worst = partly.sort("halted_runs", descending=True, maintain_order=True).row(0, named=True)
        settings = describe_settings({name: worst[name] for name in result.axes})
        sentences.append(
            f"{HALTED}: runs that stalled or trained nothing, under some seeds only in {partly.height:,} "
            f"configurations: {settings} in {halted_text(worst)}. Their means say little."
        )
    beside = [baseline for _, baseline in result.scenarios] if result.scenarios else [result.baseline]
    sentences.append(interval_sentence(result, beside, _has_equal_seeds(result)))
    if _fails(result):
        sentences.append(
            "goodput: busy time of steps that were not lost, over the time in which the trainer had data. "
            "Tokens/s leave out what was lost."
        )
    sentences.append(
        f"ESS: expected normalized ESS at {result.drift}."
        + (" The lag limit is enforced by discarding only." if result.level_1 else "")
    )
    if any(baseline is not None for baseline in beside):
        sentences.append(
            "seq.: sequential baseline, disaggregated (its GPUs wait, they do not change sides)."
        )
    return ["", *(wrapped(sentence) for sentence in sentences)]
