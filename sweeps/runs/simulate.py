"""One run in full detail: every batch, every event, every rollout, and every metric as an attribute.

:func:`simulate_pipeline` runs to the end. :func:`start_run`, :func:`advance_run` and :func:`finish_run` stop
anywhere, save the state as plain arrays, and go on bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError
from ...kernels.pipeline import lean_layout as layout
from ...kernels.pipeline.metrics import FLOAT_METRICS, INTEGER_METRICS, MetricAttributes
from ..config.config import PipelineConfig
from ..config.rules import ticks

if TYPE_CHECKING:
    import polars

    from .general import EngineRun
    from .lean import SingleRun


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
    """

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

    def batches_frame(self) -> polars.DataFrame:
        """Give the batches as a polars frame."""
        return self._frame("batches")

    def timeline_frame(self) -> polars.DataFrame:
        """Give the timeline as a polars frame."""
        return self._frame("timeline")

    def rollouts_frame(self) -> polars.DataFrame:
        """Give the rollouts as a polars frame.

        Raises
        ------
        ConfigError
            If the run did not record them.
        """
        return self._frame("rollouts")


def simulate_pipeline(config: PipelineConfig, *, rollouts: bool = False) -> PipelineResult:
    """Simulate one run in full detail.

    Parameters
    ----------
    config : PipelineConfig
    rollouts : bool
        Also keep one row per rollout.

    Returns
    -------
    PipelineResult

    Examples
    --------
    >>> from lagsweep.sweeps.laws.lengths import LengthLaw
    >>> config = PipelineConfig(response_length=LengthLaw.fixed(100), rollout_workers=2,
    ...                         decode_tokens_per_second=100, rollout_overhead_seconds=0,
    ...                         batch_tokens=200, max_queue_tokens=300, train_tokens_per_second=200,
    ...                         sync_seconds=0.5, max_policy_lag=1, duration_seconds=8)
    >>> result = simulate_pipeline(config)
    >>> result.updates, result.discarded_rollouts, result.backpressure_seconds
    (3, 4, 1.0)
    """
    if not isinstance(config, PipelineConfig):
        way_out = "Build one, as PipelineConfig(max_policy_lag=4)."
        raise ConfigError("config", "must be a PipelineConfig", config, way_out)
    run = start_run(config, rollouts=rollouts)
    advance_run(run)
    return finish_run(run)


def start_run(config: PipelineConfig, *, rollouts: bool = False) -> SingleRun | EngineRun:
    """Put a run of any level at time 0; it can stop anywhere, be saved, and go on.

    Examples
    --------
    >>> run = start_run(PipelineConfig(publication="pause", duration_seconds=30))
    >>> advance_run(run, until_seconds=10), advance_run(run)
    (False, True)
    >>> finish_run(run).updates
    2
    """
    if config.is_level_1:
        from .lean import SingleRun

        return SingleRun(config, rollouts=rollouts)
    from .general import EngineRun

    return EngineRun(config, batches=True, timeline=True, rollouts=rollouts)


def advance_run(run: SingleRun | EngineRun, until_seconds: float | None = None) -> bool:
    """Let every event up to a time happen (none: up to the end) and nothing else.

    Returns
    -------
    bool
        Whether the run has come to its end.
    """
    from .lean import SingleRun

    if not isinstance(run, SingleRun):
        return run.advance(until_seconds)
    until = layout.NEVER if until_seconds is None else ticks(until_seconds)
    run.advance(until)
    return bool(run.workspace.state[layout.S_ENDED]) or until >= int(run.params[layout.P_HORIZON])


def finish_run(run: SingleRun | EngineRun) -> PipelineResult:
    """Close a run that was advanced to its end and give what it reports."""
    from .lean import SingleRun

    if not isinstance(run, SingleRun):
        return run.result()
    integers, floats = run.summary()
    metrics: dict[str, Any] = {metric.name: int(value) for metric, value in zip(INTEGER_METRICS, integers)}
    metrics["stalled"] = bool(metrics["stalled"])
    metrics |= {metric.name: float(value) for metric, value in zip(FLOAT_METRICS, floats)}
    workspace, state = run.workspace, run.workspace.state
    columns = {
        "batches": batch_columns(
            workspace.batch_rows[: state[layout.S_BATCH_ROWS]],
            workspace.batch_floats[: state[layout.S_BATCH_ROWS]],
            int(run.params[layout.P_WARMUP]),
        ),
        "timeline": timeline_columns(workspace.timeline_rows[: state[layout.S_TIMELINE_ROWS]]),
    }
    if run.params[layout.P_RECORD_ROLLOUTS]:
        rows = workspace.rollout_rows[: state[layout.S_NEXT_ROLLOUT]]
        columns["rollouts"] = rollout_columns(rows, run.config)
    return PipelineResult(run.config, metrics, run.lag_counts.copy(), columns)


