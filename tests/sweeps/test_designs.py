"""Designs: grids, ranges, zipped axes, points, samples, constraints, and how their cells are labelled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import qmc

from lagsweep.errors import ConfigError
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.spec.axes import coordinate, expand
from lagsweep.sweeps.spec.cells import find_cell
from lagsweep.sweeps.spec.constraints import kept_cells
from lagsweep.sweeps.spec.design import design_from_groups, sampled_group
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import load_spec


@pytest.mark.parametrize(
    ("name", "given", "values"),
    [
        ("sync_cadence", {"from": 1, "to": 4}, [1, 2, 3, 4]),
        ("max_lag", {"from": 0, "to": 9, "step": 3}, [0, 3, 6, 9]),
        ("drift_per_version", {"from": 0.1, "to": 0.4, "step": 0.1}, [0.1, 0.2, 0.30000000000000004, 0.4]),
        ("drift_per_version", {"from": 0, "to": 1, "count": 5}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("queue_cap", {"from": 1000, "to": 64_000, "count": 4, "scale": "log"}, [1000, 4000, 16_000, 64_000]),
        ("max_lag", {"from": 0, "to": 2, "count": 9}, [0, 1, 2]),
        ("max_lag", {"from": 3, "to": 3, "count": 1}, [3]),
        ("max_lag", np.array([1, 2]), [1, 2]),
        ("max_lag", range(3), [0, 1, 2]),
    ],
)
def test_axis_values_are_written_out(name, given, values):
    assert expand(name, given) == pytest.approx(values)


@given(
    low=st.floats(1e-6, 1e6),
    factor=st.floats(1, 1e6),
    count=st.integers(2, 50),
    scale=st.sampled_from(["linear", "log"]),
)
def test_a_range_keeps_its_ends_and_grows(low, factor, count, scale):
    values = expand("drift_per_version", {"from": low, "to": low * factor, "count": count, "scale": scale})

    assert len(values) == count
    assert values[0] == low
    assert values[-1] == low * factor
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(values))


def test_a_grid_has_its_axes_as_dimensions():
    design = design_from_groups([{"max_lag": [0, 1]}, {"sync_cadence": [1, 2, 3]}])

    assert design.is_grid
    assert design.dims == ("max_lag", "sync_cadence")
    assert [design.settings(cell) for cell in (0, 4)] == [
        {"max_policy_lag": 0, "sync_every_updates": 1},
        {"max_policy_lag": 1, "sync_every_updates": 2},
    ]


def test_zipped_axes_are_points_and_cross_with_the_others():
    design = design_from_groups(
        [{"batch_tokens": [10, 20]}, {"max_lag": [0, 1, 2], "sync_cadence": [1, 1, 2]}]
    )

    assert design.dims == ("point",)
    assert [tuple(design.settings(cell).values()) for cell in range(6)] == [
        (10, 0, 1),
        (10, 1, 1),
        (10, 2, 2),
        (20, 0, 1),
        (20, 1, 1),
        (20, 2, 2),
    ]


def test_explicit_points_come_from_tables(tmp_path):
    path = tmp_path / "points.toml"
    path.write_text("[[points]]\nmax_lag = 1\nqueue_cap = 3000\n[[points]]\nmax_lag = 2\nqueue_cap = 9000\n")

    design = load_spec(path).design

    assert design.columns["queue_cap"] == (0, (3000, 9000))
    assert design.dims == ("point",)


def test_a_repeated_point_is_refused():
    with pytest.raises(
        ConfigError, match=r"repeat a point \(point 1\) \(got \{'max_lag': 1, 'sync_cadence': 2\}\)"
    ):
        design_from_groups([{"max_lag": [1, 1], "sync_cadence": [2, 2]}])


@pytest.mark.parametrize("method", ["sobol", "latin_hypercube"])
def test_sampled_points_fill_their_ranges_evenly(method):
    ranges = {
        "max_lag": {"from": 0, "to": 15},
        "drift_per_version": {"from": 0.0, "to": 1.0},
        "queue_cap": {"from": 1_000, "to": 1_000_000, "scale": "log"},
        "admission": ["threshold", "reserve"],
    }

    group = sampled_group(ranges, method=method, points=64, seed=3)

    assert len(group["max_lag"]) == 64
    assert np.bincount(group["max_lag"], minlength=16).tolist() == [4] * 16
    assert np.histogram(group["drift_per_version"], bins=8, range=(0, 1))[0].tolist() == [8] * 8
    logs = np.log(group["queue_cap"])
    assert np.histogram(logs, bins=4, range=(np.log(999.5), np.log(1_000_000.5)))[0].tolist() == [16] * 4
    assert sorted(group["admission"]) == ["reserve"] * 32 + ["threshold"] * 32


def test_sampled_points_are_scipys():
    group = sampled_group({"drift_per_version": {"from": 0, "to": 2}}, method="sobol", points=8, seed=11)
    unit = qmc.Sobol(d=1, scramble=True, rng=np.random.default_rng(11)).random(8)[:, 0]

    assert group["drift_per_version"] == pytest.approx(2 * unit)


def test_equal_sampled_points_are_kept_once():
    group = sampled_group({"max_lag": {"from": 0, "to": 1}}, method="sobol", points=16)

    assert sorted(group["max_lag"]) == [0, 1]


def test_a_sample_section_draws_from_the_axes(tmp_path):
    path = tmp_path / "sample.toml"
    path.write_text(
        '[sample]\nmethod = "sobol"\npoints = 8\nseed = 1\n'
        "[axes]\nmax_lag = { from = 0, to = 7 }\ndrift_per_version = { from = 0.1, to = 0.4 }\n"
    )

    design = load_spec(path).design

    assert design.shape == (8,)
    assert sorted(design.columns["max_lag"][1]) == list(range(8))


def test_constraints_exclude_cells():
    spec = make_spec(
        PipelineConfig(),
        {"max_lag": [0, 1, 2], "sync_cadence": [1, 2, 3]},
        1,
        constraints=["sync_cadence <= max_lag + 1", "not (max_lag == 2 and sync_cadence == 1)"],
    )

    assert (~spec.excluded).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 1", [False, False, True]),
        ("0 <= x < 2", [True, True, False]),
        ("min(x, 1) == x", [True, True, False]),
        ("max(x, y, 2) == 5", [True, True, True]),
        ("-x + y / 2 ** 1 - 3 % 2 // 1 >= 0", [True, True, False]),
        ("kind == 'a' or x == 2", [True, False, True]),
        ("not x == 0 and y", None),
        ("nothing > 1", [False, False, False]),
    ],
)
def test_constraints_compute_as_python_does(text, expected):
    columns = {"x": np.array([0, 1, 2]), "kind": np.array(["a", "b", "c"])}

    if expected is None:
        kept = kept_cells(text, columns, {"y": True})
        expected = [False, True, True]
    else:
        kept = kept_cells(text, columns, {"y": 5, "nothing": None})

    assert np.broadcast_to(kept, 3).tolist() == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x.real > 0",
        "[x][0] > 1",
        "x if x else x",
        "lambda: 1",
        "x + 1",
        "x > 'a' + 1",
        "",
    ],
)
def test_constraints_allow_nothing_else(text):
    with pytest.raises(ConfigError, match="constraints"):
        kept_cells(text, {"x": np.array([1])}, {})


@pytest.mark.parametrize(
    "text",
    [
        "x < 9**9**9",
        "x < 2**1025",
        "x < (2**1000) ** 2",
        "x < 10**300 * 10**300 * 10**300",
        "x < -(9**9**9)",
        "x ** 64 > 1",  # wraps around to 0 at 64 bits
        "x * 2**62 > 1",
        "x + 9223372036854775807 > 1",
        "x < 2.0 ** 9**4",
        "x < 1e999 ** 'a'",
        "kind * 10**9 == 'a'",
        "'%1000000000d' % 5 == kind",
        "'a' * 10**9 == kind",
        "(" * 500 + "x" + ")" * 500 + " > 1",
        "not " * 3000 + "x",
        "-" * 5000 + "x > 0",
        "x > 0 and " * 2000 + "x > 0",
    ],
)
def test_a_constraint_that_would_grow_without_bound_is_refused_at_once(text):
    with pytest.raises(ConfigError, match="constraints"):
        kept_cells(text, {"x": np.array([2, 3]), "kind": np.array(["a", "b"])}, {})


def test_large_numbers_that_are_exact_are_compared():
    columns = {"x": np.array([2, 3])}
    for text in (
        "x < 2**1000",
        "x ** 39 > 2**39",
        "x * 2**61 > 2**62",
        "x + 2**53 > 2**53 + 2",
        "x ** 0.5 > 1.5",
    ):
        kept = kept_cells(text, columns, {})
        assert kept.tolist() == [eval(text, {"x": 2}), eval(text, {"x": 3})], text


def test_coordinates_are_numbers_or_whole_labels():
    laws = [LengthLaw.fixed(5), LengthLaw.lognormal(300, 0.6, 16, 2048)]

    assert coordinate([1, 2]).dtype == np.int64
    assert coordinate([1, 2.5]).dtype == np.float64
    assert coordinate([None, 100]).tolist() == ["none", "100"]
    assert coordinate([True, False]).tolist() == ["true", "false"]
    assert coordinate(laws).tolist() == [law.name for law in laws]


def test_laws_with_the_same_label_are_told_apart():
    laws = [LengthLaw.empirical([1, 2]), LengthLaw.empirical([3, 4])]

    labels = coordinate(laws).tolist()

    assert len(set(labels)) == 2
    assert all(law.digest[:8] in text for law, text in zip(laws, labels))


# Cells by their values -------------------------------------------------------------------------------------

_GRID = [{"queue_cap": [150_000, None], "max_lag": range(1, 16)}]
_POINTS = [{"max_lag": [1, 1, 2], "queue_cap": [150_000, 300_000, 600_000]}]


@pytest.mark.parametrize(
    ("groups", "cell", "text"),
    [
        (_GRID, {"max_lag": 4}, "cell: must fit exactly one cell, fits 2 (got {'max_lag': 4}). "
         "Also name queue_cap (150000 or none)."),
        (_GRID, {}, "cell: must fit exactly one cell, fits 30 (got {}). Also name "
         "queue_cap (150000 or none), max_lag (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 or one of 3 more)."),
        (_GRID, {"max_lag": 4, "queue_cap": 1}, "cell.queue_cap: no cell has this value (got 1). "
         "It is 150000 or none there."),
        (_POINTS, {"max_lag": 1}, "cell: must fit exactly one cell, fits 2 (got {'max_lag': 1}). "
         "Also name queue_cap (150000 or 300000)."),
        (_POINTS, {"max_policy_lag": 2, "queue_cap": 300_000}, "cell.queue_cap: no cell has this value "
         "beside max_lag=2 (got 300000). It is 600000 there."),
        (_POINTS, {"max_lag": 2, "queue_cap": 9}, "cell.queue_cap: no cell has this value (got 9). "
         "It is 150000, 300000 or 600000 there."),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_cells_values_is_named(groups, cell, text):
    axes = groups[0] if groups is _GRID else groups
    spec = make_spec(PipelineConfig(batch_tokens=120_000, duration_seconds=600.0), axes, 1)
    with pytest.raises(ConfigError) as caught:
        find_cell(spec, cell)
    assert str(caught.value) == text


def test_an_axis_added_to_a_sweep_is_named():
    base = PipelineConfig(duration_seconds=600.0)
    before = make_spec(base, {"max_lag": [1, 2]}, 1)
    after = make_spec(base, {"max_lag": [1, 2], "sync_cadence": [1, 3]}, 1)
    assert find_cell(before, {"max_lag": 2}) == 1
    with pytest.raises(ConfigError, match=r"fits 2 .*\. Also name sync_cadence \(1 or 3\)\.$"):
        find_cell(after, {"max_lag": 2})
    assert find_cell(after, {"max_lag": 2, "sync_cadence": 3}) == 3
