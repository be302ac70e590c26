"""A simulated run as a step log: what a trainer would have written down, under the names of step logs.

With it a calibration is tried on runs whose settings are known.
"""

from __future__ import annotations

import numpy as np
import polars

from ...kernels._arguments import instance
from ..runs.result import PipelineResult

_DROPPED = ("discarded", "evicted", "cancelled")  # outcomes of rollouts that were made for nothing


def step_log_of(result: PipelineResult) -> polars.DataFrame:
    """Return a run as a step log, a row for each batch that was trained.

    Parameters
    ----------
    result : PipelineResult
        Of :func:`simulate_pipeline`, with ``rollouts=True`` for the longest responses and what was dropped.

    Returns
    -------
    polars.DataFrame
        ``step``, ``step_seconds`` (from the end of the step before), ``wait_seconds``, ``training_seconds``,
        ``publication_seconds`` (beside the step, where it does not block the trainer),
        ``evaluation_seconds``, ``generation_seconds`` (in place of the wait, where nothing is generated
        during training), ``rollouts``, ``trained_tokens``, ``response_tokens_mean``,
        ``response_tokens_max``, ``prompt_tokens_mean``, ``lag_mean``, ``lag_max``,
        ``clipped_fraction``, ``dropped_rollouts``.

    Examples
    --------
    >>> from lagsweep.sweeps.config.config import PipelineConfig
    >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
    >>> run = simulate_pipeline(PipelineConfig(duration_seconds=60), rollouts=True)
    >>> frame = step_log_of(run)
    >>> len(frame) == run.updates, frame.columns[:3]
    (True, ['step', 'step_seconds', 'wait_seconds'])
    """
    instance("result", result, PipelineResult, "Give what simulate_pipeline returns.")
    config = result.config
    batches = result.batches_frame()
    several = config.updates_per_batch
    count = len(batches) // several
    start = batches["start"].to_numpy()[: count * several].reshape(count, several)
    end = batches["end"].to_numpy()[: count * several].reshape(count, several)
    finish = end[:, -1] if count else np.zeros(0)
    before = np.concatenate([[0.0], finish[:-1]]) if count else np.zeros(0)
    tokens = batches["tokens"].to_numpy()[: count * several].reshape(count, several).sum(axis=1)
    rollouts = batches["rollouts"].to_numpy()[: count * several].reshape(count, several).sum(axis=1)
    lags = (batches["mean_lag"] * batches["rollouts"]).to_numpy()[: count * several]
    lags = lags.reshape(count, several).sum(axis=1) / np.maximum(rollouts, 1)
    training = (end - start).sum(axis=1)
    spans = _spans(result, before, finish)
    # A trainer's log holds the transfer; that rollouts first come to an end is a wait.
    most = np.diff(np.floor(np.arange(count + 1) * several / config.sync_every_updates)) * config.sync_seconds
    # One beside the training is logged too, beside the step.
    blocks = config.publication_blocks_trainer
    if blocks:  # it begins as a step ends, and is part of the next one
        spans["publication"] = np.minimum(spans["publication"], np.append(0.0, most[:-1])[:count])
    else:
        spans["publication"] = most
    inside = spans["publication"] if blocks else 0.0
    columns = {
        "step": np.arange(1, count + 1),
        "step_seconds": finish - before,
        "wait_seconds": np.maximum(finish - before - training - inside - spans["evaluation"], 0),
        "training_seconds": training,
        "publication_seconds": spans["publication"],
        "evaluation_seconds": spans["evaluation"],
        "rollouts": rollouts,
        "trained_tokens": tokens + rollouts * config.prompt_tokens,
        "response_tokens_mean": tokens / np.maximum(rollouts, 1),
        "prompt_tokens_mean": np.full(count, float(config.prompt_tokens)),
        "lag_mean": lags,
        "lag_max": batches["max_lag"].to_numpy()[: count * several].reshape(count, several).max(axis=1)
        if count
        else np.zeros(0, dtype=np.int64),
    }
    if count and spans["generation"].sum() + training.sum() <= 1.001 * finish[-1]:
        columns["generation_seconds"] = columns.pop("wait_seconds")
    frame = polars.DataFrame(columns)
    return frame if "rollouts" not in result._columns else _with_rollouts(frame, result, finish, several)


def _spans(result: PipelineResult, before: np.ndarray, finish: np.ndarray) -> dict[str, np.ndarray]:
    """Sum the time of each step by what the trainer did in it, and that in which rollouts were in flight."""
    timeline = result.timeline_frame()
    time = timeline["time"].to_numpy()
    none = np.zeros(len(finish))
    if not len(finish) or len(time) < 2:
        return {"publication": none, "evaluation": none, "generation": none}
    lengths = np.diff(time, append=time[-1])
    found = {"generation": _between(time, lengths * (timeline["in_flight"].to_numpy() > 0), before, finish)}
    causes = timeline["trainer_bound_by"].to_numpy() if "trainer_bound_by" in timeline.columns else None
    for name in ("publication", "evaluation"):
        own = none if causes is None else _between(time, lengths * (causes == name), before, finish)
        found[name] = own
    return found


def _between(time: np.ndarray, spans: np.ndarray, before: np.ndarray, finish: np.ndarray) -> np.ndarray:
    """Return how much of some spans lies between two times, for each pair of times."""
    total = np.concatenate([[0.0], np.cumsum(spans)[:-1]])
    found: np.ndarray = np.interp(finish, time, total) - np.interp(before, time, total)
    return np.maximum(found, 0.0)


def _with_rollouts(
    frame: polars.DataFrame, result: PipelineResult, finish: np.ndarray, several: int
) -> polars.DataFrame:
    """Add the longest response of each step and how many rollouts were dropped in it."""
    rollouts = result.rollouts_frame()
    trained = rollouts.filter(polars.col("outcome") == "trained")
    step = (trained["behaviour_version"] + trained["lag"]).to_numpy() // several
    longest = np.zeros(len(finish), dtype=np.int64)
    inside = step < len(finish)
    np.maximum.at(longest, step[inside], trained["tokens"].to_numpy()[inside])
    gone = rollouts.filter(polars.col("outcome").is_in(_DROPPED) & polars.col("end").is_not_null())
    place = np.searchsorted(finish, gone["end"].cast(polars.Float64).to_numpy(), side="left")
    dropped = np.bincount(place[place < len(finish)], minlength=len(finish))
    cut = trained["truncated"].to_numpy().astype(np.float64)
    cuts = np.bincount(step[inside], cut[inside], minlength=len(finish))
    return frame.with_columns(
        polars.Series("response_tokens_max", longest),
        polars.Series("clipped_fraction", cuts / np.maximum(frame["rollouts"].to_numpy(), 1)),
        polars.Series("dropped_rollouts", dropped),
    )
