"""Search: the choice against a whole grid, going on after an interruption, bounds, two objectives."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.every_command import run
from oracle.small_sweeps import small_base

import lagsweep as ls
from lagsweep.errors import ConfigError, StoreError
from lagsweep.sweeps.search import search as search_module
from lagsweep.sweeps.search.space import space_of
from lagsweep.sweeps.spec.make import make_spec

AXES = {"queue_cap": {"from": 150, "to": 900}, "max_lag": {"from": 0, "to": 4}, "sync_cadence": [1, 2, 3]}
RULES = ("sync_cadence <= max_lag + 1",)
BASE = small_base(duration_seconds=120.0, drift_per_version=0.3)


def _search(**changes):
    asked = {"maximize": "effective_tokens_per_second", "constraints": RULES, "budget_runs": 1200}
    return ls.search(BASE, AXES, **(asked | changes))


def test_the_choice_is_within_the_indifference_of_the_best_of_a_grid_run_with_many_seeds():
    grid = {"queue_cap": [150, 300, 450, 900], "max_lag": [0, 1, 2, 4], "sync_cadence": [1, 2, 3]}
    found = ls.search(BASE, grid, maximize="effective_tokens_per_second", constraints=RULES, budget_runs=3000)
    whole = ls.run_spec(make_spec(BASE, grid, range(10_000, 10_400), constraints=RULES))
    means = whole["effective_tokens_per_second"].mean("seed")
    best = float(means.max())
    own = float(means.sel(**found.settings))

    assert found.decided
    assert found.points == 48
    assert own >= best * (1 - 1.5 * found.indifference)
    assert found.total_runs < 48 * 20  # as many seeds as the selection takes, for every point


def test_a_search_in_a_folder_gives_what_one_in_memory_gives_and_runs_nothing_twice(tmp_path, monkeypatch):
    memory = _search()
    stored = _search(store=tmp_path / "s")
    stages = []
    real = search_module.Stages.run

    def counted(self, stage, points, seeds):
        stages.append(stage)
        before = ls.open_sweep(self.folder / stage).sizes["seed"]
        ds = real(self, stage, points, seeds)
        assert ds.sizes["seed"] == before
        return ds

    monkeypatch.setattr(search_module.Stages, "run", counted)
    again = _search(store=tmp_path / "s")

    assert str(stored).replace(str(tmp_path / "s"), "") == str(again).replace(str(tmp_path / "s"), "")
    assert memory.settings == stored.settings
    assert memory.candidates.equals(stored.candidates)
    assert stages == list(stored.runs)
    assert set(stored.runs) == {path.name for path in (tmp_path / "s").iterdir()} - {"search.json"}


@pytest.mark.parametrize("stop_before", ["near-1", "near-3", "select-01"])
def test_a_search_that_stops_between_stages_goes_on_to_the_same_answer(tmp_path, monkeypatch, stop_before):
    whole = _search()
    real = search_module.Stages.run

    def stops(self, stage, points, seeds):
        if stage == stop_before:
            raise KeyboardInterrupt
        return real(self, stage, points, seeds)

    monkeypatch.setattr(search_module.Stages, "run", stops)
    with pytest.raises(KeyboardInterrupt):
        _search(store=tmp_path / "s")
    monkeypatch.undo()

    assert not (tmp_path / "s" / stop_before).exists()
    assert _search(store=tmp_path / "s").candidates.equals(whole.candidates)


def test_threads_change_nothing():
    assert _search(threads=1).candidates.equals(_search(threads=3).candidates)


def test_bounds_hold_for_the_choice_and_what_breaks_them_is_not_chosen():
    free, bound = _search(), _search(max_lag=1, min_ess=0.9)
    config = bound.config.replace(seed=77)

    assert free.settings != bound.settings
    assert bound.settings["max_lag"] <= 1 or bound.candidates["largest_lag"][0] <= 1
    assert ls.simulate_pipeline(config).max_lag_observed <= 1
    assert ls.simulate_pipeline(config).mean_expected_normalized_ess >= 0.85
    assert bound.candidates["ess"][0] >= 0.9


def test_where_nothing_keeps_the_bounds_there_is_no_choice_and_the_nearest_is_named():
    found = _search(min_ess=1.0, max_lag=0, constraints=("max_lag >= 3",))

    assert not found.settings
    assert not found.decided
    assert found.config is None
    assert "nearest" in found.doubts[0]
    assert "nearest" in str(found)


def test_runs_too_short_to_train_are_said_to_be():
    found = ls.search(
        ls.PipelineConfig(batch_tokens=120_000, rollout_workers=64), {"max_lag": [0, 1]}, budget_runs=200
    )

    assert any("too short" in doubt for doubt in found.doubts)


def test_a_budget_that_ends_before_the_best_is_known_says_so():
    axes = {"train_overhead_seconds": {"from": 0.5, "to": 0.51}}
    found = ls.search(BASE, axes, indifference=1e-7, budget_runs=400, constraints=())

    assert found.settings
    assert not found.decided
    assert "Not settled" in str(found)
    assert found.candidates["verdict"][0] == "leads"
    assert found.total_runs <= 400 + 50 * 20


def test_two_objectives_keep_what_no_other_beats_in_both():
    found = _search(maximize=["trained_tokens_per_second"], minimize=["mean_lag"])
    kept = found.frontier
    rows = found.candidates.filter(found.candidates["verdict"] == "left out")

    assert found.decided
    assert kept.height >= 2
    for gone in rows.iter_rows(named=True):
        assert (
            (kept["trained_tokens_per_second"] > gone["trained_tokens_per_second"])
            & (kept["mean_lag"] < gone["mean_lag"])
        ).any()
    top = kept["trained_tokens_per_second"].to_list()
    assert top == sorted(top, reverse=True)


@pytest.mark.parametrize("sampler", ["optuna:tpe", "optuna:random", "optuna:nsgaii"])
def test_another_sampler_gives_points_in_the_ranges_and_the_same_ones_again(sampler, tmp_path):
    first, again = _search(sampler=sampler, store=tmp_path / "s"), _search(sampler=sampler)

    assert first.candidates.equals(again.candidates)
    assert first.settings["sync_cadence"] <= first.settings["max_lag"] + 1
    assert first.tried > 60


def test_optuna_is_asked_for_by_name_where_it_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"lagsweep\[search\]"):
        _search(sampler="optuna:tpe")


def test_a_folder_of_another_search_or_of_something_else_is_refused(tmp_path):
    _search(store=tmp_path / "s")
    with pytest.raises(StoreError, match="another search"):
        _search(store=tmp_path / "s", confidence=0.9)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "note").write_text("mine")
    with pytest.raises(StoreError, match="folder of a search"):
        _search(store=tmp_path / "other")
    assert (tmp_path / "other" / "note").read_text() == "mine"
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["note"]


def test_a_budget_in_seconds_is_turned_into_runs_once(tmp_path):
    first = _search(budget_seconds=1.0, store=tmp_path / "s")
    runs = json.loads((tmp_path / "s" / "search.json").read_text())["found"]["budget_runs"]
    again = _search(budget_seconds=1.0, store=tmp_path / "s")

    assert runs >= 200
    assert again.candidates.equals(first.candidates)
    assert json.loads((tmp_path / "s" / "search.json").read_text())["found"]["budget_runs"] == runs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"maximize": "tokens"}, "metric"),
        ({"maximize": ["mean_lag", "updates", "syncs"]}, "one or two"),
        ({"maximize": "mean_lag", "minimize": "mean_lag"}, "one or two"),
        ({"budget_runs": 10}, "budget_runs"),
        ({"budget_seconds": 0.0}, "budget_seconds"),
        ({"indifference": 0.0}, "indifference"),
        ({"candidates": 1}, "candidates"),
        ({"explore_seeds": 1}, "explore_seeds"),
        ({"sampler": "tpe"}, "sampler"),
        ({"min_ess": 2.0}, "min_ess"),
        ({"constraints": ("max_lag > 99",)}, "at least one point"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(changes, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        _search(store=tmp_path / "s", **changes)


def test_stalls_are_named_as_such_with_their_reason():
    """A cap below the batch lets some seeds fill the queue with too few tokens to train."""
    base = small_base(duration_seconds=200.0, batch_tokens=420, max_queue_tokens=417)
    axes = {"rollout_workers": [1, 2, 3, 6], "max_lag": [1, 4]}
    found = ls.search(base, axes, budget_runs=600, explore_seeds=2)
    stalls = found.candidates.filter(found.candidates["verdict"] == "stalls")

    assert stalls.height
    assert found.settings
    assert any("stalled" in doubt and "batch_tokens (420)" in doubt for doubt in found.doubts)


@pytest.mark.parametrize("name", ["duration_seconds", "warmup_seconds"])
def test_how_long_a_run_is_looked_at_is_no_thing_to_choose(name):
    with pytest.raises(ConfigError, match="looked at"):
        ls.search(BASE, {name: {"from": 10.0, "to": 20.0}})


def test_a_scenario_is_no_thing_to_choose():
    with pytest.raises(ConfigError, match="not a thing to choose"):
        ls.search(BASE, {"drift_per_version": [0.1, 0.2]})


ranges = st.one_of(
    st.just({"from": 0, "to": 4}),
    st.just([0, 1, 3]),
    st.just({"from": 0, "to": 4, "step": 2}),
)


@settings(max_examples=40, deadline=None)
@given(
    lag=ranges,
    low=st.integers(150, 1000),
    span=st.integers(0, 5000),
    log=st.booleans(),
    seed=st.integers(0, 1000),
    reach=st.sampled_from([0.02, 0.3]),
)
def test_points_lie_in_the_ranges_keep_the_constraints_and_come_once(lag, low, span, log, seed, reach):
    cap = {"from": low, "to": low + span} | ({"scale": "log"} if log else {})
    space = space_of(
        BASE, {"max_lag": lag, "queue_cap": cap, "admission": ["threshold", "reserve"]}, ("max_lag < 4",)
    )
    points = space.spread(20, seed)
    points += space.around(points, 20, reach, seed)

    keys = [tuple(point.values()) for point in points]
    assert len(set(keys)) == len(keys)
    for point in points:
        assert low <= point["queue_cap"] <= low + span
        assert isinstance(point["queue_cap"], int)
        assert point["max_lag"] in ([0, 1, 3] if isinstance(lag, list) else [0, 1, 2, 3, 4])
        assert point["max_lag"] < 4


@settings(max_examples=60, deadline=None)
@given(value=st.integers(120_000, 500_000), log=st.booleans())
def test_a_value_and_its_place_in_a_range_belong_together(value, log):
    cap = {"from": 120_000, "to": 500_000} | ({"scale": "log"} if log else {})
    (axis,) = space_of(BASE, {"queue_cap": cap}).axes
    back = axis.at(np.array([axis.place(value)]))[0]

    assert abs(back - value) <= 0.0006 * value  # four digits


def test_the_command_prints_the_choice_and_goes_on_in_its_folder(tmp_path, monkeypatch):
    call = ["search", "--axis", "max_lag=0..3", "--axis", "sync_cadence=1,2", "--budget", "400"]
    call += ["--duration-seconds", "300", "--results", str(tmp_path), "--name", "mine"]
    monkeypatch.setenv("COLUMNS", "60")
    first, again = run([*call, "--json"]), run(call)

    facts = json.loads(first.out)
    assert first.code == again.code == 0
    assert facts["decided"]
    assert facts["settings"]["max_lag"] in range(4)
    assert f"max_lag={facts['settings']['max_lag']}" in again.out.decode()
    lines = [line for line in again.out.decode().splitlines() if str(tmp_path) not in line]
    assert all(len(line) <= 60 for line in lines)
    assert [path.name.startswith("search-mine-") for path in tmp_path.iterdir()] == [True]


def test_the_command_takes_a_spec_and_refuses_what_lays_out_a_grid(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text("[base]\nduration_seconds = 60\n[[points]]\nmax_lag = 1\n[axes]\nmax_lag = [1, 2]\n")
    refused = run(["search", str(spec), "--results", str(tmp_path)])
    bad = run(["search", "--axis", "max_lag=0..3", "--budget", "many"])

    assert refused.code == bad.code == 2
    assert b"points" in refused.err
    assert b"--budget" in bad.err
    assert [path.name for path in tmp_path.iterdir()] == ["spec.toml"]
