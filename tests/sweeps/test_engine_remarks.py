"""What holds engines back is said with the setting and its share, and nothing where nothing does."""

from __future__ import annotations

import pytest

import lagsweep as ls
from lagsweep.sweeps.results.run_text import run_text
from lagsweep.sweeps.runs.engine_remarks import engine_remarks

BASE = {
    "rollout_workers": 16, "max_queue_tokens": None, "batch_tokens": 8000, "duration_seconds": 600.0,
    "prompt_tokens": 100, "max_policy_lag": 4,
}  # fmt: skip


def run_of(engine=None, **changes):
    config = ls.PipelineConfig(
        **{**BASE, **changes}, engine=ls.Engine(**{"step_seconds": 0.02, **(engine or {})})
    )
    return config, ls.simulate_pipeline(config)


def said(engine=None, **changes):
    config, run = run_of(engine, **changes)
    return run, engine_remarks(config, run.metrics)


def test_an_engine_with_room_has_no_remark():
    assert said()[1] == []
    assert engine_remarks(ls.PipelineConfig(), ls.simulate_pipeline(ls.PipelineConfig()).metrics) == []


def test_a_cap_on_what_runs_is_named_with_the_share_of_waiting():
    run, (text,) = said({"max_running": 4})
    share = run.slots_engine_queue_seconds / run.slots_busy_seconds

    assert share > 0.5
    assert text == (
        f"rollouts spend {share:.0%} of their time in a slot waiting for an engine: "
        "engine.max_running (4) lets no more run"
    )


def test_a_small_cache_is_named_with_what_it_holds_and_how_often_it_preempts():
    run, (preempts, waits) = said({"kv_cache_tokens": 2600, "prefill_seconds_per_token": 1e-4})
    each = run.preemptions / run.generated_rollouts
    again = run.reprefilled_tokens / run.decoded_tokens
    held = (
        f"engine.kv_cache_tokens (2,600) holds {run.mean_engine_running:.3g} rollouts of "
        f"{run.mean_engine_context_tokens / run.mean_engine_running:,.0f} tokens in the mean"
    )

    assert preempts == (
        f"engines preempt again and again, {each:.2g} times a rollout, and prefill {again:.0%} as many "
        f"tokens once more as they decode: {held}"
    )
    assert waits.endswith(f"waiting for an engine: {held}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"publication": "pause", "sync_seconds": 20.0},
            "publication 'pause' stops the engines for 57% of the time, sync_seconds (20) at each of 17",
        ),
        (
            {"publication": "abort", "sync_seconds": 0.1, "batch_tokens": 500},
            "publication 'abort' takes the caches",
        ),
        ({"generation_while_training": False}, "generation_while_training (false) stops the engines for 73%"),
    ],
)
def test_what_stops_engines_is_named(changes, words):
    run, texts = said(**changes)
    assert any(text.startswith(words) for text in texts), texts
    if "sync_seconds (20)" in words:
        assert run.syncs == round(0.5667 * 600 / 20)


def test_a_run_that_starves_on_its_engines_says_so():
    config, run = run_of({"step_seconds": 0.2, "kv_cache_tokens": 2200}, batch_tokens=200_000)
    text = ls.explain_stall(config, run)

    assert text.startswith(
        "starved, last progress at 589.3 s: duration_seconds (600) is too short for batch_tokens"
    )
    assert "; engines preempt again and again, 2.4 times a rollout" in text
    assert text.endswith("tokens in the mean.")


def test_rollouts_that_end_after_the_run_are_said_to_wait_for_an_engine():
    law = ls.LengthLaw.fixed(2000)
    config, run = run_of({"step_seconds": 0.2, "max_running": 3}, response_length=law, duration_seconds=350.0)
    text = ls.explain_stall(config, run)

    assert "16 rollouts end after duration_seconds (350), and batch_tokens (8000) waits for them; " in text
    assert "engine.max_running (3) lets no more run" in text


def test_simulate_says_it_and_a_roomy_engine_is_not_spoken_of():
    _, tight = run_of({"max_running": 4})
    _, roomy = run_of()
    words = " ".join(run_text(tight).split())

    assert "Engines: rollouts spend" in words
    assert "Engines: " not in run_text(roomy)


def test_recommend_doubts_a_choice_whose_engines_are_held_back():
    config, _ = run_of({"max_running": 4})
    ds = ls.run_sweep(config, {"max_lag": [3, 4]}, seeds=3, progress=False)
    best = ls.recommend(ds, min_ess=0.0)

    mean = (ds["slots_engine_queue_seconds"] / ds["slots_busy_seconds"]).mean().item()
    assert any(
        doubt.text.startswith(f"At the choice rollouts spend {mean:.0%} of their time")
        for doubt in best.doubts
    ), best.doubts
    plain = ls.run_sweep(ls.PipelineConfig(**BASE), {"max_lag": [3, 4]}, seeds=3, progress=False)
    assert not any("At the choice" in doubt.text for doubt in ls.recommend(plain, min_ess=0.0).doubts)
