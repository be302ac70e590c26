"""The twin of pipelines with engines obeys the laws of the page, and its strategy reaches its states."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import Phase, given, settings
from oracle.level23_engines import EngineRun, units
from strategies.engine_configs import engine_settings, to_twin

# One slot, responses of 100 tokens with a prompt of 10, steps of 10 ms.
ROUND = {
    "duration_seconds": 40.0,
    "rollout_workers": 1,
    "rollout_overhead_seconds": 0.0,
    "response_length": {"minimum": 100, "cdf": [1.0], "cut": False},
    "prompt_tokens": 10,
    "max_queue_tokens": None,
    "batch_tokens": None,
    "batch_groups": 2,
    "train_overhead_seconds": 0.0,
    "train_tokens_per_second": 200.0,
    "sync_seconds": 0.5,
    "stale_check": "never",
}


def check_laws(run, found):
    """What holds in every run: tokens are conserved, and no rollout is lost."""
    decoded = sum(step["decoded"] for engine in run.engines for step in engine.steps)
    done = Counter(row["outcome"] for row in found["rollouts"])
    waiting = [request for engine in run.engines for request in engine.queue]
    running = [request for engine in run.engines for request in engine.running]
    live = [request for request in waiting + running if not request.cancelled]
    prompts = run.s["prompt_tokens"]
    in_tail = [member for member in run.in_slots() if member.phase == "tail"]

    ended = [row for row in found["rollouts"] if row["end"] is not None]
    assert decoded >= sum(row["tokens"] for row in ended)
    if not done["cancelled"] and not run.requeues:
        counted = sum(row["tokens"] for row in ended)
        counted += sum(member.tokens for member in in_tail) + sum(request.decoded for request in live)
        assert decoded == counted
    assert len(live) + len(in_tail) == len(run.busy_slots())
    for request in live:
        assert request.decoded < request.member.tokens
        assert request.member.phase == "engine"
    steps = [step for engine in run.engines for step in engine.steps]
    first = sum(step["prefilled"] - step["again"] for step in steps)
    assert first % prompts == 0 if prompts else first == 0
    for engine in run.engines:
        ends = [step["end"] for step in engine.steps]
        assert ends == sorted(ends)


@settings(max_examples=60, phases=(Phase.generate,))
@given(engine_settings())
def test_the_laws_hold_in_random_runs(drawn):
    run = EngineRun(to_twin(drawn))
    check_laws(run, run.run())


def test_one_rollout_takes_the_sum_of_an_arithmetic_series():
    engine = {
        "step_seconds": 0.01,
        "step_seconds_per_rollout": 0.001,
        "step_seconds_per_context_token": 1e-5,
        "prefill_seconds_per_token": 1e-4,
    }
    found = EngineRun({**ROUND, "engine": engine}).run()
    steps = 100 * (0.011 + 10 * 1e-5) + 10 * 1e-4 + 1e-5 * (99 * 100 // 2)
    assert found["rollouts"][0]["end"] == pytest.approx(steps, abs=2e-6)


def test_every_state_of_the_page_is_reached():
    reached = Counter()

    @settings(max_examples=400, phases=(Phase.generate,))
    @given(engine_settings())
    def look(drawn):
        reached.update(EngineRun(to_twin(drawn)).run()["reached"])

    look()
    wanted = {
        "preemption", "readmission", "preempted_after_its_first_step", "head_does_not_fit", "abort",
        "head_not_yet_admissible", "engine_stops", "cancelled_while_waiting",
        "cancelled_in_a_step", "waiting_publication", "requeue",
    }  # fmt: skip
    assert wanted <= set(reached), wanted - set(reached)


def test_a_tick_is_two_to_the_twentieth_of_a_clock():
    assert units(1e-6) == 2**20
