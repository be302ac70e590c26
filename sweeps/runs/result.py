"""What a run of either loop reports: metrics, named columns of what was recorded, distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError
from ...kernels.pipeline import records
from ...kernels.pipeline.metrics import (
    OPTIONAL_CONSTRAINTS,
    SLOT_CONSTRAINTS,
    TRAINER_CONSTRAINTS,
    MetricAttributes,
    hidden_metrics,
)
from ...kernels.pipeline.ticks import ticks
from ..config.config import PipelineConfig
from ..laws.lengths import LengthLaw

if TYPE_CHECKING:
    import polars


class Row(Mapping[str, Any]):
    """One row of a table: read a column as an item or as an attribute.

    Examples
    --------
    >>> row = Row({"update": 1, "mean_lag": 0.5})
    >>> row["mean_lag"] == row.mean_lag
    True
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __getattr__(self, name: str) -> Any:
        if name != "_columns" and name in self._columns:
            return self._columns[name]
        raise AttributeError(f"this row has no column {name!r}")

    def __reduce__(self) -> tuple[type[Row], tuple[dict[str, Any]]]:
        return Row, (self._columns,)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self._columns.items())})"


class PipelineResult(MetricAttributes):
    """What one run reports.

    Attributes
    ----------
    config : PipelineConfig
    metrics : dict
        Every metric of the model by name; each is an attribute too, as in ``result.updates``.
    lag_counts : ndarray of int64, shape (65,)
        Trained rollouts by lag: 0…63, and 64 or more.
    batches, timeline, rollouts : list of Row
        One row per completed update, per event, and (on request) per rollout; times in seconds.
    lags : dict of ndarray of int64, shape (65,)
        Levels 2 and 3: trained rollouts by lag (0…63, and 64 or more), by (moment, unit): moments ``start``,
        ``dequeue``, ``training`` and ``end`` (by the version of the last token), units ``updates`` and
        ``publications``.
    slot_ticks, trainer_ticks : dict of int
        Levels 2 and 3: microseconds by what binds. Slots sum exactly to slots × measured time, the trainer
        to the measured time.
    length_deciles : dict of ndarray of int64, shape (10,)
        Levels 2 and 3: rollouts ``trained``, ``dropped`` (of ready groups) and ``cancelled`` by decile of
        the length law.

    Notes
    -----
    Two results are equal if their configurations (the seed included), all metrics and the trained rollouts by
    lag are. Which tables were recorded makes no difference.

    Examples
    --------
    >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
    >>> config = PipelineConfig(duration_seconds=30)
    >>> simulate_pipeline(config) == simulate_pipeline(config)
    True
    >>> simulate_pipeline(config) == simulate_pipeline(config.replace(seed=1))
    False
    """

    # Begins this very run anew, with rules of the user's own too; not kept when a result is pickled.
    begin_again: Callable[..., Any] | None = None
    lags: dict[tuple[str, str], np.ndarray]
    slot_ticks: dict[str, int]
    trainer_ticks: dict[str, int]
    length_deciles: dict[str, np.ndarray]

    def __init__(
        self,
        config: PipelineConfig,
        metrics: dict[str, Any],
        lag_counts: np.ndarray,
        columns: dict[str, dict[str, np.ndarray]],
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.lag_counts = lag_counts
        self._columns = columns

    if not TYPE_CHECKING:  # type checkers see every metric by its name, so that a misspelt one is an error

        def __getattr__(self, name: str) -> Any:
            metrics = self.__dict__.get("metrics", {})
            if name in metrics:
                return metrics[name]
            raise AttributeError(f"a result has no {name!r}; its metrics are {', '.join(metrics)}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PipelineResult):
            return NotImplemented
        return (
            self.config == other.config
            and self.metrics.keys() == other.metrics.keys()
            and all(_same(value, other.metrics[name]) for name, value in self.metrics.items())
            and np.array_equal(self.lag_counts, other.lag_counts)
        )

    def __hash__(self) -> int:
        return hash((self.config.seed, tuple(self.lag_counts.tolist())))

    def __repr__(self) -> str:
        shown = ("updates", "trained_tokens_per_second", "mean_lag", "mean_expected_normalized_ess")
        parts = ", ".join(f"{name}={self.metrics[name]:.6g}" for name in shown)
        return f"PipelineResult(mode={self.config.mode!r}, seed={self.config.seed}, {parts})"

    @cached_property
    def batches(self) -> list[Row]:
        """Completed updates, numbered from 1."""
        return self._rows("batches")

    @cached_property
    def timeline(self) -> list[Row]:
        """The level after each event's settle; the first row is time 0."""
        return self._rows("timeline")

    @cached_property
    def rollouts(self) -> list[Row]:
        """Every rollout that was started, in order; empty unless asked for."""
        return self._rows("rollouts")

    def _rows(self, table: str) -> list[Row]:
        columns = {name: values.tolist() for name, values in self._columns.get(table, {}).items()}
        return [Row(dict(zip(columns, values))) for values in zip(*columns.values())]

    def _frame(self, table: str) -> polars.DataFrame:
        import polars

        columns = self._columns.get(table)
        if columns is None:
            raise ConfigError(table, "was not recorded", None, f"Run again with {table}=True.")
        return polars.DataFrame(
            {name: polars.Series(name, values.tolist()) for name, values in columns.items()}
        )

    def engines_frame(self) -> polars.DataFrame:
        """Return what each engine did, a row each, with the metrics of engines over all as columns.

        Raises
        ------
        ConfigError
            If the run has no engine.

        Examples
        --------
        >>> from lagsweep.sweeps.config.engine import Engine
        >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
        >>> config = PipelineConfig(engine=Engine(count=2, step_seconds=0.02), duration_seconds=30)
        >>> run = simulate_pipeline(config)
        >>> int(run.engines_frame()["decoded_tokens"].sum()) == run.decoded_tokens
        True
        """
        if "engines" not in self._columns:
            way_out = "Give the configuration an engine."
            raise ConfigError("engine", "must be set for rows by engine", None, way_out)
        return self._frame("engines")

    def batches_frame(self) -> polars.DataFrame:
        """Return the batches as a polars frame."""
        return self._frame("batches")

    def timeline_frame(self) -> polars.DataFrame:
        """Return the timeline as a polars frame."""
        return self._frame("timeline")

    def rollouts_frame(self) -> polars.DataFrame:
        """Return the rollouts as a polars frame.

        Raises
        ------
        ConfigError
            If the run did not record them.
        """
        return self._frame("rollouts")


def _same(one: Any, other: Any) -> bool:
    """Compare two values of a metric; a mean of nothing (NaN) equals another."""
    return bool(one == other or (one != one and other != other))


CUSTOM_RULE = "custom rule"  # the cause of slots that a user's own admission rule keeps idle
LAG_HISTOGRAMS = {
    ("training", "updates"): records.H_TRAINING,
    ("start", "updates"): records.H_START,
    ("dequeue", "updates"): records.H_DEQUEUE,
    ("end", "updates"): records.H_END,
    ("dequeue", "publications"): records.H_DEQUEUE_SYNCS,
    ("training", "publications"): records.H_TRAINING_SYNCS,
}


class GeneralResult(PipelineResult):
    """What one run of the general loop reports: everything of a :class:`PipelineResult`."""

    def __init__(self, *arguments: Any, details: dict[str, Any]) -> None:
        super().__init__(*arguments)
        self.lags = details["lags"]
        self.slot_ticks = details["slot_ticks"]
        self.trainer_ticks = details["trainer_ticks"]
        self.length_deciles = details["length_deciles"]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "begin_again"}


def slot_constraint_names(config: PipelineConfig) -> list[str]:
    """Name what can bind the slots: the fixed causes, then each limit of the ledger.

    Examples
    --------
    >>> from lagsweep.sweeps.config.config import Limit
    >>> config = PipelineConfig(batch_tokens=None, batch_groups=4, limits=[Limit("started", "published", 8)])
    >>> slot_constraint_names(config)[-2:]
    ['sequential', 'limits.0: started < 4 * published + 8']
    """
    return [name for name in _slot_causes(config) if is_told(name, config)]


def is_told(constraint: str, config: PipelineConfig) -> bool:
    """Tell whether what can bind is told of a configuration: the causes of options only where they are used.

    Examples
    --------
    >>> is_told("busy", PipelineConfig()), is_told("fetch", PipelineConfig())
    (True, False)
    """
    option = OPTIONAL_CONSTRAINTS.get(constraint)
    return option is None or option in config.options_in_use


def _slot_causes(config: PipelineConfig) -> list[str]:
    """Name every cause of slot time at its place."""
    groups = config.batch_groups
    names = list(SLOT_CONSTRAINTS)
    for index, limit in enumerate(config.limits):
        done = f"{groups} * {limit.done}" if groups else "popped groups"
        names.append(f"limits.{index}: {limit.count} < {done} + {limit.groups}")
    return names


def named(metrics: np.record, config: PipelineConfig) -> dict[str, Any]:
    """Return a record of metrics by name, as plain numbers, without those of options that are not used."""
    hidden = hidden_metrics(config.options_in_use)
    names = metrics.dtype.names or ()
    found = {name: value for name, value in zip(names, metrics.item()) if name not in hidden}
    found["stalled"] = bool(found["stalled"])
    return found


def general_details(
    config: PipelineConfig, histograms: np.ndarray, slot_ticks: np.ndarray, trainer_ticks: np.ndarray
) -> dict[str, Any]:
    """Return what a :class:`GeneralResult` has on top, from the arrays of its run."""
    lags = {key: histograms[row].copy() for key, row in LAG_HISTOGRAMS.items()}
    # A rollout starts with the newest published weights.
    lags["start", "publications"] = np.zeros_like(histograms[0])
    lags["start", "publications"][0] = histograms[records.H_TRAINING].sum()
    deciles = {
        "trained": records.H_TRAINED_DECILES,
        "dropped": records.H_DROPPED_DECILES,
        "cancelled": records.H_CANCELLED_DECILES,
    }
    return {
        "lags": lags,
        "slot_ticks": _told(_slot_causes(config), slot_ticks, config),
        "trainer_ticks": _told(TRAINER_CONSTRAINTS, trainer_ticks, config),
        "length_deciles": {name: histograms[row, :10].copy() for name, row in deciles.items()},
    }


def _told(causes: Sequence[str], ticks_of_causes: np.ndarray, config: PipelineConfig) -> dict[str, int]:
    pairs = zip(causes, ticks_of_causes.tolist())
    return {name: value for name, value in pairs if is_told(name, config)}


# Columns of names -> the names that there are, each at its place.
NAMES_OF = {"event": records.EVENT_NAMES, "outcome": records.OUTCOME_NAMES}


def table_columns(
    table: str, rows: np.ndarray, config: PipelineConfig, *, core: bool = False, final_version: int = 0
) -> dict[str, np.ndarray]:
    """Turn recorded rows into named columns; times in seconds.

    Parameters
    ----------
    table : str
        ``batches``, ``timeline`` or ``rollouts``.
    rows : ndarray
        Records of either loop.
    config : PipelineConfig
        Of the run.
    core : bool
        As a sweep keeps millions of rows: only the columns that both loops have, names as their places in
        `NAMES_OF`; where there is no end or lag stands NaN or -1, not None.
    final_version : int
        The trainer's version at the end, by which a batch is known to be lost.
    """
    columns = {"batches": _batch_columns, "timeline": _timeline_columns, "rollouts": _rollout_columns}
    found = columns[table](rows, config)
    if core:
        return found
    for name in NAMES_OF.keys() & found.keys():
        found[name] = np.array(NAMES_OF[name])[found[name]]
    if table == "rollouts":
        found["end"] = _with_none(found["end"], np.isnan(found["end"]))
        found["lag"] = _with_none(found["lag"], found["lag"] < 0)
    extras = {"batches": _batch_extras, "timeline": _timeline_extras, "rollouts": _rollout_extras}
    if rows.dtype in _LEAN_ROWS:
        return found
    if table == "batches" and config.trainer_mtbf_seconds is not None:
        found["lost"] = lost_batches(rows["update"], final_version)
    return found | extras[table](rows, config)


def lost_batches(updates: np.ndarray, final_version: int) -> np.ndarray:
    """Tell which batches were lost in failures: the trainer was at their version, or before it, later on.

    Examples
    --------
    >>> lost_batches(np.array([1, 2, 3, 2, 3]), 2).tolist()
    [False, True, True, False, True]
    """
    # A later update of the same version or an older one, or the end at an older one, shows it.
    later = np.append(updates[1:] - 1, final_version)
    lost: np.ndarray = np.minimum.accumulate(later[::-1])[::-1] < updates
    return lost


_LEAN_ROWS = (records.LEAN_BATCH, records.LEAN_TIMELINE, records.LEAN_ROLLOUT)


def _batch_columns(rows: np.ndarray, config: PipelineConfig) -> dict[str, np.ndarray]:
    has_updates = "update" in (rows.dtype.names or ())
    return {
        "update": rows["update"].copy() if has_updates else np.arange(1, len(rows) + 1),
        "start": rows["start"] / 1e6,
        "end": rows["end"] / 1e6,
        "tokens": rows["tokens"].copy(),
        "rollouts": rows["rollouts"].copy(),
        "mean_lag": rows["lag_sum"] / np.maximum(rows["rollouts"], 1),
        "max_lag": rows["max_lag"].copy(),
        "normalized_ess": rows["ess"].copy(),
        "expected_normalized_ess": rows["expected_ess"].copy(),
        "measured": rows["end"] > ticks(config.warmup_seconds),
    }


def _batch_extras(rows: np.ndarray, config: PipelineConfig) -> dict[str, np.ndarray]:
    mean = rows["dequeue_lag_sum"] / np.maximum(rows["rollouts"], 1)
    return {"groups": rows["groups"].copy(), "mean_dequeue_lag": mean}


def _timeline_columns(rows: np.ndarray, config: PipelineConfig) -> dict[str, np.ndarray]:
    return {
        "time": rows["time"] / 1e6,
        "queue_tokens": rows["queue_tokens"].copy(),
        "in_flight": rows["in_flight"].copy(),
        "version": rows["version"].copy(),
        "published": rows["published"].copy(),
        "event": rows["event"].astype(np.uint8),
    }


def _timeline_extras(rows: np.ndarray, config: PipelineConfig) -> dict[str, np.ndarray]:
    found = {
        "queue_groups": rows["queue_groups"].copy(),
        "running_groups": rows["running_groups"].copy(),
        "slots_bound_by": np.array([*_slot_causes(config), CUSTOM_RULE])[rows["idle_cause"]],
        "trainer_bound_by": np.array(TRAINER_CONSTRAINTS)[rows["trainer_cause"]],
    }
    if "fetch" in config.options_in_use:  # when the step begins, which is no event
        found["fetch_end"] = _with_none(rows["fetch_time"] / 1e6, rows["fetch_time"] == records.NEVER)
    if "hold" in config.options_in_use:
        found["held_slots"] = rows["held"].copy()
    if "engine" in config.options_in_use:
        found |= {name: rows[name].copy() for name in ("running", "engine_waiting", "kv_tokens")}
    return found


def _rollout_columns(rows: np.ndarray, config: PipelineConfig) -> dict[str, np.ndarray]:
    return {
        "number": rows["number"].copy() if "number" in (rows.dtype.names or ()) else np.arange(len(rows)),
        "tokens": rows["tokens"].copy(),
        "behaviour_version": rows["version"].copy(),
        "start": rows["start"] / 1e6,
        "end": np.where(rows["end"] >= 0, rows["end"] / 1e6, np.nan),
        # A batch counts once its step completes.
        "lag": np.where(rows["outcome"] == records.TRAINED, rows["lag"], -1),
        "outcome": rows["outcome"].astype(np.uint8),
        "truncated": _truncated(rows, config.response_length),
    }


def _truncated(rows: np.ndarray, law: LengthLaw) -> np.ndarray:
    """Tell which rollouts have no end of sequence: those at the maximum of a law that really was cut."""
    if not law.segments:
        cut: np.ndarray = (rows["tokens"] == law.maximum) & law.cut_at_maximum
        return cut
    firsts, laws = zip(*law.segments)
    segment = np.searchsorted(firsts, rows["version"], side="right") - 1
    largest = np.array([one.maximum for one in laws])[segment]
    return (rows["tokens"] == largest) & np.array([one.cut_at_maximum for one in laws])[segment]


def _rollout_extras(rows: np.ndarray, config: PipelineConfig) -> dict[str, np.ndarray]:
    ready, last = rows["ready"], rows["end_version"]
    return {
        "group": rows["group"].copy(),
        "member": rows["member"].copy(),
        "end_version": _with_none(last, last < 0),
        "group_ready": _with_none(ready / 1e6, ready < 0),
    }


def _with_none(values: np.ndarray, absent: np.ndarray) -> np.ndarray:
    shown = values.astype(object)
    shown[absent] = None
    return shown
