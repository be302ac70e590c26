"""Counter-based random numbers: Philox4x64-10 blocks, uniforms and normals, each a function of its address.

A draw is addressed by (seed, stream, number, word) and by nothing else, so it never depends on threads,
chunks or the order of the calls. The block of rollout ``number`` is what
``numpy.random.Philox(key=seed + (stream << 64)).random_raw(4 * n)[4 * number : 4 * number + 4]`` gives: key
``(seed, stream)``, counter ``number + 1`` (NumPy counts up before it generates), the other counter words 0.

Sources: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011 (the generator); M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution",
Applied Statistics 37 (1988) 477-484 (the inverse normal distribution function, routine PPND16).

Counters end at 2**63 - 1 here: that many rollouts of one seed are never simulated, and int64 stays int64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config as numba_config
from numba.extending import intrinsic
from numpy.typing import ArrayLike

from .._arguments import check_size, foreign_array, is_whole
from .._jit import jit
from ..errors import ConfigError

_MASK_64 = 2**64 - 1
_ROUNDS = 10
_MULTIPLIER_0 = 0xD2E7470EE14C6C93
_MULTIPLIER_1 = 0xCA5A826395121157
_WEYL_0 = 0x9E3779B97F4A7C15
_WEYL_1 = 0xBB67AE8584CAA73B

_TWO_TO_MINUS_53 = 2.0**-53
_TWO_TO_MINUS_52 = 2.0**-52


@intrinsic
def _multiply_wide(typing_context: Any, left: Any, right: Any) -> Any:
    """Multiply two uint64 to 128 bits: (high word, low word). Five times faster than 32-bit limbs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, wide = ir.IntType(64), ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        return context.make_tuple(builder, signature.return_type, (high, builder.trunc(product, word)))

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


def _philox_rounds_wrapping(k0, k1, c0, c1, c2, c3):  # pragma: no cover
    """Run the ten rounds on uint64 that wrap around; only ever compiled."""
    multiplier0, multiplier1 = np.uint64(_MULTIPLIER_0), np.uint64(_MULTIPLIER_1)
    weyl0, weyl1 = np.uint64(_WEYL_0), np.uint64(_WEYL_1)
    for _ in range(_ROUNDS):
        high0, low0 = _multiply_wide(multiplier0, c0)  # type: ignore[call-arg, var-annotated]
        high1, low1 = _multiply_wide(multiplier1, c2)
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + weyl0
        k1 = k1 + weyl1
    return c0, c1, c2, c3


def _philox_rounds_integers(k0, k1, c0, c1, c2, c3):
    """Run the ten rounds on Python integers: without JIT, uint64 scalars warn when they wrap around."""
    k0, k1, c0, c1, c2, c3 = int(k0), int(k1), int(c0), int(c1), int(c2), int(c3)
    for _ in range(_ROUNDS):
        product0 = _MULTIPLIER_0 * c0
        product1 = _MULTIPLIER_1 * c2
        c0 = (product1 >> 64) ^ c1 ^ k0
        c1 = product1 & _MASK_64
        c2 = (product0 >> 64) ^ c3 ^ k1
        c3 = product0 & _MASK_64
        k0 = (k0 + _WEYL_0) & _MASK_64
        k1 = (k1 + _WEYL_1) & _MASK_64
    return np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)


# An intrinsic cannot be called from Python, so the choice is made once, here.
if numba_config.DISABLE_JIT:  # type: ignore[attr-defined]
    philox_rounds = _philox_rounds_integers
else:
    philox_rounds = jit(inline=True)(_philox_rounds_wrapping)


@jit(inline=True)
def philox_block(key0, key1, counter0):
    """Return the four uint64 words of the block with key (key0, key1) and counter (counter0, 0, 0, 0)."""
    zero = np.uint64(0)
    return philox_rounds(np.uint64(key0), np.uint64(key1), np.uint64(counter0), zero, zero, zero)


@jit(inline=True)
def rollout_words(seed, stream, number):
    """Return the four uint64 words of a numbered draw (int64, from 0) of a seed's stream (both uint64)."""
    return philox_block(seed, stream, np.uint64(number + 1))


@jit(inline=True)
def uniform_from_word(word):
    """Turn a uint64 word into a float64 in [0, 1): its upper 53 bits times 2**-53."""
    return np.float64(word >> np.uint64(11)) * _TWO_TO_MINUS_53


