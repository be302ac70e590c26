"""How a finished store is cut: many small units are merged into fewer, by the spec and the cut alone.

While such a part is run, a unit is one file, a pack (see :mod:`.packs`), and not one chunk of every array.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..execute.plan import CELLS, Part, guessed_run_seconds, most_unit_runs
from ..execute.units import choose_chunks
from ..spec.spec import SweepSpec

MOST_UNITS = 64  # of a part, which are left as they are
MERGED_UNITS = 32  # of a part that had more, about, unless they would be too large
MERGED_SECONDS = 60.0  # of work in a merged unit, about: what a kill may lose when the store is extended


def merged_parts(spec: SweepSpec, parts: Sequence[Part]) -> list[Part]:
    """Cut the parts of a store as a finished one is cut; a part with few units stays as it is.

    A stopping rule's own part stays too: its units are those of the rounds.
    """
    return [part if spec.until is not None and part.name == CELLS else _merged(spec, part) for part in parts]


def _merged(spec: SweepSpec, part: Part) -> Part:
    if part.layout.count <= MOST_UNITS:
        return part
    *cells, seeds = part.layout.shape
    few = -(-int(np.prod(part.layout.shape)) // MERGED_UNITS)
    short = int(MERGED_SECONDS / guessed_run_seconds(spec.base, spec.design))
    runs = max(int(np.prod(part.layout.chunks)), min(few, short))
    merged = part.with_chunks(choose_chunks(cells, seeds, min(runs, most_unit_runs(spec))))
    return merged if merged.layout.count <= part.layout.count // 2 else part
