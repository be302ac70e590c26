"""Charts are valid Vega-Lite with units and intervals, in colours that every reader can tell apart."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import vl_convert
from oracle.made_up_sweeps import ESS, THROUGHPUT
from oracle.small_sweeps import small_base

from lagsweep import plot_frontier, plot_heatmap, plot_lag, plot_timeline, run_sweep, simulate_pipeline
from lagsweep.errors import ConfigError
from lagsweep.kernels.intervals import mean_interval
from lagsweep.sweeps.charts.lag import lag_rows
from lagsweep.sweeps.charts.plots import thinned
from lagsweep.sweeps.charts.style import CATEGORIES, on_dark
from lagsweep.sweeps.results.frontier import frontier
from lagsweep.sweeps.results.words import axis_words, metric_title, short_label
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

AXES = {"queue_cap": [200, 400, 600], "max_lag": [0, 1, 3], "sync_cadence": [1, 2]}


@pytest.fixture(scope="module")
def sweep():
    return run_spec(make_spec(small_base(), AXES, 5, baseline=True))


@pytest.fixture(scope="module")
def run():
    return simulate_pipeline(small_base(warmup_seconds=5.0))


def drawn(chart):
    """Draw a chart: what Vega cannot take raises."""
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    assert svg.startswith("<svg")
    return svg


def layers(spec):
    """Return every unit of a specification."""
    for key in ("layer", "concat", "vconcat", "hconcat"):
        if key in spec:
            for part in spec[key]:
                yield from layers(part)
            return
    yield spec


def marks(spec):
    return [one["mark"]["type"] if isinstance(one["mark"], dict) else one["mark"] for one in layers(spec)]


def test_every_chart_can_be_drawn_and_is_plain_json(sweep, run):
    for chart in (plot_frontier(sweep), plot_heatmap(sweep), plot_lag(sweep), plot_timeline(run)):
        drawn(chart)
        json.dumps(chart.to_dict(), allow_nan=False)


def test_every_axis_has_a_title_and_units_where_there_are_any(sweep, run):
    for chart, units in (
        (plot_frontier(sweep), ["trained tokens per second"]),
        (plot_heatmap(sweep), ["max lag, versions", "queue cap, tokens"]),
        (plot_lag(sweep), ["lag when trained, versions"]),
        (plot_timeline(run), ["simulated time, s", "queue, tokens"]),
    ):
        svg = drawn(chart)
        for text in units:
            assert text in svg


def test_every_chart_has_a_title_and_says_in_words_what_it_shows(sweep, run):
    best = frontier(sweep).frame.row(0, named=True)
    for chart, title, words in (
        (plot_frontier(sweep), "Throughput against effective sample size", f"{best[THROUGHPUT]:,.4g}"),
        (plot_heatmap(sweep), "Trained tokens per second", f"{best[THROUGHPUT]:,.4g}"),
        (plot_lag(sweep), "How old the trained rollouts were", "most at lag"),
        (plot_timeline(run), "One run over time", f"{len(run.batches)} batches"),
    ):
        assert title in drawn(chart)
        assert words in chart.to_dict()["description"]
    other = plot_frontier(sweep, throughput="effective_tokens_per_second", ess="mean_lag")
    assert " against lag<" in drawn(other)


# The frontier ----------------------------------------------------------------------------------------------


def test_the_frontier_has_a_point_and_both_intervals_for_every_cell(sweep):
    spec = plot_frontier(sweep).to_dict()
    rows = next(
        one["data"]["values"]
        for one in [spec, *layers(spec)]
        if len(one.get("data", {}).get("values", [])) > 1
    )
    frame = frontier(sweep).frame.drop_nulls(THROUGHPUT)

    usable = [row for row in frame.iter_rows(named=True) if row[ESS] == row[ESS]]
    assert len(rows) == len(usable)
    by_cell = {row["cell"]: row for row in usable}
    for row in rows:
        real = by_cell[row["cell"]]
        assert row["y"] == pytest.approx(real[THROUGHPUT], rel=1e-6)
        assert row["y_high"] - row["y"] == pytest.approx(real[f"{THROUGHPUT}_half_width"], rel=1e-3, abs=1e-4)
        assert row["x"] - row["x_low"] == pytest.approx(real[f"{ESS}_half_width"], rel=1e-3, abs=1e-6)
        assert row["on_frontier"] == real["on_frontier"]
    assert marks(spec) == ["line", "rule", "rule", "point", "point", "text"]


def test_the_baseline_is_named_in_the_chart(sweep):
    assert ">sequential<" in drawn(plot_frontier(sweep))
    assert ">sequential<" not in drawn(plot_frontier(run_sweep(small_base(), {"max_lag": [0, 1]}, 2)))


@pytest.mark.parametrize("count", [1, 2, 6, 7, 20])
def test_any_number_of_values_gets_colours(count):
    ds = run_sweep(small_base(), {"max_lag": list(range(count)), "queue_cap": [200, 600]}, 2)
    drawn(plot_frontier(ds))


def test_a_sweep_without_axes_is_one_point():
    drawn(plot_frontier(run_spec(make_spec(small_base(), {}, 3))))


def test_of_a_large_sweep_cells_that_differ_are_kept_evenly_and_those_that_are_named(sweep):
    frame = frontier(sweep).frame
    last = frame["cell"][-1]
    few = thinned(frame, 4, always=[last])

    assert few.height <= 5
    assert few["cell"][0] == frame["cell"][0]
    assert set(few["on_frontier"]) == {True, False}
    assert last in few["cell"]
    figures = list(zip(few[THROUGHPUT][:-1], few[ESS][:-1]))
    assert len(set(figures)) == len(figures)
    assert thinned(frame).equals(frame)


# Heatmaps --------------------------------------------------------------------------------------------------


def tiles(sweep, **options):
    spec = plot_heatmap(sweep, **options).to_dict()
    return [
        panel["layer"][0].get("data", panel.get("data", spec.get("data")))["values"]
        for panel in spec["concat"]
    ]


def test_each_tile_is_its_cells_mean_and_half_width(sweep):
    panels = tiles(sweep)
    mean, half = mean_interval(sweep[THROUGHPUT].values)
    flat = {int(cell): k for k, cell in enumerate(sweep["cell"].values.reshape(-1))}

    assert len(panels) == 2
    assert sorted(row["cell"] for row in itertools.chain(*panels)) == sorted(flat)
    for row in itertools.chain(*panels):
        assert row["value"] == pytest.approx(mean.reshape(-1)[flat[row["cell"]]], rel=1e-6)
        assert row["half"] == pytest.approx(half.reshape(-1)[flat[row["cell"]]], rel=1e-6, abs=1e-9)


def test_axes_that_are_not_shown_stand_at_the_best_cell_or_where_asked(sweep):
    best = int(np.nanargmax(sweep[THROUGHPUT].mean("seed").values))
    cadence = AXES["sync_cadence"][np.unravel_index(best, (3, 3, 2))[2]]
    wide = run_sweep(small_base(), {**AXES, "rollout_workers": [2, 3]}, 2)

    chart = plot_heatmap(wide, x="max_lag", y="queue_cap", facet="rollout_workers")
    assert f"at sync_cadence={cadence}" in drawn(chart)
    asked = plot_heatmap(wide, x="max_lag", y="queue_cap", facet="rollout_workers", at={"sync_cadence": 2})
    assert "at sync_cadence=2" in drawn(asked)


def test_an_axis_that_stands_at_a_value_is_not_shown(sweep):
    at = plot_heatmap(sweep, x="max_lag", y="queue_cap", at={"sync_cadence": 2})
    (rows,) = tiles(sweep, x="max_lag", y="queue_cap", at={"sync_cadence": 2})
    cells = sweep["cell"].sel(sync_cadence=2).values.reshape(-1).tolist()

    assert sorted(row["cell"] for row in rows) == sorted(cells)
    assert "at sync_cadence=2" in drawn(at)
    (by_default,) = tiles(sweep, at={"max_lag": 1})
    assert {(row["queue_cap"], row["sync_cadence"]) for row in by_default} == set(
        itertools.product(AXES["queue_cap"], AXES["sync_cadence"])
    )


def test_a_value_of_an_axis_that_knows_none_may_be_given_as_a_number():
    ds = run_sweep(small_base(), {"queue_cap": ["none", 400, 600], "max_lag": [0, 1]}, 2)
    for value, place in ((400, 400.0), ("400", 400.0), (None, np.inf), (np.inf, np.inf)):
        (rows,) = tiles(ds, at={"queue_cap": value})
        assert sorted(row["cell"] for row in rows) == sorted(ds["cell"].sel(queue_cap=place).values.tolist())
    with pytest.raises(ConfigError, match=r"at\.queue_cap: must be a value of the axis \(got 500\)"):
        plot_heatmap(ds, at={"queue_cap": 500})


def test_one_axis_is_one_row_of_tiles():
    ds = run_sweep(small_base(), {"max_lag": [0, 1, 2]}, 2)

    assert [len(panel) for panel in tiles(ds)] == [3]
    drawn(plot_heatmap(ds))


def test_many_values_are_thinned_and_the_chart_says_so():
    ds = run_sweep(small_base(duration_seconds=5.0), {"max_lag": list(range(60)), "queue_cap": [200, 600]}, 1)

    assert [len(panel) for panel in tiles(ds)] == [50]
    assert "25 of 60 values of max_lag" in drawn(plot_heatmap(ds))


def test_cells_without_a_value_leave_their_tile_empty():
    ds = run_sweep(small_base(warmup_seconds=15.0), {"max_lag": [0, 2], "sync_cadence": [1, 3]}, 2)
    starving = [row for row in itertools.chain(*tiles(ds, metric=ESS)) if row["value"] is None]

    assert len(starving) == 1
    assert (starving[0]["max_lag"], starving[0]["sync_cadence"]) == (0, 3)
    drawn(plot_heatmap(ds, metric=ESS))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"x": "max_lagg"}, "axis: must be one of the sweep's (got 'max_lagg'). Did you mean 'max_lag'?"),
        ({"x": "max_lag", "y": "max_lag"}, "axis: must be used once (got ['max_lag', 'max_lag'])."),
        (
            {"facet": "sync_cadence", "at": {"sync_cadence": 1}},
            "at: must name axes that are not shown (got 'sync_cadence').",
        ),
        ({"at": {"sync_cadence": 1, "max_lag": 0, "queue_cap": 200}}, "at: must leave an axis to show"),
        ({"metric": "tokens"}, "metric: must be one of the dataset's (got 'tokens')."),
    ],
)
def test_a_mistake_is_named(sweep, options, text):
    with pytest.raises(ConfigError) as caught:
        plot_heatmap(sweep, **options)

    assert str(caught.value).startswith(text)


def test_a_value_that_an_axis_does_not_have_is_refused():
    ds = run_sweep(small_base(), {**AXES, "rollout_workers": [2, 3]}, 1)
    with pytest.raises(ConfigError, match=r"at\.rollout_workers: must be a value of the axis \(got 9\)"):
        plot_heatmap(ds, at={"rollout_workers": 9})


def test_points_have_no_heatmap():
    ds = run_spec(make_spec(small_base(), [{"max_lag": [1, 2], "queue_cap": [150, 300]}], 2))
    with pytest.raises(
        ConfigError, match=r"dataset: must be a grid .* Use plot_frontier for points, or xarray\."
    ):
        plot_heatmap(ds)
    drawn(plot_frontier(ds))


# Lag -------------------------------------------------------------------------------------------------------


def test_the_lag_shares_are_those_of_the_counts(sweep):
    cell = {"queue_cap": 600, "max_lag": 3, "sync_cadence": 1}
    spec = plot_lag(sweep, [cell]).to_dict()
    rows = spec["data"]["values"] if "data" in spec else spec["layer"][0]["data"]["values"]
    counts = sweep["lag_counts"].sel(cell).values
    shares = counts / counts.sum(axis=1, keepdims=True)

    assert [row["share"] for row in rows] == pytest.approx(
        shares.mean(axis=0)[: len(rows)].tolist(), rel=1e-6
    )
    assert shares.mean(axis=0)[len(rows) :].sum() == 0
    assert all(0 <= row["low"] <= row["share"] <= row["high"] <= 1 for row in rows)
    assert "rule" in marks(spec)


def test_seeds_that_trained_nothing_are_left_out():
    counts = np.zeros((3, 65), np.int64)
    counts[0, 1] = counts[2, 2] = 10

    assert [row["share"] for row in lag_rows(counts, 1, "x")] == [0.0, 0.5, 0.5]
    assert lag_rows(np.zeros((2, 65), np.int64), 1, "x") == []


def test_more_than_six_cells_are_refused(sweep):
    cells = sweep["cell"].values.reshape(-1)[:7].tolist()
    with pytest.raises(ConfigError, match=r"cells: must be at most 6 \(got 7\)"):
        plot_lag(sweep, cells)


# One run ---------------------------------------------------------------------------------------------------


def test_the_timeline_shows_every_batch_and_the_warm_up(run):
    spec = plot_timeline(run).to_dict()
    panels = spec["vconcat"]

    assert len(panels) == 3
    assert "rect" in marks(panels[0])
    assert len(run.batches) in {len(one["data"]["values"]) for one in layers(spec) if "data" in one} | {
        len(panel["data"]["values"]) for panel in panels if "data" in panel
    }


def test_a_long_run_is_drawn_by_the_highest_level_of_each_span():
    run = simulate_pipeline(small_base(duration_seconds=6000.0))
    assert len(run.timeline) > 4000
    spec = plot_timeline(run).to_dict()
    levels = max((one["data"]["values"] for one in layers(spec["vconcat"][0]) if "data" in one), key=len)

    assert len(levels) <= 4001
    assert max(level["tokens_high"] for level in levels) == max(row.queue_tokens for row in run.timeline)


def test_a_sequential_run_and_one_of_the_general_engine_are_drawn():
    drawn(plot_timeline(simulate_pipeline(small_base(mode="sequential"))))
    drawn(plot_timeline(simulate_pipeline(small_base(publication="pause", stop_after_updates=3))))
    groups = small_base(group_size=2, batch_tokens=None, batch_groups=2, max_queue_tokens=None)
    drawn(plot_timeline(simulate_pipeline(groups)))


# Style -----------------------------------------------------------------------------------------------------


def _seen_by(colour, matrix):
    """How a colour looks without one kind of cone (Viénot, Brettel and Mollon, 1999), in linear light."""
    channels = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.array(matrix) @ channels**2.2


PROTANOPIA = [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]
DEUTERANOPIA = [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]


@pytest.mark.parametrize("page", ["light", "dark"])
@pytest.mark.parametrize("matrix", [PROTANOPIA, DEUTERANOPIA, np.eye(3)], ids=["protan", "deutan", "normal"])
def test_no_two_categories_look_alike_to_any_reader(matrix, page):
    shown = [on_dark(colour) if page == "dark" else colour for colour in CATEGORIES]
    seen = [_seen_by(colour, matrix) for colour in shown]

    assert min(np.abs(a - b).max() for a, b in itertools.combinations(seen, 2)) > 0.08


def test_titles_name_units_and_labels_are_short():
    assert axis_words("queue_cap").title == "queue cap, tokens"
    assert metric_title("seconds_per_update") == "measured time per update, s"
    assert (
        short_label({"response_length": "fixed(70)", "train_overhead_seconds": 0.25})
        == "fixed(70), train s 0.25"
    )


def test_lags_of_a_sweep_that_trained_nothing_are_refused_by_name():
    from lagsweep import PipelineConfig, plot_lag, run_sweep

    stalled = PipelineConfig(max_queue_tokens=100, batch_tokens=90_000, duration_seconds=30)
    ds = run_sweep(stalled, {"max_lag": [0, 1]}, seeds=2, progress=False)

    with pytest.raises(ConfigError, match="cells: must have trained rollouts, and none has"):
        plot_lag(ds)
