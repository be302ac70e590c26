"""Masks from lengths, masks combined, and masks moved to where a token is predicted.

Masks lie in token space: entry t says whether token t counts. :func:`shifted_mask` gives prediction space,
where entry t says whether the prediction *of token t + 1* counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Integers, check_size, fit_together, one_whole, paired, plain, whole_numbers
from ..errors import ConfigError
from ..staleness.ragged import boolean_mask


def mask_from_lengths(lengths: ArrayLike, width: int) -> NDArray[np.bool_]:
    """Mark the first ``lengths`` tokens of rows of one width.

    Parameters
    ----------
    lengths : array_like of int
        Number of active tokens of each row, at most the width.
    width : int
        Tokens per row.

    Returns
    -------
    ndarray of bool
        Of shape ``(*lengths.shape, width)``.

    Raises
    ------
    ConfigError
        If a length is negative, not whole, or above the width.

    Examples
    --------
    >>> mask_from_lengths([2, 0], 3).astype(int)
    array([[1, 1, 0],
           [0, 0, 0]])
    """
    columns = one_whole("width", width, minimum=0)
    counts = whole_numbers("lengths", lengths, minimum=0, maximum=columns)
    check_size("width", (*counts.shape, columns))
    return np.arange(columns) < counts[..., None]


def shifted_mask(mask: ArrayLike) -> NDArray[np.bool_]:
    """Move a mask of tokens to the positions that predict them.

    A model's output at position t predicts token t + 1, so for a prompt of P and a response of R tokens the
    trained predictions are the R positions P - 1 ... P + R - 2 of an array one shorter.

    Parameters
    ----------
    mask : array_like of bool
        Which tokens of the whole sequence, prompt and response, count; tokens along the last axis.

    Returns
    -------
    ndarray of bool
        One entry fewer along the last axis. The first token is never predicted, so it must not count.

    Raises
    ------
    ConfigError
        If the first token of a row counts, or there is no token axis.

    Examples
    --------
    >>> shifted_mask([0, 0, 0, 1, 1]).astype(int)
    array([0, 0, 1, 1])
    """
    tokens = boolean_mask("mask", mask)
    if tokens.ndim == 0 or not tokens.shape[-1]:
        raise ConfigError("mask", "must have tokens", tokens.shape, "Give prompt and response.")
    if tokens[..., 0].any():
        rule = "must not mark the first token of a sequence, which nothing predicts"
        raise ConfigError("mask", rule, True, "Give the mask of prompt and response together.")
    return tokens[..., 1:]


def combined_mask(*masks: ArrayLike, keep: ArrayLike | None = None) -> NDArray[np.bool_]:
    """Return the mask that counts: what every given mask has, and no dropped row.

    Parameters
    ----------
    *masks : array_like of bool
        Masks of tokens that broadcast against each other, such as completion and tool masks.
    keep : array_like of bool, optional
        One flag per row; a row that is not kept has no active token.

    Returns
    -------
    ndarray of bool
        The effective mask; use it, and only it, for sums and counts alike.

    Raises
    ------
    ConfigError
        If there is no mask, or shapes do not fit.

    Examples
    --------
    >>> combined_mask([[1, 1, 1], [1, 1, 1]], [[1, 0, 1], [1, 0, 1]], keep=[1, 0]).astype(int)
    array([[1, 0, 1],
           [0, 0, 0]])
    """
    way_out = "Give masks of one shape, and one keep flag per row."
    if not masks:
        raise ConfigError("masks", "must be at least one", 0, way_out)
    names = [f"masks[{i}]" for i in range(len(masks))]
    parts = [boolean_mask(name, mask) for name, mask in zip(names, masks, strict=True)]
    if keep is not None:
        names.append("keep")
        parts.append(boolean_mask("keep", keep)[..., None])
    if not fit_together(*(part.shape for part in parts)):
        raise ConfigError("masks", "shapes must fit together", [part.shape for part in parts], way_out)
    together = paired(**dict(zip(names, parts, strict=True)))
    effective = np.ones(together[0].shape, dtype=np.bool_)
    for part in together:
        effective &= part
    return effective


def trained_tokens(mask: ArrayLike) -> Integers:
    """Count the active tokens of each row, in 64-bit integers whatever the mask's type.

    Examples
    --------
    >>> trained_tokens([[1, 0, 1], [0, 0, 0]])
    array([2, 0])
    """
    tokens = boolean_mask("mask", mask)
    if not tokens.ndim:
        raise ConfigError("mask", "must have tokens", mask, "Give one flag per token.")
    return plain(tokens.sum(axis=-1, dtype=np.int64))
