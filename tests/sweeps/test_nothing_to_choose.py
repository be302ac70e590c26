"""Verdicts from nothing: no run trained, a sentinel among numbers, a rule on a metric that has no value."""

from __future__ import annotations

import numpy as np
import pytest
from oracle.every_command import run

from lagsweep import PipelineConfig, frontier, recommend, run_sweep
from lagsweep.kernels.pipeline.metrics import GENERAL_METRICS, METRICS, SENTINELS, with_nan
from lagsweep.sweeps.results.cells import cell_values

NOTHING = PipelineConfig(duration_seconds=10)
AXES = {"max_lag": [0, 1], "queue_cap": [100, 7000]}


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("idle") / "s"
    return run_sweep(NOTHING, AXES, seeds=4, store=folder), folder


@pytest.mark.parametrize(
    "question",
    [
        {}, {"max_lag": 1}, {"max_lag": 0}, {"min_ess": 0.9},
        {"minimize": "seconds_per_update"}, {"minimize": "discarded_tokens"}, {"minimize": "mean_lag"},
        {"minimize": "max_lag_observed"}, {"maximize": "trainer_wait_seconds"},
    ],
)  # fmt: skip
def test_where_nothing_was_trained_there_is_no_answer(idle, question):
    found = recommend(idle[0], **question)

    assert found.cell is None
    assert not found.settled
    assert found.admissible == 0
    assert "this store has no answer; 0 of 4 settings are admissible" in str(found).replace("\n", " ")
    assert "No setting trained a batch" in str(found)
    assert "settled;" not in str(found)


@pytest.mark.parametrize("flags", [[], ["--max-lag", "1"], ["--minimize", "discarded_tokens"], ["--json"]])
def test_the_command_says_so_with_exit_code_1(idle, flags):
    answer = run(["recommend", str(idle[1]), *flags])

    assert answer.code == 1
    assert b"Traceback" not in answer.err
    assert run(["report", str(idle[1]), "--no-images", "-o", str(idle[1].parent / "page.html")]).code == 0


def test_a_sentinel_is_no_number():
    assert with_nan("max_lag_observed", np.array([-1, 0, 3])).tolist()[1:] == [0.0, 3.0]
    assert np.isnan(with_nan("max_lag_observed", np.array([-1]))[0])
    assert with_nan("mean_lag", np.array([-1.0])).tolist() == [-1.0]


def test_every_metric_whose_words_tell_of_a_sentinel_has_it_listed():
    told = {metric.name for metric in (*METRICS, *GENERAL_METRICS) if "(-1 if" in metric.long_name}

    assert told == set(SENTINELS)


def test_a_lag_of_no_batch_enters_no_mean(idle):
    assert np.isnan(cell_values(idle[0], "max_lag_observed")).all()
    assert frontier(idle[0]).frame["max_lag_observed"].is_nan().all()


def _half_idle(**changes):
    """Three settings: one stalled everywhere, one that never trained, one that works."""
    values = {
        "trained_tokens_per_second": [[0.0, 0.0], [0.0, 0.0], [100.0, 101.0]],
        "updates": [[3, 3], [0, 0], [9, 9]],
        "stalled": [[1, 1], [0, 0], [0, 0]],
        "discarded_tokens": [[0, 0], [0, 0], [50, 60]],
        "max_lag_observed": [[0, 0], [-1, -1], [2, 2]],
        "mean_lag": [[0.0, 0.0], [np.nan, np.nan], [1.0, 1.0]],
    }
    return values | changes


def _sweep(values):
    ds = run_sweep(PipelineConfig(duration_seconds=60), {"queue_cap": [140_000, 150_000, 160_000]}, seeds=2)
    for name, rows in values.items():
        ds[name] = (ds[name].dims, np.array(rows, dtype=ds[name].dtype), ds[name].attrs)
    return ds


@pytest.mark.parametrize("metric", ["discarded_tokens", "max_lag_observed", "mean_lag", "updates"])
def test_a_stalled_or_idle_setting_never_wins_a_minimisation(metric):
    assert recommend(_sweep(_half_idle()), minimize=metric).settings == {"queue_cap": 160_000}


def test_a_run_that_stalled_is_left_out_of_a_minimum_beside_runs_that_did_not():
    stalls = _half_idle(
        stalled=[[1, 0], [0, 0], [0, 0]],
        updates=[[1, 9], [0, 9], [9, 9]],
        discarded_tokens=[[0, 80], [0, 70], [50, 60]],
    )
    found = recommend(_sweep(stalls), minimize="discarded_tokens")

    assert found.settings == {"queue_cap": 160_000}
    assert found.value == 55.0


def test_where_every_setting_stalls_that_is_said():
    everywhere = _half_idle(stalled=[[1, 1]] * 3, updates=[[3, 3]] * 3)
    found = recommend(_sweep(everywhere))

    assert found.cell is None
    assert "Every setting stalls" in str(found)


@pytest.mark.parametrize(
    "rule", ["mean_lag within 1%", "mean_lag within 0.5", "lowest max_lag_observed resolved"]
)
def test_a_rule_on_a_metric_without_values_does_not_ask_for_more_seeds(rule, tmp_path):
    store = ["--store", str(tmp_path / "s"), "--seeds", "33", "--duration-seconds", "10"]
    answer = run(["run", "--axis", "max_lag=0,2", *store, "--until", rule])

    assert answer.code == 0
    assert b"has no value in 2 cells; more seeds do not help" in answer.err
    assert b"ran out of seeds" not in answer.err


def test_a_rule_that_can_be_met_with_more_seeds_still_asks_for_them(tmp_path):
    store = ["--store", str(tmp_path / "s"), "--seeds", "3", "--duration-seconds", "60"]
    answer = run(
        ["run", "--axis", "max_lag=0,2", *store, "--until", "trained_tokens_per_second within 0.0001%"]
    )

    assert b"ran out of seeds first; give more than 3" in answer.err
    assert b"more seeds do not help" not in answer.err