@jit(inline=True)
def _ratio_central(r):
    """Return the rational function of AS 241 for the middle: r = 0.425**2 - q*q."""
    top = 2.5090809287301226727e3 * r + 3.3430575583588128105e4
    top = top * r + 6.7265770927008700853e4
    top = top * r + 4.5921953931549871457e4
    top = top * r + 1.3731693765509461125e4
    top = top * r + 1.9715909503065514427e3
    top = top * r + 1.3314166789178437745e2
    top = top * r + 3.3871328727963666080
    bottom = 5.2264952788528545610e3 * r + 2.8729085735721942674e4
    bottom = bottom * r + 3.9307895800092710610e4
    bottom = bottom * r + 2.1213794301586595867e4
    bottom = bottom * r + 5.3941960214247511077e3
    bottom = bottom * r + 6.8718700749205790830e2
    bottom = bottom * r + 4.2313330701600911252e1
    bottom = bottom * r + 1.0
    return top / bottom


@jit(inline=True)
def _ratio_tail(r):
    """Return the rational function of AS 241 for the tails down to exp(-25): r = sqrt(-log tail) - 1.6."""
    top = 7.74545014278341407640e-4 * r + 2.27238449892691845833e-2
    top = top * r + 2.41780725177450611770e-1
    top = top * r + 1.27045825245236838258
    top = top * r + 3.64784832476320460504
    top = top * r + 5.76949722146069140550
    top = top * r + 4.63033784615654529590
    top = top * r + 1.42343711074968357734
    bottom = 1.05075007164441684324e-9 * r + 5.47593808499534494600e-4
    bottom = bottom * r + 1.51986665636164571966e-2
    bottom = bottom * r + 1.48103976427480074590e-1
    bottom = bottom * r + 6.89767334985100004550e-1
    bottom = bottom * r + 1.67638483018380384940
    bottom = bottom * r + 2.05319162663775882187
    bottom = bottom * r + 1.0
    return top / bottom


@jit(inline=True)
def _ratio_far_tail(r):
    """Return the rational function of AS 241 for the far tails: r = sqrt(-log tail) - 5."""
    top = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
    top = top * r + 1.24266094738807843860e-3
    top = top * r + 2.65321895265761230930e-2
    top = top * r + 2.96560571828504891230e-1
    top = top * r + 1.78482653991729133580
    top = top * r + 5.46378491116411436990
    top = top * r + 6.65790464350110377720
    bottom = 2.04426310338993978564e-15 * r + 1.42151175831644588870e-7
    bottom = bottom * r + 1.84631831751005468180e-5
    bottom = bottom * r + 7.86869131145613259100e-4
    bottom = bottom * r + 1.48753612908506148525e-2
    bottom = bottom * r + 1.36929880922735805310e-1
    bottom = bottom * r + 5.99832206555887937690e-1
    bottom = bottom * r + 1.0
    return top / bottom


@jit(inline=True)
def normal_quantile(probability):
    """Return the standard normal's quantile at a probability strictly between 0 and 1 (AS 241, PPND16)."""
    q = probability - 0.5
    if abs(q) <= 0.425:
        quantile = q * _ratio_central(0.180625 - q * q)
    else:
        # Above 1/2 the difference 1 - probability is exact.
        tail = probability if q < 0.0 else 1.0 - probability
        r = math.sqrt(-math.log(tail))
        distance = _ratio_tail(r - 1.6) if r <= 5.0 else _ratio_far_tail(r - 5.0)
        quantile = -distance if q < 0.0 else distance
    return quantile


@jit(inline=True)
def middle_uniform(word):
    """Turn a uint64 word into a float64 in (0, 1): its upper 52 bits + 1/2, times 2**-52."""
    return (np.float64(word >> np.uint64(12)) + 0.5) * _TWO_TO_MINUS_52


@jit(inline=True)
def normal_from_word(word):
    """Turn a uint64 word into a standard normal, always finite: its quantile at :func:`middle_uniform`."""
    return normal_quantile(middle_uniform(word))


@jit
def _philox_words_kernel(seed, stream, first, words):
    """Fill ``words`` (uint64, shape (count, 4)) with the blocks first, first + 1, ... of a seed's stream."""
    for i in range(words.shape[0]):
        words[i, 0], words[i, 1], words[i, 2], words[i, 3] = rollout_words(seed, stream, first + i)


