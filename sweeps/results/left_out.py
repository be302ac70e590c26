"""What a table of the frontier leaves out, said below it, and the seeds that its figures are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .numbers import seeds_words
from .same_runs import split_by_runs
from .scenarios import numbered, rows_by_number

if TYPE_CHECKING:
    import polars
    import xarray

    from .frontier import Frontier

FIGURES = ("mean_lag", "seconds_per_update")  # that tell rows apart, beside the two that are compared


class Rows(NamedTuple):
    """The rows of one table: how many there are to show, and how many others have the figures of one shown.

    Attributes
    ----------
    frontier, different, shown : int
        Rows of the frontier, those of them that differ in their figures, and those of these that are shown.
    same, alike : int
        Further rows with the very runs of one shown, and with its figures only.
    same_axes, alike_axes : frozenset of str
        The settings in which these differ from the one shown.
    """

    frontier: int
    different: int
    shown: int
    same: int
    same_axes: frozenset[str]
    alike: int
    alike_axes: frozenset[str]


def same_runs_of(
    ds: xarray.Dataset, columns: Mapping[str, np.ndarray], compared: tuple[str, str]
) -> dict[int, int]:
    """Tell which cells of the frontier that have the same figures have the very same runs.

    Parameters
    ----------
    ds : xarray.Dataset
    columns : mapping of str to ndarray, shape (cells,)
        As the frontier's frame has them, in cell order.
    compared : (throughput, ess)

    Returns
    -------
    dict
        Cell -> the first cell with its runs; none of cells whose figures no other has.
    """
    rows = np.flatnonzero(columns["on_frontier"])
    numbers = numbered([columns[name][rows] for name in (*compared, *FIGURES)], len(rows))
    ties = [rows[tied].tolist() for tied in rows_by_number(numbers, int(numbers.max(initial=-1)) + 1)]
    parts = split_by_runs(ds, [tie for tie in ties if len(tie) > 1])
    return {int(columns["cell"][row]): int(columns["cell"][part[0]]) for part in parts for row in part}


def figures_of(result: Frontier) -> list[str]:
    """Name the figures that tell the rows of a table apart."""
    return [result.throughput, result.ess, *FIGURES]


def rows_of(result: Frontier, frontier: polars.DataFrame, most: int) -> Rows:
    """Count what a table of at most so many different rows shows of the frontier, and what not."""
    count = frontier.height
    numbers = numbered([frontier[name].to_numpy() for name in figures_of(result)], count)
    _, firsts = np.unique(numbers, return_index=True)  # numbered by first appearance, so rising
    shown = firsts[numbers]
    left_out = (numbers < most) & (shown != np.arange(count))
    runs = np.array([result.same_runs.get(cell, -1 - cell) for cell in frontier["cell"].to_list()], np.int64)
    same = left_out & (runs == runs[shown]) if count else left_out
    alike = left_out & ~same
    axes = {name: frontier[name].to_numpy() for name in result.axes}

    def differing(rows: np.ndarray) -> frozenset[str]:
        return frozenset(name for name, own in axes.items() if (own[rows] != own[shown[rows]]).any())

    return Rows(
        count,
        len(firsts),
        min(len(firsts), most),
        int(same.sum()),
        differing(same),
        int(alike.sum()),
        differing(alike),
    )


def left_out_sentences(result: Frontier, tables: Sequence[Rows]) -> list[str]:
    """Say what tables of the frontier leave out, and what shows all."""
    same, alike = sum(one.same for one in tables), sum(one.alike for one in tables)
    sentences = []
    if same:
        axes = _listed(result, frozenset[str]().union(*(one.same_axes for one in tables)))
        what = f"; they differ in {axes}, which had no effect there" if axes else ""
        sentences.append(f"Left out: {same:,} more with the very same runs as one shown{what}.")
    if alike:
        axes = _listed(result, frozenset[str]().union(*(one.alike_axes for one in tables)))
        what = f"; they differ in {axes}" if axes else ""
        sentences.append(
            f"Left out: {alike:,} more with the figures of one shown, not all its metrics{what}."
        )
    if any(one.shown < one.different for one in tables):
        most = max(one.shown for one in tables)
        sentences.append(f"The fastest {most} {'of each' if result.scenarios else 'of them'} are shown.")
    rest = result.configurations - sum(one.shown for one in tables)
    if rest:
        sentences.append(
            f"Not in {'these tables' if len(tables) > 1 else 'this table'}: the other {rest:,}; `lagsweep "
            f"show STORE --csv` (or --json) lists all {result.configurations:,}, in Python `.frame`."
        )
    return sentences


def _listed(result: Frontier, axes: frozenset[str]) -> str:
    return " or ".join(name for name in result.axes if name in axes)


def interval_sentence(result: Frontier, baselines: Sequence[dict[str, Any] | None], equal: bool) -> str:
    """Say what ± means, and how many seeds it rests on.

    Parameters
    ----------
    result : Frontier
    baselines : sequence of dict or None
        Those of the tables.
    equal : bool
        Whether a mean of the tables has no interval since all its seeds are equal.
    """
    frame = result.on_frontier()
    ran = (frame if frame.height else result.frame)["runs"].to_list()
    done = [count for count in ran if count] or [0]
    if result.seeds < 2:
        return "One seed gives no interval."
    counted = seeds_words(done, result.seeds)
    if max(done) < 2:
        return f"Figures are of {counted}, which gives no interval."
    beside = {int(row["runs"]) for row in baselines if row is not None}
    of_baseline = (
        "" if not beside or beside == set(done) else f", of seq. over {seeds_words(beside, result.seeds)}"
    )
    return (
        f"±: half width of the {result.confidence:.0%} Student interval over {counted}{of_baseline}"
        f"{'; a mean without it is equal in all of them' if equal else ''}."
    )


def nothing_done(result: Frontier) -> str:
    """Say why a sweep has no figures at all; empty where some run was done."""
    if result.configurations:
        return ""
    if not result.failed_runs:
        return "No run is done yet."
    if result.missing_runs:
        return f"No run is done: {result.failed_runs:,} failed, {result.missing_runs:,} are missing."
    return f"All {result.failed_runs:,} runs failed." if result.failed_runs > 1 else "The only run failed."
