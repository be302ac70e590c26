"""Importance weights from log ratios: raw, truncated, clipped or masked, per token or per sequence.

A token's ratio is ``r = exp(trainer log probability - behaviour log probability)``. What trainers do with it:

- truncate: ``min(r, upper)``, truncated importance sampling (Ionides 2008);
- clip: ``r`` brought into ``[lower, upper]``;
- mask: ``r`` inside the closed interval ``[lower, upper]``, 0 outside.

Bounds are applied to the *logarithm*, before any exponential, and what is rejected is selected away, never
multiplied by 0: a rejected ratio of e^800, or a NaN, contributes exactly nothing. A sequence's weight is the
product of its tokens' ratios or, by name, their geometric mean: over 8,000 tokens that drift by -0.00035
each these are 0.06 and 0.9997.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, choice, fit_together, one_number, paired, plain
from ..errors import ConfigError
from .ess_levels import sequence_log_weights
from .ragged import boolean_mask, float_values

MODES = ("raw", "truncate", "clip", "mask")
_NEEDS = {"raw": (), "truncate": ("upper",), "clip": ("lower", "upper"), "mask": ("lower", "upper")}
_LARGEST_LOG = float(np.log(np.finfo(np.float64).max))


@dataclass(frozen=True)
class SequenceWeights:
    """One weight per sequence, before and after the bounds.

    Attributes
    ----------
    log_weights : ndarray of float64
        Log weight before the bounds; it may lie outside what a float can hold as a weight.
    weights : ndarray of float64
        The weight after the bounds; 0 where masked.
    kept : ndarray of bool
        Whether the log weight lies inside the closed bounds.
    """

    log_weights: NDArray[np.float64]
    weights: NDArray[np.float64]
    kept: NDArray[np.bool_]


def _bounds(mode: str, lower: float | None, upper: float | None) -> tuple[float, float]:
    """Check that the mode has the bounds it needs, and no other; give both, open ones as 0 and infinity."""
    choice("mode", mode, MODES, way_out="Choose what happens to ratios outside the bounds.")
    given = {"lower": lower, "upper": upper}
    for name, bound in given.items():
        if (bound is None) == (name in _NEEDS[mode]):
            rule = f"is needed by mode {mode!r}" if bound is None else f"has no meaning for mode {mode!r}"
            raise ConfigError(name, rule, bound, "Give each mode its own bounds.")
    low = 0.0 if lower is None else one_number("lower", lower, minimum=0)
    high = np.inf if upper is None else one_number("upper", upper, above=0, infinity=True)
    if low > high:
        raise ConfigError("lower", f"must not exceed upper, {high:g}", low, "Swap the bounds.")
    return low, high


def _bounded(
    name: str, log_ratio: NDArray[np.float64], mode: str, low: float, high: float, keep: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Apply the bounds to kept log ratios; what is not kept gives exactly 0."""
    bad = keep & (np.isnan(log_ratio) | np.isposinf(log_ratio))
    if mode == "raw":
        bad |= keep & (log_ratio > _LARGEST_LOG)
    if bad.any():
        rule = "must be a number whose exponential is finite" if mode == "raw" else "must be a number"
        way_out = "Give bounds, or leave it out with keep."
        raise ConfigError(name, rule, float(log_ratio[bad][0]), way_out)
    with np.errstate(divide="ignore"):
        log_low, log_high = np.log(low), np.log(high)
    if mode == "mask":
        keep = keep & (log_ratio >= log_low) & (log_ratio <= log_high)
    weights = np.zeros(log_ratio.shape)
    inside = log_ratio[keep]
    bounded = np.exp(np.clip(inside, log_low, min(log_high, _LARGEST_LOG)))
    # exp(log(bound)) may miss the bound by an ulp; a ratio at or beyond a bound gets the bound itself.
    if mode in ("truncate", "clip"):
        bounded = np.where(inside >= log_high, high, np.where(inside <= log_low, low, bounded))
    weights[keep] = bounded
    return weights


