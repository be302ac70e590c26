"""Random numbers against NumPy's Philox, Random123's published vectors and SciPy's normal quantile."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba.core import config as numba_config
from scipy.special import ndtri

from lagsweep.errors import ConfigError
from lagsweep.kernels._jit import jit
from lagsweep.kernels.draws import philox as rng

_WORD = st.integers(0, 2**64 - 1)
_MASK_32 = 2**32 - 1


def _numpy_words(seed, stream, first, count):
    """The same words from NumPy: its counter is set to `first`, and it counts up before it generates."""
    generator = np.random.Philox(key=seed + (stream << 64), counter=first)
    return generator.random_raw(4 * count).reshape(count, 4)


def _limb_product(left, right):
    """The 128-bit product by 32-bit limbs, as done by hand."""
    left_low, left_high = left & _MASK_32, left >> 32
    right_low, right_high = right & _MASK_32, right >> 32
    lowest = left_low * right_low
    middle = left_high * right_low + (lowest >> 32)
    other = left_low * right_high + (middle & _MASK_32)
    high = left_high * right_high + (middle >> 32) + (other >> 32)
    return high, ((other & _MASK_32) << 32) | (lowest & _MASK_32)


@pytest.mark.parametrize("seed", [0, 1, 7, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("stream", [0, 1, 2, 3, 17])
def test_words_equal_numpy(seed, stream):
    # NumPy takes a list of large keys by way of float64, an array as it is.
    key = np.array([seed, stream], dtype=np.uint64)
    expected = np.random.Philox(key=key).random_raw(400).reshape(100, 4)

    assert np.array_equal(rng.philox_words(seed, count=100, stream=stream), expected)


@given(seed=_WORD, stream=_WORD, first=st.integers(0, 2**62), count=st.integers(0, 5))
@example(seed=0, stream=0, first=0, count=1)
def test_any_slice_equals_numpy(seed, stream, first, count):
    words = rng.philox_words(seed, first=first, count=count, stream=stream)

    assert words.dtype == np.uint64
    assert np.array_equal(words, _numpy_words(seed, stream, first, count))


def test_stream_zero_is_the_key_alone():
    assert np.array_equal(rng.philox_words(5, count=10).ravel(), np.random.Philox(key=5).random_raw(40))


_ONES = 2**64 - 1
# Random123's kat_vectors for philox4x64-10: (key, counter, words).
_KNOWN_ANSWERS = [
    (
        (0, 0),
        (0, 0, 0, 0),
        (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
    ),
    (
        (_ONES, _ONES),
        (_ONES, _ONES, _ONES, _ONES),
        (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
    ),
    (
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
]


@jit
def _rounds(k0, k1, c0, c1, c2, c3):
    return rng.philox_rounds(k0, k1, c0, c1, c2, c3)


@pytest.mark.parametrize(("key", "counter", "expected"), _KNOWN_ANSWERS)
def test_known_answers_of_random123(key, counter, expected):
    words = _rounds(*(np.uint64(part) for part in key + counter))

    assert tuple(int(word) for word in words) == expected
    assert tuple(int(word) for word in rng._philox_rounds_integers(*key, *counter)) == expected


@given(seed=_WORD, number=st.integers(0, 2**62))
def test_the_form_without_jit_equals_the_compiled_one(seed, number):
    plain = rng._philox_rounds_integers(seed, 3, number + 1, 0, 0, 0)

    assert [int(w) for w in plain] == rng.philox_words(seed, first=number, stream=3)[0].tolist()


@given(left=_WORD, right=_WORD)
@example(left=2**64 - 1, right=2**64 - 1)
@example(left=2**32, right=2**32)
def test_the_wide_product_equals_the_limb_product(left, right):
    limb = _limb_product(left, right)

    assert limb == divmod(left * right, 2**64)
    if not numba_config.DISABLE_JIT:
        assert tuple(_wide(np.uint64(left), np.uint64(right))) == limb


@jit
def _wide(left, right):
    return rng._multiply_wide(left, right)


def test_leaf_helpers_have_the_right_types_inside_a_kernel():
    @jit
    def draw(seed, number):
        w0, w1, _, _ = rng.rollout_words(seed, np.uint64(0), number)
        return w0, rng.uniform_from_word(w0), rng.normal_from_word(w1)

    word, uniform, normal = draw(np.uint64(2**64 - 1), np.int64(12))
    expected = rng.philox_words(2**64 - 1, first=12)[0]

    assert int(word) == int(expected[0])
    assert uniform == rng.uniforms(expected)[0]
    assert normal == rng.normals(expected)[1]


def test_uniforms_equal_numpys_random():
    words = rng.philox_words(3, count=1000)
    expected = np.random.Generator(np.random.Philox(key=3)).random(4000)

    assert np.array_equal(rng.uniforms(words).ravel(), expected)


def test_uniforms_stay_below_one():
    ends = rng.uniforms(np.array([0, 2**11 - 1, 2**11, 2**64 - 1], dtype=np.uint64))

    assert ends.tolist() == [0.0, 0.0, 2.0**-53, 1.0 - 2.0**-53]


def _close_to_ndtri(words):
    probability = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    expected = ndtri(probability)
    error = np.abs(rng.normals(words) - expected) / np.maximum(np.abs(expected), 1.0)
    return float(error.max())


def test_normals_equal_ndtri_on_a_dense_grid():
    grid = np.linspace(0, 2**52 - 1, 20_001).astype(np.uint64) << np.uint64(12)

    assert _close_to_ndtri(grid) < 1e-14


def test_normals_equal_ndtri_in_both_tails_and_around_the_seams():
    exponents = np.linspace(0, 51.9, 2000)
    steps = (2.0**exponents).astype(np.uint64)
    seams = np.array([0.075, 0.925, math.exp(-25.0), 1.0 - math.exp(-25.0), 0.5, math.exp(-2.0)])
    near = (seams[:, None] * 2.0**52).astype(np.int64) + np.arange(-200, 201)
    counts = np.concatenate([steps, np.uint64(2**52 - 1) - steps, near.ravel().astype(np.uint64)])

    assert _close_to_ndtri(counts << np.uint64(12)) < 1e-14


def test_normals_of_the_extreme_words_are_finite_and_opposite():
    ends = rng.normals(np.array([0, 2**64 - 1], dtype=np.uint64))

    assert ends[0] == -ends[1]
    assert ends[1] == pytest.approx(float(-ndtri(2.0**-53)), rel=1e-14)


@given(word=_WORD)
def test_normals_are_odd_and_close_to_ndtri_anywhere(word):
    pair = np.array([word, 2**64 - 1 - word], dtype=np.uint64)
    value, mirrored = rng.normals(pair)

    assert value == -mirrored
    assert _close_to_ndtri(pair) < 1e-14


def test_shape_is_kept_and_strides_do_not_matter():
    words = rng.philox_words(1, count=6)

    assert rng.normals(words).shape == (6, 4)
    assert np.array_equal(rng.normals(words[:, 1]), rng.normals(words)[:, 1])
    assert rng.uniforms(np.uint64(2**63)) == 0.5


def test_moments_are_those_of_the_laws():
    words = rng.philox_words(11, count=50_000 if not numba_config.DISABLE_JIT else 5_000)
    size = words.size
    normals = rng.normals(words)

    assert abs(rng.uniforms(words).mean() - 0.5) < 5 / math.sqrt(12 * size)
    assert abs(normals.mean()) < 5 / math.sqrt(size)
    assert abs(normals.var() - 1.0) < 5 * math.sqrt(2 / size)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seed": -1}, "seed: must be at least 0 and at most 18446744073709551615 (got -1). "),
        ({"seed": 2**64}, "seed: must be at least 0 and at most 18446744073709551615 (got 184467"),
        ({"seed": True}, "seed: must be a whole number (got True). Give an integer."),
        ({"seed": 1.0}, "seed: must be a whole number (got 1.0). Give an integer."),
        ({"seed": 1, "stream": -3}, "stream: must be at least 0"),
        ({"seed": 1, "count": -3}, "count: must be at least 0"),
        ({"seed": 1, "first": 2**63}, "first: must be at least 0"),
    ],
)
def test_bad_addresses_are_refused(arguments, text):
    with pytest.raises(ConfigError) as raised:
        rng.philox_words(**arguments)

    assert str(raised.value).startswith(text)


def test_words_of_another_type_are_refused():
    with pytest.raises(ConfigError) as raised:
        rng.uniforms(np.array([1, 2]))

    assert str(raised.value) == (
        "words: must be uint64 (got 'int64'). Give words of philox_words, unconverted."
    )
