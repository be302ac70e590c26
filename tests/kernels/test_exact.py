"""Exact amounts: the same numbers as Python's fractions, in scalars and arrays, beyond 2**63 and below."""

from __future__ import annotations

import operator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.errors import ConfigError
from lagsweep.kernels.memory._exact import (
    Exact,
    amount,
    check_divides,
    check_shapes,
    count,
    fraction_of,
    read,
)

wholes = st.one_of(st.integers(0, 1000), st.integers(0, 2**70))
fractions = st.fractions(0, 10**6, max_denominator=1000)


def _values(exact: Exact) -> list[Fraction]:
    numerators = exact.numerator.ravel().tolist() if exact.shape else [exact.numerator]
    return [Fraction(value, exact.denominator) for value in numerators]


@given(st.lists(wholes | fractions, min_size=1, max_size=6), wholes | fractions)
def test_arithmetic_is_that_of_fractions_element_by_element(left, right):
    array, scalar = amount("left", left), amount("right", right)

    for operation in (operator.add, operator.mul):
        assert _values(operation(array, scalar)) == [operation(Fraction(one), right) for one in left]
    assert _values(array.minimum(scalar)) == [min(one, right) for one in left]
    assert _values(array.maximum(scalar)) == [max(one, right) for one in left]
    assert _values(array.total()) == [sum(map(Fraction, left))]
    assert _values((array + scalar) - scalar) == [Fraction(one) for one in left]
    if right:
        assert _values(array.floor_divide(scalar)) == [one // Fraction(right) for one in left]
        assert _values(array.ceil_divide(scalar)) == [-(-Fraction(one) // right) for one in left]


@given(st.lists(wholes, min_size=1, max_size=5), st.lists(wholes, min_size=1, max_size=5))
def test_two_arrays_broadcast_without_wrapping(left, right):
    column = amount("left", [[one] for one in left])
    product = column * amount("right", right)

    assert product.shape == (len(left), len(right))
    assert _values(product) == [Fraction(one * two) for one in left for two in right]
    assert product.bound >= max(left) * max(right)


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=4), st.integers(1, 2**8))
def test_an_array_result_is_exact_or_refused(values, factor):
    product = amount("values", values) * factor
    expected = [value * factor for value in values]

    if max(expected) < 2**63:
        result = product.result("product")
        assert result.dtype == np.int64
        assert result.tolist() == expected
    else:
        with pytest.raises(ConfigError, match=r"^product: must stay below 2\*\*63 in an array \(got \d+\)\."):
            product.result("product")


def test_a_scalar_result_has_no_limit():
    assert (amount("x", 2**63) * 2**63).result("x") == 2**126


def test_rounding_up_happens_once_and_not_at_every_step():
    half = amount("half", 0.5)

    assert (half + half + half).result("x") == 2
    assert (amount("x", 3) * half).result("x") == 2
    assert (amount("x", [1, 2, 3]) * half).result("x").tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("number", "exact"), [(0.1, Fraction(1, 10)), (1 / 3, Fraction(1, 3)), (0.5, Fraction(1, 2))]
)
def test_a_float_means_the_simplest_fraction_that_it_rounds(number, exact):
    assert fraction_of(number) == exact


@given(st.floats(0, 1e300))
def test_reading_a_float_never_changes_it(number):
    assert float(fraction_of(number)) == number


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_a_tenth_of_something_is_not_rounded_up_by_binary_noise(parts, whole):
    assert (amount("x", parts / whole) * whole).result("x") == parts


@pytest.mark.parametrize(
    "value",
    [7, 7.0, np.int8(7), np.uint64(7), np.float32(7), Decimal(7), Fraction(7), np.array(7), np.array(7.0)],
)
def test_every_kind_of_number_reads_as_the_same_scalar(value):
    exact = count("x", value)

    assert type(exact.numerator) is int
    assert exact.numerator == 7
    assert exact.shape == ()


@pytest.mark.parametrize(
    "value",
    [
        [7, 8],
        (7, 8.0),
        np.array([7, 8], dtype=np.uint8),
        np.array([7.0, 8.0]),
        np.array([7, 8], dtype=object),
        np.array([7, 8], dtype=np.uint64),
        range(7, 9),
    ],
)
def test_every_kind_of_array_reads_as_int64(value):
    exact = count("x", value)

    assert exact.numerator.dtype == np.int64
    assert exact.numerator.tolist() == [7, 8]


def test_unsigned_numbers_above_int64_keep_their_value():
    exact = amount("x", np.array([2**64 - 1, 1], dtype=np.uint64))

    assert _values(exact) == [2**64 - 1, 1]


def test_the_input_array_is_neither_kept_nor_changed():
    given_array = np.array([1, 2], dtype=np.int64)
    result = amount("x", given_array).result("x")
    result[0] = 99

    assert given_array.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (True, "must be a number, not a truth value"),
        (np.True_, "must be a number, not a truth value"),
        ([1, True], "must be a number, not a truth value"),
        (np.array([True]), "must be a number or an array of numbers"),
        ("7", "must be a number or an array of numbers"),
        (None, "must be a number or an array of numbers"),
        (1j, "must be a number or an array of numbers"),
        (float("nan"), "must be finite"),
        (Decimal("NaN"), "must be finite"),
        ([1.0, float("inf")], "must be finite"),
        (np.array([np.nan]), "must be finite"),
        ([[1], [2, 3]], "must be a rectangular array"),
        (-1, "must not be negative"),
        ([1, -0.5], "must not be negative"),
        (np.array([-1]), "must not be negative"),
    ],
)
def test_what_is_no_amount_is_refused_by_name(value, rule):
    with pytest.raises(ConfigError, match=f"^tokens: {rule} "):
        amount("tokens", value)


@pytest.mark.parametrize("value", [0.5, [1, 0.5], Fraction(1, 3), np.array([0.5])])
def test_a_count_is_whole(value):
    with pytest.raises(ConfigError, match=r"^tokens: must be a whole number "):
        count("tokens", value)


def test_a_count_below_its_least_names_the_least():
    with pytest.raises(ConfigError, match=r"^gpus: must be at least 1 \(got 0\)\. Give 1 or more\.$"):
        count("gpus", 0, minimum=1)
    with pytest.raises(ConfigError, match=r"^gpus: must be at least 1 \(got -3\)\. Give 1 or more\.$"):
        count("gpus", -3, minimum=1)


def test_shapes_that_do_not_fit_are_named():
    one, two = amount("one", [1, 2]), amount("two", [1, 2, 3])

    assert check_shapes(one=one, scalar=amount("x", 1)) == (2,)
    with pytest.raises(ConfigError, match=r"^one: must broadcast .*one \(2,\), two \(3,\)"):
        check_shapes(one=one, two=two)


def test_a_divisor_that_leaves_a_remainder_is_named():
    check_divides("ranks", Exact(4), "heads", Exact(8))
    with pytest.raises(ConfigError, match=r"^ranks: must divide heads \(got 3\)\. heads is 8\.$"):
        check_divides("ranks", Exact(3), "heads", Exact(8))


def test_reading_alone_keeps_the_sign():
    assert read("x", -3) == -3
    assert read("x", [-3, 2]).tolist() == [-3, 2]


def test_empty_arrays_pass_through():
    assert (amount("x", np.zeros((0, 3))) * 2).result("x").shape == (0, 3)
