"""Strategies of importance ratios and of token masks, with the values at which formulas break."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from ...kernels._arguments import flag, one_number, one_whole

_LARGEST_LOG = 700.0  # exp of it is still a float64


def log_ratios(
    *, min_size: int = 0, max_size: int = 20, largest: float = 50.0, impossible: bool = False
) -> st.SearchStrategy[list[float]]:
    """Return a strategy of log importance ratios: the trainer's log-probability less the behaviour policy's.

    Parameters
    ----------
    min_size, max_size : int
        Of the lists.
    largest : float
        Largest size of a value; one in a few is zero, small, or as large as that.
    impossible : bool
        Minus infinity is drawn too: a token that the trainer's policy cannot give.

    Returns
    -------
    SearchStrategy
        Of lists of float.

    Raises
    ------
    ConfigError
        If a size or the largest value is no number of at least 0.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(log_ratios(min_size=2), lambda ratios: True)
    [0.0, 0.0]
    """
    low = one_whole("min_size", min_size, minimum=0, maximum=2**20)
    high = one_whole("max_size", max_size, minimum=low, maximum=2**20)
    most = one_number("largest", largest, minimum=0)
    values = (
        st.floats(-most, most) | st.floats(-min(1.0, most), min(1.0, most)) | st.sampled_from([most, -most])
    )
    if flag("impossible", impossible):
        values |= st.just(-math.inf)
    return st.lists(values, min_size=low, max_size=high)


def importance_weights(
    *, min_size: int = 0, max_size: int = 20, largest_log: float = 20.0, zero: bool = False
) -> st.SearchStrategy[list[float]]:
    """Return a strategy of importance weights: exponentials of :func:`log_ratios`.

    Parameters
    ----------
    min_size, max_size : int
        Of the lists.
    largest_log : float
        Largest size of a weight's logarithm, at most 700.
    zero : bool
        Weights of 0 are drawn too.

    Returns
    -------
    SearchStrategy
        Of lists of float.

    Raises
    ------
    ConfigError
        As :func:`log_ratios`.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(importance_weights(min_size=1), lambda weights: True)
    [1.0]
    """
    most = one_number("largest_log", largest_log, minimum=0, maximum=_LARGEST_LOG)
    logs = log_ratios(min_size=min_size, max_size=max_size, largest=most, impossible=zero)
    return logs.map(lambda values: [math.exp(value) for value in values])


@st.composite
def completions(
    draw: st.DrawFn, *, max_rollouts: int = 6, max_tokens: int = 12
) -> tuple[NDArray[Any], list[int]]:
    """Draw a rectangle of token ids beside the ids that end a sequence, as masks are made from.

    Parameters
    ----------
    max_rollouts, max_tokens : int
        Largest shape; either may be 0.

    Returns
    -------
    (ndarray of int32 or int64, list of int)
        Ids are 0 to 9, so that several ends in one row, early ones and none at all are common.

    Examples
    --------
    >>> from hypothesis import find
    >>> tokens, ends = find(completions(), lambda batch: batch[0].size > 0 and bool(batch[1]))
    >>> tokens.tolist(), ends
    ([[0]], [0])
    """
    rows = one_whole("max_rollouts", max_rollouts, minimum=0, maximum=2**10)
    width = one_whole("max_tokens", max_tokens, minimum=0, maximum=2**10)
    shape = draw(st.tuples(st.integers(0, rows), st.integers(0, width)))
    kind = draw(st.sampled_from([np.int32, np.int64]))
    tokens = draw(hnp.arrays(kind, shape, elements=st.integers(0, 9)))
    return tokens, draw(st.lists(st.integers(0, 9), max_size=4))


@st.composite
def token_masks(
    draw: st.DrawFn, *, max_rollouts: int = 6, max_tokens: int = 12, holes: bool = True
) -> NDArray[np.bool_]:
    """Draw a mask of the tokens that count: rows of different lengths, some empty.

    Parameters
    ----------
    max_rollouts, max_tokens : int
        Largest shape; both are at least 1.
    holes : bool
        Tokens inside a response may be left out too, as those of tools are.

    Returns
    -------
    ndarray of bool, shape (rollouts, tokens)

    Examples
    --------
    >>> from hypothesis import find
    >>> find(token_masks(), lambda mask: mask.sum() == 1).tolist()
    [[True]]
    """
    rows = draw(st.integers(1, one_whole("max_rollouts", max_rollouts, minimum=1, maximum=2**10)))
    width = draw(st.integers(1, one_whole("max_tokens", max_tokens, minimum=1, maximum=2**10)))
    lengths = draw(st.lists(st.integers(0, width), min_size=rows, max_size=rows))
    mask: NDArray[np.bool_] = np.arange(width) < np.array(lengths)[:, None]
    if flag("holes", holes) and draw(st.booleans()):
        mask &= draw(hnp.arrays(np.bool_, (rows, width), elements=st.booleans()))
    return mask
