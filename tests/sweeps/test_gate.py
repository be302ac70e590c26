"""A gate in a trainer: answers, misuse, waiting, threads, saving."""

from __future__ import annotations

import json
import threading

import pytest

import lagsweep as ls
from lagsweep.errors import CheckpointError, ConfigError

LONG = 60.0  # seconds after which something that never comes is an error instead of a hang
SMALL = {"batch_groups": 2, "group_size": 1, "rollout_workers": 8}


def gate_of(preset="areal", **fields):
    return ls.RolloutGate(ls.preset_config(preset, **{**SMALL, **fields}))


def finish_all(gate):
    return [gate.finish(rollout, 10) for rollout in gate.in_flight]


class TestARunByHand:
    """AReaL with one batch ahead, batches of two: each number can be counted on fingers."""

    def test_two_batches_start_one_waits_and_the_lag_is_one(self):
        gate = gate_of(max_head_offpolicyness=1, max_concurrent_rollouts=4)
        assert [gate.start().rollout for _ in range(4)] == [0, 1, 2, 3]
        assert gate.start().bound_by == "max_running"
        assert [done.outcome for done in finish_all(gate)] == ["queued"] * 4
        assert gate.start().bound_by == "limits.0"

        first = gate.pop()
        assert [group.group for group in first.groups] == [0, 1]
        assert gate.pop().bound_by == "busy"
        assert gate.trained() == (1, (0, 0), (), (), "transfer", 1)
        assert gate.pop().bound_by == "publication"
        assert gate.publish(1) == (1, "none", -1)

        second = gate.pop()
        assert [group.lag for group in second.groups] == [1, 1]
        assert gate.trained().lags == (1, 1)
        assert gate.counts().version == 2

    def test_a_drain_waits_for_the_running_groups(self):
        gate = gate_of("verl_one_step_off")
        gate.start(), gate.start()
        finish_all(gate)
        gate.pop()
        started = [gate.start(), gate.start()]
        assert all(started)

        done = gate.trained()

        assert (done.publication, done.publishes) == ("draining", 1)
        assert not gate.wait_for_drain(wait_seconds=0)
        finish_all(gate)
        assert gate.wait_for_drain(wait_seconds=0)
        assert gate.publish().version == 1

    def test_what_is_too_old_is_cancelled_and_may_still_report(self):
        gate = gate_of("roll", async_generation_ratio=1.0, max_policy_lag=0)
        for _ in range(4):
            gate.start()
        gate.finish(0, 10), gate.finish(1, 10)
        gate.pop()

        assert gate.trained().cancelled == (2, 3)
        assert gate.finish(2, 10).outcome == "cancelled"
        with pytest.raises(ConfigError, match="must be in flight: it has finished before"):
            gate.finish(2, 10)

    def test_a_held_group_joins_as_soon_as_a_batch_is_taken(self):
        rules = {"queue_overflow": "hold", "max_queue_groups": 1, "max_queue_tokens": None}
        gate = ls.RolloutGate(ls.PipelineConfig(batch_groups=1, rollout_workers=2, **rules))
        gate.start(), gate.start()
        assert [done.outcome for done in finish_all(gate)] == ["queued", "held"]
        assert [gate.start().bound_by for _ in range(2)] == ["", "busy"]

        gate.pop()

        assert (gate.counts().held_groups, gate.counts().queued_groups) == (0, 1)
        assert gate.start()

    def test_a_failed_rollout_gives_its_place_back(self):
        gate = gate_of(max_concurrent_rollouts=1)
        assert gate.finish(gate.start().rollout, 0, filtered=True).outcome == "filtered"

        assert gate.counts().started_groups == 0
        assert gate.start().group == 1

    def test_a_group_that_is_too_old_runs_again_under_its_number_and_draws(self):
        gate = gate_of("tinker", max_steps_off_policy=0, stale_groups="requeue", sync_seconds=0)
        starts = [gate.start() for _ in range(2)]
        late = [gate.start() for _ in range(2)]
        assert [one.bound_by for one in late] == ["max_running"] * 2
        gate.finish(0, 10), gate.finish(1, 10)
        gate.pop()
        more = [gate.start() for _ in range(2)]
        gate.trained(), gate.publish()
        for start in more:
            gate.finish(start.rollout, 10)
        dropped = gate.pop()

        assert dropped.discarded == (more[0].group, more[1].group)
        again = gate.start()
        assert (again.group, again.sample, again.version) == (more[0].group, more[0].sample, 1)
        assert again.rollout > more[1].rollout > starts[1].rollout


