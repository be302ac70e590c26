"""Many configurations of the general loop at some seeds, in as few calls of the kernel as can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...kernels.errors import ConfigError
from ...kernels.pipeline import records
from ...kernels.pipeline.general_cells import UNUSED, run_general_cells_kernel
from ...kernels.pipeline.metrics import LAG_BINS
from ..config.config import PipelineConfig
from .failing import failing_parts, runs_together
from .general import GeneralRun, draw_plainly, draws_alone, new_draws
from .parameters import general_tables, pack, read_by_tables

DRAW_BUFFER_ROLLOUTS = 1 << 16  # under three megabytes a thread; a longer run draws the rest alone
# What the sizes of a run's arrays and their growth depend on, beside failures and the law's segments.
_sizes = attrgetter("rollout_workers", "group_size", "batch_groups", "admit", "limits", "engine")


class _Alike(NamedTuple):
    """Configurations whose runs have arrays and tables alike."""

    first: int  # place of the first in the order in which they run; the others follow
    configs: list[PipelineConfig]
    parameters: np.ndarray  # PARAMETERS[configurations]
    tables: records.Tables
    sizes: tuple[Any, ...]
    together: bool  # one call of the kernel runs many of them


class GeneralCells:
    """Some configurations that share a law of lengths, at some seeds; as :class:`.lean.LeanCells`.

    Those that have arrays and tables alike run together, in one call of the kernel: at all seeds where all
    are alike, else at one. Failures, engines and recorded rows need Python between two runs: such
    configurations run one after another. With recorded rows all run in the order in which they are given,
    else at each seed those that are alike follow one another.
    """

    def __init__(self, configs: Sequence[PipelineConfig], **record: bool) -> None:
        self.REPORT = GeneralRun.REPORT
        self.lag_bins = LAG_BINS
        self._order, self._kinds = _alike(configs, record)
        self._moved = bool(np.any(self._order != np.arange(len(configs))))
        first = self._kinds[0]
        if len(configs) > 1:
            plain = all(draw_plainly(kind.parameters) for kind in self._kinds)
            draws = new_draws(DRAW_BUFFER_ROLLOUTS, plain=plain)
        else:
            draws = draws_alone(first.configs[0], first.parameters)
        self._run = GeneralRun(first.configs[0], draws=draws, **record)
        self._sizes = first.sizes

    def begin(self, seeds: np.ndarray, metrics: np.ndarray, lag_counts: np.ndarray) -> None:
        """Start over with the first configuration at the first seed."""
        self._seeds, self.metrics, self._lag_counts = seeds, metrics, lag_counts
        self._at = 0, 0  # the kind in hand, and the place of its seed
        self._progress = np.zeros(2, np.int64)  # within the kind, as the kernel counts
        self.finished = 0
        self.reasons: dict[int, str] = {}
        self._begin_seeds()

    def _begin_seeds(self) -> None:
        """Take up the next seed, or all of them where one call runs them."""
        place, count = self._at[1], len(self._order)
        one_kind = len(self._kinds) == 1 and self._kinds[0].together
        self._some = self._seeds if one_kind else self._seeds[place : place + 1]
        rows = slice(place * count, (place + len(self._some)) * count)
        self._found, self._lags = self.metrics[rows], self._lag_counts[rows]
        if self._moved:
            self._found, self._lags = np.zeros_like(self._found), np.zeros_like(self._lags)

    def step(self) -> None:
        """Call the kernel once; recording, it comes back after each run."""
        index, seed = self._at
        kind = self._kinds[index]
        done = int(self._progress[0])
        try:
            if kind.together:
                self._step_together(kind)
            else:
                self._step_alone(kind)
        except ConfigError as error:
            row = kind.first + int(self._progress[0])
            count = len(self._order)
            self.reasons[(seed + row // count) * count + int(self._order[row % count])] = str(error)
            self._run.held = None  # far larger than any other run needs
            self._progress[:] = self._progress[0] + 1, 0
        self.finished += int(self._progress[0]) - done
        if self._progress[0] < len(kind.configs) * len(self._some):
            return
        self._progress[:] = 0
        self._at = index + 1, seed
        if self._at[0] == len(self._kinds):
            self._end_seeds()

    def _end_seeds(self) -> None:
        """Put the runs of a seed where they belong, and go on to the next."""
        if self._moved:
            first = self._at[1] * len(self._order)
            self.metrics[first + self._order] = self._found
            self._lag_counts[first + self._order] = self._lags
        self._at = 0, self._at[1] + len(self._some)
        if self._at[1] < len(self._seeds):
            self._begin_seeds()

    def _step_together(self, kind: _Alike) -> None:
        run, rows = self._run, slice(kind.first, kind.first + len(kind.configs) * len(self._some))
        if self._progress[1] == 0:
            self._turn_to(kind)
        _, _, _, budget, *reads_and_holds = run.arguments(np.int64(records.NEVER), np.int64(run.budget))
        found, lags = self._found[rows], self._lags[rows]
        status = run_general_cells_kernel(
            kind.parameters, self._some, self._progress, budget, *reads_and_holds, UNUSED, found, lags
        )
        if status == records.GROW_GROUPS:
            # What cannot grow names its own settings.
            place = int(self._progress[0]) % len(kind.configs)
            run.turn_to(kind.configs[place], kind.parameters[place : place + 1], kind.tables)
        run.grow(status)

    def _step_alone(self, kind: _Alike) -> None:
        run, place = self._run, int(self._progress[0])
        if self._progress[1] == 0:
            self._turn_to(kind)
            run.begin(int(self._some[0]))
            self._progress[1] = 1
        if run.step():
            at = kind.first + place
            run.summarize(self._found[at : at + 1])
            self._lags[at] = run.lag_counts
            self._progress[:] = place + 1, 0

    def _turn_to(self, kind: _Alike) -> None:
        """Let the run take up the next configuration, with the arrays of the last where they are alike."""
        run, before = self._run, self._run.held
        place = int(self._progress[0]) % len(kind.configs)
        if kind.sizes != self._sizes:
            run.held, self._sizes = None, kind.sizes
        run.turn_to(kind.configs[place], kind.parameters[place : place + 1], kind.tables)
        if run.held is None and kind.together:
            run.begin(int(self._some[0]))
            if before is not None:
                run.make_room(len(before.groups))

    def batch_rows(self) -> np.ndarray:
        """Return the recorded batches of the run that has just come to its end."""
        return self._run.batch_rows()

    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what the run that has just come to its end recorded."""
        return self._run.tables(core=True)

    def let_go(self) -> None:
        """Hold no longer what was given to be filled."""
        del self.metrics, self._lag_counts, self._found, self._lags


def _alike(configs: Sequence[PipelineConfig], record: dict[str, bool]) -> tuple[np.ndarray, list[_Alike]]:
    """Put configurations that are alike together: the order in which all run, and the kinds."""
    recording = any(record.values())
    packed = pack(configs, **record)
    order: list[int] = []
    kinds = []
    for sizes, places in _places(configs, in_order=recording):
        some = [configs[place] for place in places]
        one = some[0]
        together = not recording and runs_together(one)
        kinds.append(_Alike(len(order), some, packed[places], general_tables(one), sizes, together))
        order += places
    return np.array(order, np.int64), kinds


def _places(
    configs: Sequence[PipelineConfig], *, in_order: bool
) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """Yield the sizes and the places of configurations that are alike; `in_order`: of neighbours alone."""
    keys = [(_sizes_of(config), read_by_tables(config)) for config in configs]
    if in_order:
        for (sizes, _), places in groupby(range(len(configs)), key=keys.__getitem__):
            yield sizes, list(places)
        return
    found: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    for (sizes, _), places_of in found.items():
        yield sizes, places_of


def _sizes_of(config: PipelineConfig) -> tuple[Any, ...]:
    return *_sizes(config), *failing_parts(config), len(config.response_length.segments)