def token_importance_weights(
    log_ratio: ArrayLike,
    *,
    mode: str,
    lower: float | None = None,
    upper: float | None = None,
    keep: ArrayLike | None = None,
) -> Floats:
    """Turn log ratios into weights, one by one.

    Parameters
    ----------
    log_ratio : array_like
        Trainer minus behaviour log probability; -inf gives a weight of 0.
    mode : {"raw", "truncate", "clip", "mask"}
        What happens to ratios outside the bounds; see the module.
    lower, upper : float, optional
        The bounds, as ratios. "truncate" needs upper; "clip" and "mask" need both.
    keep : array_like of bool, optional
        Broadcast against ``log_ratio``: what is not kept has weight 0, even if its log ratio is NaN.

    Returns
    -------
    float or ndarray of float64
        Finite weights of the broadcast shape.

    Raises
    ------
    ConfigError
        If a kept log ratio is NaN or plus infinity, or a raw one overflows, or bounds do not fit the mode.

    Examples
    --------
    >>> token_importance_weights([800.0, 0.0], mode="truncate", upper=2.0)
    array([2., 1.])
    >>> token_importance_weights([800.0, 0.0], mode="truncate", upper=2.0, keep=[0, 1])
    array([0., 1.])
    >>> token_importance_weights([-3.0, 0.0, 1.5], mode="mask", lower=0.5, upper=2.0)
    array([0., 1., 0.])
    """
    low, high = _bounds(mode, lower, upper)
    ratios = float_values("log_ratio", log_ratio)
    kept = np.asarray(True) if keep is None else boolean_mask("keep", keep)
    if not fit_together(ratios.shape, kept.shape):
        rule = f"must fit the shape of log_ratio, {ratios.shape}"
        raise ConfigError("keep", rule, kept.shape, "Give one flag per row as keep[:, None].")
    ratios, kept = paired(log_ratio=ratios, keep=kept)
    weights = _bounded("log_ratio", np.atleast_1d(ratios), mode, low, high, np.atleast_1d(kept))
    return plain(weights.reshape(ratios.shape))


def sequence_importance_weights(
    log_ratio: ArrayLike,
    *,
    level: str,
    mode: str,
    lower: float | None = None,
    upper: float | None = None,
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
) -> SequenceWeights:
    """Turn token log ratios into one weight per sequence, with its value before the bounds.

    Parameters
    ----------
    log_ratio : array_like
        Trainer minus behaviour log probability per token: rows of tokens, or flat with ``group_offsets``.
    level : {"sequence", "sequence_geometric"}
        The product of the ratios, or their geometric mean.
    mode, lower, upper
        As in :func:`token_importance_weights`.
    mask : array_like of bool, optional
        Active tokens.
    group_offsets : array_like of int, optional
        Where each sequence of a flat array begins, and the end.

    Returns
    -------
    SequenceWeights
        Log weights before the bounds, weights after them, and what lies inside. ``kept`` is the mask of a
        sequence filter whose tokens keep their own ratios: give ``keep=kept[:, None]`` to
        :func:`token_importance_weights`.

    Raises
    ------
    ConfigError
        If an active log ratio is NaN or plus infinity, or bounds do not fit the mode.

    Examples
    --------
    >>> ratios = [[0.1, 0.1], [1.0, 1.0]]
    >>> weights = sequence_importance_weights(
    ...     ratios, level="sequence_geometric", mode="mask", lower=0.5, upper=2.0
    ... )
    >>> weights.kept, weights.log_weights
    (array([ True, False]), array([0.1, 1. ]))
    """
    low, high = _bounds(mode, lower, upper)
    log_weights = np.atleast_1d(
        sequence_log_weights(log_ratio, level=level, mask=mask, group_offsets=group_offsets)
    )
    everything = np.ones(log_weights.shape, dtype=bool)
    weights = _bounded("sequence log weight", log_weights, mode, low, high, everything)
    with np.errstate(divide="ignore"):
        kept = (log_weights >= np.log(low)) & (log_weights <= np.log(high))
    return SequenceWeights(log_weights, weights, kept)
