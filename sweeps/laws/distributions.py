"""Continuous distributions for laws, from SciPy and loaded only when one is built."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, nearest
from .checks import one_real


def normal_distribution(x: Any) -> Any:
    """Return the standard normal distribution function (``scipy.special.ndtr``)."""
    from scipy.special import ndtr

    return ndtr(x)


def normal_quantile(probability: Any) -> Any:
    """Return the standard normal quantile (``scipy.special.ndtri``)."""
    from scipy.special import ndtri

    return ndtri(probability)


def scipy_distribution(name: Any, parameters: dict[str, Any]) -> tuple[Any, dict[str, float]]:
    """Look up a continuous law of ``scipy.stats`` and fix its parameters.

    Parameters
    ----------
    name : str
        As SciPy spells it, for example ``"gamma"``.
    parameters : dict
        Shape parameters by name, ``loc`` and ``scale``.

    Returns
    -------
    (frozen distribution, dict)
        The distribution and its parameters as floats.

    Raises
    ------
    ConfigError
        If the name or a parameter is unknown, one is missing, or they are not in the distribution's domain.
    """
    from scipy import stats

    known = [key for key, value in vars(stats).items() if isinstance(value, stats.rv_continuous)]
    if not isinstance(name, str) or name not in known:
        way_out = nearest(name, known) or "See scipy.stats for the continuous distributions."
        raise ConfigError("name", "must be a continuous distribution of scipy.stats", name, way_out)
    distribution = getattr(stats, name)
    shapes = [part.strip() for part in (distribution.shapes or "").split(",") if part.strip()]
    allowed = [*shapes, "loc", "scale"]
    for key in parameters:
        if key not in allowed:
            way_out = nearest(key, allowed) or f"Parameters: {', '.join(allowed)}."
            raise ConfigError(key, f"must be a parameter of {name}", parameters[key], way_out)
    for key in shapes:
        if key not in parameters:
            raise ConfigError(
                key, f"must be given for {name}", parameters, f"Parameters: {', '.join(allowed)}."
            )
    numbers = {key: one_real(key, value) for key, value in parameters.items()}
    with np.errstate(all="ignore"):  # what comes of it is judged by the values
        frozen = distribution(**numbers)
        middle = float(frozen.ppf(0.5))
    if math.isnan(middle):
        raise ConfigError(
            "parameters", f"must be in the domain of {name}", numbers, "See its page in scipy.stats."
        )
    return frozen, numbers


def midpoints(count: int) -> np.ndarray:
    """Return the middles of ``count`` equal parts of [0, 1]."""
    return (np.arange(count) + 0.5) / count
