"""A run of the general loop (levels 1 to 4) that can stop anywhere."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...kernels.engine.records import COEFFICIENTS, new_engines
from ...kernels.errors import ConfigError
from ...kernels.pipeline import records
from ...kernels.pipeline.draws import DRAW_WINDOW
from ...kernels.pipeline.failures import (
    _begin_failures_kernel,
    _failure_strikes_kernel,
    failure_metrics_kernel,
)
from ...kernels.pipeline.fleet_summary import engine_metrics_kernel
from ...kernels.pipeline.general import _advance_general_kernel
from ...kernels.pipeline.general_cells import UNUSED, _reset_general_kernel
from ...kernels.pipeline.metrics import LAG_BINS, OPTIONAL_METRICS
from ...kernels.pipeline.rollback import _begin_checkpoint_kernel
from ...kernels.pipeline.rollouts import MORE_DRAWS
from ...kernels.pipeline.summary import general_metrics_kernel
from ..config.config import PipelineConfig
from ..config.engine import coefficients_of
from .failing import NO_FAILURES, enlarged_halves, failure_arrays, kept_batches
from .parameters import general_tables
from .result import GeneralResult, general_details
from .run import Run, enlarged

LARGEST_LIVE_ROLLOUTS = 2**25  # about four gigabytes of records
# Runs without rules of the user have nothing to ask, so all of them may share these.
_NOTHING_ASKED = np.array([(0, 0, records.NO_ANSWER)], records.ASKED)
_NO_ADMISSION = np.zeros(1, records.ADMISSION_STATE)
_NO_ROLLOUT = np.zeros(1, records.ROLLOUT_START)
# Everything that a run changes, in one tuple.
_FIELDS = records.GeneralArrays._fields + records.FailureArrays._fields
_named_tuple: Callable[..., Any] = namedtuple  # for type checkers, which want the fields written out
_Held = _named_tuple("_Held", _FIELDS)
_FIRST_RECORDS = 2**14  # rollouts to make room for at first, at most
_KEPT_TO_RUN_AGAIN = 2**10  # rollouts
_MOST_ROOM = 2**10  # rollouts to make room for because another run needed it: all of it is cleared each time


class GeneralRun(Run):
    """One run of the general loop.

    Examples
    --------
    >>> run = GeneralRun(PipelineConfig(publication="pause", duration_seconds=30))
    >>> run.advance(until_seconds=10)
    False
    >>> again = GeneralRun.from_arrays(run.config, run.arrays())
    >>> run.advance(), again.advance()
    (True, True)
    >>> run.result().metrics == again.result().metrics
    True
    """

    REPORT = records.GENERAL_REPORT
    budget = 1_000_000  # events and scanned records: about a tenth of a second
    _SCRATCH = (
        "log_weights",
        "picks",
        "shift",
        "asked",
        "admission_state",
        "rollout_start",
        "coefficients",
    )
    _WITHOUT_ENGINES = ("engines", "requests", "engine_tree")
    _WITHOUT_FAILURES = (
        "failures",
        "worker_tree",
        "worker_counts",
        "saved_state",
        "saved_tokens",
        "saved_trained",
        "saved_histograms",
        "saved_groups",
        "saved_members",
    )
    ROLLOUT_COUNT = "next_row"

    def __init__(
        self, config: PipelineConfig, *, draws: records.MemberDraws | None = None, **record: bool
    ) -> None:
        self._tables = general_tables(config)
        if draws is not None:
            self.draws = draws
        super().__init__(config, **record)

    def begin(self, seed: int) -> None:
        """Put the run at time 0 of a seed."""
        if not hasattr(self, "draws"):
            self.draws = draws_alone(self.config, self.parameters)
        super().begin(seed)

    def turn_to(self, config: PipelineConfig, parameters: np.ndarray, tables: records.Tables) -> None:
        """Take up another configuration, packed as PARAMETERS[1]; its run has yet to begin.

        What is held is kept, so its arrays must be those that this configuration would make.
        """
        self.config, self.parameters, self._tables = config, parameters, tables

    def _new_arrays(self) -> records.GeneralArrays:
        config, leaves = self.config, int(self.parameters["leaves"][0])
        slots, size = config.rollout_workers, config.group_size
        count = 1 + max(4, min(2 * slots, _FIRST_RECORDS // size))
        return _Held(
            state=np.zeros(1, records.GENERAL_STATE),
            time_tree=np.zeros(2 * leaves, np.int64),
            work_tree=np.zeros(2 * leaves, np.int64),
            slots=np.zeros(slots, records.SLOT),
            groups=np.zeros(count, records.GROUP),
            members=np.zeros(count * size, records.MEMBER),
            histograms=np.zeros((records.H_COUNT, LAG_BINS), np.int64),
            slot_ticks=np.zeros(records.SLOTS_FIRST_LIMIT + len(config.limits), np.int64),
            trainer_ticks=np.zeros(
                records.TRAINER_CAUSES if config.has_failures else records.CAUSES_WITHOUT_FAILURES, np.int64
            ),
            segment_starts=np.zeros(len(config.response_length.segments), np.int64),
            log_weights=np.zeros(0, np.float64),
            picks=np.zeros(0, np.int64),
            shift=np.zeros(1, records.SHIFT),
            asked=_NOTHING_ASKED,
            admission_state=_NO_ADMISSION,
            rollout_start=_NO_ROLLOUT,
            **_engine_arrays(config, int(self.parameters["engine_leaves"][0])),
            **failure_arrays(config, leaves, count),
            **self._new_rows(records.GENERAL_BATCH, records.GENERAL_TIMELINE, records.GENERAL_ROLLOUT),
        )

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take up saved arrays; a run that was saved by the work clock goes on by it."""
        super().restore(arrays)
        by_clock = np.isin(self.held.slots["phase"], (records.DECODING, records.OFF_CLOCK)).any()
        if by_clock and self.parameters["moves_ends"][0]:
            # Versions before the ends of rollouts were moved ran every publication that stops decoding so.
            self.parameters["virtual_clock"], self.parameters["moves_ends"] = 1, 0
        elif self.parameters["moves_ends"][0]:
            self._fill_versions()

    def _fill_versions(self) -> None:
        """Let busy slots keep the version at their rollout's start: a saved run does not always have it."""
        slots, members = self.held.slots, self.held.members
        places = slots["group"] * self.config.group_size + slots["member"]
        # Places that do not exist are left for the checks of a saved run to tell.
        fine = (slots["phase"] != records.EMPTY) & (places >= 0) & (places < len(members))
        slots["rest"][fine] = members["version"][places[fine]]

    def _clear(self) -> None:
        held, slots = self.held, self.config.rollout_workers
        arrays, failing = self._parts()
        _reset_general_kernel(arrays, UNUSED)
        if config_engine := self.config.engine:
            fleet = new_engines(held.coefficients, config_engine.count, slots)
            held.engines[:], held.requests[:] = fleet.engines, fleet.requests
            held.engine_tree.fill(records.NEVER)
        if not self.config.has_failures:
            return
        held.failures[:] = NO_FAILURES
        held.worker_tree.fill(records.NEVER)
        held.worker_counts.fill(0)
        held.saved_state[:] = UNUSED.state
        for array in (held.saved_tokens, held.saved_trained, held.saved_histograms):
            array.fill(0)
        for array in (held.saved_groups, held.saved_members):
            array.view(np.int64).fill(0)
        _begin_failures_kernel(self.parameters, self.seed, failing)

    def _make_scratch(self) -> None:
        self._hold(
            log_weights=np.zeros(len(self.held.members), np.float64),
            picks=np.zeros(len(self.held.groups), np.int64),
        )

    def _call(self, until: np.int64, budget: np.int64) -> int:
        last = int(self.state.cost) + int(budget)
        while True:
            left = np.int64(max(0, last - int(self.state.cost)))
            status: int = _advance_general_kernel(*self.arguments(until, left))
            if not self.let_happen(status):
                return status

    def arguments(self, until: np.int64, budget: np.int64) -> tuple[Any, ...]:
        """Return the arguments of the kernel."""
        arrays, failing = self._parts()
        tables = self._tables, self.draws
        return self.parameters, self.seed, until, budget, *tables, arrays, failing.failures

    def let_happen(self, status: int) -> bool:
        """Let a failure strike or a checkpoint begin if the kernel came back for that, and tell so."""
        if status == records.FAILS:
            _failure_strikes_kernel(self.parameters, self.seed, *self._parts())
        elif status == records.SAVES:
            _begin_checkpoint_kernel(self.parameters, *self._parts())
        return status in (records.FAILS, records.SAVES)

    def _parts(self) -> tuple[records.GeneralArrays, records.FailureArrays]:
        """Return what is held as the kernels take it."""
        count = len(records.GeneralArrays._fields)
        return records.GeneralArrays(*self.held[:count]), records.FailureArrays(*self.held[count:])

    def _grow_live(self) -> None:
        size, first = self.config.group_size, len(self.held.groups)
        count = max(2 * first, first + int(self.state.needed))
        if count * size > LARGEST_LIVE_ROLLOUTS:
            raise ConfigError(
                "max_queue_tokens",
                f"must keep fewer than {LARGEST_LIVE_ROLLOUTS} rollouts queued and running at once",
                self.config.max_queue_tokens,
                "Lower the cap, max_running_groups, batch_groups or the limits.",
            )
        held = self.held
        self._hold(groups=enlarged(held.groups, count), members=enlarged(held.members, count * size))
        if len(held.saved_groups):
            self._hold(
                saved_groups=enlarged_halves(held.saved_groups, count),
                saved_members=enlarged_halves(held.saved_members, count * size),
            )
        self._chain_unused(first)
        self._make_scratch()

    def make_room(self, groups: int) -> None:
        """Make room at once for about as many groups as another run needed, before this run begins.

        The room is doubled as it would grow: whether a run fits into memory does not depend on others.
        """
        count, size = len(self.held.groups), self.config.group_size
        if self.config.has_failures or self.config.admit == "batch":  # these grow in other ways too
            return
        while count < groups and 2 * count * size <= _MOST_ROOM:
            count *= 2
        self._hold(groups=np.zeros(count, records.GROUP), members=np.zeros(count * size, records.MEMBER))
        self._make_scratch()

    @property
    def lag_counts(self) -> np.ndarray:
        """Trained rollouts by lag."""
        counts: np.ndarray = self.held.histograms[records.H_TRAINING]
        return counts

    def summarize(self, metrics: np.ndarray) -> None:
        """Write the metrics into an array of one record."""
        self._close(metrics)

    def result(self) -> GeneralResult:
        """Close a run that was advanced to its end and give what it reports."""
        core = super().result()
        ticks = self._close(np.zeros(1, self.REPORT))
        details = general_details(core.config, self.held.histograms, *ticks)
        columns = core._columns | self._engine_columns()
        result = GeneralResult(core.config, core.metrics, core.lag_counts, columns, details=details)
        result.begin_again = self._beginning(core.config)
        return result

    def batch_rows(self) -> np.ndarray:
        """Return the recorded batches that no failure took back."""
        rows = self.rows("batches")
        assert rows is not None
        fails = self.config.trainer_mtbf_seconds is not None
        return kept_batches(rows, int(self.state.version)) if fails else rows

    def _beginning(self, config: PipelineConfig) -> Callable[..., GeneralRun]:
        """Return what begins this run anew, given what to record."""
        return partial(GeneralRun, config)

    def _engine_columns(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what each engine did, by the names of the metrics; nothing without engines."""
        if self.config.engine is None:
            return {}
        count = self.config.engine.count
        rows = np.zeros(count, self.REPORT)
        for place in range(count):
            self.summarize_engines(rows[place : place + 1], slice(place, place + 1))
        names = [metric.name for metric in OPTIONAL_METRICS["engine"]]
        return {"engines": {"engine": np.arange(count), **{name: rows[name] for name in names}}}

    def _close(self, metrics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write the metrics and give slot ticks and trainer ticks by cause, all closed at the run's end."""
        slot_ticks, trainer_ticks = self.held.slot_ticks.copy(), self.held.trainer_ticks.copy()
        arrays, failing = self._parts()
        general_metrics_kernel(self.parameters, arrays, metrics, slot_ticks, trainer_ticks, self._tables)
        if self.config.has_failures:
            failure_metrics_kernel(self.parameters, failing.failures, trainer_ticks, self._end(), metrics)
        if self.config.engine is not None:
            self.summarize_engines(metrics, slice(None))
        return slot_ticks, trainer_ticks

    def summarize_engines(self, metrics: np.ndarray, engines: slice) -> None:
        """Write the metrics of some engines, closed at the run's end, into an array of one record."""
        some = self.held.engines[engines].copy()
        engine_metrics_kernel(self.parameters, self.held.coefficients, some, self._end(), metrics)

    def _end(self) -> np.int64:
        """Return the tick at which the run ends, if nothing more happens."""
        state = self.state
        return np.int64(state.now if state.ended == 1 else self.parameters[0].horizon)

    def _chain_unused(self, first: int) -> None:
        """Put the records from `first` on in front of the unused ones."""
        groups, state = self.held.groups, self.held.state
        following = groups["next"][first:]
        following[:] = np.arange(first + 1, len(groups) + 1)
        following[-1] = state["free_head"][0]
        state["free_head"] = first
        state["free"] += len(groups) - first


def _engine_arrays(config: PipelineConfig, leaves: int) -> dict[str, np.ndarray]:
    """Make the engines of a run, the requests of its slots and the calendar; empty without engines."""
    if config.engine is None:
        none = new_engines(np.zeros(1, COEFFICIENTS), 0, 0)
        return none._asdict() | {"engine_tree": np.zeros(0, np.int64)}
    fleet = new_engines(coefficients_of(config.engine), config.engine.count, config.rollout_workers)
    return fleet._asdict() | {"engine_tree": np.full(2 * leaves, records.NEVER, np.int64)}


def draw_plainly(parameters: np.ndarray) -> bool:
    """Tell whether no configuration of PARAMETERS[c] draws anything but lengths, of one law, and noise."""
    return not any(parameters[name].any() for name in MORE_DRAWS)


def new_draws(rollouts: int = 0, *, plain: bool = False) -> records.MemberDraws:
    """Make room for draws; so many of a seed's first rollouts are kept for all configurations that share it.

    Plain draws are of no use to configurations that draw more: those draw alone.
    """
    room = rollouts + DRAW_WINDOW
    return records.MemberDraws(
        seed=np.zeros(1, np.uint64),
        drawn=np.zeros(4, np.int64),
        tokens=np.zeros(room, np.int64),
        words=np.zeros((1 if plain else 4, room), np.uint64),
        normals=np.zeros(rollouts, np.float64),
    )


def draws_alone(config: PipelineConfig, parameters: np.ndarray) -> records.MemberDraws:
    """Make room for the draws of one configuration, packed as PARAMETERS[1], that shares none.

    Rollouts that run again are mostly those that were drawn first: a run keeps some of them for itself.
    """
    kept = _KEPT_TO_RUN_AGAIN if config.stale_action == "requeue" else 0
    return new_draws(kept, plain=draw_plainly(parameters))


def simulate_general(config: PipelineConfig, *, rollouts: bool = False) -> GeneralResult:
    """Simulate one run of any level in full detail, with the general loop.

    Parameters
    ----------
    config : PipelineConfig
    rollouts : bool
        Also keep one row per rollout.

    Returns
    -------
    GeneralResult

    Examples
    --------
    >>> result = simulate_general(PipelineConfig(group_size=4, batch_groups=4, batch_tokens=None))
    >>> result.trained_rollouts == 16 * result.updates
    True
    """
    run = GeneralRun(config, batches=True, timeline=True, rollouts=rollouts)
    run.advance()
    return run.result()
