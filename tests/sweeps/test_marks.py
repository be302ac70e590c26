"""One colour and one shape for each setting or system, in every chart of a page."""

from __future__ import annotations

import json

import numpy as np
import pytest
from oracle.small_sweeps import small_base

from lagsweep import PipelineConfig, plot_frontier, plot_lag, run_sweep, write_report
from lagsweep.sweeps.charts.marks import Marks, marks_of, named_marks
from lagsweep.sweeps.charts.plots import marks_in
from lagsweep.sweeps.charts.style import BLUE, CATEGORIES, ON_DARK_PAGES, SHAPES
from lagsweep.sweeps.compare.rows import comparison_rows
from lagsweep.sweeps.compare.systems import compare_systems, compared_systems
from lagsweep.sweeps.pages.comparison import write_comparison_page
from lagsweep.sweeps.pages.content import gather
from lagsweep.sweeps.pages.figures import report_charts
from lagsweep.sweeps.presets.systems import workload_config
from lagsweep.sweeps.results.frontier import frontier
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

AXES = {"queue_cap": [200, 400, 600], "max_lag": [0, 1, 3], "sync_cadence": [1, 2]}


@pytest.fixture(scope="module")
def sweep():
    return run_spec(make_spec(small_base(), AXES, 4, baseline=True))


def scales(spec):
    """Return every scale of colours, fills or shapes in a specification as value -> what it looks like."""
    if isinstance(spec, dict):
        for channel in ("color", "fill", "shape"):
            scale = spec.get("encoding", {}).get(channel, {}).get("scale", {})
            if "range" in scale:
                yield channel, dict(zip(map(str, scale["domain"]), scale["range"]))
        spec = [value for key, value in spec.items() if key != "data"]
    if isinstance(spec, list):
        for part in spec:
            yield from scales(part)


def of_page(page, name):
    text = page.read_text("utf-8")
    data = json.loads(text.split('id="content">')[1].split("</script>")[0])
    return {chart["id"]: chart["variants"][""] for chart in data["charts"] if "" in chart["variants"]}[name]


# How marks are chosen --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 6, 7, 25, 36])
def test_no_two_systems_look_alike(count):
    marks = named_marks([f"system {k}" for k in range(count)])

    assert len({(mark.colour, mark.shape) for mark in marks.values()}) == count
    assert {mark.colour for mark in marks.values()} <= set(CATEGORIES)
    assert {mark.shape for mark in marks.values()} <= set(SHAPES)


def test_numbers_are_categories_while_few_and_amounts_when_many():
    few = marks_of({"max_lag": [4, 0, 2]})
    some = marks_of({"max_lag": list(range(9))})
    many = marks_of({"max_lag": list(range(40)), "sync_cadence": [1, 2]})

    assert list(few.colours) == [0, 2, 4]
    assert list(few.colours.values()) == CATEGORIES[:3]
    assert len(set(some.colours.values())) == 9
    assert many.amounts
    assert set(many.colours) <= set(range(40))
    assert {min(many.colours), max(many.colours)} == {0, 39}
    assert len({many.of({"max_lag": lag, "sync_cadence": 1}).colour for lag in range(40)}) == 40
    assert set(many.colours.values()) | set(some.colours.values()) <= set(ON_DARK_PAGES)


def test_a_value_of_none_is_a_word_of_its_own():
    marks = marks_of({"queue_cap": [np.inf, 400.0, 200.0]})

    assert list(marks.colours) == ["200", "400", "none"]
    assert [legend.title for legend in marks.legends()] == ["queue cap"]
    assert list(marks.legends()[0].marks) == ["200", "400", "none"]
    assert marks.of({"queue_cap": np.inf}).colour == CATEGORIES[2]


def test_more_words_than_colours_differ_by_the_pair_though_another_axis_asks_for_shapes():
    names = [f"system {k}" for k in range(8)]
    marks = marks_of({"max_lag": [0, 1], "system": names})

    assert (marks.colour_axis, marks.shape_axis) == ("system", "system")
    assert len({marks.of({"system": name, "max_lag": 0})[:2] for name in names}) == 8
    assert marks_of({"max_lag": [1], "name": ["x"]}) == Marks()


