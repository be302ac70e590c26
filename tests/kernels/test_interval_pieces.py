"""Means with intervals of a table that comes in pieces: those of the whole, to the last bit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lagsweep.errors import ConfigError
from lagsweep.kernels.intervals import intervals_of_pieces, mean_interval

values = st.floats(-1e6, 1e6) | st.just(float("nan"))

shapes = st.tuples(st.integers(0, 40), st.integers(2, 5))
tables = shapes.flatmap(lambda shape: arrays(float, shape, elements=values))


def cut(table, places):
    bounds = [0, *sorted(places), len(table)]
    return [table[start:stop] for start, stop in pairwise(bounds)]


@given(
    st.tuples(st.integers(0, 40), st.integers(2, 5)).flatmap(
        lambda shape: arrays(float, shape, elements=values)
    ),
    st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from([0.5, 0.95, 0.999]),
)
def test_however_it_is_cut_the_figures_are_those_of_the_whole(table, places, confidence):
    pieces = cut(table, [min(place, len(table)) for place in places])

    found = intervals_of_pieces(lambda: pieces, confidence)

    for own, whole in zip(found, mean_interval(np.moveaxis(table, 0, -1), confidence)):
        np.testing.assert_array_equal(own, whole)


@pytest.mark.parametrize("step", [1, 64, 1000, 4096])
def test_a_long_table_of_many_columns_to_the_last_bit(step):
    draw = np.random.default_rng(3)
    table = draw.random((5000, 2, 65))
    table[draw.random((5000, 2)) < 0.1] = np.nan

    found = intervals_of_pieces(lambda: (table[k : k + step] for k in range(0, len(table), step)))

    for own, whole in zip(found, mean_interval(np.moveaxis(table, 0, -1))):
        np.testing.assert_array_equal(own, whole)


def test_the_pieces_are_left_as_they_are():
    pieces = [np.arange(6.0).reshape(2, 3), np.arange(9.0).reshape(3, 3)]

    intervals_of_pieces(lambda: pieces)

    assert [piece.tolist() for piece in pieces] == [
        np.arange(6.0).reshape(2, 3).tolist(),
        np.arange(9.0).reshape(3, 3).tolist(),
    ]


def test_no_piece_and_a_bad_confidence_are_refused():
    with pytest.raises(ConfigError, match="pieces: must have at least one piece"):
        intervals_of_pieces(lambda: [])
    with pytest.raises(ConfigError, match="confidence"):
        intervals_of_pieces(lambda: [np.zeros((2, 2))], 1.0)
