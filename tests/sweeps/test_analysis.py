"""Means, intervals, the frontier, paired differences: against SciPy, xarray and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.made_up_sweeps import ESS, THROUGHPUT, made_up, noise
from oracle.small_sweeps import small_base
from scipy import stats

from lagsweep import PipelineConfig, frontier, paired_difference, run_sweep
from lagsweep.errors import ConfigError
from lagsweep.kernels.intervals import mean_interval
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.results.cells import cell_coordinates, cell_values, find_cell
from lagsweep.sweeps.results.frontier import baseline_values, nondominated
from lagsweep.sweeps.results.frontier_table import worth_a_look
from lagsweep.sweeps.results.numbers import digits_for, percent_interval
from lagsweep.sweeps.results.text import WIDTH, bar, grid, wrapped
from lagsweep.sweeps.spec.design import sampled_group
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

AXES = {"max_lag": [0, 1, 3], "queue_cap": [200, 600]}


@pytest.fixture(scope="module")
def sweep():
    return run_spec(make_spec(small_base(), AXES, 6, baseline=True))


# Means and intervals ---------------------------------------------------------------------------------------


@given(st.integers(2, 30), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_is_the_student_interval_of_scipy(count, seed, confidence):
    values = np.random.default_rng(seed).normal(3.0, 2.0, count)
    mean, half = mean_interval(values, confidence)
    low, high = stats.t.interval(confidence, count - 1, loc=values.mean(), scale=stats.sem(values))

    assert math.isclose(mean - half, low, rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(mean + half, high, rel_tol=1e-9, abs_tol=1e-9)


def test_missing_values_are_left_out_and_one_value_has_no_interval():
    mean, half = mean_interval(np.array([[1.0, np.nan, 3.0], [7.0, np.nan, np.nan], [np.nan] * 3]))

    assert mean[:2].tolist() == [2.0, 7.0]
    assert half[0] == mean_interval(np.array([1.0, 3.0]))[1]
    assert np.isnan([half[1], mean[2], half[2]]).all()


def test_equal_values_have_an_interval_of_no_width():
    assert mean_interval(np.full(5, 0.3))[1] <= 1e-15


# The frontier ----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0, math.nan]), st.sampled_from([0.1, 0.5, 0.9]))))
def test_no_other_point_beats_one_on_the_frontier_and_some_point_beats_every_other(points):
    first = np.array([point[0] for point in points])
    second = np.array([point[1] for point in points])

    def beats(a, b):
        return a[0] >= b[0] and a[1] >= b[1] and (a[0] > b[0] or a[1] > b[1])

    expected = [not math.isnan(p[0]) and not any(beats(q, p) for q in points) for p in points]
    assert nondominated(first, second).tolist() == expected


def test_the_means_are_those_of_xarray(sweep):
    frame = frontier(sweep).frame
    cells = sweep["cell"].values.reshape(-1).tolist()

    for metric in (THROUGHPUT, ESS, "mean_lag", "seconds_per_update"):
        expected = dict(zip(cells, sweep[metric].mean("seed").values.reshape(-1)))
        for row in frame.iter_rows(named=True):
            assert math.isclose(row[metric], expected[row["cell"]], rel_tol=1e-12)
    assert frame[THROUGHPUT].to_list() == sorted(frame[THROUGHPUT], reverse=True)


def test_the_baseline_is_the_first_line(sweep):
    text = str(frontier(sweep))
    assert text.splitlines()[2].split()[0] == "seq."
    assert "disaggregated" in text
    assert frontier(sweep).baseline[THROUGHPUT] == pytest.approx(
        float(sweep[f"baseline_{THROUGHPUT}"].mean())
    )


def test_runs_that_failed_count_nowhere(sweep):
    broken = sweep.copy(deep=True)
    broken["status"][1, 1, :2] = 2
    broken[THROUGHPUT][1, 1, :2] = 1e9

    row = frontier(broken).frame.filter(cell=int(sweep["cell"][1, 1])).to_dicts()[0]
    assert row[THROUGHPUT] == pytest.approx(float(sweep[THROUGHPUT][1, 1, 2:].mean()))
    assert row["runs"] == 4


def test_rows_with_the_very_same_figures_are_told_once():
    ds = run_sweep(small_base(), {"queue_cap": [5000, 6000, 7000], "max_lag": [0, 2]}, 3)
    text = str(frontier(ds))

    rows = [
        line for line in text.splitlines() if line.split() and line.split()[0] in ("5000", "6000", "7000")
    ]
    assert len(rows) == 2
    assert "Left out: 4 more with the very same runs as one shown" in text


def test_the_cells_worth_a_look_are_the_extreme_ones():
    ds = made_up(
        {"max_lag": [0, 1, 2, 3]},
        2,
        **{
            THROUGHPUT: np.array([[10.0], [20.0], [30.0], [40.0]]),
            ESS: np.array([[1.0], [0.95], [0.91], [0.5]]),
            "effective_tokens_per_second": np.array([[10.0], [19.0], [27.3], [20.0]]),
        },
    )
    found = {wish: row["max_lag"] for wish, row in worth_a_look(frontier(ds))}

    assert found == {"fastest": 3, "fastest, ESS ≥ 0.9": 2, "effective tokens/s": 2, "freshest": 0}


def test_a_sweep_in_which_nothing_is_trained_says_so():
    ds = run_sweep(small_base(batch_tokens=1000), {"queue_cap": [10, 20]}, 2)

    assert "No configuration trained a batch." in str(frontier(ds))
    assert frontier(ds).on_frontier().height == 0


def test_one_seed_gives_no_interval_and_the_table_says_so(sweep):
    text = str(frontier(sweep.isel(seed=[0])))

    assert "One seed gives no interval." in text
    assert "±" not in text.partition("frontier of")[0]


LAWS = [LengthLaw.uniform(20, 80), LengthLaw.fixed(50)]
SHAPES = {
    "no axis": {},
    "one axis": {"max_lag": [0, 1, 2]},
    "laws": {"response_length": LAWS, "max_lag": [0, 2]},
    "many axes": {
        "max_lag": [0, 2],
        "queue_cap": [200, 600],
        "sync_cadence": [1, 2],
        "rollout_workers": [2, 3],
        "train_overhead_seconds": [0.25, 0.5],
        "admission": ["threshold", "reserve"],
    },
    "points": [
        sampled_group(
            {"max_lag": {"from": 0, "to": 4}, "train_tokens_per_second": {"from": 50.0, "to": 200.0}},
            method="latin_hypercube",
            points=8,
        )
    ],
}


@pytest.mark.parametrize("axes", SHAPES.values(), ids=SHAPES)
def test_the_table_fits_80_columns_for_every_shape_of_sweep(axes):
    text = str(frontier(run_spec(make_spec(small_base(), axes, 3, baseline=True))))

    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert "\x1b" not in text


def test_the_drift_is_named_also_when_it_is_an_axis():
    base = small_base()
    assert "drift_per_version = 0.2," in str(frontier(run_sweep(base, {"max_lag": [0, 1]}, 2)))
    swept = frontier(run_sweep(base, {"drift_per_version": [0.1, 0.4]}, 2))
    assert "drift_per_version = the axis's value," in str(swept)


def test_discarding_is_named_for_level_1_only():
    assert "by discarding only" in str(frontier(run_sweep(small_base(), {"max_lag": [0, 1]}, 2)))
    above = frontier(run_sweep(small_base(publication="pause"), {"max_lag": [0, 1]}, 2))
    assert "by discarding only" not in str(above)


# Pairs -----------------------------------------------------------------------------------------------------


def test_a_paired_difference_is_scipys_paired_test(sweep):
    found = paired_difference(
        sweep, THROUGHPUT, {"max_lag": 3, "queue_cap": 600}, {"max_lag": 0, "queue_cap": 600}
    )
    a = sweep[THROUGHPUT].sel(max_lag=3, queue_cap=600).values
    b = sweep[THROUGHPUT].sel(max_lag=0, queue_cap=600).values
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)

    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.resolved == (stats.ttest_rel(a, b).pvalue < 0.05)
    assert found.seeds == 6
    assert "differ" in str(found)


def test_pairs_with_a_run_missing_are_left_out(sweep):
    broken = sweep.copy(deep=True)
    broken["status"][2, 1, 0] = 0
    found = paired_difference(
        broken, THROUGHPUT, {"max_lag": 3, "queue_cap": 600}, {"max_lag": 0, "queue_cap": 600}
    )

    assert found.seeds == 5


def test_a_cell_is_its_own_equal(sweep):
    found = paired_difference(
        sweep, THROUGHPUT, {"max_lag": 3, "queue_cap": 600}, {"max_lag": 3, "queue_cap": 600}
    )

    assert (found.mean, found.low, found.high, found.resolved) == (0.0, 0.0, 0.0, False)


# Cells -----------------------------------------------------------------------------------------------------


def test_a_cell_is_found_by_id_by_values_and_in_a_selection(sweep):
    cells, axes = cell_coordinates(sweep)
    for row, cell in enumerate(cells):
        settings = {name: values[row].item() for name, values in axes.items()}
        assert find_cell(sweep, int(cell)) == row
        assert find_cell(sweep, settings) == row
    part = sweep.isel(max_lag=[2, 0])
    assert find_cell(part, int(sweep["cell"].sel(max_lag=0, queue_cap=600))) == 3


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (7, "cell: must be the id of a cell of this sweep (got 7)."),
        ({"max_lag": 0}, "cell: must fit exactly one cell, fits 2 (got {'max_lag': 0})."),
        ({"max_lagg": 0}, "cell: must name a field or queue_cap, max_lag, sync_cadence (got 'max_lagg')."),
    ],
)
def test_a_cell_that_is_not_one_is_refused(sweep, cell, text):
    with pytest.raises(ConfigError) as caught:
        find_cell(sweep, cell)

    assert str(caught.value).startswith(text)


def test_a_cell_outside_a_selection_is_refused(sweep):
    with pytest.raises(ConfigError, match="cell: must be in this selection of the sweep"):
        find_cell(sweep.isel(max_lag=[0]), {"max_lag": 3, "queue_cap": 600})


def test_an_unknown_metric_names_the_nearest(sweep):
    with pytest.raises(ConfigError, match=r"metric: must be one of .* Did you mean 'mean_lag'\?"):
        cell_values(sweep, "mean_lags")


def test_a_selection_without_the_seed_dimension_is_refused(sweep):
    with pytest.raises(
        ConfigError, match=r"dataset: must have the dimension seed .* Select seeds as \[0\], not as 0\."
    ):
        frontier(sweep.isel(seed=0))


def test_the_baseline_of_each_cell_follows_the_axes_that_matter_to_it():
    axes = {"max_lag": [0, 2], "rollout_workers": [2, 3], "queue_cap": [200, 600]}
    ds = run_spec(make_spec(small_base(), axes, 4, baseline=True))
    values = baseline_values(ds, THROUGHPUT, range(8))
    own = ds[f"baseline_{THROUGHPUT}"]

    workers = cell_coordinates(ds)[1]["rollout_workers"]
    for row in range(8):
        assert values[row].tolist() == own.sel(rollout_workers=workers[row]).values.tolist()
    assert baseline_values(run_sweep(small_base(), {"max_lag": [0]}, 2), THROUGHPUT, [0]) is None


# Text ------------------------------------------------------------------------------------------------------


def test_decimals_follow_the_smallest_interval():
    assert digits_for([1234.5], [3.2]) == 0
    assert digits_for([0.9], [0.0004]) == 4
    assert digits_for([147.0, 148.0], [1e-14, 0.8]) == 1
    assert digits_for([0.5], [math.nan]) == 4


def test_a_difference_never_shows_a_signed_nothing():
    assert percent_interval(-0.00004, -0.003, 0.003) == "0.0% [-0.3, +0.3]"


def test_bars_are_as_wide_as_asked():
    assert [len(bar(share, 8)) for share in (0.0, 0.49, 1.0, 7.0, math.nan)] == [8] * 5


def test_a_command_is_never_broken_inside_a_word():
    text = wrapped("give --axis max_lag=0,1,2 " * 6)
    assert all(
        word in ("give", "--axis", "max_lag=0,1,2") for line in text.splitlines() for word in line.split()
    )


def test_columns_line_up():
    lines = grid(["a", "bbb"], [["1", "2"], ["100", "4"]]).splitlines()
    assert len({len(line) for line in lines}) == 1


def test_a_table_that_is_too_wide_folds_its_words_and_loses_none():
    rows = [["one two three", "1,234.5 ±6.7", "- four five-six seven"], ["  eight nine", "8", "ten\neleven"]]
    wide = grid(["a word", "a number", "words"], rows, left=[0, 2])
    narrow = grid(["a word", "a number", "words"], rows, left=[0, 2], width=34)

    assert max(map(len, narrow.splitlines())) <= 34
    assert sorted(narrow.replace("─", "").split()) == sorted(wide.replace("─", "").split())
    assert "1,234.5 ±6.7" in narrow
    assert any(line.startswith("  nine") for line in narrow.splitlines())


@pytest.mark.parametrize("width", [30, 20, 12])
def test_words_are_cut_only_where_there_is_no_other_way(width):
    text = grid(["name", "value"], [["nemo_rl_ready_first", "100,000,000"]], left=[0], width=width)

    assert max(map(len, text.splitlines())) <= width
    assert text.replace("\n", "").replace(" ", "").count("100,000,000") == (width > 20)


def test_noise_has_no_mean():
    assert abs(noise((3, 7)).mean(axis=-1)).max() < 1e-15


def test_a_cell_of_level_1_among_others_has_its_shares_of_time():
    from lagsweep.sweeps.results.shares import time_shares

    base = PipelineConfig(duration_seconds=300, rollout_workers=8, batch_tokens=2000)
    alone = run_sweep(base, {"max_lag": [1, 2]}, seeds=3, progress=False)
    mixed = run_sweep(base, {"max_lag": [1, 2], "queue_order": ["fifo", "freshest"]}, seeds=3, progress=False)

    for row, cell in enumerate(time_shares(alone, [0, 1])):
        shares = time_shares(mixed, [2 * row, 2 * row + 1])
        for group, parts in cell.items():
            for name, share in parts.items():
                assert shares[0][group][name] == pytest.approx(share, abs=1e-12)
            assert sum(shares[1][group].values()) == pytest.approx(1.0)
