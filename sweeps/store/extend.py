"""Extend a stored sweep: more seeds, more values, another axis, without running again what is done.

The larger store is built aside and takes the folder's name when it is whole, so a kill at any moment leaves
the old store or the new one. Where a unit stays what it was, its files are linked, not copied, which makes
adding seeds and values to a large store a matter of its metadata; where the cut changes (a unit that grows
at an edge, much larger units for a much larger sweep), the values are read and written again. A new axis
has the store's old setting as its first value.
"""

from __future__ import annotations

import numpy as np

from ..execute.plan import Part, plan_parts
from ..execute.progress import Progress
from ..spec.spec import SweepSpec
from ..spec.union import added, union_spec
from .aside import replace_store
from .carry import carry_over
from .lock import StoreLock
from .resume import make_ready
from .store import SweepStore

_LARGER_UNITS = 4  # cut anew when the sweep has outgrown its units by this factor


def extend_store(
    store: SweepStore,
    asked: SweepSpec,
    lock: StoreLock,
    *,
    unit_runs: int | None,
    progress: Progress,
    rerun: bool = False,
) -> tuple[SweepStore, StoreLock]:
    """Return a store that holds what is stored and what is asked, with its lock held.

    Parameters
    ----------
    store : SweepStore
        Its lock is held.
    asked : SweepSpec
    lock : StoreLock
        That of `store`; released when the folder has changed hands.
    unit_runs : int, optional
        Cut anew into units of about so many runs.
    progress : Progress
    rerun : bool
        Take nothing over: all of it is run again.

    Raises
    ------
    StoreError
        If what is asked is not an extension of what is stored.
    """
    union = union_spec(store.spec, asked, store.folder)
    if union.fingerprint != store.spec.fingerprint:
        progress.note(f"store: extended by {added(store.spec, union)}")
    elif not rerun:
        progress.note("store: already holds what is asked, and more")
        return store, lock
    if rerun:
        progress.note("store: everything in it is undone and run again")
    else:
        # What does not hold now must not get a new digest that it fits.
        make_ready(store, progress)
    cut = _cut(store, union, unit_runs, anew=rerun)
    if len(cut) < len(store.parts):
        progress.note("store: its baseline has no meaning beside what is added, and is left out")

    def fill(larger: SweepStore) -> None:
        if not rerun:
            with progress.steps("units carried over", sum(part.layout.count for part in cut)) as step:
                carry_over(store, larger, step=step)

    return replace_store(store, lock, union, cut, fill)


def _cut(store: SweepStore, union: SweepSpec, unit_runs: int | None, *, anew: bool) -> list[Part]:
    """Choose the units: the store's, unless the sweep has outgrown them or others are asked for."""
    parts = []
    for whole in plan_parts(union, unit_runs):
        old = store.part(whole.name)
        # What the store has not, what is added has not either: half a column would read as a whole one.
        held = {metric.name for metric in (whole if anew else old).variables}
        part = whole.without(metric.name for metric in whole.variables if metric.name not in held)
        kept = [old.layout.chunks[old.dims.index(dim)] if dim in old.dims else 1 for dim in part.dims]
        outgrown = np.prod(part.layout.chunks) > _LARGER_UNITS * np.prod(kept)
        parts.append(part if outgrown or unit_runs is not None else part.with_chunks(kept))
    return parts
