"""Two stages side by side: totals, schedules with a finite buffer, and one observed group."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.formula_cases import agrees, cases
from oracle.overlap_twins import makespan_by_ticks

from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    pipeline_makespan,
    pipeline_report,
    staleness_budget,
    staleness_capacity,
    straggler_report,
)

seconds = st.floats(0, 1e6, allow_nan=False)
whole_durations = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=9)


def test_every_stored_case_is_claimed_by_a_test():
    claimed = {
        "straggler_report",
        "pipeline_report",
        "pipeline_makespan",
        "staleness_capacity",
        "staleness_budget",
        "published_async_speedup",
        "expected_max_lognormal",
        "expected_max_exponential",
        "expected_max_uniform",
        "expected_max_normal",
    }

    assert {case["function"] for case in cases("pipeline_straggler")} == claimed


@pytest.mark.parametrize("case", cases("pipeline_straggler", "pipeline_report"), ids=lambda case: case["id"])
def test_pipeline_report_agrees_with_the_stored_cases(case):
    report = pipeline_report(**case["inputs"])

    for field, expected in case["expected"].items():
        found = getattr(report, field)
        assert found == expected if isinstance(expected, str) else agrees(found, case, expected)


@pytest.mark.parametrize("case", cases("pipeline_straggler", "straggler_report"), ids=lambda case: case["id"])
def test_straggler_report_agrees_with_the_stored_cases(case):
    expected = case["expected"]
    if "raises" in expected:
        with pytest.raises(ValueError, match=r"^durations: "):
            straggler_report(case["inputs"]["durations"])
        return
    report = straggler_report(case["inputs"]["durations"])

    assert all(agrees(getattr(report, field), case, value) for field, value in expected.items())


@pytest.mark.parametrize(
    "case", cases("pipeline_straggler", "pipeline_makespan"), ids=lambda case: case["id"]
)
def test_makespan_agrees_with_the_stored_cases(case):
    schedule = pipeline_makespan(**case["inputs"])

    assert agrees(schedule.pipeline_total, case, case["expected"]["pipeline_total"])
    assert schedule.rollout_completions.tolist() == case["expected"]["rollout_completions"]
    assert schedule.train_completions.tolist() == case["expected"]["train_completions"]


def test_admission_budgets_agree_with_the_stored_cases():
    (capacity,) = cases("pipeline_straggler", "staleness_capacity")
    (budget,) = cases("pipeline_straggler", "staleness_budget")
    verl = budget["inputs"]

    assert staleness_capacity(**capacity["inputs"]) == capacity["expected"]
    assert (
        staleness_budget(
            updates_per_sync=verl["trigger_parameter_sync_step"],
            batches_per_update=verl["require_batches"],
            batch_size=verl["ppo_mini_batch_size"],
            staleness_threshold=verl["staleness_threshold"],
        )
        == budget["expected"]
    )


@pytest.mark.parametrize(
    ("case", "explained"),
    list(zip(cases("pipeline_straggler", "published_async_speedup"), [False, True])),
    ids=lambda value: value["id"] if isinstance(value, dict) else "",
)
def test_overlap_alone_explains_a_published_speedup_up_to_two(case, explained):
    times = case["inputs"]
    published = times["colocate_sync_step_s"] / times["fully_async_step_s"]

    assert agrees(published, case, case["expected"]["step_speedup"])
    assert (published <= pipeline_report(1.0, 1.0, 10**9).speedup) == explained


def test_the_course_notebooks_calls_work_as_written():
    pipe = pipeline_report(rollout_seconds=60.0, train_seconds=20.0, batches=10)
    group = straggler_report([3, 3, 4, 4, 5, 5, 6, 18])

    assert (pipe.sequential_total, pipe.pipeline_total) == (800.0, 620.0)
    assert group.utilization == pytest.approx(1 / 3, rel=1e-15)
    assert "pipeline_total=620.0" in str(pipe)


@given(rollout=seconds, train=seconds, batches=st.integers(1, 1000))
def test_overlap_never_loses_and_never_gains_more_than_two(rollout, train, batches):
    report = pipeline_report(rollout, train, batches)

    assert max(batches * rollout, batches * train) <= report.pipeline_total * (1 + 1e-12)
    assert report.pipeline_total <= report.sequential_total * (1 + 1e-12)
    assert 1 - 1e-12 <= report.speedup <= 2
    assert 0 <= report.rollout_utilization <= 1 + 1e-12
    assert report.saved_seconds == pytest.approx(report.sequential_total - report.pipeline_total, abs=1e-3)


@given(rollout=seconds, train=seconds, batches=st.integers(1, 1000), longer=seconds)
def test_a_longer_stage_or_one_more_batch_never_shortens_the_pipeline(rollout, train, batches, longer):
    total = pipeline_report(rollout, train, batches).pipeline_total

    assert pipeline_report(rollout + longer, train, batches).pipeline_total >= total
    assert pipeline_report(rollout, train + longer, batches).pipeline_total >= total
    assert pipeline_report(rollout, train, batches + 1).pipeline_total >= total


def test_pipeline_report_broadcasts_like_its_scalars():
    rollout, train, batches = [[10.0], [20.0]], [5.0, 20.0, 80.0], 7
    report = pipeline_report(rollout, train, batches)

    assert report.pipeline_total.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            single = pipeline_report(rollout[i][0], train[j], batches)
            assert report.pipeline_total[i, j] == single.pipeline_total
            assert report.bottleneck[i, j] == single.bottleneck
    assert report.bottleneck.tolist() == [["rollout", "train", "train"], ["rollout", "balanced", "train"]]


def test_without_any_time_nobody_waits():
    report = pipeline_report(0, 0, 3)

    assert (report.pipeline_total, report.speedup, report.rollout_utilization) == (0.0, 1.0, 1.0)
    assert straggler_report([0, 0]).utilization == 1.0


@given(durations=whole_durations, buffer=st.integers(0, 4))
def test_makespan_equals_a_schedule_stepped_second_by_second(durations, buffer):
    rollout, train = (list(times) for times in zip(*durations))
    schedule = pipeline_makespan(rollout, train, buffer)
    rollout_end, train_end = makespan_by_ticks(rollout, train, buffer)

    assert schedule.rollout_completions.tolist() == rollout_end
    assert schedule.train_completions.tolist() == train_end


@given(durations=whole_durations, buffer=st.integers(0, 4))
def test_every_second_of_both_stages_is_work_or_wait(durations, buffer):
    rollout, train = (np.array(times) for times in zip(*durations))
    schedule = pipeline_makespan(rollout, train, buffer)

    assert rollout.sum() + schedule.rollout_blocked_seconds == schedule.rollout_completions[-1]
    assert train.sum() + schedule.train_idle_seconds == schedule.pipeline_total


@given(durations=whole_durations, buffer=st.integers(0, 4))
def test_a_larger_buffer_never_delays_anything(durations, buffer):
    rollout, train = (list(times) for times in zip(*durations))
    small, large, endless = (pipeline_makespan(rollout, train, b) for b in (buffer, buffer + 1, None))

    assert (large.train_completions <= small.train_completions).all()
    assert (endless.train_completions <= large.train_completions).all()
    assert max(sum(rollout) + min(train), sum(train) + rollout[0]) <= endless.pipeline_total
    assert small.pipeline_total <= small.sequential_total


@given(
    rollout=st.integers(0, 50), train=st.integers(0, 50), batches=st.integers(1, 30), buffer=st.integers(0, 3)
)
def test_identical_batches_take_the_closed_forms_time_whatever_the_buffer(rollout, train, batches, buffer):
    schedule = pipeline_makespan([rollout] * batches, [train] * batches, buffer)

    assert schedule.pipeline_total == pipeline_report(rollout, train, batches).pipeline_total


def test_makespan_broadcasts_stages_and_buffers():
    rollout = np.array([[3.0, 1.0, 4.0, 1.0], [2.0, 7.0, 1.0, 8.0]])
    schedule = pipeline_makespan(rollout[:, np.newaxis, :], [5.0], buffer=[0, 1, 2])

    assert schedule.pipeline_total.shape == (2, 3)
    assert schedule.train_completions.shape == (2, 3, 4)
    for i in range(2):
        for b in range(3):
            single = pipeline_makespan(rollout[i], [5.0] * 4, b)
            assert schedule.pipeline_total[i, b] == single.pipeline_total
            assert schedule.rollout_blocked_seconds[i, b] == single.rollout_blocked_seconds


@given(durations=st.lists(seconds, min_size=1, max_size=12))
def test_worker_seconds_are_conserved(durations):
    report = straggler_report(durations)

    assert report.busy_worker_seconds + report.idle_worker_seconds == pytest.approx(
        report.total_worker_seconds
    )
    assert 1 / report.workers <= report.utilization * (1 + 1e-12)
    assert report.utilization <= 1
    assert durations[report.slowest_worker] == report.max == max(durations)


def test_groups_lie_on_the_last_axis():
    report = straggler_report([[1, 1], [1, 3]])

    assert report.utilization.tolist() == [1.0, 2 / 3]
    assert report.slowest_worker.tolist() == [0, 1]
    assert report.workers == 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: pipeline_report(-1.0, 1.0, 1),
            "rollout_seconds: must be at least 0 (got -1.0). Give a number in that range.",
        ),
        (
            lambda: pipeline_report(1.0, float("nan"), 1),
            "train_seconds: must not be NaN (got nan). Give a finite number.",
        ),
        (
            lambda: pipeline_report(1.0, 1.0, 2.5),
            "batches: must be a whole number (got 2.5). Give a whole number.",
        ),
        (
            lambda: pipeline_report(True, 1.0, 1),
            "rollout_seconds: must be a number (got True). Give a number, or an array of numbers.",
        ),
        (
            lambda: pipeline_report([1.0, 2.0], [1.0, 2.0, 3.0], 1),
            "rollout_seconds, train_seconds, batches: shapes must fit together (got "
            "{'rollout_seconds': (2,), 'train_seconds': (3,), 'batches': ()}). "
            "Add axes of length 1 where they differ.",
        ),
        (
            lambda: straggler_report(5.0),
            "durations: must hold at least one worker (got 5.0). "
            "Give the seconds of each worker, the last axis being one group.",
        ),
        (
            lambda: straggler_report([1.0, float("inf")]),
            "durations: must be finite (got inf). Give a finite number.",
        ),
        (
            lambda: pipeline_makespan([], [1.0]),
            "rollout_seconds: must hold at least one batch (got []). "
            "Give the seconds of each batch, the last axis being the batches.",
        ),
        (
            lambda: pipeline_makespan([1.0], [1.0], -1),
            "buffer: must be at least 0 (got -1). "
            "Give a number of finished batches, or None for an unbounded buffer.",
        ),
    ],
)
def test_impossible_input_is_named(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text
