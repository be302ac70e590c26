"""Stretches of the general loop change nothing: a run that takes them is the run that goes event by event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies.general_configs import general_settings, to_config

from lagsweep import PipelineConfig, preset_config
from lagsweep.kernels.pipeline.records import ASKED, EMPTY, NEVER, GeneralArrays
from lagsweep.kernels.pipeline.stretch import has_stretches
from lagsweep.kernels.pipeline.ticks import ticks
from lagsweep.sweeps.runs.general import GeneralRun

EXAMPLE = PipelineConfig(publication="pause", duration_seconds=60.0)
# Rows that only one of them records, and scratch.
LEFT_OUT = {"timeline_rows", "batch_rows", "rollout_rows", *GeneralRun._SCRATCH}


def assert_same_state(by_stretches: GeneralRun, event_by_event: GeneralRun) -> None:
    """All that a run holds is equal, bit for bit, but for the rows that only one of them records."""
    for name in GeneralArrays._fields:
        if name in LEFT_OUT:
            continue
        left, right = (getattr(run.held, name).copy() for run in (by_stretches, event_by_event))
        if name == "state":
            for rows in ("timeline_rows", "batch_rows", "discarded_since"):
                left[rows] = right[rows] = 0
        if name == "slots":  # what an empty one holds of its last rollout means nothing
            for slots in (left, right):
                for field in ("target", "mark", "done", "rest", "tail", "version_work"):
                    slots[field][slots["phase"] == EMPTY] = 0
        assert left.tobytes() == right.tobytes(), (name, differing(left, right))


def test_runs_without_rows_take_stretches():
    """Else the tests above would compare a way with itself."""
    asked = np.zeros(1, ASKED)[0]
    taken = [GeneralRun(EXAMPLE, timeline=recording).parameters[0] for recording in (False, True)]
    assert [bool(has_stretches(parameters, asked)) for parameters in taken] == [True, False]


def differing(left: np.ndarray, right: np.ndarray) -> list[str]:
    """Name the fields that differ."""
    return [field for field in left.dtype.names or () if left[field].tobytes() != right[field].tobytes()]


def check(config: PipelineConfig, stops: list[float]) -> int:
    """Advance all to the same stops; how many events they had.

    One run by stretches records its batches: it comes back whenever there is no more room for them. One comes
    back after every few events.
    """
    by_stretches, event_by_event = GeneralRun(config), GeneralRun(config, timeline=True, batches=True)
    with_batches, by_pieces = GeneralRun(config, batches=True), GeneralRun(config)
    room = {"batch_rows": with_batches.held.batch_rows[:1].copy()}
    with_batches._hold(**room)  # one row: it is doubled again and again
    for stop in [*stops, None]:
        for run in (by_stretches, event_by_event, with_batches):
            run.advance(until_seconds=stop)
        while not by_pieces.step(NEVER if stop is None else ticks(stop), budget=40):
            pass
        for run in (by_stretches, with_batches, by_pieces):
            assert_same_state(run, event_by_event)
    theirs = event_by_event.result().metrics
    for run in (by_stretches, with_batches, by_pieces):
        np.testing.assert_equal(run.result().metrics, theirs)
    assert np.array_equal(with_batches.rows("batches"), event_by_event.rows("batches"))
    return int(by_stretches.held.state["events"][0])


@settings(max_examples=300)
@given(general_settings(), st.lists(st.floats(0.0, 1.0), max_size=3))
def test_random_configurations(drawn, shares):
    config = to_config(drawn)
    check(config, sorted(share * config.duration_seconds for share in shares))


@pytest.mark.parametrize(
    "preset", ["slime_fully_async", "skyrl", "openrlhf", "miles", "areal", "trl_async", "queue_drop"]
)
def test_presets(preset):
    config = preset_config(
        preset,
        group_size=4,
        batch_groups=4,
        rollout_workers=40,
        duration_seconds=300.0,
    )
    assert check(config, [100.0, 101.5]) > 100


@pytest.mark.parametrize("overhead", [0.5, 20.0, 70.0])
@pytest.mark.parametrize("publication", ["pause", "abort"])
def test_near_the_end_of_a_run(publication, overhead):
    # Rollouts past their decode whose end lies beyond the run's, and ends that a transfer moves beyond it.
    config = PipelineConfig(
        publication=publication,
        rollout_workers=30,
        rollout_overhead_seconds=overhead,
        sync_seconds=6.0,
        decode_tokens_per_second=200.0,
        batch_tokens=1_500,
        train_tokens_per_second=900.0,
        max_policy_lag=3,
        cancel_in_flight=True,
        duration_seconds=150.0,
    )
    assert check(config, [100.0, *(140.0 + 0.37 * step for step in range(27))]) > 30
