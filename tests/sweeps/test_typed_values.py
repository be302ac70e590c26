"""Values that people type: ranges with short labels and both ends, none beside numbers, old labels."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st
from oracle.every_command import run

from lagsweep import PipelineConfig, config_at, frontier, open_sweep, plot_frontier, recommend, run_sweep
from lagsweep.errors import ConfigError
from lagsweep.sweeps.json_text import json_text
from lagsweep.sweeps.results.dataset import NONE_MARK
from lagsweep.sweeps.spec.axes import between, coordinate, expand, nearly, numbers_beside_none
from lagsweep.sweeps.spec.make import make_spec

SHORT = PipelineConfig(duration_seconds=60)
DRIFT = "drift_per_version"


@pytest.mark.parametrize(
    ("given_range", "values"),
    [
        ({"from": 0.1, "to": 0.4, "count": 4}, [0.1, 0.2, 0.3, 0.4]),
        ({"from": 0.0, "to": 0.3, "count": 4}, [0.0, 0.1, 0.2, 0.3]),
        ({"from": 0.1, "to": 1.0, "step": 0.3}, [0.1, 0.4, 0.7, 1.0]),
        ({"from": 0.001, "to": 1, "count": 4, "scale": "log"}, [0.001, 0.01, 0.1, 1.0]),
        # Neighbours
        ({"from": 0, "to": 1, "count": 11}, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        ({"from": -0.3, "to": 0.3, "step": 0.1}, [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3]),
        ({"from": 1.1, "to": 1.4, "step": 0.1}, [1.1, 1.2, 1.3, 1.4]),
        ({"from": 0.00001, "to": 10, "count": 7, "scale": "log"}, [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0]),
        ({"from": 0.2, "to": 3.2, "count": 5, "scale": "log"}, [0.2, 0.4, 0.8, 1.6, 3.2]),
        ({"from": 0, "to": 1, "step": 1 / 3}, [0.0, 1 / 3, 2 / 3, 1.0]),
        ({"from": 0.5, "to": 3.5}, [0.5, 1.5, 2.5, 3.5]),
        ({"from": 0.7, "to": 0.7}, [0.7]),
    ],
)
def test_a_range_has_the_labels_that_a_person_would_type(given_range, values):
    assert expand(DRIFT, given_range) == values


@given(
    low=st.integers(-999, 999), step=st.integers(1, 99), steps=st.integers(1, 40), digits=st.integers(0, 4)
)
def test_a_range_of_decimals_is_those_decimals(low, step, steps, digits):
    scale = 10**digits
    written = [(low + step * place) / scale for place in range(steps + 1)]

    assert between(written[0], written[-1], steps) == written
    assert expand(DRIFT, {"from": written[0], "to": written[-1], "count": steps + 1}) == written
    assert expand(DRIFT, {"from": written[0], "to": written[-1], "step": step / scale}) == written


@given(low=st.integers(1, 10**6), span=st.integers(1, 10**6), count=st.integers(2, 50))
def test_ranges_of_whole_numbers_keep_the_labels_that_stores_have(low, span, count):
    before = [float(low), *np.linspace(low, low + span, count).tolist()[1:-1], float(low + span)]

    got = expand("queue_cap", {"from": low, "to": low + span, "count": count})
    assert got == list(dict.fromkeys(map(round, before)))


@pytest.mark.parametrize(
    ("axis", "given_range"),
    [
        (DRIFT, {"from": 0.1, "to": 0.9}),
        (DRIFT, {"from": 0.5, "to": 3.2}),
        ("max_lag", {"from": 0, "to": 5, "step": 2}),
        ("max_lag", {"from": 0, "to": 5, "count": 1}),
        (DRIFT, {"from": 0, "to": 1, "step": 0.3}),
        (DRIFT, {"from": 0, "to": 1, "step": 2}),
        (DRIFT, {"from": 0, "to": 0.05, "step": 0.1}),
    ],
)
def test_a_range_that_would_lose_an_end_is_refused(axis, given_range):
    with pytest.raises(ConfigError, match=r"step|count") as caught:
        expand(axis, given_range)
    assert "count" in str(caught.value)


def test_a_range_on_the_command_line_loses_no_end(tmp_path):
    folder = str(tmp_path / "s")
    answer = run(["run", "--axis", f"{DRIFT}=0.1..0.9", "--store", folder])

    assert answer.code == 2
    assert b"LOW..HIGH/COUNT" in answer.err
    assert not (tmp_path / "s").exists()


# Stores whose labels were made before ranges were decimals

OLD = [0.1, 0.2, 0.30000000000000004, 0.4]


def test_a_number_is_a_stores_own_when_the_two_differ_by_rounding_alone():
    assert nearly(0.3, OLD) == 0.30000000000000004
    assert nearly(0.3000001, OLD) == 0.3000001
    assert nearly(0.3, (0.3, 0.30000000000000004)) == 0.3
    assert nearly(3, [3.0]) == 3


def test_a_store_with_old_labels_opens_resumes_and_extends(tmp_path):
    folder = tmp_path / "s"
    run_sweep(SHORT, {DRIFT: OLD}, seeds=2, store=folder)

    assert open_sweep(folder)[DRIFT].values.tolist() == OLD
    again = run_sweep(SHORT, {DRIFT: {"from": 0.1, "to": 0.4, "count": 4}}, seeds=2, store=folder)
    assert again[DRIFT].values.tolist() == OLD
    larger = run_sweep(SHORT, {DRIFT: [0.1, 0.2, 0.3, 0.4, 0.5]}, seeds=2, store=folder)
    assert larger[DRIFT].values.tolist() == [*OLD, 0.5]
    assert config_at(larger, {DRIFT: 0.3}, seed=0).drift_per_version == 0.30000000000000004
    answer = run(
        ["trace", str(folder), "--cell", f"{DRIFT}=0.3", "--seed", "0", "-o", str(tmp_path / "t.json")]
    )
    assert answer.code == 0


def test_a_cell_of_a_range_is_found_by_what_a_person_types(tmp_path):
    ds = run_sweep(SHORT, {DRIFT: {"from": 0.1, "to": 0.4, "count": 4}}, seeds=1, store=tmp_path / "s")

    assert int(ds.sel({DRIFT: 0.3}).status.sum()) == 1
    assert config_at(ds, {DRIFT: 0.3}, seed=0).drift_per_version == 0.3
    extended = run_sweep(SHORT, {DRIFT: [0.1, 0.2, 0.3, 0.4]}, seeds=1, store=tmp_path / "s")
    assert extended.sizes[DRIFT] == 4


# None beside numbers

CAPS = [None, 150_000, 140_000, 170_000, 1_500_000]


@pytest.fixture(scope="module")
def capped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("none") / "s"
    run_sweep(SHORT, {"queue_cap": CAPS[:4]}, seeds=2, store=folder)
    return run_sweep(SHORT, {"queue_cap": CAPS}, seeds=2, store=folder), folder


def test_none_beside_numbers_leaves_an_axis_numeric(capped):
    ds, folder = capped

    assert ds.queue_cap.values.tolist() == [np.inf, *map(float, CAPS[1:])]
    assert ds.queue_cap.attrs[NONE_MARK] == "inf"
    assert ds.sel(queue_cap=150_000).sizes["seed"] == 2
    assert ds.sortby("queue_cap").queue_cap.values.tolist() == [*sorted(map(float, CAPS[1:])), np.inf]
    assert frontier(ds).frame.filter(pl.col("queue_cap") > 160_000).height == 3
    assert open_sweep(folder).queue_cap.equals(ds.queue_cap)
    assert run_sweep(SHORT, {"queue_cap": CAPS}, seeds=2).queue_cap.equals(ds.queue_cap)


def test_a_store_keeps_such_an_axis_as_the_labels_it_always_had(capped):
    _, folder = capped

    plain = xarray.open_zarr(str(folder / "cells.zarr"))
    assert plain.queue_cap.values.tolist() == ["none", *map(str, CAPS[1:])]
    assert coordinate(CAPS).tolist() == ["none", *map(str, CAPS[1:])]


@pytest.mark.parametrize("value", [150_000, 150_000.0, np.float64(150_000), "150000"])
def test_a_cell_beside_none_is_found_by_any_spelling(capped, value):
    assert config_at(capped[0], {"queue_cap": value}, seed=0).max_queue_tokens == 150_000


@pytest.mark.parametrize("value", [None, "none", np.inf])
def test_none_is_found_as_none_as_a_word_and_as_its_number(capped, value):
    assert config_at(capped[0], {"queue_cap": value}, seed=0).max_queue_tokens is None


def test_none_is_called_none_in_tables_charts_and_commands(capped):
    ds, folder = capped
    for name in ("show", "recommend"):
        answer = run([name, str(folder)])
        assert answer.code == 0
        assert b"none" in answer.out
        assert b"inf" not in answer.out
    assert '"none' in str(plot_frontier(ds).to_json()) or "cap none" in str(plot_frontier(ds).to_json())
    assert config_at(ds, recommend(ds).settings, seed=0) is not None
    assert "Infinity" not in json_text(frontier(ds).frame.to_dicts())
    assert run(["verify", str(folder), "--all"]).code == 0


def test_constraints_compare_numbers_beside_none_and_the_word_none():
    def kept(rule):
        spec = make_spec(SHORT, {"queue_cap": CAPS}, 1, constraints=[rule])
        return (~spec.excluded).tolist()

    assert kept("queue_cap > 150_000") == [True, False, False, True, True]
    assert kept("queue_cap != 150_000") == [True, False, True, True, True]
    assert kept("queue_cap != 'none'") == [False, True, True, True, True]


@pytest.mark.parametrize("labels", [["none", "fifo"], ["none"], ["1", "2"], ["none", "1x"], ["none", "nan"]])
def test_labels_that_are_words_stay_words(labels):
    assert numbers_beside_none(np.array(labels)) is None
