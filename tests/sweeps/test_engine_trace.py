"""Engines in a trace keep the rules of its format and tell what the twin did, one step at a time."""

from __future__ import annotations

import collections
import json
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from oracle.level23_engines import TICK, EngineRun
from oracle.trace_rules import check_rules
from strategies.engine_configs import engine_settings, to_config, to_twin

from lagsweep import Engine, LengthLaw, PipelineConfig, simulate_custom, simulate_pipeline, write_trace
from lagsweep.errors import ConfigError
from lagsweep.sweeps.runs.engine_history import engine_history, levels_at_moments
from lagsweep.sweeps.runs.general import GeneralRun
from lagsweep.sweeps.trace.engine_tracks import FIRST_ENGINE, PREEMPTIONS, WORK
from lagsweep.sweeps.trace.events import trace_events
from lagsweep.sweeps.trace.tracks import tracks_of

SMALL = {
    "response_length": LengthLaw.uniform(100, 400),
    "rollout_workers": 4,
    "batch_tokens": 1500,
    "max_queue_tokens": 4000,
    "max_policy_lag": 1,
    "duration_seconds": 200.0,
}

TIGHT = Engine(
    count=2,
    step_seconds=0.02,
    step_seconds_per_rollout=0.001,
    step_seconds_per_context_token=1e-6,
    prefill_seconds_per_token=2e-4,
    kv_cache_tokens=700,
)
CROWDED = SMALL | {
    "rollout_workers": 8,
    "prompt_tokens": 50,
    "publication": "pause",
    "sync_seconds": 3.0,
    "engine": TIGHT,
}


def events_of(result, **options):
    return list(trace_events(result, tracks_of(result), **options))


def per_engine(events, phase, tid):
    """Events of one kind on one track of each engine."""
    found = collections.defaultdict(list)
    for event in events:
        if event["ph"] == phase and event["pid"] >= FIRST_ENGINE and event["tid"] == tid:
            found[event["pid"] - FIRST_ENGINE].append(event)
    return found


def counted(events, place, name):
    """One counter of one engine: tick -> what it says first."""
    return {
        event["ts"]: next(iter(event["args"].values()))
        for event in events
        if event["ph"] == "C" and event["pid"] == FIRST_ENGINE + place and event["name"] == name
    }


def level_at(values, tick):
    """What a counter says at a tick: its last value up to there."""
    return values[max(at for at in values if at <= tick)]


