"""The drill: a whole resume is exact, every partial one is noticed, and each says what it changed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lagsweep.errors import CheckpointError, ConfigError
from lagsweep.kernels import staleness_capacity
from lagsweep.sweeps.checkpoint.checkpoint import load_checkpoint, save_checkpoint
from lagsweep.sweeps.checkpoint.drill import recovery_drill
from lagsweep.sweeps.checkpoint.drill_loop import DrillSettings, TrainingLoop


def _resumed(loop, folder, previous=None):
    """Through a file, as after a crash."""
    path = save_checkpoint(loop.checkpoint(previous), folder / f"step-{loop.optimizer_step}.json")
    manifest = load_checkpoint(path, components=loop.components())
    return TrainingLoop.from_checkpoint(manifest, loop.seed, loop.settings), manifest


# The loop itself


@given(
    seed=st.integers(0, 2**32),
    stops=st.lists(st.integers(0, 5), max_size=4),
    batch=st.integers(1, 5),
    lag=st.integers(0, 3),
    cadence=st.integers(1, 4),
    slots=st.integers(1, 24),
)
@hypothesis_settings(max_examples=30)
def test_saving_and_resuming_at_any_updates_is_exact(
    tmp_path_factory, seed, stops, batch, lag, cadence, slots
):
    folder = tmp_path_factory.mktemp("run")
    sizes = DrillSettings(
        batch_rollouts=batch,
        max_policy_lag=lag,
        sync_every_updates=min(cadence, lag + 1),
        rollout_slots=slots,
    )
    whole = TrainingLoop(seed, sizes).run(sum(stops) + 2)
    loop, manifest, records = TrainingLoop(seed, sizes), None, []
    for stop in stops:
        records += loop.run(stop).records
        loop, manifest = _resumed(loop, folder, manifest)
    records += loop.run(2).records

    assert loop.aspects() == whole.aspects()
    assert records == whole.records


def test_the_policy_learns_so_the_drill_is_about_training():
    rewards = [record.mean_reward for record in TrainingLoop(12016).run(200).records]

    assert np.mean(rewards[-20:]) > np.mean(rewards[:20]) + 0.3


def test_the_loop_reaches_the_states_that_make_a_resume_hard():
    loop, hard = TrainingLoop(12016), 0
    for _ in range(60):
        loop.run(1)
        versions = {rollout["behaviour_version"] for rollout in [*loop.queue, *loop.in_flight]}
        unpublished = loop.current_version != loop.published_version
        hard += bool(loop.queue and loop.in_flight and unpublished and len(versions) > 1)

    assert hard >= 6
    assert any(record.dropped for record in loop.records)


@pytest.mark.parametrize("stop", [3, 4, 5, 8, 11])
@pytest.mark.parametrize("lag", [0, 12])
def test_a_resume_at_the_end_of_an_epoch_or_elsewhere_does_every_planned_update(tmp_path, stop, lag):
    sizes = DrillSettings(
        samples=64, epochs=3, batch_rollouts=16, max_policy_lag=lag, sync_every_updates=1, rollout_slots=256
    )
    loop = TrainingLoop(5, sizes).run(stop)
    resumed, _ = _resumed(loop, tmp_path)
    records = [*loop.records, *resumed.run(12 - stop).records]
    numbers = [number for record in records for number in record.trained]

    assert resumed.optimizer_step == 12
    assert sorted(numbers) == list(range(192))
    for epoch in range(3):
        chosen = [resumed.prompts.prompt_id(number) for number in sorted(numbers) if number // 64 == epoch]
        assert sorted(chosen) == list(range(64))


def test_a_resume_after_the_last_update_does_not_pretend_to_train(tmp_path):
    sizes = DrillSettings(samples=64, epochs=3, batch_rollouts=16, max_policy_lag=0, sync_every_updates=1)
    resumed, _ = _resumed(TrainingLoop(5, sizes).run(12), tmp_path)

    with pytest.raises(CheckpointError) as caught:
        resumed.run(3)
    assert str(caught.value) == (
        "updates: must all be done, but the prompts ran out with 0 rollouts queued (got '0 of 3'). "
        "Check the data cursor of the checkpoint, or add epochs."
    )


def test_two_resumes_keep_the_cursor_aligned(tmp_path):
    sizes = DrillSettings(samples=200, batch_rollouts=1, max_policy_lag=0, sync_every_updates=1)
    first, manifest = _resumed(TrainingLoop(1, sizes).run(30), tmp_path)
    second, again = _resumed(first.run(10), tmp_path, manifest)
    whole = TrainingLoop(1, sizes).run(45)

    assert (manifest.dataset_cursor, again.dataset_cursor) == (30, 40)
    assert second.run(5).aspects() == whole.aspects()


@pytest.mark.parametrize("crash", [1, 2, 3])
def test_work_in_flight_is_neither_lost_nor_repeated(tmp_path, crash):
    sizes = DrillSettings(
        samples=8, epochs=1, batch_rollouts=2, rollout_slots=4, max_policy_lag=3, sync_every_updates=1
    )
    loop = TrainingLoop(3, sizes).run(crash)
    resumed, manifest = _resumed(loop, tmp_path)
    at_checkpoint = [number for record in loop.records for number in record.trained]
    waiting = [rollout["number"] for rollout in [*manifest.queue, *manifest.in_flight]]
    records = [*loop.records, *resumed.run(4 - crash).records]
    trained = Counter(number for record in records for number in record.trained)

    assert len(at_checkpoint) == 2 * crash
    assert sorted(at_checkpoint + waiting) == list(range(len(at_checkpoint) + len(waiting)))
    assert trained == Counter(range(8))


def test_the_admission_budget_holds_over_a_resume_far_into_the_run(tmp_path):
    sizes = DrillSettings(batch_rollouts=4, max_policy_lag=2, sync_every_updates=1)
    resumed, manifest = _resumed(TrainingLoop(2, sizes).run(100), tmp_path)
    resumed.run(50)

    assert manifest.current_version == 100
    assert manifest.counters["accepted_rollouts"] >= 400
    assert max(record.largest_outstanding for record in resumed.records) == 12 == sizes.outstanding_limit
    assert max(record.max_lag for record in resumed.records) <= 2


@given(st.integers(0, 6), st.integers(0, 200), st.integers(1, 16), st.integers(0, 16))
def test_after_a_whole_restore_the_budget_is_the_lag_limit_whatever_the_version(lag, version, batch, running):
    rule = {
        "max_staleness": lag,
        "current_version": version,
        "consumer_batch_size": batch,
        "running": running,
    }
    rule["concurrency_limit"] = 10**6

    assert staleness_capacity(**rule, accepted=version * batch) == (lag + 1) * batch - running
    assert staleness_capacity(**rule, accepted=0) == (lag + 1) * batch - running + version * batch


def test_the_loop_goes_on_exactly_in_another_process(tmp_path):
    loop = TrainingLoop(12016).run(5)
    path = save_checkpoint(loop.checkpoint(), tmp_path / "step-5.json")
    program = (
        "import json, sys\n"
        "from lagsweep.sweeps.checkpoint.checkpoint import load_checkpoint\n"
        "from lagsweep.sweeps.checkpoint.drill_loop import TrainingLoop\n"
        "manifest = load_checkpoint(sys.argv[1], components=TrainingLoop(12016).components())\n"
        "print(json.dumps(TrainingLoop.from_checkpoint(manifest, 12016).run(6).aspects()))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )

    assert json.loads(answer.stdout) == TrainingLoop(12016).run(11).aspects()


def test_a_checkpoint_of_another_seed_or_size_is_refused(tmp_path):
    path = save_checkpoint(TrainingLoop(1).run(2).checkpoint(), tmp_path / "step-2.json")
    other = TrainingLoop(2, DrillSettings(batch_rollouts=5))

    with pytest.raises(CheckpointError, match=r"drill\.batch_rollouts: 4 -> 5; drill\.seed: '1' -> '2'"):
        load_checkpoint(path, components=other.components())


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (
            {"sync_every_updates": 4},
            "sync_every_updates: must be at most max_policy_lag + 1 = 3 (got 4). "
            "Publish more often, or allow more lag.",
        ),
        ({"batch_rollouts": 0}, "batch_rollouts: must be at least 1 (got 0). Give a count."),
        ({"samples": 2.5}, "samples: must be a whole number (got 2.5). Give a count."),
    ],
)
def test_sizes_that_cannot_run_are_refused(sizes, text):
    with pytest.raises(ConfigError) as caught:
        DrillSettings(**sizes)

    assert str(caught.value) == text


# The drill

EXPECTED_EFFECT = {
    "weights only": lambda report, after: report.outcome.updates == after and report.stream == "replayed",
    "no generators": lambda report, after: report.stream == "replayed" and not report.vanished_prompts,
    "cursor ahead": lambda report, after: len(report.vanished_prompts) == DrillSettings().prefetch_prompts,
    "buffer lost": lambda report, after: bool(report.vanished_prompts),
    "reseeded": lambda report, after: report.stream == "other" and not report.vanished_prompts,
    "counter lost": lambda report, after: report.largest_outstanding > DrillSettings().outstanding_limit,
}


@given(seed=st.integers(0, 2**64 - 1), before=st.integers(1, 12), after=st.integers(1, 12))
@hypothesis_settings(max_examples=40)
def test_the_whole_resume_is_exact_and_every_broken_one_is_caught_with_its_effect(seed, before, after):
    drill = recovery_drill(seed=seed, before=before, after=after)

    assert drill.exact_match
    assert not drill.broken_match
    assert drill.all_caught
    assert drill.resumed == drill.uninterrupted
    assert [report.name for report in drill.broken] == list(EXPECTED_EFFECT)
    for report in drill.broken:
        assert report.effects
        assert EXPECTED_EFFECT[report.name](report, after), report


def test_each_fault_shows_where_it_lies_and_nowhere_it_does_not():
    drill = recovery_drill(seed=12016, before=8, after=8)
    caught = {report.name: set(report.caught_by) for report in drill.broken}

    assert drill.right.caught_by == ()
    assert drill.right.effects == ()
    # A cursor that ran ahead leaves both streams as they were, so comparing generators would not find it.
    assert not {"NumPy stream", "Python stream"} & caught["cursor ahead"]
    assert {"NumPy stream", "Python stream"} <= caught["no generators"] & caught["reseeded"]
    assert {"optimizer", "versions"} <= caught["weights only"]
    assert all("updates" in parts for parts in caught.values())


def test_what_the_drill_reports_is_so_when_counted_again():
    drill = recovery_drill(seed=12016, before=8, after=8)
    past = TrainingLoop(12016).run(8)
    lost = {rollout["number"] for rollout in [*past.queue, *past.in_flight]}
    report = {report.name: report for report in drill.broken}
    once = [number for record in past.records for number in record.trained]
    again = [number for record in report["weights only"].outcome.records for number in record.trained]

    assert set(report["buffer lost"].vanished_prompts) == lost
    assert report["cursor ahead"].vanished_prompts == tuple(
        range(past.prompts.next_number, past.prompts.next_number + 5)
    )
    assert report["weights only"].repeated_prompts == tuple(sorted(set(once) & set(again)))
    assert report["weights only"].first_different_update == 9
    assert drill.right.first_different_update is None


def test_no_broken_resume_would_show_in_the_reward():
    drill = recovery_drill(seed=12016, before=60, after=60)
    rewards = {
        report.name: report.outcome.mean_reward for report in drill.broken if report.name != "weights only"
    }

    assert drill.uninterrupted.mean_reward > 0.7
    assert all(abs(reward - drill.uninterrupted.mean_reward) < 0.15 for reward in rewards.values()), rewards


def test_outcomes_print_in_one_line_without_the_state():
    drill = recovery_drill(seed=12016, before=2, after=2)

    assert repr(drill.resumed).startswith("DrillOutcome(updates=4, version=4, published_version=4, cursor=")
    assert len(repr(drill.resumed)) < 250
    assert len(repr(drill)) < 1000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"before": 0}, "before: must be at least 1 update (got 0). Crash after some training."),
        ({"after": 0}, "after: must be at least 1 update (got 0). Crash after some training."),
        ({"before": 1.5}, "before: must be a whole number (got 1.5). Give a count."),
        ({"seed": -1}, "seed: must be at least 0 and below 2**64 (got -1). Give a count."),
        ({"seed": True}, "seed: must be a whole number (got True). Give a count."),
    ],
)
def test_a_drill_that_cannot_be_held_is_refused(arguments, text):
    with pytest.raises(ConfigError) as caught:
        recovery_drill(**{"seed": 1, "before": 2, "after": 2, **arguments})

    assert str(caught.value) == text
