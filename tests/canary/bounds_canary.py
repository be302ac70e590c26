"""Run with NUMBA_BOUNDSCHECK=1: an out-of-bounds read must raise, or the whole run checked nothing.

A warm cache of unchecked code would be used silently if bounds checks were not part of the cache's key.
Not named ``test_…``, so that it is collected only where it is asked for.
"""

from __future__ import annotations

import numpy as np
import pytest

from lagsweep.kernels._jit import jit


@jit
def _read_kernel(values, index):
    return values[index]


def test_an_out_of_bounds_read_raises_in_this_run():
    assert _read_kernel(np.arange(4), 3) == 3

    with pytest.raises(IndexError):
        _read_kernel(np.arange(4), 7)
