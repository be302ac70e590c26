"""What a log does not tell is a range, what a model misses is said first, every assumption is named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies.logged_runs import DATA, EXAMPLE, KNOWN, known_run

import lagsweep as ls
from lagsweep.sweeps.calibrate.fits import ends
from lagsweep.sweeps.calibrate.phases import TRAINER_PHASES
from lagsweep.sweeps.calibrate.ranges import End, span_of
from lagsweep.sweeps.calibrate.sentences import percents, times
from lagsweep.sweeps.calibrate.waits import fit_fetch, grain_of
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.logs.frameworks import shipped_frameworks

NAMED_ASYNC = DATA / "verl_separate_async.csv"
HOSTED = DATA / "tinker_4b.csv"
NO_LENGTHS = DATA / "open_instruct_rl0_32b.csv"


@pytest.fixture(scope="module")
def named_async():
    return ls.calibrate(NAMED_ASYNC)


@pytest.fixture(scope="module")
def hosted():
    return ls.calibrate(HOSTED)


@pytest.fixture(scope="module")
def no_lengths():
    return ls.calibrate(NO_LENGTHS, fit_steps=200)


def prediction(found, name):
    (row,) = found.predictions_frame().filter(pl.col("name") == name).to_dicts()
    return row


def test_waits_of_every_step_are_fetch_or_generation_and_no_figure(named_async):
    fetch = named_async.estimates.fetch
    assert fetch.open
    assert fetch.low == 0
    assert fetch.high == pytest.approx(53, abs=1)
    assert any("fetch of a batch and how much generation the log cannot tell" in one
               for one in repr(named_async).replace("\n", " ").split(". "))  # fmt: skip
    assert not prediction(named_async, "one rollout in flight")["identified"]
    assert prediction(named_async, "step")["identified"]  # both readings give the same step


def test_what_if_gives_both_readings_of_such_a_log(named_async):
    told = ls.what_if(named_async, {"max_lag": [0, 1]}, seeds=1)
    ahead = next(one for one in told.changes if one.settings["max_lag"] == 1)

    assert "for batches to be fetched: the log cannot tell which; publications take 44%" in told.sentence
    assert "for publications" not in told.sentence
    assert len(told.causes) > 1
    # If it is fetch, running ahead saves next to nothing; if it is generation, most of a third of the step.
    assert ahead.saved.low < 0.08
    assert ahead.saved.high > 0.25
    own = told.frame().filter(pl.col("as_it_is")).to_dicts()[0]
    assert own["wait_share_low"] <= own["wait_share"] <= own["wait_share_high"]


def test_drops_that_only_assumed_rules_say_are_a_range_from_none_on(named_async, no_lengths):
    for found in (named_async, no_lengths):
        drops = prediction(found, "dropped rollouts")
        assert drops["low"] == 0
        assert not drops["identified"]
    assert prediction(no_lengths, "lag")["by"] == "rules (assumed)"


def test_a_log_without_lengths_tells_nothing_in_tokens(no_lengths):
    tokens = prediction(no_lengths, "trained tokens")
    assert (tokens["low"], tokens["high"]) == (0, np.inf)
    assert re.search(r"trained tokens +open +tokens/s +not told", repr(no_lengths))


def test_every_assumption_is_named_with_its_way_out(no_lengths, named_async):
    said = {one.field: one for one in no_lengths.assumed}
    assert {"preset", "group_size", "batch_groups", "rollout_workers", "response_length", "spread of lengths",
            "work that rollouts share", "drift_per_version"} <= set(said)  # fmt: skip
    assert "1,000 tokens" in said["response_length"].rule
    assert all(one.way_out for one in said.values())
    assert [one["field"] for one in no_lengths.as_dict()["assumed"]] == list(said)
    assert "fetch_seconds" in {one.field for one in named_async.assumed}
    assert "# assumed: response_length" in no_lengths.to_toml()
    given = ls.calibrate(NO_LENGTHS, fit_steps=200, drift_per_version=0.3)
    assert "drift_per_version" not in {one.field for one in given.assumed}


def test_a_model_that_misses_its_held_steps_says_so_first(hosted):
    assert hosted.fits_log is False
    assert "step" in {one.name for one in hosted.misses}
    second = repr(hosted).split("held.\n", 1)[1]
    assert second.startswith("The model does not fit this log: do not trust what whatif says of it.")
    facts = hosted.as_dict()
    assert facts["fits_log"] is False
    assert [one["name"] for one in facts["backtest"] if one["missed"]] == [one.name for one in hosted.misses]
    told = ls.what_if(hosted, {"batch_groups": [256, 512]}, seeds=1)
    assert str(told).startswith("The model does not fit this log")
    assert told.as_dict()["said"][0].startswith("The model does not fit this log")


def test_one_that_meets_them_does_not_and_without_any_nothing_is_known():
    _, log = known_run("synchronous")
    assert ls.calibrate(log, group_size=4).fits_log is True
    assert ls.calibrate(log, group_size=4, held=0.0).fits_log is None


def test_nothing_that_cannot_be_negative_has_a_negative_end(hosted, named_async, no_lengths):
    for found in (hosted, named_async, no_lengths):
        assert all(one.low >= 0 for one in found.fits)
        assert all(one.low >= 0 for one in found.tests)
        assert found.predictions_frame()["low"].min() >= 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=60), st.integers(3, 400))
def test_an_interval_of_what_is_never_below_zero_is_not_either(values, rows):
    low, high = ends(np.array(values), rows=rows)
    assert 0 <= low <= high


def test_ranges_are_cut_where_the_quantity_ends():
    end = End("idle", "speed", "low", None)
    assert span_of(2.0, [(end, 9.0), (end, -5.0)]).low == 0
    assert span_of(0.1, [(end, -3.0)], least=-np.inf).low == pytest.approx(-3.0)


def test_engines_that_take_long_to_wake_up_do_not_make_generation_free():
    _, log = known_run("synchronous", rollout_overhead_seconds=25.0)
    found = ls.calibrate(log, group_size=4)
    assert found.match.known
    assert "hardly waits" not in repr(found)


def test_a_fetch_shows_where_lengths_vary_and_waits_do_not():
    draw = np.random.default_rng(3)
    lengths = {"response_tokens_mean": 900 + draw.normal(0, 60, 60),
               "response_tokens_max": 3000 + draw.normal(0, 300, 60)}  # fmt: skip
    waits = pl.Series(3.0 + draw.normal(0, 0.01, 60))
    assert fit_fetch(pl.DataFrame({"wait_seconds": waits})).open
    told = fit_fetch(pl.DataFrame({"wait_seconds": waits, **lengths}))
    assert not told.open
    assert told.value == pytest.approx(3, abs=0.02)
    alike = {name: np.full(60, values[0]) for name, values in lengths.items()}
    assert fit_fetch(pl.DataFrame({"wait_seconds": waits, **alike})).open


@pytest.mark.parametrize("grain", [0.5, 2.0, 5.0])
def test_the_grid_of_polled_waits_is_found(grain):
    draw = np.random.default_rng(1)
    polled = 50.2 + grain * draw.integers(0, 8, 120) + draw.normal(0, 0.01, 120)
    assert grain_of(polled) == grain
    assert grain_of(50.2 + draw.uniform(0, 8 * grain, 120)) == 0


def test_longer_steps_read_as_times_and_no_percent_is_negative_zero(no_lengths):
    told = ls.what_if(no_lengths, {"max_lag": [1, 4]}, seeds=1)
    text = str(told)
    assert not re.search(r"-\d{3,} %|-0 %|-0 to|to -0", text)
    longer = [one for one in told.changes if one.saved.low < -1]
    assert longer
    assert "×: as many times as long" in text.replace("\n", " ")
    # A range that reaches to where it is faster never reads as if nothing were faster.
    open_to_both = any(one.saved.low < 0.0 and one.saved.high > 0.01 for one in told.changes)
    assert open_to_both
    assert "whether another lag is faster the log does not tell" in told.sentence
    assert "no other lag is faster" not in told.sentence


def test_forms_of_ranges():
    assert times(1.5, 1.5) == "1.5"
    assert times(3.0, 1e6) == "3.0 to over 100"
    assert percents(-0.001, 0.001) == "0 %"


def run(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_what_if_has_a_page_with_what_is_said_and_every_cell(tmp_path, capsys):
    page = tmp_path / "changes.html"
    call = ["whatif", str(NAMED_ASYNC), "--axis", "max_lag=0,1", "--seeds", "1", "--page", str(page), "-q"]
    code, out, err = run([*call, "--json"], capsys)
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert facts["written"] == [str(page)]
    text = page.read_text()
    assert "What would change" in text
    assert facts["sentence"][1:] in text.replace("&#39;", "'")
    assert "cannot tell" in text
    assert "chart-changes" in text
    # A page of ours is drawn anew; any other file is not touched.
    assert run(call, capsys)[0] == 0
    page.write_text("mine")
    code, _, err = run(call, capsys)
    assert code == 2
    assert "--page: must not be there yet" in err
    assert page.read_text() == "mine"


def test_a_misspelt_axis_names_the_one_that_was_meant(capsys):
    for typed, meant in (("rollout_gpu", "rollout_gpus"), ("lag", "max_lag"), ("batch", "batch_tokens")):
        code, _, err = run(["whatif", str(EXAMPLE), "--axis", f"{typed}=1,2"], capsys)
        assert code == 2
        assert f"Did you mean '{meant}'?" in err


def test_samples_of_an_engine_are_told_from_a_log_of_steps(tmp_path, capsys):
    samples = tmp_path / "engine.csv"
    samples.write_text("t_s,#running-req,#token,gen throughput (token/s)\n0,8,900,80\n5,8,1300,78\n")
    code, _, err = run(["calibrate", str(samples), "-o", str(tmp_path / "run.toml")], capsys)
    assert code == 2
    assert "these are samples of an inference engine" in err
    assert "lagsweep engine fit --samples FILE" in err


def _stepping(found, low, high):
    """Return a calibration whose run takes so many seconds a step as it is."""
    told = found.predictions["step_seconds"]
    span = replace(told, value=(low + high) / 2, low=low, high=high)
    return replace(found, predictions={**found.predictions, "step_seconds": span})


@pytest.mark.parametrize(
    ("below", "fits", "said"), [(0.0, True, False), (0.03, True, True), (0.07, False, True)]
)
def test_a_run_that_misses_the_steps_of_its_log_says_so_first(below, fits, said):
    """A twentieth beyond the range is a remark, more than that is no fit."""
    found = ls.calibrate(EXAMPLE, preset="verl_fully_async", batch_groups=32, **KNOWN)
    measured = found.as_logged.measured
    high = measured * (1 - below)
    moved = _stepping(found, 0.95 * high, high)
    first = ls.what_if(moved, {"max_lag": [2, 3]}, seeds=1).as_dict()["said"][0]

    assert moved.as_logged.outside == pytest.approx(below * measured)
    assert moved.fits_log is fits
    assert first.startswith("As simulated the run misses its log: ") is said
    assert (f"{below:.1%} beyond that range." in first) is said
    assert ("The model does not fit this log." in first) is not fits


def test_a_wide_interval_of_the_mean_does_not_hide_a_step_that_is_missed():
    """As in a log whose evaluations, now and then, make the mean of few held steps uncertain."""
    found = ls.calibrate(EXAMPLE, preset="verl_fully_async", batch_groups=32, **KNOWN)
    step, *others = found.tests
    wide = replace(step, measured=45.8, measured_low=40.0, measured_high=52.0, low=38.8, high=43.3)
    within = replace(wide, low=38.8, high=43.8)

    assert wide.beyond == 0
    assert [one.name for one in replace(found, tests=(wide, *others)).misses] == ["step"]
    assert replace(found, tests=(within, *others)).misses == ()


_ORCHESTRATOR = DATA / "prime_rl_orchestrator.csv"


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ("step,completions/mean_length,reward,step_time", "{0},200,1,30.{0}",
         "a log of TRL has no such column"),
        ("rollout/step,rollout/response_len/mean,perf/rollout_time,rollout/truncated_ratio",
         "{0},2000,600.{0},0.01", "Give one with perf/train_wait_time"),
        (None, None, "Give the trainer's log too"),
    ],
)  # fmt: skip
def test_a_log_without_the_trainer_s_times_says_what_its_system_writes(header, row, said, tmp_path):
    path = _ORCHESTRATOR
    if header is not None:
        path = tmp_path / "log.csv"
        path.write_text("\n".join([header, *(row.format(step) for step in range(1, 40))]) + "\n")
    with pytest.raises(ls.ConfigError, match="trainer's waits or its training in seconds") as raised:
        ls.calibrate(path)
    assert said in str(raised.value)


def test_the_page_lists_the_systems_whose_logs_cannot_be_calibrated():
    needed = ["wait_seconds", *TRAINER_PHASES]
    without = [one for one in shipped_frameworks().values() if not set(needed) & set(one.columns)]
    page = (Path(__file__).parents[2] / "docs" / "calibrate.md").read_text()
    listed = page.split("## Logs that cannot be calibrated")[1].split("\n## ")[0]

    assert [one.name for one in without] == ["trl"]
    assert "| TRL |" in listed
