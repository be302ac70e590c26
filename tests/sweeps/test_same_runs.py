"""Runs are called the same only where every metric is: in recommendations, tables and pages."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.every_command import run
from oracle.made_up_sweeps import ESS, THROUGHPUT, made_up
from oracle.small_sweeps import small_base

from lagsweep import LengthLaw, PipelineConfig, frontier, open_sweep, preset_config, recommend, run_sweep
from lagsweep.sweeps.pages.content import gather
from lagsweep.sweeps.pages.sections import report_values
from lagsweep.sweeps.results import same_runs
from lagsweep.sweeps.results.cells import run_metrics
from lagsweep.sweeps.results.same_runs import split_by_runs

# The trainer is the bottleneck: twice the workers train the same batches and throw away twice as much.
WASTEFUL = PipelineConfig(
    duration_seconds=2000,
    response_length=LengthLaw.fixed(300),
    train_tokens_per_second=200,
    max_queue_tokens=None,
    max_policy_lag=2,
)
CAPS = {"queue_cap": [5000, 6000, 7000], "max_lag": [0, 2]}


def words(text):
    return " ".join(str(text).split())


@pytest.fixture(scope="module")
def wasteful(tmp_path_factory):
    store = tmp_path_factory.mktemp("wasteful") / "s"
    return run_sweep(WASTEFUL, {"rollout_workers": [48, 24]}, seeds=3, store=store), store


def test_as_much_trained_and_more_thrown_away_is_a_tie_and_not_the_same_run(wasteful):
    ds, store = wasteful
    best = recommend(ds)
    (tie,) = best.ties

    assert (ds["discarded_tokens"][0] > 1.5 * ds["discarded_tokens"][1]).all()
    assert (best.identical, best.equal, best.different) == (0, 1, 1)
    assert (tie.identical, tie.equal, tie.settings) == (False, True, {"rollout_workers": 24})
    assert best.settings == {"rollout_workers": 48}
    said = words(best)
    assert f"Equal in {THROUGHPUT} and ESS at every seed, not in all metrics: rollout_workers=24." in said
    assert "The same run" not in said
    document = json.loads(run(["recommend", str(store), "--json"]).out)
    assert (document["identical"], document["equal"], document["ties"][0]["identical"]) == (0, 1, False)


def test_the_table_says_of_what_it_leaves_out_in_which_setting_it_differs(wasteful):
    said = words(frontier(wasteful[0]))

    assert (
        "Left out: 1 more with the figures of one shown, not all its metrics; they differ in rollout_workers."
        in said
    )
    assert "no effect" not in said
    assert "Not in this table: the other 1; `lagsweep show STORE --csv` (or --json) lists all 2" in said


def test_a_cap_that_is_never_reached_gives_the_very_same_runs():
    ds = run_sweep(small_base(), CAPS, 3)
    said = words(frontier(ds))

    assert (
        "Left out: 4 more with the very same runs as one shown; they differ in queue_cap, which had no "
        "effect there." in said
    )
    assert "the other 4; " in said
    for question in ({"maximize": THROUGHPUT}, {"minimize": "seconds_per_update"}):
        best = recommend(ds, **question)
        assert (best.identical, best.equal, best.different) == (2, 0, 0)


def test_the_page_tells_the_same_runs_from_equal_figures(wasteful):
    (one,) = [text for _, text in report_values(gather(wasteful[0]))["verdict"] if "more setting" in text]
    same = [text for _, text in report_values(gather(run_sweep(small_base(), CAPS, 3)))["verdict"]]

    assert one == (
        f"1 more setting gives the same {THROUGHPUT} and ESS at every seed, but not the same runs: "
        "rollout_workers=24."
    )
    assert any(text.startswith("2 more settings give the very same runs. Every further") for text in same)


# The comparison itself -------------------------------------------------------------------------------------

AXES = {"max_lag": [1, 2, 3], "queue_cap": [200, 600]}


@pytest.fixture(scope="module")
def equal():
    """Return a sweep whose six cells have the same runs, some values NaN."""
    ds = made_up(AXES, 3)
    for name in run_metrics(ds):
        ds[name][:] = ds[name][0, 0]
    ds["mean_lag"][:, :, 1] = np.nan
    return ds


@settings(max_examples=40)
@given(st.data())
def test_one_value_of_one_metric_at_one_seed_is_enough_to_differ(equal, data):
    ds = equal.copy(deep=True)
    changed = data.draw(st.dictionaries(st.integers(0, 5), st.sampled_from(run_metrics(ds)), max_size=4))
    for row, name in changed.items():
        place = (row // 2, row % 2, data.draw(st.integers(0, 2)))
        ds[name][place] = 12345 + row
    parts = split_by_runs(ds, [[0, 1, 2, 3, 4, 5]])

    assert sorted(map(tuple, parts)) == sorted(
        [tuple(row for row in range(6) if row not in changed)] * (len(changed) < 6)
        + [(row,) for row in changed]
    )


def test_what_ties_only_within_groups_stays_apart(equal):
    assert sorted(split_by_runs(equal, [[4, 1], [0], [5, 2, 3]])) == [[0], [4, 1], [5, 2, 3]]


def test_a_setting_of_several_scenarios_is_the_same_if_it_is_in_each(equal):
    ds = equal.copy(deep=True)
    ds["syncs"][1, 1] += 1
    places = np.array([[0, 1], [2, 3], [4, 5]])

    assert sorted(split_by_runs(ds, [[0, 1, 2]], places)) == [[0, 2], [1]]


def test_a_run_that_is_not_done_is_not_the_same_as_one_that_is(equal):
    ds = equal.copy(deep=True)
    ds["status"][0, 0, 2] = 0
    ds["status"][1, 0, 2] = 0
    ds["updates"][1, 0, 2] = -1

    assert sorted(split_by_runs(ds, [[0, 1, 2]])) == [[0, 2], [1]]


def test_a_metric_of_an_option_counts_between_those_that_use_it(equal):
    ds = equal.copy(deep=True)
    share = np.full(ds["status"].shape, np.nan)
    share[0] = 0.5
    ds["goodput_fraction"] = (ds["status"].dims, share)
    assert split_by_runs(ds, [[0, 1, 2, 3]]) == [[0, 1, 2, 3]]
    ds["goodput_fraction"][0, 1] = 0.6

    assert sorted(split_by_runs(ds, [[0, 1, 2, 3]])) == [[0], [1], [2, 3]]


def test_only_what_ties_is_read_further(monkeypatch, tmp_path):
    run_sweep(small_base(), {"queue_cap": [200, 6000, 7000], "max_lag": [0, 2]}, 3, store=tmp_path / "s")
    asked = []
    read = same_runs._bits
    monkeypatch.setattr(same_runs, "_bits", lambda ds, name, rows: asked.append(rows) or read(ds, name, rows))
    best = recommend(open_sweep(tmp_path / "s"))

    assert best.identical == 1
    assert {tuple(sorted(rows.tolist())) for rows in asked} == {(3, 5)}


# A lag limit that nothing enforces -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unlimited():
    base = preset_config("skyrl", duration_seconds=3000, response_length=LengthLaw.uniform(20, 400))
    return run_sweep(base, {"max_lag": [1, 2, 4]}, seeds=3)


def test_a_limit_without_an_effect_is_not_to_be_made_smaller(unlimited):
    best = recommend(unlimited, min_ess=1.0)

    assert np.isfinite(unlimited[ESS]).all()
    assert best.cell is None
    assert [doubt.text for doubt in best.doubts] == [
        "No setting keeps every bound; give the sweep other axes or values."
    ]
    alone = recommend(unlimited.isel(max_lag=[0]), min_ess=1.0)
    assert [doubt.command for doubt in alone.doubts] == [None]


def test_the_table_names_the_limit_that_had_no_effect(unlimited):
    assert "they differ in max_lag, which had no effect there." in words(frontier(unlimited))
