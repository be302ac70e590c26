"""The most likely parameters under priors and a robust loss, with intervals, and what the data say of each.

The loss of a residual r (a logarithm of predicted over measured) is sqrt(1 + (r / s)^2) - 1: a square for
small ones, the absolute value for large ones, so that a few requests that were preempted in the model and
not in the engine do not move the fit. All residuals together weigh as much as :data:`WEIGHT` independent
ones, since requests that ran together share their errors; the priors weigh one each.

Loss and priors together are minus the logarithm of a posterior. The value of a parameter is where it is
highest; intervals come from draws, by importance sampling in two rounds, since a simulation's loss is rough
and slopes would take its roughness for information. Where the data say nothing they are the priors' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .roofline import Prior

SCALE = 0.01
WEIGHT = 10.0
_STARTS, _FINALISTS = 40, 3
_DRAWN = (150, 250)
_KEPT = 1000
_ROUNDS, _REACH = 8, 0.25
_MEASURED, _PRIOR_ALONE = 0.4, 0.8

Residuals = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """One number of a fit.

    Attributes
    ----------
    name, words, unit : str
    value, low, high : float
        With the ends of its 95 % interval.
    prior : Prior, optional
        None for a coefficient, which follows from the parameters.
    told_by : str
        ``data``, ``data and prior`` or ``prior``.
    """

    name: str
    words: str
    unit: str
    value: float
    low: float
    high: float
    prior: Prior | None = None
    told_by: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return it as plain data."""
        found: dict[str, object] = {
            "name": self.name, "value": self.value, "low": self.low, "high": self.high, "unit": self.unit,
            "meaning": self.words,
        }  # fmt: skip
        if self.prior is not None:
            found["told_by"] = self.told_by
            found["prior"] = {"middle": self.prior.middle, "low": self.prior.low, "high": self.prior.high}
        return found


@dataclass(frozen=True)
class Optimum:
    """Where the loss is least, in the fit's own scale, and what may be as well.

    Attributes
    ----------
    place : ndarray
        One number a prior.
    spreads : ndarray
        Standard deviation of each over that of its prior.
    draws : ndarray
        Rows of parameters that the data and the priors allow.
    """

    priors: tuple[Prior, ...]
    place: np.ndarray
    spreads: np.ndarray
    draws: np.ndarray

    def parameters(self) -> np.ndarray:
        """Return the parameters themselves."""
        return values_at(self.priors, self.place)

    def estimates(self) -> tuple[Estimate, ...]:
        """Return each parameter with its interval and what says it."""
        return tuple(
            Estimate(
                prior.name,
                prior.words,
                prior.unit,
                value,
                *interval(self.draws[:, k], value),
                prior,
                told_by(spread),
            )
            for k, (prior, value, spread) in enumerate(
                zip(self.priors, self.parameters().tolist(), self.spreads.tolist())
            )
        )


def interval(drawn: np.ndarray, value: float) -> tuple[float, float]:
    """Return the ends of the 95 % interval of some draws; the most likely value lies inside, or is an end.

    Examples
    --------
    >>> interval(np.array([1.0, 1.0, 1.0]), 0.5)
    (0.5, 1.0)
    """
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist()
    return min(low, value), max(high, value)


def told_by(spread: float) -> str:
    """Say what a parameter was learnt from, by how much of its prior's spread is left.

    Examples
    --------
    >>> told_by(0.1), told_by(0.95)
    ('data', 'prior')
    """
    if spread < _MEASURED:
        return "data"
    return "prior" if spread > _PRIOR_ALONE else "data and prior"


def values_at(priors: Sequence[Prior], place: np.ndarray) -> np.ndarray:
    """Return parameters at a place of the fit's scale."""
    return np.array([prior.value(float(each)) for prior, each in zip(priors, place)])


def optimum(
    priors: tuple[Prior, ...], residuals: Residuals, *, rough: bool, weight: float = WEIGHT
) -> Optimum:
    """Find the most likely parameters.

    Parameters
    ----------
    priors : tuple of Prior
    residuals : callable
        Takes parameters, gives logarithms of predicted over measured, neighbours beside each other along
        the last axis; NaN where nothing was measured.
    rough : bool
        The residuals jump where parameters move a little, as those of a simulation do: then the loss is
        looked at in many places first.
    weight : float
        How many independent measurements all residuals are worth.
    """
    from scipy.optimize import minimize

    centre = np.array([prior.centre for prior in priors])
    spread = np.array([prior.spread for prior in priors])
    shares = np.array([prior.is_share for prior in priors])

    def folded(scaled: np.ndarray) -> np.ndarray:
        return np.where(shares, np.abs(scaled), scaled)  # below zero it goes on as above: no flat ground

    def errors(scaled: np.ndarray) -> np.ndarray:
        return residuals(values_at(priors, centre + spread * folded(scaled)))

    def loss(scaled: np.ndarray) -> float:
        found = errors(scaled)
        return weight * float(np.nanmean(np.sqrt(1 + (found / SCALE) ** 2) - 1)) + float(scaled @ scaled) / 2

    def lowest(start: np.ndarray, tries: int) -> np.ndarray:
        steps = {"maxfev": tries, "xatol": 2e-3, "fatol": 1e-4, "adaptive": True}
        found: np.ndarray = minimize(loss, start, method="Nelder-Mead", options=steps).x
        return found

    starts = sorted(_starts(len(priors), _STARTS if rough else 1), key=loss)
    best = min((_by_slopes(start, errors, loss, weight) for start in starts[:_FINALISTS]), key=loss)
    best = folded(lowest(best, 300))
    covariance = np.linalg.inv(_slopes(best, errors, weight)[1])
    best, drawn = _posterior(best, covariance, loss, lowest, shares)
    draws = np.array([values_at(priors, centre + spread * one) for one in folded(drawn)])
    return Optimum(priors, centre + spread * best, folded(drawn).std(axis=0), draws)


