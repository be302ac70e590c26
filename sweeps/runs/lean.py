"""Between a configuration and the level 1 kernel: parameters in, a workspace of arrays, growth when asked.

The arrays of a :class:`Workspace` are the whole state of a run. They grow only when the kernel asks, so
memory follows what is in flight and queued, not the length of the run (recorded rows apart).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.pipeline import lean_layout as layout
from ...kernels.pipeline.lean import _advance_kernel, _reset_kernel
from ...kernels.pipeline.lean_cells import run_cells_kernel
from ...kernels.pipeline.lean_summary import _summarize_kernel
from ...kernels.pipeline.metrics import FLOAT_METRICS, INTEGER_METRICS, LAG_BINS
from ..config.config import PipelineConfig
from ..config.rules import ticks

NO_CAP = 2**60
EVENT_BUDGET = (
    2_000_000  # about a tenth of a second: the kernel comes back to Python well within half a second
)
DRAW_BUFFER_ROLLOUTS = 1 << 18  # four megabytes a thread; a longer run draws the rest one by one
_SMALLEST_RING = 1 << 12


def parameters(
    config: PipelineConfig, *, batches: bool = False, timeline: bool = False, rollouts: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Pack a level 1 configuration into the kernel's parameter rows.

    Returns
    -------
    tuple of ndarray
        int64[P_COUNT] and float64[PF_COUNT].
    """
    law = config.response_length
    slots = config.rollout_workers
    slot_bits = max(1, (slots - 1).bit_length())
    whole = np.zeros(layout.P_COUNT, np.int64)
    whole[layout.P_SEQUENTIAL] = config.mode == "sequential"
    whole[layout.P_HORIZON] = ticks(config.duration_seconds)
    whole[layout.P_WARMUP] = ticks(config.warmup_seconds)
    whole[layout.P_STOP_AFTER_UPDATES] = config.stop_after_updates or 0
    whole[layout.P_SLOTS] = slots
    whole[layout.P_QUEUE_CAP] = NO_CAP if config.max_queue_tokens is None else config.max_queue_tokens
    whole[layout.P_RESERVE] = config.admission == "reserve"
    whole[layout.P_BATCH_TOKENS] = config.batch_tokens or 0
    whole[layout.P_MAX_LAG] = config.max_policy_lag
    whole[layout.P_SYNC_EVERY] = config.sync_every_updates
    whole[layout.P_SYNC_TICKS] = ticks(config.sync_seconds)
    whole[layout.P_LAW_MINIMUM] = law.minimum
    whole[layout.P_LAW_MAXIMUM] = law.maximum
    whole[layout.P_SLOT_BITS] = slot_bits
    whole[layout.P_LEAVES] = 1 << slot_bits
    whole[layout.P_RECORD_BATCHES] = batches
    whole[layout.P_RECORD_TIMELINE] = timeline
    whole[layout.P_RECORD_ROLLOUTS] = rollouts
    real = np.zeros(layout.PF_COUNT, np.float64)
    real[layout.PF_DECODE_RATE] = config.decode_tokens_per_second
    real[layout.PF_ROLLOUT_OVERHEAD] = config.rollout_overhead_seconds
    real[layout.PF_TRAIN_OVERHEAD] = config.train_overhead_seconds
    real[layout.PF_TRAIN_RATE] = config.train_tokens_per_second
    real[layout.PF_DRIFT] = config.drift_per_version
    return whole, real


class Draws:
    """One seed's first rollouts under one length law, drawn on demand and shared by its configurations."""

    def __init__(self, config: PipelineConfig, size: int = DRAW_BUFFER_ROLLOUTS) -> None:
        self.cdf = config.response_length.cdf
        self.guide = config.response_length.guide
        self.tokens = np.zeros(size, np.int64)
        self.normals = np.zeros(size, np.float64)
        self.drawn = np.zeros(1, np.int64)
        self.seed = np.uint64(0)

    def use_seed(self, seed: int) -> None:
        """Forget the draws of another seed."""
        if self.seed != np.uint64(seed) or self.drawn[0] == 0:
            self.seed = np.uint64(seed)
            self.drawn[0] = 0

    def arguments(self) -> tuple[np.ndarray, ...]:
        """Give the draw arrays in the kernels' order."""
        return self.cdf, self.guide, self.drawn, self.tokens, self.normals


