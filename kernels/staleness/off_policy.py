"""The off-policy diagnostics that trainers report, from trainer and behaviour log probabilities.

With ``d = trainer - behaviour`` per active token, ``r = exp(d)`` and S the sum of d over a sequence:

===========================  ==================================================================
``k1_kl``                    mean of -d, the direct estimator of KL(behaviour || trainer)
``k3_kl``                    mean of r - d - 1, the same with less variance (J. Schulman, 2020)
``chi2_token``               mean of r**2, minus 1
``chi2_sequence``            mean over sequences of exp(2 S), minus 1
perplexities                 per sequence exp(-mean log probability), then the mean over sequences
``perplexity_ratio``         mean over sequences of exp(-mean d)
``token_probability_error``  mean of exp(|d|); about 1 when engine and trainer agree
===========================  ==================================================================

The definitions are those of verl's rollout correction and NeMo RL's ``token_mult_prob_error``; unlike
there, nothing is clamped and no small number is added, so a value beyond what a float holds is infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import one_number
from .._jit import jit
from ..errors import ConfigError
from .ess import effective_sample_size
from .ess_levels import rollout_ess, sequence_log_weights
from .ragged import ragged

_LARGEST_LOG = math.log(np.finfo(np.float64).max)


@dataclass(frozen=True)
class OffPolicyReport:
    """How far the trainer's policy is from the one that sampled; all NaN for a batch without active tokens.

    Fractions count ratios strictly above ``high`` and strictly below ``low``; the standard deviation is the
    population's. The three normalized ESS are of the raw ratios.
    """

    tokens: int
    sequences: int
    k1_kl: float
    k3_kl: float
    chi2_token: float
    chi2_sequence: float
    mean_weight: float
    std_weight: float
    min_weight: float
    max_weight: float
    mean_abs_log_ratio: float
    token_probability_error: float
    fraction_high: float
    fraction_low: float
    sequence_fraction_high: float
    sequence_fraction_low: float
    trainer_perplexity: float
    behaviour_perplexity: float
    log_perplexity_difference: float
    log_perplexity_abs_difference: float
    perplexity_ratio: float
    token_normalized_ess: float
    sequence_normalized_ess: float
    sequence_geometric_normalized_ess: float

    def alarms(self) -> tuple[str, ...]:
        """Say which of the usual thresholds are crossed.

        Returns
        -------
        tuple of str
            One sentence each: mean weight outside 0.5 to 2, token ESS below 0.3, standard deviation above
            1, absolute k1 above 0.1, token probability error above 1.05; or that nothing was active.
        """
        if not self.tokens:
            return ("no token is active",)
        rules = (
            (not 0.5 <= self.mean_weight <= 2, f"mean weight {self.mean_weight:.3g} is outside 0.5 to 2"),
            (
                self.token_normalized_ess < 0.3,
                f"token normalized ESS {self.token_normalized_ess:.3g} is below 0.3",
            ),
            (self.std_weight > 1, f"standard deviation of the weights {self.std_weight:.3g} is above 1"),
            (abs(self.k1_kl) > 0.1, f"KL estimate k1 {self.k1_kl:.3g} is beyond 0.1"),
            (
                self.token_probability_error > 1.05,
                f"token probability error {self.token_probability_error:.3g} is above 1.05",
            ),
        )
        return tuple(text for crossed, text in rules if crossed)


@jit(inline=True)
def _exp(x):
    """Exponential that is infinity beyond the largest float, without a warning."""
    return np.inf if x > _LARGEST_LOG else float(np.exp(x))


@jit
def _token_sums_kernel(log_ratio, high, low, sums):
    """Sum over tokens in two passes.

    log_ratio float64 (n,), n >= 1; high, low float64; output sums float64 (9,): mean of d, k3, r**2, r,
    squared deviation of r, |d|, exp(|d|), share above high, share below low.
    """
    count = log_ratio.size
    sums[:] = 0.0
    for i in range(count):
        difference = float(log_ratio[i])
        ratio = _exp(difference)
        sums[0] += difference
        # expm1 keeps k3 exact where the ratio is close to 1, its usual place; -inf - -inf would be NaN.
        if difference == -np.inf or ratio == np.inf:
            sums[1] = np.inf
        else:
            sums[1] += float(np.expm1(difference)) - difference
        sums[2] += _exp(2.0 * difference)
        sums[3] += ratio
        sums[5] += abs(difference)
        sums[6] += _exp(abs(difference))
        sums[7] += ratio > high
        sums[8] += ratio < low
    for k in range(9):
        sums[k] /= count
    mean = float(sums[3])
    if mean == np.inf:
        sums[4] = np.inf
    else:
        for i in range(count):
            deviation = _exp(float(log_ratio[i])) - mean
            sums[4] += deviation * deviation / count


def _log_probabilities(name: str, value: ArrayLike, axis: int | None, mask, offsets, zero: bool):
    """Read log probabilities of active tokens; NaN and plus infinity are refused, -inf where it cannot be."""
    tokens = ragged(name, value, axis=axis, mask=mask, group_offsets=offsets)
    bad = np.isnan(tokens.flat) | np.isposinf(tokens.flat)
    rule = "must be a number below infinity"
    if not zero:
        bad |= np.isneginf(tokens.flat)
        rule = "must be finite: a sampled token has a probability above 0"
    if bad.any():
        where = int(np.flatnonzero(bad)[0])
        place = f"{name}, active token {where}"
        way_out = "Mask the token out, or find where the log probability was lost."
        raise ConfigError(place, rule, float(tokens.flat[where]), way_out)
    return tokens


def off_policy_report(
    trainer_logprobs: ArrayLike,
    behavior_logprobs: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
    high: float = 2.0,
    low: float | None = None,
) -> OffPolicyReport:
    """Compute the diagnostics of one batch.

    Parameters
    ----------
    trainer_logprobs, behavior_logprobs : array_like
        Log probabilities of the same tokens: rows of tokens, or flat with ``group_offsets``.
    mask : array_like of bool, optional
        Active tokens. A sequence without active tokens does not count.
    group_offsets : array_like of int, optional
        Where each sequence of a flat array begins, and the end.
    high, low : float
        Ratios above and below which the fractions count; ``low`` is ``1 / high`` if not given.

    Returns
    -------
    OffPolicyReport

    Raises
    ------
    ConfigError
        If an active log probability is NaN or plus infinity, a behaviour one is -inf, or shapes differ.

    Examples
    --------
    >>> report = off_policy_report([[-1.0, -2.0]], [[-1.0, -2.0]])
    >>> report.k3_kl, report.mean_weight, report.token_normalized_ess, report.alarms()
    (0.0, 1.0, 1.0, ())
    """
    high = one_number("high", high, above=0)
    low = 1 / high if low is None else one_number("low", low, minimum=0)
    axis = None if group_offsets is not None else -1
    trainer = _log_probabilities("trainer_logprobs", trainer_logprobs, axis, mask, group_offsets, True)
    behaviour = _log_probabilities("behavior_logprobs", behavior_logprobs, axis, mask, group_offsets, False)
    if trainer.shape != behaviour.shape or trainer.flat.size != behaviour.flat.size:
        way_out = "Score exactly the sampled tokens; never pad or cut."
        rule = f"must match behavior_logprobs, {np.shape(behavior_logprobs)}"
        raise ConfigError("trainer_logprobs", rule, np.shape(trainer_logprobs), way_out)
    offsets = behaviour.offsets[np.r_[True, np.diff(behaviour.offsets) > 0]]
    if not behaviour.flat.size:
        unknown = dict.fromkeys((field.name for field in fields(OffPolicyReport)[2:]), float("nan"))
        return OffPolicyReport(tokens=0, sequences=0, **unknown)
    log_ratio = trainer.flat - behaviour.flat
    return OffPolicyReport(
        tokens=log_ratio.size,
        sequences=offsets.size - 1,
        **_token_diagnostics(log_ratio, high, low),
        **_sequence_diagnostics(log_ratio, offsets, high, low),
        **_perplexities(trainer.flat, behaviour.flat, offsets),
    )


def _token_diagnostics(log_ratio: NDArray[np.float64], high: float, low: float) -> dict[str, float]:
    """Compute what pools all tokens."""
    sums = np.empty(9)
    _token_sums_kernel(log_ratio, high, low, sums)
    with np.errstate(over="ignore"):
        least, greatest = np.exp([log_ratio.min(), log_ratio.max()])
    return {
        "k1_kl": -float(sums[0]),
        "k3_kl": float(sums[1]),
        "chi2_token": float(sums[2]) - 1,
        "mean_weight": float(sums[3]),
        "std_weight": math.sqrt(sums[4]),
        "min_weight": float(least),
        "max_weight": float(greatest),
        "mean_abs_log_ratio": float(sums[5]),
        "token_probability_error": float(sums[6]),
        "fraction_high": float(sums[7]),
        "fraction_low": float(sums[8]),
        "token_normalized_ess": float(effective_sample_size(log_weights=log_ratio, normalized=True)),
    }


def _sequence_diagnostics(
    log_ratio: NDArray[np.float64], offsets: NDArray[np.int64], high: float, low: float
) -> dict[str, float]:
    """Compute what has one weight per sequence."""
    totals = np.asarray(sequence_log_weights(log_ratio, group_offsets=offsets))
    with np.errstate(over="ignore"):
        chi2, ratio = np.exp(2 * totals).mean() - 1, np.exp(totals)
    return {
        "chi2_sequence": float(chi2),
        "sequence_fraction_high": float((ratio > high).mean()),
        "sequence_fraction_low": float((ratio < low).mean()),
        **{
            f"{level}_normalized_ess": float(
                rollout_ess(log_ratio, level=level, group_offsets=offsets).normalized_ess
            )
            for level in ("sequence", "sequence_geometric")
        },
    }


def _perplexities(
    trainer: NDArray[np.float64], behaviour: NDArray[np.float64], offsets: NDArray[np.int64]
) -> dict[str, float]:
    """Average the sequences' perplexities."""
    trainer_mean, behaviour_mean = (
        np.asarray(sequence_log_weights(values, level="sequence_geometric", group_offsets=offsets))
        for values in (trainer, behaviour)
    )
    difference = behaviour_mean - trainer_mean
    with np.errstate(over="ignore"):
        return {
            "trainer_perplexity": float(np.exp(-trainer_mean).mean()),
            "behaviour_perplexity": float(np.exp(-behaviour_mean).mean()),
            "log_perplexity_difference": float(difference.mean()),
            "log_perplexity_abs_difference": float(np.abs(difference).mean()),
            "perplexity_ratio": float(np.exp(difference).mean()),
        }
