"""Places in arrays that are never negative, told to the compiler.

Numba lets a negative index count from the end of an array, so each index of a signed type costs a test and a
choice before its load. An unsigned one costs neither. Arithmetic stays in int64: Numba turns a mix of both
kinds into a float.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit, kernels_are_compiled


def _unsigned(index):
    """Turn an int64 index that is not negative into one without a test of its sign."""
    return np.uint64(index)


def _as_it_is(index):
    """Leave an index alone: to plain Python an unsigned one is only slower."""
    return index


place = jit(inline=True, counted=False)(_unsigned) if kernels_are_compiled() else _as_it_is
