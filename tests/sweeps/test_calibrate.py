"""A run's log to a configuration: what is known comes back, and nothing is predicted from itself."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from strategies.logged_runs import DATA, EXAMPLE, KNOWN, example_config, example_frame, known_run

import lagsweep as ls

ROOT = Path(__file__).parents[2]
SOME = ("areal", "synchronous", "miles", "openrlhf", "queue_drop")
GIVEN = {"group_size": 4, "rollout_workers": 64, "prompt_tokens": 100}


@pytest.fixture(scope="module")
def judges():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("calibrate_judges")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def example():
    return ls.calibrate(EXAMPLE, preset="verl_fully_async", batch_groups=32, **KNOWN)


def fit(found, name):
    return next(one for one in found.fits if one.name == name)


def test_the_example_is_the_log_of_its_run():
    stored = pl.read_csv(EXAMPLE)
    assert stored.columns == example_frame().columns
    for name in stored.columns:
        assert np.allclose(stored[name].to_numpy(), example_frame()[name].to_numpy(), atol=2e-3)


def test_known_settings_of_some_presets_lie_within_their_intervals(judges):
    """Intervals are of 95 %, so of some two dozen one or two may be outside, and then by a little."""
    rows = [row for preset in SOME for row in judges.recovered(preset, 0)]
    outside = [row for row in rows if not row.inside]

    assert {row.what for row in rows} >= {"training: fixed", "publication", "decoding: a rollout in flight"}
    assert len(outside) <= 2
    assert all(row.low - 0.1 * row.known <= row.known <= row.high + 0.1 * row.known for row in outside)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [0, 1])
def test_known_settings_of_every_preset_lie_within_their_intervals(judges, draw):
    """Intervals are of 95 %: of some 125 known settings at least nine in ten are inside."""
    rows = [row for preset in ls.all_presets() for row in judges.recovered(preset, draw)]

    assert len({row.preset for row in rows}) == len(ls.all_presets())
    assert sum(row.inside for row in rows) >= 0.9 * len(rows)


def test_real_logs_are_predicted_from_their_first_steps(judges):
    rows = list(judges.real_logs())

    assert {row.judge[0] for row in rows} == {"b", "d", "g"}
    assert [row for row in rows if not row.met] == []
    published = (ROOT / "results" / "published" / "calibrate.md").read_text().splitlines()
    assert [row for row in rows if judges.line(row) not in published] == []


def test_the_slowest_of_eight_agents_is_met_by_the_fitted_spread(judges):
    rows = judges.agents()
    assert [round(row.measured, 2) for row in rows] == [1.33, 1.36]
    assert all(row.met for row in rows)


def test_broken_columns_of_a_real_log_are_named(judges):
    said = "\n".join(judges.broken_columns())
    for name in ("learner_mfu", "learner_tokens_per_second_step", "time/training"):
        assert name in said


def test_no_held_step_moves_what_was_fitted():
    _, log = known_run("areal", max_head_offpolicyness=1)
    first = ls.calibrate(log, preset="areal", max_head_offpolicyness=1, **GIVEN)
    seconds = [name for name in log.columns if name.endswith("_seconds")]
    held = log[first.fitted :].with_columns([pl.col(name) * 3 for name in seconds])
    other = ls.calibrate(
        pl.concat([log[: first.fitted], held]), preset="areal", max_head_offpolicyness=1, **GIVEN
    )

    assert other.fits == first.fits
    assert other.config == first.config
    for before, after in zip(first.tests, other.tests):
        assert after.predicted == before.predicted
    assert other.tests[0].measured == pytest.approx(3 * first.tests[0].measured)


def test_the_same_log_gives_the_same_calibration():
    _, log = known_run("tinker")
    assert ls.calibrate(log, preset="tinker", **GIVEN).as_dict() == (
        ls.calibrate(log, preset="tinker", **GIVEN).as_dict()
    )


def test_the_held_steps_of_a_run_that_does_not_drift_are_predicted():
    _, log = known_run("synchronous", stop_after_updates=200)
    found = ls.calibrate(log, **{name: GIVEN[name] for name in ("group_size", "prompt_tokens")})
    rows = {row.name: row for row in found.tests}

    assert found.setup.in_turn
    assert found.setup.preset == "synchronous"
    assert abs(rows["step"].error) < 0.05
    assert abs(rows["generation"].error) < 0.06
    assert rows["lag"].predicted == 0


def test_the_file_is_what_was_tried(example, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(example.to_toml("run.toml"))
    spec = ls.load_spec(path)

    assert spec.base == example.config
    assert spec.base.preset[0] == "verl_fully_async"
    tomllib.loads(path.read_text())
    assert "training: fixed" in path.read_text()


def test_the_example_s_settings_come_back(example):
    known = example_config()
    config = example.config
    step = 32 * 8 * (known.response_length.mean_tokens + known.prompt_tokens)

    def seconds(one):
        return one.train_overhead_seconds + step / one.train_tokens_per_second

    assert seconds(config) == pytest.approx(seconds(known), rel=0.03)
    assert config.sync_seconds == pytest.approx(known.sync_seconds, rel=0.01)
    assert config.response_length.mean_tokens == pytest.approx(known.response_length.mean_tokens, rel=0.05)
    assert example.estimates.lengths.sigma.value == pytest.approx(0.7, abs=0.06)
    assert config.limits == known.limits


def test_a_calibration_reads_and_has_frames(example):
    text = repr(example)
    for part in ("112 steps fitted, 48 held", "training: fixed", "held steps", "as it is"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80
    assert example.fits_frame().columns[:4] == ["name", "value", "low", "high"]
    assert len(example.fits_frame()) == len(example.fits)
    held = example.backtest_frame()
    assert {"step", "wait"} <= set(held["name"])
    assert example.predictions_frame()["name"].to_list()[0] == "step"


def test_what_is_wider_than_a_tenth_is_a_range_without_an_error(example):
    for row in example.tests:
        assert row.identified == (row.high - row.low <= 0.1 * abs(row.predicted) + 1e-9)
    wide = [row for row in example.tests if not row.identified]
    assert wide
    text = repr(example)
    line = next(one for one in text.splitlines() if one.startswith(f"{wide[0].name}, "))
    assert " to " in line
    assert "%" not in line


def test_a_sweep_around_the_run_is_a_dataset(example):
    ds = example.sweep({"max_lag": [2, 3]}, seeds=1)
    assert dict(ds.sizes)["preset.staleness_threshold"] == 2
    assert (ds["updates"] > 0).all()


def test_what_is_assumed_is_said_with_the_flag_that_replaces_it():
    _, log = known_run("areal", max_head_offpolicyness=1)
    found = ls.calibrate(log.drop("rollouts", "publication_seconds"))
    fields = {one.field: one.way_out for one in found.setup.assumed}

    assert set(fields) == {"preset", "group_size", "batch_groups", "rollout_workers", "sync_seconds"}
    assert all("Give --" in way_out for way_out in fields.values())
    assert found.setup.fields["max_staleness_steps"] == 1  # as the lag says


def test_a_given_engine_is_not_searched_for_and_its_rest_is_a_delay():
    _, log = known_run("openrlhf")
    fast = ls.Engine(step_seconds=0.012)
    found = ls.calibrate(log, preset="openrlhf", engine=fast, **GIVEN)

    assert found.config.engine == fast
    assert found.match.by == "delay"
    assert found.config.rollout_overhead_seconds > 1
    assert abs(next(row for row in found.tests if row.name == "step").error) < 0.06


def test_single_responses_tell_the_spread(tmp_path):
    _, log = known_run("areal", max_head_offpolicyness=1)
    draw = np.random.default_rng(0)
    prompts = np.repeat(np.arange(200), 8)
    tokens = np.exp(5.8 + 0.3 * draw.normal(size=200)[prompts] + 0.4 * draw.normal(size=1600)).round()
    path = tmp_path / "lengths.csv"
    pl.DataFrame({"prompt": prompts, "response_tokens": tokens.astype(int)}).write_csv(path)
    found = ls.calibrate(log, preset="areal", max_head_offpolicyness=1, lengths=path, **GIVEN)

    assert fit(found, "spread between prompts (sigma)").value == pytest.approx(0.3, abs=0.06)
    assert found.config.prompt_sigma == pytest.approx(0.3, abs=0.06)
    assert fit(found, "spread of lengths (sigma)").value == pytest.approx(0.5, abs=0.05)


def test_a_trainer_that_never_waits_tells_only_how_slow_generation_may_be():
    _, log = known_run("skyrl", decode_tokens_per_second=400.0)
    found = ls.calibrate(log.drop("dropped_rollouts", "lag_mean", "lag_max"), preset="skyrl", **GIVEN)

    assert not found.match.known
    speed = next(one for one in found.fits if one.name.startswith("decoding"))
    assert speed.open
    assert speed.high == float("inf")
    assert speed.low <= 400
    assert "at least" in repr(found)


def test_of_several_runs_in_a_log_the_longest_is_taken():
    _, log = known_run("areal", max_head_offpolicyness=1)
    two = pl.concat(
        [
            log.with_columns(run=pl.lit(0)),
            log.head(30).with_columns(run=pl.lit(1), step_seconds=pl.lit(999.0)),
        ]
    )  # fmt: skip
    found = ls.calibrate(two, preset="areal", max_head_offpolicyness=1, **GIVEN)

    assert len(found.steps) == len(log)
    assert any("2 runs in the log" in str(one) for one in found.read)


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        (lambda log: log.head(12), "log", "at least 20 steps"),
        (lambda log: log.select("step", "lag_mean"), "log", "seconds of its steps"),
        (lambda log: log.select("step", "step_seconds"), "log", "the trainer's"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused(change, field, rule):
    _, log = known_run("areal", max_head_offpolicyness=1)
    with pytest.raises(ls.ConfigError) as raised:
        ls.calibrate(change(log))
    found = raised.value.findings[0]
    assert found.field == field
    assert rule in found.rule
    assert found.way_out


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"held": 0.95}, "held"),
        ({"fit_steps": 5}, "fit_steps"),
        ({"preset": "arael"}, "preset"),
        ({"group_size": 1000}, "group_size"),
        ({"max_head_offpolicynes": 2, "preset": "areal"}, "max_head_offpolicynes"),
        ({"framework": "verl"}, "framework"),
        ({"samples": "x", "engine": ls.Engine(step_seconds=0.01)}, "samples"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_by_name(arguments, field):
    _, log = known_run("areal", max_head_offpolicyness=1)
    with pytest.raises(ls.ConfigError) as raised:
        ls.calibrate(log, **arguments)
    assert raised.value.findings[0].field == field


def test_every_copied_log_has_its_source():
    text = (DATA / "SOURCES.md").read_text()
    assert all(path.name in text for path in DATA.glob("*.csv"))
