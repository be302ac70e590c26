"""Why a store cannot settle which configuration is best, and the command that would settle it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import many
from ...kernels.pipeline.metrics import METRIC_BY_NAME
from ..results.cells import alone, cell_values
from ..results.commands import Commands
from ..results.frontier import THROUGHPUT
from ..results.numbers import number, seeds_words, signed_percent
from ..results.words import describe_settings
from ..runs.engine_remarks import engine_remarks
from ..runs.status import EXCLUDED, FAILED, NOT_RUN
from ..spec.carried import spec_of
from .compare import PRACTICALLY_EQUAL, Comparison
from .parts import Alternative, BoundReport, Doubt
from .untried import fresher_limits, next_value

if TYPE_CHECKING:
    import xarray

    from ..spec.spec import SweepSpec
    from .table import ChoiceTable

FEW_SEEDS = 30  # what to ask for when there is no spread to plan with
MOST_SEEDS = 100_000
MOST_HALTED = 3
MOST_TYPED = 64  # values of an axis that a command line may list
SATURATED = 0.995  # share of time in which the trainer trains


def doubts_about(
    ds: xarray.Dataset,
    table: ChoiceTable,
    comparison: Comparison | None,
    ties: Sequence[Alternative],
    reports: Sequence[BoundReport],
    confidence: float,
    store: str | Path | None,
) -> tuple[Doubt, ...]:
    """List what speaks against taking the choice as settled; the most serious first."""

    spec = spec_of(ds)
    more = Commands(spec, ds, store)
    found = [*_unfinished(ds, more), *_left_out(table)]
    if comparison is None:
        # Where nothing is done there is nothing to look into.
        nothing = [] if found and not table.done.any() else [_nothing_admissible(table, reports, spec, more)]
        return (*found, *nothing)
    found += _halted(table, comparison, ties)
    found += _engines(ds, table, comparison, spec)
    if ds.sizes["seed"] < 2:
        found.append(
            Doubt(
                "One seed has no spread: no interval, and nothing can be told apart.", more.seeds(FEW_SEEDS)
            )
        )
    else:
        done = int(table.seeds_of(comparison.choice)[0])
        if done < 2:
            text = "One seed of the choice is done: no interval, and nothing can be told apart."
            found.append(Doubt(text, more.seeds(2)))
        found += _open_ties(ties, more, seeds_words([done], ds.sizes["seed"]))
        found += _open_bounds(table, comparison, more)
    found += _edges(ds, table, comparison, spec, more)
    return tuple(found)


def _unfinished(ds: xarray.Dataset, more: Commands) -> list[Doubt]:
    status = ds["status"].values
    missing, failed = int((status == NOT_RUN).sum()), int((status == FAILED).sum())
    found = []
    if missing or not ds.attrs.get("complete", True):
        text = f"{missing:,} of {status.size:,} runs are not done yet."
        found.append(Doubt(text, more.resume() if more.store else None))
    if failed:
        every = failed == int((status != EXCLUDED).sum())
        if every:
            text = "The only run failed." if failed == 1 else f"All {failed:,} runs failed."
        else:
            cells = "its cell stands" if failed == 1 else "their cells stand"
            text = f"{many(failed, 'run')} failed; {cells} on fewer seeds."
        found.append(Doubt(text, more.run("--retry-failed") if more.store else None))
    return found


def _left_out(table: ChoiceTable) -> list[Doubt]:
    """Say which settings would keep every bound but stalled, or trained nothing, in every run."""
    kept = np.isfinite(table.means) & ~table.works
    for bound in table.bounds:
        kept &= bound.met(table.levels[bound.name])
    rows = np.flatnonzero(kept)
    if not len(rows):
        return []
    some = "; ".join(describe_settings(table.settings_of(int(row))) for row in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return [
        Doubt(
            f"Left out, since every run stalled or trained nothing: {some}{more}. "
            "`lagsweep simulate` with such settings says why."
        )
    ]


def _nothing_admissible(
    table: ChoiceTable, reports: Sequence[BoundReport], spec: SweepSpec, more: Commands
) -> Doubt:
    if not np.isfinite(table.objective).any() and table.works.any():
        return Doubt("No run has a value of the metric.")
    if not np.isfinite(table.ess).any():
        return Doubt("No setting trained a batch; simulate one of them to see where it stalls or starves.")
    if not table.works.any():
        return Doubt("Every setting stalls; simulate one of them to see where.")
    if not reports:
        return Doubt("No setting has a value in every scenario.")
    if all(report.name == "min_goodput" for report in reports):
        return Doubt(
            "No setting keeps it; shorter checkpoints or restarts, or other cadences, raise goodput."
        )
    fresher = fresher_limits(table, spec)
    if fresher is None:
        return Doubt("No setting keeps every bound; give the sweep other axes or values.")
    return Doubt("No setting keeps every bound. A smaller lag limit was not tried:", more.values(*fresher))


def _open_ties(ties: Sequence[Alternative], more: Commands, seeds: str) -> list[Doubt]:
    different = [tie for tie in ties if not (tie.identical or tie.equal or tie.halted_runs)]
    worth = [tie for tie in different if abs(tie.share) >= PRACTICALLY_EQUAL]
    if not worth:
        return []
    # The one that is farthest from the choice is the cheapest to rule out; the nearest costs most.
    needed = [tie.seeds_needed for tie in worth if tie.seeds_needed is not None]
    if not needed:
        return []
    count = _rounded_up(max(needed))
    which = "The runner-up" if len(worth) == 1 else f"{len(worth)} settings"
    text = f"{which} cannot be told apart from the choice with {seeds}"
    if count > MOST_SEEDS:
        text += f"; that would take more than {MOST_SEEDS:,}, so take them for equal."
        return [Doubt(text)]
    return [Doubt(f"{text}; about {count:,} would.", more.seeds(count))]


def _rounded_up(count: int) -> int:
    """Round up to two digits."""
    unit = 10 ** max(0, math.floor(math.log10(max(count, 1))) - 1)
    return math.ceil(count / unit) * unit


def _open_bounds(table: ChoiceTable, comparison: Comparison, more: Commands) -> list[Doubt]:
    found = []
    chosen = table.places[comparison.choice]
    for bound in table.bounds:
        undecided = table.undecided(bound)
        if not undecided.any():
            continue
        level, half = table.levels[bound.name], table.level_half_widths[bound.name]
        distance = np.abs(level - bound.limit)
        with np.errstate(divide="ignore"):
            needed = np.where(undecided, table.done * (half / distance) ** 2, 0)
        if undecided[chosen].any():
            row = int(chosen[np.argmax(undecided[chosen])])
            found.append(
                Doubt(
                    f"The choice's {bound.metric}, {level[row]:.4f} ±{half[row]:.4f}, may lie on either side "
                    f"of {bound.name} = {bound.limit:g}.",
                    _more_seeds(needed[row], more),
                )
            )
        better = undecided & ~bound.met(level) & table.admissible(leave_out=bound.name)
        better &= table.gain > table.gain[chosen].max()
        if better.any() and len(chosen) == 1:
            row = int(np.argmax(np.where(better, table.gain, -np.inf)))
            share = (table.gain[row] - table.gain[chosen[0]]) / abs(table.means[chosen[0]] or 1.0)
            found.append(
                Doubt(
                    f"{describe_settings(table.settings_of(row))} is better by {signed_percent(share)} "
                    f"and may keep {bound.name}: its {bound.metric} is {level[row]:.4f} ±{half[row]:.4f}.",
                    _more_seeds(needed[row], more),
                )
            )
    return found


def _more_seeds(needed: float, more: Commands) -> str | None:
    if not math.isfinite(needed) or needed > MOST_SEEDS:
        return None
    least = 1 if more.unfinished else len(more.spec.seeds) + 1
    return more.seeds(_rounded_up(max(math.ceil(needed), least)))


def _edges(
    ds: xarray.Dataset, table: ChoiceTable, comparison: Comparison, spec: SweepSpec, more: Commands
) -> list[Doubt]:
    """Find axes whose end the choice lies on, where going there still helps and there is room beyond."""
    row = int(table.places[comparison.choice][0])
    if _is_saturated(ds, table, row):
        return []
    found = []
    for axis in table.setting_axes:
        values = np.unique(table.axes[axis])
        if values.dtype.kind not in "iuf" or len(values) < 2:
            continue
        here = table.axes[axis][row]
        at_end = {values[0]: (values[1], -1), values[-1]: (values[-2], 1)}.get(here)
        if at_end is None:
            continue
        inward, direction = at_end
        beyond = next_value(spec, table.axes[axis], row, table, axis, direction)
        if beyond is None or not _still_better(table, comparison, row, axis, inward):
            continue
        end = "largest" if direction > 0 else "smallest"
        text = f"The choice has the {end} {axis} tried, {number(here.item())}, and it still helps there."
        if not spec.design.is_grid:
            found.append(Doubt(f"{text} Give the sweep points beyond it, such as {number(beyond)}."))
            continue
        if len(values) > MOST_TYPED:
            found.append(Doubt(f"{text} Give the axis values beyond it, such as {number(beyond)}."))
            continue
        found.append(Doubt(text, more.values(axis, [*(v.item() for v in values), beyond])))
    return found


def _is_saturated(ds: xarray.Dataset, table: ChoiceTable, row: int) -> bool:
    """Tell whether the trainer has no time left at the choice, so that no setting can make it train more."""
    if table.metric != THROUGHPUT or "trainer_utilization" not in ds:
        return False
    return bool(np.nanmean(cell_values(alone(ds, row), "trainer_utilization")[0]) >= SATURATED)


def _halted(table: ChoiceTable, comparison: Comparison, ties: Sequence[Alternative]) -> list[Doubt]:
    """Say in how many of their runs the choice, and what ties with it, stalled or trained nothing."""
    chosen = table.places[comparison.choice]
    tied = np.flatnonzero(np.isin(table.cells, [tie.cell for tie in ties]))
    found = []
    for which, rows in (("The choice", chosen), ("A tie", tied)):
        for row in rows[table.halted[rows] > 0][:MOST_HALTED]:
            at = "" if which == "The choice" else f", {describe_settings(table.settings_of(int(row)))},"
            halted = f"{int(table.halted[row])} of {int(table.done[row])} runs"
            text = f"{which}{at} stalled or trained nothing in {halted}."
            found.append(Doubt(f"{text} `lagsweep simulate` with such settings says why."))
    return found


def _engines(ds: xarray.Dataset, table: ChoiceTable, comparison: Comparison, spec: SweepSpec) -> list[Doubt]:
    """Say what holds the engines of the choice back."""
    row = int(table.places[comparison.choice][0])
    config = spec.config(row)
    if config.engine is None or "decode_steps" not in ds:
        return []
    names = [name for name in METRIC_BY_NAME if name in ds and ds[name].dims[-1:] == ("seed",)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a mean of nothing is NaN
        one = alone(ds, row)
        metrics = {name: float(np.nanmean(cell_values(one, name)[0])) for name in names}
    return [Doubt(f"At the choice {remark}.") for remark in engine_remarks(config, metrics)]


def _still_better(table: ChoiceTable, comparison: Comparison, row: int, axis: str, inward: Any) -> bool:
    """Tell whether the choice beats its neighbour one value further in (true where there is none)."""
    same = np.ones(len(table.cells), bool)
    for name in table.setting_axes:
        same &= table.axes[name] == (inward if name == axis else table.axes[name][row])
    settings = np.flatnonzero((table.places >= 0).all(axis=1) & same[table.places].any(axis=1))
    if not len(settings):
        return True
    mean, half = comparison.interval(settings[:1])
    return bool(mean[0] < 0 and not mean[0] + half[0] >= 0)


def law_hint(ds: xarray.Dataset, table: ChoiceTable, store: str | Path | None) -> Doubt | None:
    """Say how to try other length laws, where the sweep has one alone."""

    spec = spec_of(ds)
    if "response_length" in spec.design.columns:
        return None
    law = spec.base.response_length
    more = Commands(spec, ds, store)
    text = f"All of this holds for one length law, {law.name}."
    own, other = _two_laws(law.to_dict())
    if other is None or not spec.design.is_grid:
        return Doubt(f"{text} Give the sweep an axis response_length with other laws to see if it stays.")
    if more.store is None:
        return Doubt(f"{text} Run it with the axis response_length=[law, another] to see if it stays.")
    return Doubt(f"{text} To see if it stays under another:", more.values("response_length", [own, other]))


def _two_laws(plain: dict[str, Any]) -> tuple[str, str | None]:
    """Write a law and a different one in the short form of flags; None where it has no short form."""
    if plain.get("law") == "shipped":
        other = "aime-rl-500" if plain["name"] != "aime-rl-500" else "aime-rl-1000"
        return f"shipped:{plain['name']}", f"shipped:{other}"
    if plain.get("law") == "lognormal":
        rest = f"{plain['sigma']:g}:{plain['minimum']}:{plain['maximum']}"
        return f"lognormal:{plain['median']:g}:{rest}", f"lognormal:{1.5 * plain['median']:g}:{rest}"
    return "", None
