"""Ends that are shifted together are those that a pass over the slots moves, wherever a run stops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from lagsweep import PipelineConfig
from lagsweep.kernels.pipeline import records as at
from lagsweep.kernels.pipeline.moving import _move_ends_kernel
from lagsweep.kernels.pipeline.shifting import (
    _begin_shift_kernel,
    _end_shift_kernel,
    _shift_ends_kernel,
    shift_versions,
)
from lagsweep.sweeps.runs.general import GeneralRun

STRETCH_FIELDS = ("target", "mark", "done", "rest", "tail", "version_work")


def config(**settings) -> PipelineConfig:
    return PipelineConfig(
        **{
            "publication": "pause",
            "rollout_workers": 12,
            "rollout_overhead_seconds": 2.0,
            "sync_seconds": 3.0,
            "batch_tokens": 2_000,
            "max_queue_tokens": 20_000,
            "max_policy_lag": 20,
            "train_tokens_per_second": 2_000.0,
            "duration_seconds": 200.0,
        }
        | settings
    )


def stopped(settings: dict, seconds: float) -> GeneralRun:
    run = GeneralRun(config(**settings))
    run.advance(until_seconds=seconds)
    return run


def of(run: GeneralRun) -> tuple:
    """Return what the kernels take of a run, beside its parameters."""
    held = run.held
    return held.state[0], held.shift[0], held.slots, held.members


def begin(run: GeneralRun) -> None:
    _begin_shift_kernel(run.parameters[0], *of(run), True)


def end(run: GeneralRun) -> None:
    _end_shift_kernel(run.parameters[0], *of(run), run.held.time_tree)


def kept(run: GeneralRun) -> Iterator[np.ndarray]:
    """Give what a run holds, without what an empty slot holds of its last rollout, which means nothing."""
    slots = run.held.slots.copy()
    for name in STRETCH_FIELDS:
        slots[name][slots["phase"] == at.EMPTY] = 0
    for array in (run.held.state, slots, run.held.members, run.held.time_tree):
        yield array.copy()


def same(left: GeneralRun, right: GeneralRun) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(kept(left), kept(right)))


runs = st.tuples(
    st.fixed_dictionaries(
        {
            "publication": st.sampled_from(["pause", "abort"]),
            "rollout_workers": st.sampled_from([1, 2, 12, 16]),
            "rollout_overhead_seconds": st.sampled_from([0.0, 0.001, 2.0, 30.0]),
            "sync_seconds": st.sampled_from([0.0, 0.5, 3.0, 40.0]),
            "decode_tokens_per_second": st.sampled_from([50.0, 5_000.0]),
        }
    ),
    st.floats(0.0, 199.0),
)


@settings(max_examples=60)
@given(runs)
@example(({}, 20.0))
def test_a_shift_that_ends_at_once_changes_nothing(drawn):
    once, twice = stopped(*drawn), stopped(*drawn)
    for _ in range(2):
        begin(twice)
        assert twice.held.shift[0].on == 1
        end(twice)

    assert same(once, twice)


@settings(max_examples=60)
@given(runs)
@example(({"rollout_overhead_seconds": 30.0}, 60.0))  # many are past their decode
@example(({"rollout_overhead_seconds": 30.0, "decode_tokens_per_second": 5_000.0}, 185.0))  # ends beyond it
def test_a_transfer_moves_the_same_ends_either_way(drawn):
    by_pass, by_shift = stopped(*drawn), stopped(*drawn)
    assume(by_pass.state.channel != at.CHANNEL_TRANSFER)  # one at a time
    for run in (by_pass, by_shift):
        run.state.publication_version = run.state.published + 1
        run.state.channel = at.CHANNEL_TRANSFER
        run.state.publication_time = run.state.now + run.parameters[0].sync_ticks
    _move_ends_kernel(by_pass.parameters[0], by_pass.state, by_pass.held)
    begin_again(by_shift)
    _shift_ends_kernel(by_shift.parameters[0], *of(by_shift), by_shift.held.time_tree)
    end(by_shift)

    assert same(by_pass, by_shift)


def begin_again(run: GeneralRun) -> None:
    """Begin the shift as before the transfer: its rollouts still decode."""
    run.state.channel = at.CHANNEL_FREE
    begin(run)
    run.state.channel = at.CHANNEL_TRANSFER


def test_work_under_newer_versions_is_counted_from_each_stop_on():
    run = stopped({}, 20.0)
    state, shift, slots, members = of(run)
    begin(run)
    busy = np.flatnonzero(slots["phase"] == at.TIMED)
    before, first = slots["version_work"][busy].copy(), int(state.published)
    version = first + 2
    for newer in (first + 1, version):
        state.channel = at.CHANNEL_TRANSFER
        _shift_ends_kernel(run.parameters[0], state, shift, slots, members, run.held.time_tree)
        state.now += run.parameters[0].sync_ticks
        shift_versions(state, shift, newer)
        state.published, state.channel = newer, at.CHANNEL_FREE
        state.publications += 1
        state.now += 1_000_000  # a second of decode under this version
    state.channel = at.CHANNEL_TRANSFER
    _shift_ends_kernel(run.parameters[0], state, shift, slots, members, run.held.time_tree)
    end(run)
    still = slots["phase"][busy] == at.TIMED
    grown = (slots["version_work"][busy] - before)[still]

    assert still.sum() > 5
    ahead = version - members["version"][slots["group"][busy][still]]
    # A second under one version less, and one under this; before them, what was decoded since the last stop.
    since = slots["done"][busy][still] - 2_000_000
    assert (grown >= ((ahead - 1) + ahead) * 1e6).all()
    assert (grown <= ((ahead - 1) + ahead) * 1e6 + since * np.maximum(ahead - 2, 0)).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"publication": "abort", "resume_seconds": 0.5},
        {"publication": "abort", "reprefill_tokens_per_second": 5_000.0},
        {"publication": "background"},
        {"decode_slowdown_per_rollout": 0.01},
        {"sync_seconds": 300.0},  # beyond the run's end, keys would not fit
    ],
)
def test_what_does_not_stop_all_alike_is_not_shifted(settings):
    run = stopped(settings, 20.0)
    begin(run)

    assert run.held.shift[0].on == 0
