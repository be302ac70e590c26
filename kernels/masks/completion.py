"""Which tokens of a completion count: masks from the first end of sequence, from lengths, and combined.

A completion's active tokens are those up to and including the first id of the end-of-sequence (EOS) set;
without one, all of them. Three rules follow, each of which has been broken in public code:

- Every declared EOS id ends a completion, and models declare several.
- A mask comes from lengths or from the first EOS, never from ``token == pad``: with ``pad == eos`` the true
  EOS stays in, because it is the *first*. A row that holds nothing but padding cannot be told from a
  completion: give ``lengths``, or leave the row out.
- A mean uses one mask for its numerator and its denominator (:mod:`.masks.means`).

Masks are combined and shifted in :mod:`.masks.algebra`.

The kernel reads a row only as far as its first EOS, 64 tokens at a time so that the comparison runs in
vector registers; large batches are cut into row ranges for a few threads. The answer does not depend on
their number.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import foreign_array, one_whole, whole_numbers
from .._jit import jit
from ..errors import ConfigError

_BLOCK = 64
_TOKENS_PER_THREAD = 2_000_000
_MOST_THREADS = 1024


@jit
def _first_eos(row, eos_ids):
    """Find the first token that is an EOS id: row int (width,), eos_ids of the same dtype; width if none."""
    width = row.size
    for start in range(0, width, _BLOCK):
        # Counting over a slice from 0, without an early exit, is a loop the compiler turns into vector code;
        # the same loop over row[start + i], or with a flag, ran 3 to 9 times slower.
        block = row[start : min(start + _BLOCK, width)]
        hits = 0
        for k in range(eos_ids.size):
            eos = eos_ids[k]
            for i in range(block.size):
                hits += 1 if block[i] == eos else 0
        if hits:
            for i in range(block.size):
                for k in range(eos_ids.size):
                    if block[i] == eos_ids[k]:
                        return start + i
    return width


@jit
def _completion_kernel(tokens, eos_ids, limits, first, last, lengths, ended, mask):
    """Fill masks, lengths and flags of the rows first ... last - 1.

    tokens int32 or int64 (rows, width); eos_ids of the same dtype (k,); limits int64 (rows,) or (0,): how
    many tokens of a row are real; outputs lengths int64 (rows,), ended bool (rows,): an EOS was found,
    mask bool (rows, width) or (rows, 0) when no mask is wanted.
    """
    width = tokens.shape[1]
    for row in range(first, last):
        limit = min(limits[row], width) if limits.size else width
        end = _first_eos(tokens[row, :limit], eos_ids)
        ended[row] = end < limit
        length = end + 1 if end < limit else limit
        lengths[row] = length
        if mask.shape[1]:
            for i in range(length):
                mask[row, i] = True
            for i in range(length, width):
                mask[row, i] = False


def token_rows(tokens: ArrayLike) -> NDArray[Any]:
    """Read a batch of token ids; int32 and int64 stay as they are, other whole types become int64.

    Examples
    --------
    >>> token_rows([[5, 6, 2]]).dtype
    dtype('int64')
    """
    way_out = "Give integer ids, padded to one width; an empty batch may be []."
    array = foreign_array("tokens", tokens, rule="must be rows of one width", way_out=way_out)
    if array.ndim == 1 and not array.size:
        array = array.reshape(0, 0)
    if array.ndim < 2:
        rule = "must have rows and tokens, two dimensions or more"
        raise ConfigError("tokens", rule, array.shape, "Wrap one completion in a list.")
    if not array.size:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise ConfigError("tokens", "must be whole token ids", array.dtype.name, way_out)
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and (array > np.iinfo(np.int64).max).any():
        raise ConfigError("tokens", "must be below 2**63", int(array.max()), way_out)
    dtype = array.dtype if array.dtype in (np.int32, np.int64) else np.int64
    return np.ascontiguousarray(array, dtype=dtype)


def eos_set(eos_token_ids: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read one EOS id or several; ids that the tokens' dtype cannot hold cannot occur and are left out.

    Examples
    --------
    >>> eos_set([2, 7, 2], np.dtype("int32"))
    array([2, 7], dtype=int32)
    """
    minimum = -(2**53)
    ids = np.unique(whole_numbers("eos_token_ids", eos_token_ids, minimum=minimum))
    bounds = np.iinfo(dtype)
    return ids[(ids >= bounds.min) & (ids <= bounds.max)].astype(dtype)


def _limits(lengths: ArrayLike | None, leading: tuple[int, ...], width: int) -> NDArray[np.int64]:
    """Read how many tokens of each row are real; empty when not given."""
    if lengths is None:
        return np.empty(0, dtype=np.int64)
    way_out = "Give the number of generated tokens of each row."
    limits = whole_numbers("lengths", lengths, minimum=0, maximum=width, way_out=way_out)
    if limits.shape != leading:
        raise ConfigError("lengths", f"must have the shape {leading}", limits.shape, way_out)
    return np.ascontiguousarray(limits.reshape(-1))


