"""State as JSON: whatever goes in comes out, bit for bit, and what cannot is refused by name."""

from __future__ import annotations

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lagsweep.errors import CheckpointError, ConfigError
from lagsweep.sweeps.checkpoint.codec import ARRAY_DTYPES, decode, encode


def _through_json(value):
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


def _identical(left, right):
    """Equal in type, structure and every bit."""
    if isinstance(left, np.ndarray):
        same_form = type(left) is type(right) and left.dtype == right.dtype and left.shape == right.shape
        return same_form and left.tobytes() == right.tobytes()
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_identical, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(_identical(left[key], right[key]) for key in left)
    return left == right


_ARRAYS = st.sampled_from(sorted(ARRAY_DTYPES)).flatmap(
    lambda name: hnp.arrays(np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=8), _ARRAYS
)
_KEYS = st.one_of(st.text(max_size=5), st.sampled_from(["$int", "$array", "$"]), st.integers(-3, 2**70))
_STATES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)


@given(_STATES)
def test_any_state_survives_json_bit_for_bit(state):
    assert _identical(_through_json(state), state)


@given(_STATES)
def test_only_integers_that_every_json_reader_holds_are_written_as_numbers(state):
    def numbers(node):
        if isinstance(node, dict | list):
            for item in node.values() if isinstance(node, dict) else node:
                yield from numbers(item)
        elif isinstance(node, int | float) and not isinstance(node, bool):
            yield node

    assert all(
        math.isfinite(number) and (isinstance(number, float) or abs(number) < 2**53)
        for number in numbers(encode(state))
    )


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1.5, -0.0], dtype=">f8"),
        np.array(2**63 - 1),
        np.array([0x7FF8_0000_0000_00AB, 0xFFF0_0000_0000_0000], dtype=np.uint64).view(np.float64),
        np.zeros((0, 3), dtype=np.int64),
    ],
    ids=["strided", "fortran", "big-endian", "zero dimensions", "payload of a NaN", "empty"],
)
def test_an_array_keeps_its_values_whatever_its_layout(array):
    back = _through_json(array)

    assert back.dtype == array.dtype.newbyteorder("=")
    assert back.shape == array.shape
    assert back.tobytes() == array.astype(back.dtype).tobytes()
    assert back.flags.writeable


def test_numpy_scalars_become_python_numbers():
    assert _identical(
        _through_json([np.int64(7), np.float32(0.1), np.bool_(True)]), [7, float(np.float32(0.1)), True]
    )


def test_encoding_shares_nothing_with_the_state():
    state = {"queue": [1, 2]}
    saved = encode(state)
    state["queue"].append(3)

    assert saved == {"queue": [1, 2]}


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            {"weights": np.array([object()])},
            "state.weights: must be an array of booleans, whole or floating-point numbers of at most 64 bits "
            "a part (got 'object'). Checkpoints are never pickled; convert it with astype, or store it as a "
            "list.",
        ),
        (
            [1, print],
            "state[1]: must be made of numbers, text, bytes, lists, mappings and arrays "
            "(got 'builtin_function_or_method'). Checkpoints are never pickled; "
            "convert it to one of these first.",
        ),
        ({1.5: 2}, "state: must have text or whole numbers as keys (got 1.5). Convert its keys."),
        (
            np.longdouble(1.0),
            "state: must be a NumPy bool, integer or float of at most 64 bits "
            f"(got {np.longdouble(1.0)!r}). Convert it.",
        ),
    ],
)
def test_what_cannot_be_written_exactly_is_refused_by_its_place(state, text):
    with pytest.raises(ConfigError) as caught:
        encode(state)

    assert str(caught.value) == text


def test_a_state_that_contains_itself_is_refused():
    state: list = []
    state.append(state)

    with pytest.raises(ConfigError, match="must be nested at most 64 deep"):
        encode(state)


@pytest.mark.parametrize(
    "node",
    [
        {"$int": 5},
        {"$int": "five"},
        {"$float": "1.5"},
        {"$float": 1.5},
        {"$float": "nan:00"},
        {"$bytes": "***"},
        {"$tuple": {}},
        {"$pairs": [[1]]},
        {"$array": {"dtype": "|O", "shape": [1], "data": ""}},
        {"$array": {"dtype": "<f8", "shape": [3], "data": "AAAA"}},
        {"$array": {"dtype": "<f8", "shape": [0]}},
        {"$eval": "print(1)"},
    ],
)
def test_a_node_that_we_never_write_is_refused_on_reading(node):
    with pytest.raises(CheckpointError, match="must hold a well-formed"):
        decode({"inner": [node]})
