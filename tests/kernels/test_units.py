"""Bytes as text: units are always there, and GB is never GiB."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.formula_cases import cases

from lagsweep.errors import ConfigError
from lagsweep.kernels import BYTES_PER_GB, BYTES_PER_GIB, human_bytes, parse_bytes

NAMES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
UNITS = {unit: 1024**power for power, unit in enumerate(NAMES)}


@pytest.mark.parametrize("case", cases("memory", "human_bytes"), ids=lambda case: case["id"])
def test_texts_follow_the_stored_convention_and_roll_over(case):
    # mem-69 allows "1024.00 KiB" or "1.00 MiB"; we take the second: the unit is chosen after rounding.
    expected = "1.00 MiB" if case["id"] == "mem-69" else case["expected"]

    assert human_bytes(case["inputs"]["n"]) == expected


@given(st.integers(-(10**30), 10**30))
def test_a_text_is_within_half_a_hundredth_of_its_unit(size):
    number, unit = human_bytes(size).split()

    assert abs(Fraction(number) * UNITS[unit] - size) * 200 <= UNITS[unit]
    assert abs(Fraction(number)) < 1024 or unit == "YiB"


@given(st.integers(0, 10**25), st.integers(0, 10**25))
def test_more_bytes_never_read_as_fewer(one, two):
    low, high = sorted((one, two))
    values = []
    for size in (low, high):
        number, unit = human_bytes(size).split()
        values.append(Fraction(number) * UNITS[unit])

    assert values[0] <= values[1]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1023.994, "1023.99 B"),
        (1023.995, "1.00 KiB"),
        (0.25, "0.25 B"),
        (-1536, "-1.50 KiB"),
        (-0.0, "0 B"),
        (2**1000, f"{2**920}.00 YiB"),
        (np.int64(2**40), "1.00 TiB"),
        (np.float32(1024), "1.00 KiB"),
    ],
)
def test_edges(size, text):
    assert human_bytes(size) == text


def test_decimal_units_are_powers_of_a_thousand():
    assert human_bytes(999, decimal=True) == "999 B"
    assert human_bytes(1000, decimal=True) == "1.00 kB"
    assert human_bytes(999_995_000, decimal=True) == "1.00 GB"


def test_an_array_of_sizes_is_an_array_of_texts():
    texts = human_bytes(np.array([[1, 1024], [2**30, 0]]))

    assert texts.tolist() == [["1 B", "1.00 KiB"], ["1.00 GiB", "0 B"]]


@pytest.mark.parametrize("value", [True, None, "5", float("nan"), float("inf"), [1, None]])
def test_what_is_no_number_has_no_text(value):
    with pytest.raises(ConfigError, match=r"^number: must be "):
        human_bytes(value)


def test_the_same_digits_with_gb_and_gib_are_different_sizes():
    assert parse_bytes("80GB") == 80 * BYTES_PER_GB
    assert parse_bytes("80GiB") == 80 * BYTES_PER_GIB
    assert parse_bytes("80GiB") - parse_bytes("80GB") == 5_899_345_920


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("1.5 TiB", 3 * 2**39),
        ("0.1GB", 10**8),
        ("1e3 MB", 10**9),
        ("1_000KB", 10**6),
        ("7kB", 7000),
        (" 3.18GiB ", 3414499001),
    ],
)
def test_sizes_are_read_exactly_and_rounded_up(text, size):
    assert parse_bytes(text) == size


@given(st.integers(0, 10**20), st.sampled_from(sorted(UNITS)))
def test_a_whole_number_of_any_unit_is_read_back(number, unit):
    assert parse_bytes(f"{number}{unit}") == number * UNITS[unit]


@pytest.mark.parametrize(
    "text", ["80", "80G", "80gb", "80Gb", "80Gib", "80 GBs", "-1GB", "1,5GB", "", "GB", 80, None]
)
def test_a_size_that_could_mean_two_things_is_refused(text):
    with pytest.raises(ConfigError, match=r"^--device-memory: must be a number with a unit .*80GiB for 80"):
        parse_bytes(text, field="--device-memory")
