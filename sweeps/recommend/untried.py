"""Values that nobody tried yet and a recommendation may name: one step beyond an axis, a smaller lag limit.

What is named must be worth a sweep: a value that the rules between settings refuse, or with which one run
trains nothing or comes to a halt, is not.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError
from ..config.config import PipelineConfig
from ..results.scenarios import numbered, rows_by_number
from ..runs.diagnosis import PROGRESSING, progress_status
from ..spec.axes import checked_value, field_of_axis
from ..spec.cells import checked_config, find_cell

if TYPE_CHECKING:
    from ..spec.spec import SweepSpec
    from .table import ChoiceTable

_MOST_LIMITS = 4  # lag limits that are looked at for one that trains
_MOST_SEEDS = 3  # at which a limit is looked at for what it changes


def fresher_limits(table: ChoiceTable, spec: SweepSpec) -> tuple[str, list[Any]] | None:
    """Return the axis of the lag limit with a smaller one than any tried; None where none is worth a sweep.

    The freshest setting that works is the one in whose place it is tried. It must train there, and change
    something: where nothing enforces the limit, or nothing gets as old, the runs would be the same again.

    Parameters
    ----------
    table : ChoiceTable
    spec : SweepSpec
        Of the whole sweep.
    """
    axis = next((name for name in ("max_lag", "max_policy_lag") if name in table.axes), "max_lag")
    tried = spec.design.columns[axis][1] if axis in table.axes else (spec.base.max_policy_lag,)
    if not spec.design.is_grid:
        return None
    row = int(np.argmax(np.where(table.works & np.isfinite(table.ess), table.ess, -np.inf)))
    own = spec.config(find_cell(spec, int(table.cells[row])))
    for limit in range(min(*tried, _MOST_LIMITS)):
        config = _cell_with(spec, table, row, axis, limit)
        if config is not None and _trains(config, spec) and _changes(table, spec, axis, own, config):
            return axis, [*tried, limit]
    return None


def _changes(
    table: ChoiceTable, spec: SweepSpec, axis: str, own: PipelineConfig, config: PipelineConfig
) -> bool:
    """Tell whether a configuration has other runs than one that was tried.

    With rules of the user's own, which a store does not hold, whether the axis changed anything so far.
    """
    if spec.custom is not None:
        return axis not in table.axes or _had_effect(table, axis)
    from ..runs.many import simulate_batch

    for seed in spec.seeds[:_MOST_SEEDS]:
        batch = simulate_batch([own, config], np.array([seed], np.uint64))
        if not all(np.array_equal(old, new, equal_nan=True) for old, new in batch.metrics.values()):
            return True
    return False


def _had_effect(table: ChoiceTable, axis: str) -> bool:
    """Tell whether settings that differ in one axis alone differ in the objective or in ESS at any seed."""
    others = [values for name, values in table.axes.items() if name != axis]
    numbers = numbered(others, len(table.cells))
    groups = rows_by_number(numbers, int(numbers.max(initial=-1)) + 1)
    values = np.concatenate([np.nan_to_num(table.objective, nan=-1.0), table.ess_by_seed], axis=1)
    return any(bool((values[rows] != values[rows[0]]).any()) for rows in groups if len(rows))


def next_value(
    spec: SweepSpec, column: np.ndarray, row: int, table: ChoiceTable, axis: str, direction: int
) -> Any:
    """Return a value one step beyond an axis's end, None where the field allows none or nothing is trained.

    Parameters
    ----------
    spec : SweepSpec
    column : ndarray
        The axis's value of every cell; the step is that of its last two, or their ratio.
    row : int
        The cell in whose place it is tried.
    table : ChoiceTable
    axis : str
    direction : {-1, 1}
    """
    values = np.unique(column)
    last, before = (values[-1], values[-2]) if direction > 0 else (values[0], values[1])
    ratios = values[1:] / np.where(values[:-1] == 0, np.nan, values[:-1])
    geometric = len(values) > 2 and bool((values > 0).all()) and bool(np.ptp(ratios) < 0.2 * ratios.mean())
    beyond = last * last / before if geometric else last + (last - before)
    if direction < 0 and beyond <= 0 < last:
        beyond = last / 2
    whole = column.dtype.kind in "iu"
    candidate = math.floor(beyond) if whole else float(beyond)
    if candidate == last.item():
        return None
    config = _cell_with(spec, table, row, axis, candidate)
    if config is None:
        return None
    # A cap below a batch stalls sooner or later.
    if field_of_axis(axis) == "max_queue_tokens" and candidate < (config.batch_tokens or 0):
        return None
    return candidate if _trains(config, spec) else None


def _cell_with(spec: SweepSpec, table: ChoiceTable, row: int, axis: str, value: Any) -> PipelineConfig | None:
    """Return a cell's configuration with another value on one axis; None where the rules refuse it."""
    field = field_of_axis(axis)
    try:
        checked = checked_value(field, value, axis)
        settings = spec.design.settings(find_cell(spec, int(table.cells[row])))
        return checked_config(spec.base, settings | {field: checked})
    except ConfigError:
        return None


def _trains(config: PipelineConfig, spec: SweepSpec) -> bool:
    """Tell by one run whether a setting trains at all and does not come to a halt.

    With rules of the user's own, which a store does not hold, it is taken to.
    """
    if spec.custom is not None:
        return True
    from ..runs.many import simulate_batch  # most recommendations need no run

    batch = simulate_batch([config], np.array(spec.seeds[:1], np.uint64))
    run: Any = SimpleNamespace(**{name: values[0, 0] for name, values in batch.metrics.items()})
    return bool(run.updates > 0) and progress_status(config, run) == PROGRESSING