class Workspace:
    """The arrays of one run at a time, sized for the largest of some configurations."""

    def __init__(self, configs: Sequence[PipelineConfig], *, rows: int = 0) -> None:
        slots = max(config.rollout_workers for config in configs)
        leaves = 1 << max(1, (slots - 1).bit_length())
        self.state = np.zeros(layout.S_COUNT, np.int64)
        self.sums = np.zeros(layout.F_COUNT, np.float64)
        self.tree = np.full(2 * leaves, layout.NEVER, np.int64)
        self.idle_stack = np.zeros(slots, np.int64)
        self.slots = np.zeros((slots, layout.R_COUNT), np.int64)
        ring = max(_SMALLEST_RING, 1 << (4 * slots - 1).bit_length()) if rows == 0 else _SMALLEST_RING
        self.ring = np.zeros((ring, layout.R_COUNT), np.int64)
        self.log_weights = np.zeros(ring, np.float64)
        self.training_lags = np.zeros(LAG_BINS, np.int64)
        self.batch_rows = np.zeros((rows, layout.B_COUNT), np.int64)
        self.batch_floats = np.zeros((rows, layout.BF_COUNT), np.float64)
        self.timeline_rows = np.zeros((rows, layout.T_COUNT), np.int64)
        self.rollout_rows = np.zeros((rows, layout.O_COUNT), np.int64)

    def arguments(self) -> tuple[np.ndarray, ...]:
        """Give the state's arrays in the kernels' order, up to the ring's scratch."""
        return self.state, self.sums, self.tree, self.idle_stack, self.slots, self.ring, self.log_weights

    def rows(self) -> tuple[np.ndarray, ...]:
        """Give the recorded rows' arrays in the kernels' order."""
        return self.batch_rows, self.batch_floats, self.timeline_rows, self.rollout_rows

    def grow(self, status: int) -> None:
        """Double what the kernel found too small; what is recorded or queued stays as it is."""
        if status == layout.GROW_RING:
            self._grow_ring()
        elif status == layout.GROW_BATCHES:
            self.batch_rows = _doubled(self.batch_rows)
            self.batch_floats = _doubled(self.batch_floats)
        elif status == layout.GROW_TIMELINE:
            self.timeline_rows = _doubled(self.timeline_rows)
        elif status == layout.GROW_ROLLOUTS:
            needed = int(self.state[layout.S_NEXT_ROLLOUT]) + len(self.slots)
            while len(self.rollout_rows) < needed:
                self.rollout_rows = _doubled(self.rollout_rows)

    def _grow_ring(self) -> None:
        old = self.ring
        self.ring = np.zeros((2 * len(old), layout.R_COUNT), np.int64)
        self.log_weights = np.zeros(len(self.ring), np.float64)
        positions = np.arange(self.state[layout.S_RING_TRAINING], self.state[layout.S_RING_TAIL])
        self.ring[positions & (len(self.ring) - 1)] = old[positions & (len(old) - 1)]


def _doubled(rows: np.ndarray) -> np.ndarray:
    larger = np.zeros((max(64, 2 * len(rows)), *rows.shape[1:]), rows.dtype)
    larger[: len(rows)] = rows
    return larger


class Cells:
    """Some level 1 configurations (one length law) at one seed: run them step by step.

    Each :meth:`step` is one call of the kernel, well under half a second.
    """

    def __init__(self, configs: Sequence[PipelineConfig], *, record: dict[str, bool] | None = None) -> None:
        record = record or {}
        packed = [parameters(config, **record) for config in configs]
        self.recording = any(record.values())
        self.params = np.stack([whole for whole, _ in packed])
        self.rates = np.stack([real for _, real in packed])
        self.workspace = Workspace(configs, rows=64 if self.recording else 0)
        self.draws = Draws(configs[0])
        count = len(configs)
        self.progress = np.zeros(2, np.int64)
        self.integers = np.zeros((count, len(INTEGER_METRICS)), np.int64)
        self.floats = np.zeros((count, len(FLOAT_METRICS)), np.float64)
        self.lag_counts = np.zeros((count, LAG_BINS), np.int64)

    def begin(self, seed: int) -> None:
        """Start over with the first configuration at a seed."""
        self.draws.use_seed(seed)
        self.progress[:] = 0

    def step(self, event_budget: int = EVENT_BUDGET) -> bool:
        """Run for one event budget (recording: at most one configuration); tell whether all are done."""
        workspace = self.workspace
        status = run_cells_kernel(
            self.params,
            self.rates,
            self.draws.seed,
            self.progress,
            event_budget,
            *self.draws.arguments(),
            *workspace.arguments(),
            workspace.training_lags,
            *workspace.rows(),
            self.integers,
            self.floats,
            self.lag_counts,
            int(self.recording),
        )
        workspace.grow(status)
        return int(self.progress[0]) == len(self.params)


class SingleRun:
    """One level 1 run that can stop anywhere, be saved, and go on."""

    def __init__(self, config: PipelineConfig, *, rollouts: bool = False) -> None:
        self.config = config
        self.params, self.rates = parameters(config, batches=True, timeline=True, rollouts=rollouts)
        self.workspace = Workspace([config], rows=64)
        self.draws = Draws(config, size=1 << 10)
        self.draws.use_seed(config.seed)
        self.lag_counts = np.zeros(LAG_BINS, np.int64)
        workspace = self.workspace
        _reset_kernel(
            self.params,
            workspace.state,
            workspace.sums,
            workspace.tree,
            workspace.idle_stack,
            self.lag_counts,
            workspace.training_lags,
        )

    def advance(self, until_ticks: int = layout.NEVER, event_budget: int = EVENT_BUDGET) -> None:
        """Let every event up to a time happen."""
        workspace = self.workspace
        while True:
            status = _advance_kernel(
                self.params,
                self.rates,
                self.draws.seed,
                until_ticks,
                event_budget,
                *self.draws.arguments(),
                *workspace.arguments(),
                self.lag_counts,
                workspace.training_lags,
                *workspace.rows(),
            )
            if status == layout.REACHED:
                return
            workspace.grow(status)

    def summary(self) -> tuple[np.ndarray, np.ndarray]:
        """Give the integer and float metrics, as if the run went to its end without another event."""
        integers = np.zeros(len(INTEGER_METRICS), np.int64)
        floats = np.zeros(len(FLOAT_METRICS), np.float64)
        _summarize_kernel(self.params, self.workspace.state, self.workspace.sums, integers, floats)
        return integers, floats

    _SAVED = (
        "state", "sums", "tree", "idle_stack", "slots", "ring", "training_lags",
        "batch_rows", "batch_floats", "timeline_rows", "rollout_rows",
    )  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        """Copy everything that the run needs to go on."""
        saved = {name: getattr(self.workspace, name).copy() for name in self._SAVED}
        return saved | {"lag_counts": self.lag_counts.copy()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over the arrays of another run of the same configuration."""
        for name in self._SAVED:
            setattr(self.workspace, name, np.array(arrays[name], order="C"))
        self.workspace.log_weights = np.zeros(len(self.workspace.ring), np.float64)
        self.lag_counts = np.array(arrays["lag_counts"])