@settings(max_examples=150, phases=(Phase.generate, Phase.reuse))
@given(engine_settings())
def test_every_rule_holds_and_engines_do_what_the_twin_does(drawn):
    twin = EngineRun(to_twin(drawn))
    twin.run()
    result = simulate_pipeline(to_config(drawn), rollouts=True)
    history = engine_history(result)
    events = events_of(result)

    check_rules(events, [row.number for row in result.rollouts])
    # Of several changes in one tick the last one would stand.
    assert all(step["length"] >= 2 * TICK for engine in twin.engines for step in engine.steps)
    prefills, preempted = per_engine(events, "X", WORK), per_engine(events, "i", PREEMPTIONS)
    for place, engine in enumerate(twin.engines):
        under_way = [engine.step] if engine.step is not None else []
        steps = [
            step for step in engine.steps + under_way if step["end"] - step["length"] <= history.end * TICK
        ]
        assert [
            (event["ts"], event["args"]["tokens"], event["args"].get("repeated_tokens", 0))
            for event in prefills[place]
            if event["name"] == "prefill"
        ] == [(begin_tick(step), step["prefilled"], step["again"]) for step in steps if step["prefilled"]]
        clocks = [-(-clock // TICK) for clock in engine.preemptions if clock <= history.end * TICK]
        assert [event["ts"] for event in preempted[place] for _ in range(event["args"]["count"])] == clocks
        check_levels(events, place, engine, steps, history.end)
        for event in prefills[place]:
            if event["name"] != "prefill":
                begins, ends = event["ts"], event["ts"] + event["dur"]
                assert not any(s["end"] > begins * TICK and begin_tick(s) < ends for s in steps)


def begin_tick(step):
    """The tick at which a step has begun."""
    return -(-(step["end"] - step["length"]) // TICK)


def check_levels(events, place, engine, steps, end):
    """At each tick that a counter names: what the step under way holds, and who waits."""
    running, cached = counted(events, place, "running"), counted(events, place, "cache tokens")
    waiting = counted(events, place, "waiting")
    waits = engine.waits + [(request.waits_since, 2**62) for request in engine.queue]
    for tick, value in cached.items():
        inside = [s for s in steps if s["end"] - s["length"] <= tick * TICK < s["end"]]
        if inside:
            assert value == inside[0]["context"]
            assert level_at(running, tick) == inside[0]["running"]
        else:
            assert level_at(running, tick) == 0 or value > 0
    for tick, value in waiting.items():
        if tick < end:  # what the end cuts off is not the twin's to tell
            assert value == sum(since <= tick * TICK < to for since, to in waits)


@settings(max_examples=60, phases=(Phase.generate, Phase.reuse))
@given(engine_settings())
def test_levels_at_moments_are_the_twin_s(drawn):
    twin = EngineRun(to_twin(drawn))
    twin.run()
    levels = levels_at_moments(partial(GeneralRun, to_config(drawn)), 7)
    ticks = np.round(levels["seconds"] * 1e6).astype(int).tolist()

    assert ticks[-1] == engine_history(simulate_pipeline(to_config(drawn))).end
    for place, tick in enumerate(ticks[:-1]):  # the twin does not do what stands still at the end
        clock = tick * TICK
        steps = [s for e in twin.engines for s in [*e.steps, *([e.step] if e.step else [])]]
        held = [s for s in steps if s["end"] - s["length"] <= clock < s["end"]]
        standing = len(twin.engines) - len(held)
        assert levels["preemptions"][place] == sum(c <= clock for e in twin.engines for c in e.preemptions)
        assert levels["running"][place] >= sum(s["running"] for s in held)
        if not standing:
            assert levels["running"][place] == sum(s["running"] for s in held)
            assert levels["kv_tokens"][place] == sum(s["context"] for s in held)
        waits = [row for e in twin.engines for row in e.waits]
        waits += [(request.waits_since, 2**62) for e in twin.engines for request in e.queue]
        assert levels["waiting"][place] == sum(since <= clock < to for since, to in waits)


def test_a_crowded_engine_has_every_part(tmp_path):
    result = simulate_pipeline(PipelineConfig(**CROWDED), rollouts=True)
    written = write_trace(result, tmp_path / "trace.json")
    events = json.loads(written.path.read_text())["traceEvents"]

    check_rules(events)
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"trainer", "rollout slots", "queue", "engine 0", "engine 1"}
    for place in range(2):
        slices = per_engine(events, "X", WORK)[place]
        assert {event["name"] for event in slices} == {"prefill", "stopped: publication"}
        assert max(counted(events, place, "cache tokens").values()) > 0.9 * 700
    cache = [event["args"] for event in events if event["name"] == "cache tokens"]
    assert all(sum(args.values()) == 700 and min(args.values()) >= 0 for args in cache)
    told = [event for marks in per_engine(events, "i", PREEMPTIONS).values() for event in marks]
    assert sum(event["args"]["count"] for event in told) == result.preemptions > 10
    assert all(len(event["args"]["rollouts"]) == event["args"]["count"] for event in told)
    prefilled = [event["args"] for event in events if event["name"] == "prefill"]
    assert sum(args["tokens"] for args in prefilled) == pytest.approx(result.prefilled_tokens, abs=700)


def test_a_window_keeps_what_touches_it():
    result = simulate_pipeline(PipelineConfig(**CROWDED), rollouts=True)
    events = events_of(result, window=(50e6, 60e6))

    check_rules(events)
    own = [event for event in events if event["pid"] >= FIRST_ENGINE and event["ph"] != "M"]
    assert {event["ph"] for event in own} == {"C", "X", "i"}
    assert all(event["ts"] <= 60e6 and event["ts"] + event.get("dur", 0) >= 50e6 for event in own)


def test_the_warm_up_is_told_too_and_a_stop_by_updates_ends_the_tracks():
    config = PipelineConfig(**CROWDED, warmup_seconds=100.0, stop_after_updates=6)
    result = simulate_pipeline(config, rollouts=True)
    history = engine_history(result)

    assert history.end == round(result.timeline[-1].time * 1e6)
    assert history.ticks.max() == history.end
    measured = [one for one in history.preempted if one.tick > 100e6]
    assert sum(len(one.rollouts) for one in measured) == result.preemptions
    assert len(measured) < len(history.preempted)


def test_rules_of_the_users_own_decide_again():
    config = PipelineConfig(**CROWDED)
    result = simulate_custom(config, admission=lambda state: state.in_flight_rollouts < 3, rollouts=True)
    history = engine_history(result)

    assert history.of_engine(0)["running"].max() + history.of_engine(1)["running"].max() <= 3
    loaded = pickle.loads(pickle.dumps(result))
    with pytest.raises(ConfigError, match="must be what its configuration gives when it is run again"):
        engine_history(loaded)


def test_a_run_without_engines_has_no_history_and_no_tracks():
    result = simulate_pipeline(PipelineConfig(**SMALL), rollouts=True)

    assert not [event for event in events_of(result) if event["pid"] >= FIRST_ENGINE]
    with pytest.raises(ConfigError, match="engine: must be set"):
        engine_history(result)