def batch_columns(rows: np.ndarray, floats: np.ndarray, warmup_ticks: int) -> dict[str, np.ndarray]:
    """Turn recorded batch rows into named columns."""
    return {
        "update": np.arange(1, len(rows) + 1),
        "start": rows[:, layout.B_START] / 1e6,
        "end": rows[:, layout.B_END] / 1e6,
        "tokens": rows[:, layout.B_TOKENS].copy(),
        "rollouts": rows[:, layout.B_ROLLOUTS].copy(),
        "mean_lag": rows[:, layout.B_LAG_SUM] / np.maximum(rows[:, layout.B_ROLLOUTS], 1),
        "max_lag": rows[:, layout.B_MAX_LAG].copy(),
        "normalized_ess": floats[:, layout.BF_ESS].copy(),
        "expected_normalized_ess": floats[:, layout.BF_EXPECTED_ESS].copy(),
        "measured": rows[:, layout.B_END] > warmup_ticks,
    }


def timeline_columns(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Turn recorded timeline rows into named columns."""
    return {
        "time": rows[:, layout.T_TIME] / 1e6,
        "queue_tokens": rows[:, layout.T_QUEUE_TOKENS].copy(),
        "in_flight": rows[:, layout.T_IN_FLIGHT].copy(),
        "version": rows[:, layout.T_VERSION].copy(),
        "published": rows[:, layout.T_PUBLISHED].copy(),
        "event": np.array(layout.EVENT_NAMES)[rows[:, layout.T_EVENT]],
    }


def rollout_columns(rows: np.ndarray, config: PipelineConfig) -> dict[str, np.ndarray]:
    """Turn recorded rollout rows into named columns; `end` and `lag` are None where there is none."""
    law = config.response_length
    ends = np.where(rows[:, layout.O_END] >= 0, rows[:, layout.O_END] / 1e6, np.nan).astype(object)
    ends[rows[:, layout.O_END] < 0] = None
    lags = trained_lags(rows).astype(object)
    lags[lags < 0] = None
    return {
        "number": np.arange(len(rows)),
        "tokens": rows[:, layout.O_TOKENS].copy(),
        "behaviour_version": rows[:, layout.O_VERSION].copy(),
        "start": rows[:, layout.O_START] / 1e6,
        "end": ends,
        "lag": lags,
        "outcome": np.array(layout.OUTCOME_NAMES)[rows[:, layout.O_OUTCOME]],
        "truncated": truncated(rows[:, layout.O_TOKENS], law.maximum, law.cut_at_maximum),
    }


def trained_lags(rows: np.ndarray) -> np.ndarray:
    """Give each rollout's lag when trained, -1 where it was not (a batch counts once its step completes)."""
    return np.where(rows[:, layout.O_OUTCOME] == layout.TRAINED, rows[:, layout.O_LAG], -1)


def truncated(tokens: np.ndarray, maximum: int, cut_at_maximum: bool) -> np.ndarray:
    """Tell which rollouts have no end of sequence: those at the maximum of a law that really was cut."""
    return (tokens == maximum) & cut_at_maximum


def result_row(result: PipelineResult) -> dict[str, Any]:
    """Give a result as one flat row: the settings that matter most, then every metric.

    Examples
    --------
    >>> row = result_row(simulate_pipeline(PipelineConfig(duration_seconds=10)))
    >>> row["mode"], row["updates"] >= 0
    ('bounded_async', True)
    """
    config = result.config
    shown = ("mode", "seed", "max_queue_tokens", "max_policy_lag", "sync_every_updates")
    return {name: getattr(config, name) for name in shown} | dict(result.metrics)
