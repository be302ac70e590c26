"""Which metrics a store holds: one that is older than a metric has none of it, and says so when it grows.

A unit's line in the journal has one digest for each variable, so it tells how many there were. What is
missing on disk beyond that is damage, and not a sign of age.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..execute.plan import Part
from ..results.dataset import variable_table
from .arrays import DIGEST_BYTES, ZarrFiles
from .journal import CREATED, Journal

UNRECORDED = "unrecorded"  # key of the journal's first line: part -> metrics that are not kept
_NEVER_NEW = ("status", "lag_counts")  # of every store there ever was


def unrecorded(files: ZarrFiles, part: Part, journal: Journal) -> frozenset[str]:
    """Name the metrics of a part that its store was made without.

    Parameters
    ----------
    files : ZarrFiles
    part : Part
        With all metrics that its sweep reports today.
    journal : Journal

    Returns
    -------
    frozenset of str
        Without the part's prefix. Empty where an array is missing but the journal, or the copy of the
        metadata in a finished store, says that it was there.
    """
    said = _said(part, journal)
    if said is not None:
        return said
    kept = [name.removeprefix(part.prefix) for name in variable_table(part)]
    absent = [name for name in kept if not (files.path / (part.prefix + name)).exists()]
    absent = [name for name in absent if name not in _NEVER_NEW]
    if not absent:
        return frozenset()
    counts = {len(str(record.get("digest", ""))) // (2 * DIGEST_BYTES) for record in _lines(part, journal)}
    copied = _copied(files)
    never_there = [name for name in absent if part.prefix + name not in copied]
    fits = counts == {len(kept) - len(never_there)}
    return frozenset(never_there) if fits else frozenset()


def _said(part: Part, journal: Journal) -> frozenset[str] | None:
    """Return what the store's creation says of the part; None where it says nothing."""
    for record in journal.records:
        if record.get("kind") == CREATED and isinstance(record.get(UNRECORDED), dict):
            return frozenset(map(str, record[UNRECORDED].get(part.name, ())))
    return None


def _lines(part: Part, journal: Journal) -> Iterable[dict[str, object]]:
    return journal.units(part.name).values()


def _copied(files: ZarrFiles) -> set[str]:
    """Name the arrays of which the group's own metadata have a copy."""
    copies = files.root.get("consolidated_metadata")
    found = copies.get("metadata") if isinstance(copies, dict) else None
    return set(found) if isinstance(found, dict) else set()


def unrecorded_names(parts: Sequence[Part]) -> list[str]:
    """Name the variables that parts of a store were made without, in the order of the table.

    Examples
    --------
    >>> from lagsweep import PipelineConfig
    >>> from lagsweep.sweeps.execute.plan import plan_parts
    >>> from lagsweep.sweeps.spec.make import make_spec
    >>> parts = plan_parts(make_spec(PipelineConfig(), {}, 1))
    >>> unrecorded_names([parts[0].without({"mean_lag"})])
    ['mean_lag']
    """
    return [
        part.prefix + metric.name
        for part in parts
        for metric in part.without(()).variables
        if metric.name in part.unrecorded
    ]