class TestMisuse:
    """Every error names field, rule, value and way out, and changes nothing."""

    def refuses(self, gate, call, text):
        before = gate.save()
        with pytest.raises(ConfigError) as caught:
            call()
        assert str(caught.value) == text
        assert gate.save() == before

    def test_a_rollout_that_was_never_started(self):
        gate = gate_of()
        self.refuses(
            gate,
            lambda: gate.finish(3, 10),
            "rollout: must have been started: none was (got 3). Finish each number that start() gave, once.",
        )
        gate.start()
        self.refuses(
            gate,
            lambda: gate.finish(3, 10),
            "rollout: must have been started: the last one is 0 (got 3). "
            "Finish each number that start() gave, once.",
        )

    def test_a_rollout_that_finished_before(self):
        gate = gate_of()
        gate.finish(gate.start().rollout, 10)
        self.refuses(
            gate,
            lambda: gate.finish(0, 10),
            "rollout: must be in flight: it has finished before (got 0). "
            "Finish each number that start() gave, once.",
        )

    def test_a_version_that_goes_back_is_not_due_or_not_the_one_under_way(self):
        gate = gate_of(max_head_offpolicyness=1)
        self.refuses(
            gate,
            lambda: gate.publish(0),
            "version: must be above 0, which is published: versions never go back (got 0). "
            "Publish what trained() said.",
        )
        self.refuses(
            gate,
            lambda: gate.publish(1),
            "version: must be due: every 1 updates, the next after a step (got 1). "
            "Call publish() when trained() says what it publishes.",
        )
        gate.start(), gate.start()
        finish_all(gate)
        gate.pop(), gate.trained()
        self.refuses(
            gate,
            lambda: gate.publish(2),
            "version: must be 1, the one under way (got 2). "
            "Publish what trained() said, or set sync_every_updates.",
        )

    def test_a_step_without_a_batch_or_while_a_publication_blocks_it(self):
        gate = gate_of()
        self.refuses(
            gate,
            gate.trained,
            "batch: must be in hand when a step is complete: none is (got None). Call pop() before the step.",
        )
        gate = gate_of(prefetch_batches=1, max_head_offpolicyness=1, max_concurrent_rollouts=4)
        for _ in range(4):
            gate.start()
        finish_all(gate)
        gate.pop(), gate.pop(), gate.trained()
        with pytest.raises(ConfigError, match="the publication under way blocks the trainer"):
            gate.trained()

    def test_more_tokens_than_room_was_reserved_for(self):
        law = ls.LengthLaw.fixed(100)
        gate = ls.RolloutGate(ls.PipelineConfig(admission="reserve", response_length=law))
        gate.start()
        with pytest.raises(ConfigError, match="tokens: must be at most 100, the maximum of response_length"):
            gate.finish(0, 101)

    def test_rules_that_no_gate_keeps(self):
        with pytest.raises(ConfigError, match="mode: must be 'bounded_async' for a gate"):
            ls.RolloutGate(ls.PipelineConfig(mode="sequential"))
        with pytest.raises(ConfigError, match="evaluation_every_updates: must be left out for a gate"):
            ls.RolloutGate(ls.PipelineConfig(evaluation_every_updates=2, evaluation_seconds=3))


class TestSaving:
    def test_what_is_saved_is_json_and_does_not_change_afterwards(self):
        gate = gate_of(max_head_offpolicyness=1, max_concurrent_rollouts=4)
        gate.start(), gate.start(), gate.finish(0, 10)
        state = gate.save()
        text = json.dumps(state)
        gate.finish(1, 10), gate.pop()

        assert json.dumps(state) == text

    @pytest.mark.parametrize("other", [{}, None, 3, {"form": 2}, {"form": 1}, {"form": 1, "rules": {}}])
    def test_what_is_no_saved_gate_is_refused(self, other):
        with pytest.raises(CheckpointError, match=r"^state"):
            gate_of().restore(other)

    def test_a_gate_of_other_rules_is_refused_by_the_rule_that_differs(self):
        saved = gate_of(max_head_offpolicyness=1).save()

        with pytest.raises(CheckpointError, match=r"^state.rules.limits: must be the gate's own"):
            gate_of(max_head_offpolicyness=2).restore(saved)

    def test_every_part_that_is_cut_or_altered_is_refused(self):
        gate = gate_of(max_head_offpolicyness=3, max_concurrent_rollouts=6, group_size=2)
        for _ in range(7):
            gate.start()
        for rollout in range(5):
            gate.finish(rollout, 10)
        gate.pop()
        saved = json.loads(json.dumps(gate.save()))
        gate_of(max_head_offpolicyness=3, max_concurrent_rollouts=6, group_size=2).restore(saved)
        same = []
        for name in saved:
            for value in (None, "x", -5, [], [7], {"x": 1}):
                if value == saved[name]:
                    continue
                fresh = gate_of(max_head_offpolicyness=3, max_concurrent_rollouts=6, group_size=2)
                try:
                    fresh.restore({**saved, name: value})
                except CheckpointError:
                    continue
                same.append((name, value))

        assert same == [("cancelled", [7])]  # a number that may have been cancelled