# Charts ----------------------------------------------------------------------------------------------------


def test_a_cell_looks_the_same_in_the_frontier_the_lags_and_the_differences(sweep):
    content = gather(sweep)
    marks = marks_in(content.found)
    specs = {figure.name: figure.draw(True).to_dict() for figure in report_charts(content)}
    frontier_scales = dict(scales(specs["frontier"]))
    assert frontier_scales["color"] == {str(value): colour for value, colour in marks.colours.items()}
    assert frontier_scales["shape"] == {str(value): shape for value, shape in marks.shapes.items()}

    labels = {one.label: one.row for one in content.shown}
    seen = 0
    for name in ("lag", "differences"):
        for channel, look in scales(specs[name]):
            for label, how in look.items():
                mark = marks.of(labels[label])
                assert how == (mark.shape if channel == "shape" else mark.colour)
                seen += 1
    assert seen > 12


def test_plots_of_one_sweep_agree(sweep):
    cells = [{"queue_cap": 600, "max_lag": lag, "sync_cadence": 2} for lag in AXES["max_lag"]]
    lag = dict(scales(plot_lag(sweep, cells).to_dict()))
    points = dict(scales(plot_frontier(sweep).to_dict()))

    assert list(lag["color"].values()) == list(points["color"].values())
    assert set(lag["shape"].values()) == {points["shape"]["2"]}


def test_cells_that_look_alike_have_lines_of_their_own(sweep):
    cells = [{"queue_cap": cap, "max_lag": 3, "sync_cadence": 1} for cap in AXES["queue_cap"]]
    spec = plot_lag(sweep, cells).to_dict()
    (dashes,) = {
        json.dumps(layer["encoding"]["strokeDash"]["scale"]["range"])
        for layer in spec["layer"]
        if "strokeDash" in layer["encoding"]
    }

    assert len({tuple(dash) for dash in json.loads(dashes)}) == 3


def test_a_system_looks_the_same_in_every_chart_of_a_comparison(tmp_path):
    common = {"batch_groups": 4, "group_size": 2, "rollout_workers": 16, "duration_seconds": 400.0,
              "warmup_seconds": 20.0, "train_tokens_per_second": 900.0}  # fmt: skip
    named = [
        (name, {}) for name in ("areal", "verl_fully_async", "prime_rl", "tinker", "miles", "torchforge")
    ]
    systems = compared_systems(named, common)
    ds = compare_systems(systems, 2)
    rows = comparison_rows(ds)
    page = write_comparison_page(ds, rows, systems, tmp_path / "page.html")
    expected = named_marks([row["label"] for row in rows])

    seen = dict.fromkeys(("chart-frontier", "chart-differences", "chart-lag"), 0)
    for chart in seen:
        for channel, look in scales(of_page(page, chart)):
            for label, how in look.items():
                assert how == (expected[label].shape if channel == "shape" else expected[label].colour)
                seen[chart] += 1
    assert min(seen.values()) >= 2 * len(named)
    text = page.read_text("utf-8")
    for label, mark in expected.items():
        assert f"--on-light:{mark.colour}" in text
        assert f"</svg>{label}</span>" in text


def test_a_sweep_over_systems_tells_them_by_colour(tmp_path):
    base = workload_config(batch_groups=4, group_size=2, rollout_workers=16, duration_seconds=300.0)
    ds = run_sweep(base, {"system": ["areal", "tinker", "miles"]}, 2)
    marks = marks_in(frontier(ds))

    assert marks.colour_axis == marks.shape_axis == "system"
    page = write_report(ds, tmp_path / "page.html", images=False).page
    assert dict(scales(of_page(page, "chart-frontier")))["color"] == dict(marks.colours)


def test_a_sweep_without_axes_is_one_blue_point():
    marks = marks_in(frontier(run_sweep(PipelineConfig(duration_seconds=60), {}, 2)))

    assert marks.of({}) == (BLUE, "circle", (1, 0), False)
    assert marks.legends() == []
