"""How a block of runs is set up: what runs together, and what a thread keeps for its next block."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from ...kernels.pipeline.metrics import hidden_metrics
from ..config.config import PipelineConfig

if TYPE_CHECKING:
    from .many import Cells, CellsOf, Record

_KEPT_GROUPS = 2  # of laws, each of which has draws of its own: several megabytes


class Setup:
    """How some configurations run: those that share a loop and their laws together.

    `lean`: level 1 by the lean loop.
    """

    def __init__(
        self,
        configs: Sequence[PipelineConfig],
        record: Record,
        cells_of: CellsOf | None = None,
        *,
        lean: bool = True,
    ) -> None:
        self.configs, self.record, self.cells_of = tuple(configs), record, cells_of
        together: dict[tuple[bool, str, str], list[int]] = {}
        for index, config in enumerate(configs):
            # Windows need to know which batch a discard comes with: the general loop tells.
            above = not (lean and config.is_level_1 and cells_of is None) or record.windows.count > 0
            drift = "" if config.drift is None else config.drift.digest
            together.setdefault((above, config.response_length.digest, drift), []).append(index)
        self._groups = [(above, members) for (above, _, _), members in sorted(together.items())]
        by_options: dict[frozenset[str], list[int]] = {}
        for index, config in enumerate(configs):
            by_options.setdefault(config.options_in_use, []).append(index)
        self.hidden = hidden_metrics(frozenset().union(*by_options))
        # A configuration reports what it does by itself, also beside others that use more options.
        self.hidden_beside = [
            (hidden_metrics(options) - self.hidden, places)
            for options, places in by_options.items()
            if len(by_options) > 1
        ]
        self._kept: list[Cells] = []
        # What was recorded still lies in the arrays of its cells; rules of the user's own may remember.
        self._keeps = not record.anything and cells_of is None and len(self._groups) <= _KEPT_GROUPS

    def fits(self, configs: Sequence[PipelineConfig], record: Record, cells_of: CellsOf | None) -> bool:
        """Tell whether it is that of these very configurations."""
        alike = record == self.record and cells_of is self.cells_of and len(configs) == len(self.configs)
        return alike and all(map(operator.is_, configs, self.configs))

    def cells(self) -> Iterator[tuple[Cells, list[int]]]:
        """Yield what runs each group, and the places of its configurations."""
        for place, (above, members) in enumerate(self._groups):
            if place < len(self._kept):
                yield self._kept[place], members
                continue
            cells = self._new_cells(above, [self.configs[index] for index in members])
            if self._keeps:
                self._kept.append(cells)
            yield cells, members

    def _new_cells(self, above: bool, configs: list[PipelineConfig]) -> Cells:
        from .general_cells import GeneralCells
        from .lean import LeanCells

        record, ours = self.record, cast("CellsOf", GeneralCells if above else LeanCells)
        batches = record.batches or record.windows.count > 0
        cells = self.cells_of or ours
        return cells(configs, batches=batches, timeline=record.timeline, rollouts=record.rollouts)


class Kept:
    """What one thread keeps from one block of runs to the next, which often has the same configurations.

    Examples
    --------
    >>> import numpy as np
    >>> from lagsweep.sweeps.runs.many import simulate_batch
    >>> kept, configs = Kept(), [PipelineConfig(duration_seconds=30)]
    >>> first, again = (simulate_batch(configs, np.arange(3), kept=kept).metrics for _ in range(2))
    >>> all(np.array_equal(first[name], again[name], equal_nan=True) for name in first)
    True
    """

    def __init__(self) -> None:
        self._last: Setup | None = None

    def setup_of(self, configs: Sequence[PipelineConfig], record: Record, cells_of: CellsOf | None) -> Setup:
        """Return how configurations run: what was kept, if it is theirs; nothing is kept until they have."""
        last, self._last = self._last, None
        return last if last and last.fits(configs, record, cells_of) else Setup(configs, record, cells_of)

    def keep(self, setup: Setup) -> None:
        """Keep what has run to its end."""
        self._last = setup
