"""Ragged groups: sequences of different lengths as one flat array and the offsets at which they begin.

Group ``g`` is ``flat[offsets[g]:offsets[g + 1]]``, the form that batched kernels read. A padded array with
a mask, an array with an axis, and a flat array with offsets all become this form here, once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import axis_of, foreign_array, raw_array, whole_numbers
from ..errors import ConfigError


class Ragged(NamedTuple):
    """Groups of numbers: the flat values, the groups' offsets, and the shape that results take."""

    flat: NDArray[np.float64]
    offsets: NDArray[np.int64]
    shape: tuple[int, ...]


def offsets_from_lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return the offsets of groups that lie one after the other.

    Parameters
    ----------
    lengths : array_like of int
        One length per group, 0 or more.

    Returns
    -------
    ndarray of int64
        ``[0, lengths[0], lengths[0] + lengths[1], ...]``, one entry more than there are groups.

    Raises
    ------
    ConfigError
        If a length is negative or not whole.

    Examples
    --------
    >>> offsets_from_lengths([3, 0, 2])
    array([0, 3, 3, 5])
    """
    checked = np.atleast_1d(whole_numbers("lengths", lengths, minimum=0))
    if checked.sum(dtype=np.float64) > 2**53:
        raise ConfigError("lengths", "must have a sum of at most 2**53", lengths, "Check the lengths' unit.")
    offsets = np.zeros(checked.size + 1, dtype=np.int64)
    np.cumsum(checked.ravel(), out=offsets[1:])
    return offsets


def float_values(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Widen numbers to float64, whatever their dtype; NaN and infinity stay for the kernel to judge.

    Examples
    --------
    >>> float_values("weights", np.float32([1, 2]))
    array([1., 2.])
    """
    return np.ascontiguousarray(raw_array(name, values), dtype=np.float64)


def boolean_mask(name: str, mask: ArrayLike) -> NDArray[np.bool_]:
    """Read a mask of True and False, or of 0 and 1; other numbers are refused, not rounded.

    Examples
    --------
    >>> boolean_mask("mask", [1, 0])
    array([ True, False])
    """
    rule = "must hold only True and False, or 1 and 0"
    array = foreign_array(name, mask, rule=rule, way_out="Give a mask.")
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
        raise ConfigError(name, rule, mask, "Give a mask.")
    return array.astype(np.bool_)


def checked_offsets(group_offsets: ArrayLike, size: int) -> NDArray[np.int64]:
    """Check that offsets begin at 0, never decrease and end at the number of values.

    Examples
    --------
    >>> checked_offsets([0, 2, 5], 5)
    array([0, 2, 5])
    """
    offsets = whole_numbers("group_offsets", group_offsets, minimum=0)
    good = offsets.ndim == 1 and offsets.size >= 1
    if not good or offsets[0] != 0 or offsets[-1] != size or (np.diff(offsets) < 0).any():
        rule = f"must rise from 0 to the number of values, {size}, without going back"
        raise ConfigError("group_offsets", rule, group_offsets, "Use offsets_from_lengths(lengths).")
    return np.ascontiguousarray(offsets)


def ragged(
    name: str,
    values: ArrayLike,
    *,
    axis: int | None = None,
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
) -> Ragged:
    """Bring values into ragged form; what the mask leaves out is gone and does not count.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    values : array_like
        Numbers of any shape; with ``group_offsets`` one-dimensional.
    axis : int, optional
        Groups lie along this axis. None: everything is one group.
    mask : array_like of bool, optional
        Which values are active, of the same shape.
    group_offsets : array_like of int, optional
        Where the groups of a flat array begin, and its end.

    Returns
    -------
    Ragged
        Flat values, offsets, and the shape of one result per group.

    Raises
    ------
    ConfigError
        If shapes, axis or offsets do not fit.

    Examples
    --------
    >>> ragged("x", [[1, 2], [3, 4]], axis=1, mask=[[1, 0], [1, 1]]).offsets
    array([0, 1, 3])
    """
    array = float_values(name, values)
    active = None if mask is None else boolean_mask("mask", mask)
    if active is not None and active.shape != array.shape:
        way_out = f"Give a mask of the shape of {name}, {array.shape}."
        raise ConfigError("mask", "must have the values' shape", active.shape, way_out)
    if group_offsets is not None:
        if axis is not None:
            raise ConfigError("axis", "must be None when group_offsets are given", axis, "Leave it out.")
        if array.ndim != 1:
            way_out = "Concatenate the groups."
            raise ConfigError(name, "must be one-dimensional with group_offsets", array.shape, way_out)
        offsets = checked_offsets(group_offsets, array.size)
        shape: tuple[int, ...] = (offsets.size - 1,)
    elif axis is None:
        array, shape = array.reshape(-1), ()
        active = None if active is None else active.reshape(-1)
        offsets = np.array([0, array.size], dtype=np.int64)
    else:
        array, active, offsets, shape = _along_axis(array, active, axis)
    if active is not None:
        before = np.zeros(array.size + 1, dtype=np.int64)
        np.cumsum(active, out=before[1:])
        array, offsets = array[active], before[offsets]
    return Ragged(np.ascontiguousarray(array), offsets, shape)


def _along_axis(
    array: NDArray[np.float64], active: NDArray[np.bool_] | None, axis: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None, NDArray[np.int64], tuple[int, ...]]:
    """Lay the groups along an axis one after the other."""
    axis = axis_of(axis, array.ndim)
    moved = np.moveaxis(array, axis, -1)
    shape, width = moved.shape[:-1], moved.shape[-1]
    groups = int(np.prod(shape, dtype=np.int64))
    flat_active = None if active is None else np.moveaxis(active, axis, -1).reshape(-1)
    return moved.reshape(-1), flat_active, np.arange(groups + 1, dtype=np.int64) * width, shape
