"""A gate decides as the kernel does: simulated runs are fed to it, event by event."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.gate_replay import replay
from strategies import engine_configs
from strategies.general_configs import general_settings, to_config
from strategies.pipeline_configs import pipeline_settings

import lagsweep as ls
from lagsweep.sweeps.testing.trainer_settings import trainer_settings
from lagsweep.testing import preset_configurations, simulated_history

TOKENS = 8  # of every response below: sums of them meet a cap exactly, and often
NEITHER = {"evaluation_every_updates", "evaluation_seconds", "evaluation_stops_generation"}


@given(general_settings())
def test_every_answer_is_the_kernels_with_rules_at_random(drawn):
    replay(to_config(drawn))


@given(pipeline_settings(themes=("free", "stale", "publish", "starve", "stall", "reserve", "instant")))
def test_every_answer_is_the_kernels_in_the_core(drawn):
    replay(to_config(drawn))


@given(trainer_settings().filter(lambda drawn: drawn["mode"] != "sequential"))
def test_every_answer_is_the_kernels_with_fetches_turns_and_full_queues(drawn):
    replay(to_config({name: value for name, value in drawn.items() if name not in NEITHER}))


@given(engine_configs.engine_settings().filter(lambda drawn: drawn["mode"] != "sequential"))
@settings(max_examples=20)
def test_every_answer_is_the_kernels_beside_engines(drawn):
    kept = {name: value for name, value in drawn.items() if name not in NEITHER}
    replay(engine_configs.to_config(kept))


@st.composite
def exact_caps(draw):
    """Draw runs whose queue comes to its cap exactly, in tokens or in groups, and goes over it by one."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    size, batch = pick(1, 2, 3), pick(1, 2)
    fields = {
        "response_length": ls.LengthLaw.fixed(TOKENS),
        "group_size": size,
        "batch_groups": batch,
        "rollout_workers": size * pick(1, 2, 3, 5),
        "decode_tokens_per_second": TOKENS,
        "train_overhead_seconds": pick(0.5, 2.0, 5.0),
        "max_policy_lag": pick(0, 1, 2),
        "max_running_groups": pick(None, None, 2),
        "sync_every_updates": pick(1, 1, 2),
        "duration_seconds": 30.0,
        "max_queue_tokens": None,
    }
    if pick(True, False):
        fields |= {"queue_overflow": pick("hold", "drop_oldest"), "max_queue_groups": batch + pick(0, 1, 2)}
        fields |= {"stale_check": pick("dequeue", "update"), "cancel_in_flight": pick(False, True)}
    else:
        groups = batch + pick(0, 1, 2, 4)
        fields |= {"max_queue_tokens": TOKENS * size * groups, "admission": pick("reserve", "threshold")}
    return ls.PipelineConfig(**fields)


@given(exact_caps())
def test_every_answer_is_the_kernels_where_a_queue_is_exactly_full(config):
    replay(config)


@pytest.mark.parametrize("admission", ["reserve", "threshold"])
def test_a_group_that_fills_the_queue_exactly_starts_and_one_more_does_not(admission):
    config = ls.PipelineConfig(
        response_length=ls.LengthLaw.fixed(TOKENS), group_size=1, batch_groups=4, rollout_workers=8,
        max_queue_tokens=4 * TOKENS, admission=admission,
    )  # fmt: skip
    gate = ls.RolloutGate(config)
    started = [gate.start() for _ in range(3)]
    gate.finish(started[0].rollout, TOKENS)
    gate.finish(started[1].rollout, TOKENS)

    # Two are queued and one runs: one more makes four times TOKENS, the cap, and a fifth would be over it.
    assert gate.start()
    fifth = gate.start()
    assert fifth.bound_by == ("token_cap" if admission == "reserve" else "")
    for rollout in gate.in_flight:
        gate.finish(rollout, TOKENS)
    assert gate.start().bound_by == "token_cap"
    assert gate.counts().queued_tokens == TOKENS * (4 if admission == "reserve" else 5)


def test_every_answer_is_the_kernels_where_a_held_group_is_cancelled():
    config = ls.PipelineConfig(
        batch_groups=1, max_queue_tokens=None, queue_overflow="hold", max_queue_groups=1,
        cancel_in_flight=True, max_policy_lag=0, stale_check="dequeue", rollout_workers=4,
        train_overhead_seconds=6.0,
    )  # fmt: skip
    history = simulated_history(config)
    held = {event.answer.group for event in history if getattr(event.answer, "outcome", "") == "held"}
    taken = {one.group for event in history for one in getattr(event.answer, "groups", ())}
    dropped = {group for event in history for group in getattr(event.answer, "discarded", ())}

    assert held - taken - dropped  # these were cancelled while they were held
    assert replay(config)["finish: held"] == len(held)


@given(general_settings(), st.integers(1, 12))
@settings(max_examples=20)
def test_a_gate_saved_and_restored_at_any_call_decides_on_as_before(drawn, every):
    replay(to_config(drawn), save_every=every)


@pytest.mark.parametrize("name", ls.all_presets())
def test_every_answer_is_the_kernels_under_the_rules_of_a_preset(name):
    seen = Counter()

    @given(preset_configurations(name))
    @settings(max_examples=12)
    def check(config):
        seen.update(replay(config, save_every=50))

    check()
    assert seen["trained"] > 0
    assert seen["start: yes"] > 0
    assert seen["pop: yes"] > 0


def test_a_settle_that_comes_back_for_room_has_not_said_yet_what_the_trainer_lacks():
    # Groups are admitted nine at once: the kernel asks for records in the settle of a pop.
    replay(
        ls.PipelineConfig(
            duration_seconds=90.0,
            seed=1,
            rollout_workers=4,
            decode_tokens_per_second=50.0,
            rollout_overhead_seconds=0.5,
            response_length=ls.LengthLaw.lognormal(median=60.0, sigma=1.0, minimum=5, maximum=400),
            max_queue_tokens=None,
            batch_groups=3,
            train_overhead_seconds=0.5,
            train_tokens_per_second=400.0,
            max_policy_lag=2,
            sync_seconds=0.0,
            publication="drain",
            publication_blocks_trainer=True,
            limits=[ls.Limit("started", "published", 9)],
            admit="batch",
            queue_order="started",
            stale_check="never",
        )
    )