def _by_slopes(
    start: np.ndarray,
    errors: Callable[[np.ndarray], np.ndarray],
    loss: Callable[[np.ndarray], float],
    weight: float,
) -> np.ndarray:
    """Follow Gauss and Newton downhill."""
    best, here = start, loss(start)
    for _ in range(_ROUNDS):
        downhill, curvature = _slopes(best, errors, weight)
        step = np.linalg.solve(curvature, downhill)
        lowest, share = min((loss(best + share * step), share) for share in (1.0, 0.5, 0.2))
        if lowest > here - 1e-3:
            break
        best, here = best + share * step, lowest
    return best


def _slopes(
    place: np.ndarray, errors: Callable[[np.ndarray], np.ndarray], weight: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return where the loss falls and how it bends; slopes reach past a simulation's roughness."""
    found = errors(place).ravel()
    slopes = []
    for k in range(len(place)):
        moved = place.copy()
        moved[k] += _REACH
        slopes.append((errors(moved).ravel() - found) / _REACH)
    slope = np.array(slopes)
    known = np.isfinite(found) & np.isfinite(slope).all(axis=0)
    slope, found = slope[:, known], found[known]
    bend = weight / max(1, known.sum()) / SCALE**2 / np.sqrt(1 + (found / SCALE) ** 2)
    return -(slope * bend) @ found - place, (slope * bend) @ slope.T + np.eye(len(place))


def _posterior(
    best: np.ndarray,
    covariance: np.ndarray,
    loss: Callable[[np.ndarray], float],
    lowest: Callable[[np.ndarray, int], np.ndarray],
    shares: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best place, and places drawn in proportion to what loss and priors allow.

    The first round looks widely around the best place by slopes of the loss; the second around what the
    first found. A lower place that a round comes by is followed down.
    """
    rng = np.random.default_rng(0)
    middle = best
    lowest_loss = loss(best)
    for count in _DRAWN:
        places = _student(rng, middle, covariance, count)
        losses = np.array([loss(place) for place in places])
        if losses.min() < lowest_loss - 0.02:
            best = lowest(places[int(np.argmin(losses))], 200)
            best = np.where(shares, np.abs(best), best)
            lowest_loss = loss(best)
        weights = _weights(losses, places, middle, covariance)
        middle, covariance = _moments(places, weights, covariance)
    drawn = rng.choice(len(places), _KEPT, p=weights)
    return best, places[drawn]


def _student(rng: np.random.Generator, middle: np.ndarray, covariance: np.ndarray, count: int) -> np.ndarray:
    """Draw from a Student distribution with five degrees of freedom, wider than what it stands for."""
    factor = np.linalg.cholesky(covariance) * 1.4
    normal = rng.standard_normal((count, len(middle)))
    found: np.ndarray = middle + normal @ factor.T / np.sqrt(rng.chisquare(5, count) / 5)[:, None]
    return found


def _weights(
    losses: np.ndarray, places: np.ndarray, middle: np.ndarray, covariance: np.ndarray
) -> np.ndarray:
    """Return each draw's share: what loss and priors say over how likely it was to be drawn."""
    away = np.linalg.solve(np.linalg.cholesky(covariance) * 1.4, (places - middle).T)
    drawn = -(5 + len(middle)) / 2 * np.log1p((away**2).sum(axis=0) / 5)
    logarithms = -losses - drawn
    shares = np.exp(logarithms - logarithms.max())
    # A few draws of great weight would stand for all: what is above the root of their number is cut.
    shares /= shares.sum()
    shares = np.minimum(shares, 1 / np.sqrt(len(shares)))
    found: np.ndarray = shares / shares.sum()
    return found


def _moments(places: np.ndarray, weights: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of weighted draws, a little of the one before mixed in."""
    middle = weights @ places
    apart = places - middle
    covariance = (apart * weights[:, None]).T @ apart
    return middle, covariance + 0.02 * np.diag(np.diag(before))


def _starts(count: int, how_many: int) -> list[np.ndarray]:
    """Return places to look at first, in standard deviations of the priors: the middle and around it."""
    from scipy.stats import norm, qmc

    middle = np.zeros(count)
    middle[-1] = 0.1
    if how_many == 1:
        return [middle]
    places = qmc.Sobol(count, scramble=False).random(64)[1:how_many]
    return [middle, *(1.5 * norm.ppf(0.1 + 0.8 * row) for row in places)]