class TestWaiting:
    def test_a_start_waits_for_room_and_a_pop_for_a_batch(self):
        gate = gate_of(max_concurrent_rollouts=2)
        first, second = gate.start(), gate.start()
        found = []
        waits = [
            threading.Thread(target=lambda: found.append(gate.pop(wait_seconds=60))),
            threading.Thread(target=lambda: found.append(gate.start(wait_seconds=float("inf")))),
        ]
        for thread in waits:
            thread.start()
        gate.finish(first.rollout, 10), gate.finish(second.rollout, 10)
        waits[0].join()
        gate.trained(), gate.publish()
        waits[1].join()

        assert [group.group for group in found[0].groups] == [0, 1]
        assert (found[1].rollout, found[1].version) == (2, 1)

    def test_without_an_answer_in_time_it_says_what_binds(self):
        gate = gate_of(max_concurrent_rollouts=2)
        gate.start(), gate.start()

        assert gate.start(wait_seconds=0.01).bound_by == "max_running"
        assert gate.pop(wait_seconds=0.01).bound_by == "batch"

    def test_a_closed_gate_wakes_all_who_wait_and_starts_nothing(self):
        gate = gate_of(max_concurrent_rollouts=1)
        running = gate.start()
        found = []
        forever = float("inf")
        threads = [
            threading.Thread(target=lambda: found.append(gate.start(wait_seconds=forever))),
            threading.Thread(target=lambda: found.append(gate.pop(wait_seconds=forever))),
        ]
        for thread in threads:
            thread.start()
        gate.close()
        for thread in threads:
            thread.join()

        assert {answer.bound_by for answer in found} == {"closed"}
        assert gate.start().bound_by == "closed"
        assert gate.finish(running.rollout, 10).outcome == "queued"


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("areal", {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 6}),
        ("verl_one_step_off", {}),
        ("prime_rl", {"max_off_policy_steps": 1}),
        ("miles", {"max_weight_staleness": 1, "async_unused_samples_handler": "retry"}),
        ("queue_drop", {"fully_async_queue_factor": 1}),
    ],
)
def test_many_threads_lose_nothing_and_come_to_an_end(preset, fields):
    """Six threads start and finish, one trains forty batches; no thread waits longer than the others work."""
    gate = gate_of(preset, group_size=2, batch_groups=3, rollout_workers=6, **fields)
    lags, taken, errors = [], [], []
    batches = 40

    def generate(number):
        try:
            while start := gate.start(wait_seconds=LONG):
                gate.finish(start.rollout, 1 + (start.rollout * 7 + number) % 13)
        except Exception as error:
            errors.append(error)

    def train():
        try:
            for _ in range(batches):
                batch = gate.pop(wait_seconds=LONG)
                assert batch, batch.bound_by
                taken.extend(rollout for group in batch.groups for rollout in group.rollouts)
                done = gate.trained()
                lags.extend(done.lags)
                if done.publishes >= 0:
                    assert gate.wait_for_drain(wait_seconds=LONG)
                    gate.publish()
        except Exception as error:
            errors.append(error)
        gate.close()

    threads = [threading.Thread(target=generate, args=(k,), daemon=True) for k in range(6)]
    threads.append(threading.Thread(target=train, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    counts = gate.counts()
    assert errors == []
    assert counts.trained_batches == batches
    assert len(taken) == len(set(taken)) == batches * 6
    assert len(lags) == batches * 6
    assert counts.in_flight_rollouts == len(gate.in_flight) == 0
    queued_or_trained = counts.queued_groups + counts.running_groups + counts.popped_groups
    assert counts.started_groups == queued_or_trained
    bound = ls.preset_lag_bound(preset, {**SMALL, **fields, "group_size": 2, "batch_groups": 3})
    if bound is not None and ls.preset_bound_kind(preset, fields) != "typical":
        assert max(lags) <= bound
