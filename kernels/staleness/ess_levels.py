"""The effective sample size of a batch of rollouts, at a level that is named.

A rollout's tokens give ratios of trainer to behaviour probability. Pooled over all tokens, multiplied up per
sequence, or averaged per sequence they give very different answers, and trainers report any of them under
one name. Here the caller names the level; the pooled ESS of all tokens and the mean of the sequences' own
are two different numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .._arguments import Floats, choice, plain
from .._jit import jit
from ..errors import ConfigError
from .ess import EssReport, report_groups
from .ragged import Ragged, ragged

LEVELS = ("token", "sequence", "sequence_geometric", "sequence_per_token", "within_sequence")


@jit
def _sequence_log_weight_kernel(log_ratio, offsets, geometric, log_weights):
    """Add up the log ratios of each sequence, or average them when geometric.

    log_ratio float64 (n,); offsets int64 (sequences + 1,); output log_weights float64 (sequences,).
    """
    for sequence in range(offsets.size - 1):
        total = 0.0
        for i in range(offsets[sequence], offsets[sequence + 1]):
            total += log_ratio[i]
        if geometric and offsets[sequence + 1] > offsets[sequence]:
            total /= offsets[sequence + 1] - offsets[sequence]
        log_weights[sequence] = total


def token_log_ratios(log_ratio: ArrayLike, mask: ArrayLike | None, group_offsets: ArrayLike | None) -> Ragged:
    """Read token log ratios as sequences: padded rows with a mask, or flat with offsets; refuse NaN.

    Examples
    --------
    >>> token_log_ratios([[0.5, 9.0], [1.0, 2.0]], [[1, 0], [1, 1]], None).flat
    array([0.5, 1. , 2. ])
    """
    axis = None if group_offsets is not None else -1
    tokens = ragged("log_ratio", log_ratio, axis=axis, mask=mask, group_offsets=group_offsets)
    if np.isnan(tokens.flat).any() or np.isposinf(tokens.flat).any():
        where = int(np.flatnonzero(np.isnan(tokens.flat) | np.isposinf(tokens.flat))[0])
        place, bad = f"log_ratio, active token {where}", float(tokens.flat[where])
        way_out = "Mask the token out, or find where the log probability was lost."
        raise ConfigError(place, "must be a number below infinity", bad, way_out)
    return tokens


def sequence_log_weights(
    log_ratio: ArrayLike,
    *,
    level: str = "sequence",
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
) -> Floats:
    """Turn token log ratios into one log weight per sequence.

    Parameters
    ----------
    log_ratio : array_like
        Trainer minus behaviour log probability per token: rows of tokens, or flat with ``group_offsets``.
    level : {"sequence", "sequence_geometric"}
        The sum of the log ratios (the true importance weight), or their mean (the geometric mean ratio).
    mask : array_like of bool, optional
        Active tokens.
    group_offsets : array_like of int, optional
        Where each sequence of a flat array begins, and the end.

    Returns
    -------
    float or ndarray of float64
        One log weight per sequence; 0 for a sequence without active tokens.

    Raises
    ------
    ConfigError
        If an active log ratio is NaN or plus infinity, or shapes do not fit.

    Examples
    --------
    >>> sequence_log_weights([[0.5, 0.25, 9.0], [1.0, 1.0, 1.0]], mask=[[1, 1, 0], [1, 1, 1]])
    array([0.75, 3.  ])
    """
    one_per_sequence = ("sequence", "sequence_geometric")
    choice("level", level, one_per_sequence, rule="must be 'sequence' or 'sequence_geometric'")
    tokens = token_log_ratios(log_ratio, mask, group_offsets)
    log_weights = np.empty(tokens.offsets.size - 1)
    _sequence_log_weight_kernel(tokens.flat, tokens.offsets, level == "sequence_geometric", log_weights)
    return plain(log_weights.reshape(tokens.shape))


def rollout_ess(
    log_ratio: ArrayLike,
    *,
    level: str,
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
) -> EssReport:
    """Compute the ESS of a batch of rollouts at a level that is named.

    The level matters more than the lag: for real rollouts of a small model, three updates old, the
    normalized ESS is 0.26 over tokens, 0.035 over sequences and 0.92 over geometric means.

    Parameters
    ----------
    log_ratio : array_like
        Trainer minus behaviour log probability per token: rows of tokens, or flat with ``group_offsets``.
    level : str
        ``"token"``: all active tokens pooled. ``"sequence"``: one weight per sequence, the product of
        its ratios. ``"sequence_geometric"``: their geometric mean. ``"sequence_per_token"``: the
        sequence's weight once per token, so that long sequences count more (what some trainers report).
        ``"within_sequence"``: each sequence's own tokens, one answer per sequence.
    mask, group_offsets
        As in :func:`sequence_log_weights`. A sequence without active tokens does not count.

    Returns
    -------
    EssReport
        One answer, or one per sequence for ``"within_sequence"``.

    Raises
    ------
    ConfigError
        If an active log ratio is NaN or plus infinity, or the level is unknown.

    Examples
    --------
    >>> ratios = [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0986122886681098, 0.0, 0.0]]
    >>> active = [[1, 1, 1, 1], [1, 1, 0, 0]]
    >>> round(rollout_ess(ratios, level="token", mask=active).normalized_ess, 4)
    0.7619
    >>> rollout_ess(ratios, level="within_sequence", mask=active).normalized_ess
    array([1. , 0.8])
    """
    choice("level", level, LEVELS, way_out="Name the level; there is no default.")
    tokens = token_log_ratios(log_ratio, mask, group_offsets)
    if level == "within_sequence":
        return report_groups(tokens, True)
    if level == "token":
        flat = tokens.flat
    else:
        lengths = np.diff(tokens.offsets)
        flat = np.empty(lengths.size)
        _sequence_log_weight_kernel(tokens.flat, tokens.offsets, level == "sequence_geometric", flat)
        flat = np.repeat(flat, lengths) if level == "sequence_per_token" else flat[lengths > 0]
    return report_groups(Ragged(flat, np.array([0, flat.size], dtype=np.int64), ()), True)