@jit
def _uniforms_kernel(words, values):
    """Fill ``values`` (float64, flat) with the uniforms of ``words`` (uint64, flat)."""
    for i in range(words.shape[0]):
        values[i] = uniform_from_word(words[i])


@jit
def _normals_kernel(words, values):
    """Fill ``values`` (float64, flat) with the normals of ``words`` (uint64, flat)."""
    for i in range(words.shape[0]):
        values[i] = normal_from_word(words[i])


def exact_whole(field: str, value: Any, low: int, high: int) -> int:
    """Check a whole number within [low, high] and give it as int."""
    if not is_whole(value):
        raise ConfigError(field, "must be a whole number", value, "Give an integer.")
    if not low <= value <= high:
        raise ConfigError(
            field, f"must be at least {low} and at most {high}", value, "Give a value in that range."
        )
    return int(value)


def philox_words(seed: int, first: int = 0, count: int = 1, stream: int = 0) -> np.ndarray:
    """Return the Philox4x64-10 blocks of consecutive draws of a seed.

    Parameters
    ----------
    seed, stream : int
        The two words of the key, 0 to 2**64 - 1. Stream 0 holds the rollouts.
    first : int
        Number of the first draw, from 0.
    count : int
        How many draws.

    Returns
    -------
    ndarray of uint64, shape (count, 4)
        Row i equals ``numpy.random.Philox(key=seed + (stream << 64)).random_raw(4 * n)[4 * k : 4 * k + 4]``
        with ``k = first + i``.

    Raises
    ------
    ConfigError
        If a value is not whole or out of range.

    Examples
    --------
    >>> import numpy as np
    >>> words = philox_words(7, first=2, count=3)
    >>> bool(np.all(words.ravel() == np.random.Philox(key=7).random_raw(20)[8:]))
    True
    """
    seed = exact_whole("seed", seed, 0, _MASK_64)
    stream = exact_whole("stream", stream, 0, _MASK_64)
    count = exact_whole("count", count, 0, 2**62)
    first = exact_whole("first", first, 0, 2**63 - 2 - count)
    check_size("count", (count, 4))
    words = np.empty((count, 4), dtype=np.uint64)
    _philox_words_kernel(np.uint64(seed), np.uint64(stream), np.int64(first), words)
    return words


def _checked_words(words: ArrayLike) -> np.ndarray:
    """Check an array of 64-bit words and give it C-contiguous."""
    array = foreign_array("words", words)
    if array.dtype != np.uint64:
        raise ConfigError(
            "words", "must be uint64", str(array.dtype), "Give words of philox_words, unconverted."
        )
    return np.ascontiguousarray(array)


def uniforms(words: ArrayLike) -> np.ndarray:
    """Turn 64-bit words into uniforms: ``(word >> 11) * 2**-53``, in [0, 1).

    Parameters
    ----------
    words : array_like of uint64
        Any shape.

    Returns
    -------
    ndarray of float64
        The same shape.

    Raises
    ------
    ConfigError
        If the words are not uint64.

    Examples
    --------
    >>> import numpy as np
    >>> uniforms(np.array([0, 2**63], dtype=np.uint64)).tolist()
    [0.0, 0.5]
    """
    array = _checked_words(words)
    values = np.empty(array.shape, dtype=np.float64)
    _uniforms_kernel(array.reshape(-1), values.reshape(-1))
    return values


def normals(words: ArrayLike) -> np.ndarray:
    """Turn 64-bit words into standard normals, always finite.

    The normal quantile at ``((word >> 12) + 1/2) * 2**-52`` by AS 241; within 1e-14 (relative, absolute
    below 1) of ``scipy.special.ndtri``.

    Parameters
    ----------
    words : array_like of uint64
        Any shape.

    Returns
    -------
    ndarray of float64
        The same shape.

    Raises
    ------
    ConfigError
        If the words are not uint64.

    Examples
    --------
    >>> import numpy as np
    >>> normals(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)).round(3).tolist()
    [-8.21, 0.0, 8.21]
    """
    array = _checked_words(words)
    values = np.empty(array.shape, dtype=np.float64)
    _normals_kernel(array.reshape(-1), values.reshape(-1))
    return values
