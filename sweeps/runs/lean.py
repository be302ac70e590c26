"""Runs of the lean loop (level 1): one that can stop anywhere, or many in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.pipeline import records
from ...kernels.pipeline.lean import _advance_lean_kernel, _reset_lean_kernel
from ...kernels.pipeline.lean_cells import run_cells_kernel
from ...kernels.pipeline.metrics import LAG_BINS
from ...kernels.pipeline.summary import lean_metrics_kernel
from ..config.config import PipelineConfig
from .parameters import drift_tables, pack
from .run import Run

DRAW_BUFFER_ROLLOUTS = 1 << 18  # four megabytes a thread; a longer run draws the rest one by one
_SMALLEST_RING = 1 << 12


class LeanRun(Run):
    """One run of the lean loop.

    Parameters
    ----------
    config : PipelineConfig
        Of level 1.
    draw_rollouts : int
        For how many rollouts of a seed to keep the draws, beyond which each is drawn alone.
    **record : bool
        As for :class:`.run.Run`.
    """

    REPORT = records.LEAN_REPORT
    budget = 2_000_000  # events: about a tenth of a second
    _SCRATCH = ("log_weights", "lag_spreads", "lag_inflations", "known_lags", "initial")
    ROLLOUT_COUNT = "next_rollout"

    def __init__(self, config: PipelineConfig, *, draw_rollouts: int = 1 << 10, **record: bool) -> None:
        law = config.response_length
        drift_lags, drift_values = drift_tables(config.drift)
        self.draws = records.Draws(
            cdf=law.cdf,
            guide=law.guide,
            seed=np.zeros(1, np.uint64),
            drawn=np.zeros(1, np.int64),
            tokens=np.zeros(draw_rollouts, np.int64),
            noise=np.zeros(draw_rollouts, np.float64),
            drift_lags=drift_lags,
            drift_values=drift_values,
        )
        super().__init__(config, **record)

    def _new_arrays(self) -> records.LeanArrays:
        slots = self.config.rollout_workers
        ring = max(_SMALLEST_RING, 1 << (4 * slots - 1).bit_length())
        return records.LeanArrays(
            state=np.zeros(1, records.LEAN_STATE),
            tree=np.zeros(2 * self.parameters[0].leaves, np.int64),
            idle_stack=np.zeros(slots, np.int64),
            slots=np.zeros(slots, records.ROLLOUT),
            ring=np.zeros(ring, records.ROLLOUT),
            lag_counts=np.zeros(LAG_BINS, np.int64),
            training_lags=np.zeros(LAG_BINS, np.int64),
            log_weights=np.zeros(ring, np.float64),
            lag_spreads=np.zeros(LAG_BINS, np.float64),
            lag_inflations=np.zeros(LAG_BINS, np.float64),
            known_lags=np.zeros(1, records.KNOWN_LAGS),
            initial=records.initial_state(records.LEAN_STATE),
            **self._new_rows(records.LEAN_BATCH, records.LEAN_TIMELINE, records.LEAN_ROLLOUT),
        )

    def _clear(self) -> None:
        _reset_lean_kernel(self.parameters, self.held)

    def _make_scratch(self) -> None:
        self._hold(log_weights=np.zeros(len(self.held.ring), np.float64))

    def _call(self, until: np.int64, budget: np.int64) -> int:
        status: int = _advance_lean_kernel(self.parameters, self.seed, until, budget, self.draws, self.held)
        return status

    def _grow_live(self) -> None:
        old, state = self.held.ring, self.state
        ring = np.zeros(2 * len(old), records.ROLLOUT)
        positions = np.arange(state.ring_training, state.ring_tail)
        ring[positions & (len(ring) - 1)] = old[positions & (len(old) - 1)]
        self._hold(ring=ring)
        self._make_scratch()

    @property
    def lag_counts(self) -> np.ndarray:
        """Trained rollouts by lag."""
        return self.held.lag_counts

    def summarize(self, metrics: np.ndarray) -> None:
        """Write the metrics into an array of one record."""
        lean_metrics_kernel(self.parameters, self.held.state, metrics)


class LeanCells:
    """Some level 1 configurations that share their laws, many runs of them in one call of the kernel.

    The arrays are as large as the largest configuration needs; a seed's rollouts are drawn once, for all of
    them. `finished` counts the runs that have come to their ends.
    """

    def __init__(self, configs: Sequence[PipelineConfig], **record: bool) -> None:
        largest = max(configs, key=lambda config: config.rollout_workers)
        self._run = LeanRun(largest, draw_rollouts=DRAW_BUFFER_ROLLOUTS, **record)
        self._configs, self.count = configs, len(configs)
        self._parameters = pack(configs, **record)
        self._recording = any(record.values())
        self._progress = np.zeros(2, np.int64)
        self.REPORT = LeanRun.REPORT
        # Level 1 trains nothing above its limit: no bin beyond that is ever filled.
        self.lag_bins = min(LAG_BINS, 1 + max(config.max_policy_lag for config in configs))
        self.reasons: dict[int, str] = {}  # no run of this loop fails

    def begin(self, seeds: np.ndarray, metrics: np.ndarray, lag_counts: np.ndarray) -> None:
        """Start over with the first configuration at the first seed."""
        self.seeds, self.metrics, self.lag_counts = seeds, metrics, lag_counts
        self._progress[:] = 0

    @property
    def finished(self) -> int:
        """How many runs have come to their ends."""
        return int(self._progress[0])

    @property
    def events(self) -> int:
        """Events of the run in hand, or of the last one."""
        return int(self._run.state.events)

    def step(self) -> None:
        """Call the kernel once; recording, it comes back after each run."""
        run = self._run
        status = run_cells_kernel(
            self._parameters,
            self.seeds,
            self._progress,
            run.budget,
            run.draws,
            run.held,
            self.metrics,
            self.lag_counts,
            int(self._recording),
        )
        run.grow(status)

    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what the run that has just come to its end recorded."""
        self._run.config = self._configs[(self.finished - 1) % self.count]
        return self._run.tables(core=True)

    def let_go(self) -> None:
        """Hold no longer what was given to be filled."""
        del self.seeds, self.metrics, self.lag_counts