def _threads(threads: int | None, tokens: int) -> int:
    """Choose the number of threads: what was asked, or one per two million tokens up to all cores."""
    if threads is not None:
        return one_whole("threads", threads, minimum=1, maximum=_MOST_THREADS)
    cores = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]  # set while Numba is imported
    return max(1, min(cores, tokens // _TOKENS_PER_THREAD))


def _scan(
    tokens: ArrayLike,
    eos_token_ids: ArrayLike,
    lengths: ArrayLike | None,
    threads: int | None,
    want_mask: bool,
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], tuple[int, ...], NDArray[Any]]:
    """Run the kernel over all rows; return lengths, ended flags, mask, leading shape and the rows."""
    array = token_rows(tokens)
    leading, width = array.shape[:-1], array.shape[-1]
    rows = array.reshape(-1, width) if array.size else array.reshape(int(np.prod(leading)), width)
    ids = eos_set(eos_token_ids, rows.dtype)
    limits = _limits(lengths, leading, width)
    count = rows.shape[0]
    ends = np.empty(count, dtype=np.int64)
    ended = np.empty(count, dtype=np.bool_)
    mask = np.empty((count, width if want_mask else 0), dtype=np.bool_)
    workers = _threads(threads, rows.size)
    if workers == 1:
        _completion_kernel(rows, ids, limits, 0, count, ends, ended, mask)
        return ends, ended, mask, leading, rows
    # More ranges than threads, because rows end at different places.
    cuts = np.linspace(0, count, 4 * workers + 1).astype(np.int64)
    with ThreadPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(_completion_kernel, rows, ids, limits, first, last, ends, ended, mask)
            for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist())
        ]
        for job in jobs:
            job.result()
    return ends, ended, mask, leading, rows


def completion_token_mask(
    tokens: ArrayLike,
    eos_token_ids: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    threads: int | None = None,
) -> NDArray[np.bool_]:
    """Mark each completion's tokens up to and including its first EOS.

    Parameters
    ----------
    tokens : array_like of int
        Token ids, one completion per row; more leading axes are allowed. Any width, also 0.
    eos_token_ids : int or array_like of int
        Every id that ends a completion. With none, all tokens count.
    lengths : array_like of int, optional
        How many tokens of each row were generated; what comes after is padding, whatever its id.
    threads : int, optional
        Number of threads; chosen by size without it. The result does not depend on it.

    Returns
    -------
    ndarray of bool
        Of the shape of ``tokens``.

    Raises
    ------
    ConfigError
        If ids are not whole numbers, rows have different widths, or a length exceeds the width.

    Notes
    -----
    A row of padding alone is no completion: with ``pad == eos`` it looks like an immediate EOS (length 1),
    else like a full row. Give ``lengths`` where such rows occur.

    Examples
    --------
    >>> completion_token_mask([[5, 6, 2, 0, 0], [5, 6, 7, 8, 9]], [2]).astype(int)
    array([[1, 1, 1, 0, 0],
           [1, 1, 1, 1, 1]])
    """
    _, _, mask, leading, rows = _scan(tokens, eos_token_ids, lengths, threads, True)
    return mask.reshape(*leading, rows.shape[1])


def completion_lengths(
    tokens: ArrayLike,
    eos_token_ids: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    threads: int | None = None,
) -> NDArray[np.int64]:
    """Count each completion's tokens, its EOS included.

    Parameters
    ----------
    tokens, eos_token_ids, lengths, threads
        As in :func:`completion_token_mask`.

    Returns
    -------
    ndarray of int64
        One length per row.

    Raises
    ------
    ConfigError
        As in :func:`completion_token_mask`.

    Examples
    --------
    >>> completion_lengths([[5, 6, 2, 0, 0], [5, 6, 7, 8, 9]], 2)
    array([3, 5])
    """
    ends, _, _, leading, _ = _scan(tokens, eos_token_ids, lengths, threads, False)
    return ends.reshape(leading)


def completion_ended(
    tokens: ArrayLike,
    eos_token_ids: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    threads: int | None = None,
) -> NDArray[np.bool_]:
    """Say which completions came to an EOS of their own.

    Parameters
    ----------
    tokens, eos_token_ids, lengths, threads
        As in :func:`completion_token_mask`.

    Returns
    -------
    ndarray of bool
        One flag per row.

    Raises
    ------
    ConfigError
        As in :func:`completion_token_mask`.

    Examples
    --------
    >>> completion_ended([[5, 6, 2, 0, 0], [5, 6, 7, 8, 9]], 2)
    array([ True, False])
    """
    _, ended, _, leading, _ = _scan(tokens, eos_token_ids, lengths, threads, False)
    return ended.reshape(leading)


def truncation_flags(
    tokens: ArrayLike,
    eos_token_ids: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    pad_token_id: int | None = None,
    threads: int | None = None,
) -> NDArray[np.bool_]:
    """Say which completions were cut off: they hold tokens but no EOS.

    Parameters
    ----------
    tokens, eos_token_ids, lengths, threads
        As in :func:`completion_token_mask`.
    pad_token_id : int, optional
        A row that ends in this id did not fill its width, so something other than the length limit stopped
        it: it does not count as truncated. The id changes nothing else.

    Returns
    -------
    ndarray of bool
        One flag per row. Where a record has a stop reason, that is the better source.

    Raises
    ------
    ConfigError
        As in :func:`completion_token_mask`.

    Examples
    --------
    >>> truncation_flags([[5, 6, 7], [5, 6, 2], [5, 6, 0]], [2], pad_token_id=0)
    array([ True, False, False])
    """
    ends, ended, _, leading, rows = _scan(tokens, eos_token_ids, lengths, threads, False)
    truncated = ~ended & (ends > 0)
    if pad_token_id is not None and truncated.any():
        pad = one_whole("pad_token_id", pad_token_id, minimum=-(2**53))
        truncated &= rows[np.arange(ends.size), np.maximum(ends, 1) - 1] != pad
    return truncated.reshape(leading)
