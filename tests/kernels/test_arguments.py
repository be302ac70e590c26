"""What counts as a number for the closed formulas."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from lagsweep.errors import ConfigError
from lagsweep.kernels._arguments import broadcast, plain, real_numbers, whole_numbers


@pytest.mark.parametrize(
    "value", [3, 3.0, np.int32(3), np.uint8(3), np.float32(3), Fraction(3), np.array(3), 10**30, range(3), ()]
)
def test_numbers_of_every_kind_are_read(value):
    numbers = real_numbers("x", value)

    assert numbers.dtype == np.float64
    assert numbers.tolist() == np.asarray(value, dtype=np.float64).tolist()


@pytest.mark.parametrize(
    "value",
    [
        True,
        np.True_,
        [1.0, True],
        np.array([True]),
        "3",
        ["3"],
        1 + 2j,
        None,
        [[1], [1, 2]],
        {"a": 1},
        object(),
    ],
)
def test_everything_else_is_refused(value):
    with pytest.raises(ConfigError, match=r"^x: must be a number \(got "):
        real_numbers("x", value)
    with pytest.raises(ConfigError, match=r"^x: must be a number \(got "):
        whole_numbers("x", value, minimum=0)


def test_arrays_that_cannot_be_stacked_are_refused():
    with pytest.raises(ConfigError, match=r"^x: must be rectangular \(got "):
        real_numbers("x", [np.ones((2, 3)), np.ones((2, 2))])


@pytest.mark.parametrize(
    ("rules", "value", "rule", "way_out"),
    [
        ({}, np.nan, "must not be NaN", "Give a finite number."),
        ({}, np.inf, "must be finite", "Give a finite number."),
        ({"infinity": True}, np.nan, "must not be NaN", "Give a finite number."),
        ({"minimum": 2, "way_out": "Count from 2."}, np.nan, "must not be NaN", "Give a finite number."),
        ({"minimum": 2, "way_out": "Count from 2."}, 1, "must be at least 2", "Count from 2."),
        ({"minimum": 2}, 1, "must be at least 2", "Give a number in that range."),
        ({"above": 2}, 2, "must be greater than 2", "Give a number in that range."),
        ({"maximum": 2}, 3, "must be at most 2", "Give a number in that range."),
    ],
)
def test_a_broken_bound_names_the_first_value_that_breaks_it(rules, value, rule, way_out):
    with pytest.raises(ConfigError) as caught:
        real_numbers("x", [2.5 if rules.get("maximum") != 2 else 1.0, value, value], **rules)

    assert str(caught.value) == f"x: {rule} (got {float(value)}). {way_out}"


def test_infinity_is_a_value_where_a_formula_has_a_limit():
    assert real_numbers("x", np.inf, infinity=True, above=0) == np.inf
    with pytest.raises(ConfigError, match="must be greater than 0"):
        real_numbers("x", -np.inf, infinity=True, above=0)


def test_whole_numbers_may_be_floats_without_a_fraction():
    assert whole_numbers("n", [8.0, 2], minimum=1).dtype == np.int64
    with pytest.raises(ConfigError, match=r"^n: must be a whole number \(got 8.5\)\. Give a whole number\.$"):
        whole_numbers("n", 8.5, minimum=1)
    with pytest.raises(
        ConfigError, match=r"^n: must be at most 9007199254740992 \(got inf\)\. Give .* range"
    ):
        whole_numbers("n", np.inf, minimum=1)
    with pytest.raises(ConfigError, match=r"^n: must not be NaN"):
        whole_numbers("n", np.nan, minimum=1)
    with pytest.raises(ConfigError, match=r"^n: must be at most"):
        whole_numbers("n", np.uint64(2**63), minimum=1)


def test_results_of_scalars_are_python_numbers():
    assert type(plain(np.float64(2))) is float
    assert type(plain(np.array(2))) is int
    assert type(plain(np.array("a"))) is str
    assert plain(np.ones(2)).tolist() == [1.0, 1.0]


def test_the_formulas_load_neither_numba_nor_scipy():
    code = (
        "import sys, lagsweep.kernels as k\n"
        "k.pipeline_report(60, 20, 10), k.synchronization_transfer_time(1e9, 25.0)\n"
        "k.optimal_checkpoint_interval(180.0, 36_000.0, method='exact'), k.group_utilization(1, [1.0], 2)\n"
        "print(sorted({'numba', 'scipy', 'xarray', 'polars'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout == "[]\n"


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ConfigError) as caught:
        broadcast(a=np.ones(2), b=np.ones((4, 3)))

    assert str(caught.value) == (
        "a, b: shapes must fit together (got {'a': (2,), 'b': (4, 3)}). "
        "Add axes of length 1 where they differ."
    )
