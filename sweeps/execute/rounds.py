"""The rounds that a stopping rule asks for: seeds are added only to the cells that need more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels.pipeline.metrics import with_nan
from ..spec.stopping import Rule
from .plan import Part
from .progress import Progress

RunMask = Callable[[np.ndarray, int, int], None]
ReadValues = Callable[[str, int], np.ndarray]


def run_rounds(rule: Rule, part: Part, run: RunMask, read: ReadValues, progress: Progress) -> dict[str, Any]:
    """Run a part's cells until each has seeds enough, or has no value in any of those that it had.

    Parameters
    ----------
    rule : Rule
    part : Part
    run : callable
        Given the open cells (bool, flat) and a range of seeds, does these runs, unless they were done before.
    read : callable
        Given a metric and a number of seeds, gives its values (cells, seeds), NaN where not done.
    progress : Progress

    Returns
    -------
    dict
        ``runs`` done, ``fixed`` (had all cells the seeds of the neediest), ``open`` (cells that ran out of
        seeds first), ``seeds`` per cell.
    """
    looks = rule.looks(len(part.seeds))
    open_cells = ~part.excluded.reshape(-1)
    counted, seeds, before = open_cells.copy(), np.zeros(open_cells.size, np.int64), 0
    for look in looks:
        run(open_cells, before, look)
        seeds[open_cells], before = look, look
        values = with_nan(rule.metric, read(rule.metric, look))
        empty = open_cells & np.isnan(values).all(axis=1)
        if count := int(empty.sum()):
            cells = f"{count} cell{'s' if count > 1 else ''}"
            progress.note(f"until: {rule.metric} has no value in {cells}; more seeds do not help")
        open_cells = open_cells & ~empty
        open_cells = open_cells & ~rule.enough(values, open_cells, len(looks))
        progress.note(f"until: {look} seeds, {int(open_cells.sum())} of {int(counted.sum())} cells need more")
        if not open_cells.any():
            break
    done, fixed = int(seeds.sum()), int(seeds.max()) * int(counted.sum())
    saved = 1 - done / fixed if fixed else 0.0
    progress.note(f"until: {done:,} runs in place of {fixed:,} at equal seeds, {saved:.0%} saved")
    if open_cells.any():
        short = int(open_cells.sum())
        progress.note(f"until: {short} cells ran out of seeds first; give more than {len(part.seeds)}")
    return {"runs": done, "fixed": fixed, "open": int(open_cells.sum()), "seeds": seeds}
