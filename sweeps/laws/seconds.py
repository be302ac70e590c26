"""Laws in seconds, for what a rollout waits for beside decoding: tools, verifiers, rewards.

A law is a table of values and their distribution function: the value for a uniform ``u`` in [0, 1) is
``values_seconds[searchsorted(cdf, u, side="right")]``. A continuous law becomes 4,096 equally likely
values, its quantiles at the middles of 4,096 equal parts of [0, 1]: so a draw needs no logarithm or
exponential and is the same on every machine with the same table. Its mean differs a little from the law's
own, and nothing above the quantile at 1 - 1/8192 occurs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...kernels._arguments import Floats, plain, real_numbers
from ...kernels.draws.length_table import check_table, guide_table
from ...kernels.errors import ConfigError
from .base import FrozenLaw
from .checks import one_real, seconds_from, valid_seconds
from .distributions import midpoints, normal_quantile, scipy_distribution
from .files import AnyPath, Columns
from .mapping import law_data, law_from_mapping, law_text

QUANTILES = 4096


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SecondsLaw(FrozenLaw):
    """A law of durations in seconds, finite and at least 0. Build one with a class method.

    Equal tables make equal laws. Laws are frozen and hashable, can be pickled, and are their own copies.

    Attributes
    ----------
    name : str
        A short label.
    values_seconds : ndarray of float64, shape (n,), read-only
        The values, increasing.
    cdf : ndarray of float64, shape (n,), read-only
        Probability of at most ``values_seconds[i]``; ends with 1.
    guide : ndarray of int64, read-only
        The sampler's guide: ``sample_length(u, 0, cdf, guide)`` gives the index into ``values_seconds``.
    mean_seconds : float
        Mean of the table.
    digest : str
        SHA-256 of values and cdf, in hexadecimal digits.
    source : str or None
        The file and column.

    Examples
    --------
    >>> law = SecondsLaw.uniform(1, 3)
    >>> law.mean_seconds, SecondsLaw.from_dict(law.to_dict()) == law
    (2.0, True)
    """

    values_seconds: np.ndarray
    cdf: np.ndarray
    name: str
    spec: Mapping[str, Any]
    source: str | None = None
    embedded: Mapping[str, Any] | None = None
    guide: np.ndarray = field(init=False)
    mean_seconds: float = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        values = np.array(real_numbers("values_seconds", self.values_seconds, minimum=0))
        # The guide needs a table of rising probabilities, with one for each value.
        cdf = np.array(check_table(1, self.cdf))
        if values.shape != cdf.shape:
            way_out = "Give one probability for each value."
            raise ConfigError("values_seconds", f"must have {cdf.size} values", values.shape, way_out)
        guide = guide_table(cdf)
        for array in (values, cdf, guide):
            array.flags.writeable = False
        digest = hashlib.sha256(values.astype("<f8").tobytes() + cdf.astype("<f8").tobytes()).hexdigest()
        mean = math.fsum(values * np.diff(cdf, prepend=0.0))
        derived = {
            "values_seconds": values,
            "cdf": cdf,
            "guide": guide,
            "digest": digest,
            "mean_seconds": mean,
        }
        for key, value in derived.items():
            object.__setattr__(self, key, value)

    @classmethod
    def fixed(cls, seconds: float) -> SecondsLaw:
        """Every rollout takes the same time."""
        seconds = one_real("seconds", seconds, minimum=0)
        return cls._of([seconds], f"fixed({seconds:g})", {"law": "fixed", "seconds": seconds})

    @classmethod
    def uniform(cls, minimum: float, maximum: float) -> SecondsLaw:
        """Uniform law between two durations."""
        low, high = one_real("minimum", minimum, minimum=0), one_real("maximum", maximum)
        if high < low:
            raise ConfigError("maximum", f"must be at least the minimum, {low:g}", high, "Swap the two.")
        values = low + (high - low) * midpoints(QUANTILES)
        return cls._of(
            values, f"uniform({low:g}, {high:g})", {"law": "uniform", "minimum": low, "maximum": high}
        )

    @classmethod
    def exponential(cls, mean: float) -> SecondsLaw:
        """Exponential law: quantile ``-mean * log(1 - p)``."""
        mean = one_real("mean", mean, above=0)
        with np.errstate(over="ignore"):
            values = -mean * np.log1p(-midpoints(QUANTILES))
        values = valid_seconds(values, lambda i: "mean", "Give a mean that float64 can multiply.")
        return cls._of(values, f"exponential({mean:g})", {"law": "exponential", "mean": mean})

    @classmethod
    def lognormal(cls, median: float, sigma: float, maximum: float) -> SecondsLaw:
        """Lognormal law: quantile ``median * exp(sigma * ndtri(p))``, clipped to at most maximum seconds."""
        median = one_real("median", median, above=0)
        sigma = one_real("sigma", sigma, above=0, way_out="Use SecondsLaw.fixed for a law without spread.")
        maximum = one_real("maximum", maximum, minimum=0)
        with np.errstate(over="ignore"):  # cut at the maximum, however far beyond it
            values = np.minimum(median * np.exp(sigma * normal_quantile(midpoints(QUANTILES))), maximum)
        spec = {"law": "lognormal", "median": median, "sigma": sigma, "maximum": maximum}
        return cls._of(values, f"lognormal({median:g}, {sigma:g})", spec)

    @classmethod
    def from_scipy(cls, name: str, **parameters: float) -> SecondsLaw:
        """Take any continuous law of ``scipy.stats`` that is never negative, by name and parameters.

        Examples
        --------
        >>> round(SecondsLaw.from_scipy("gamma", a=2.0, scale=5.0).mean_seconds, 2)
        10.0
        """
        distribution, numbers = scipy_distribution(name, parameters)
        with np.errstate(all="ignore"):  # what comes of it is checked below
            values = np.asarray(distribution.ppf(midpoints(QUANTILES)), dtype=np.float64)
        place = f"{name}, quantile"
        values = valid_seconds(values, lambda i: place, "Move it by loc, or choose a law of positive values.")
        return cls._of(np.maximum.accumulate(values), name, {"law": "from_scipy", "name": name, **numbers})

    @classmethod
    def empirical(cls, seconds: Sequence[float] | np.ndarray) -> SecondsLaw:
        """Every duration seen is equally likely."""
        values = np.sort(seconds_from("seconds", seconds))
        return cls._of(
            values, f"empirical({values.size} durations)", {"law": "empirical", "seconds": values.tolist()}
        )

    @classmethod
    def from_file(cls, path: AnyPath, column: str) -> SecondsLaw:
        """Take the durations in a column of a CSV, JSON-lines or parquet file."""
        columns = Columns(path, [column])
        values = np.sort(columns.seconds(column))
        spec = {"law": "from_file", "path": Path(path).as_posix(), "column": column}
        return cls._of(
            values,
            f"{columns.path.name}:{column}",
            spec,
            source=f"File {columns.path.name}, column {column}.",
            embedded={"law": "empirical", "seconds": values.tolist()},
        )

    @classmethod
    def _of(cls, values: Any, name: str, spec: dict[str, Any], **more: Any) -> SecondsLaw:
        """Build a law from sorted, equally likely values; equal ones share an entry."""
        distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
        cdf = np.cumsum(counts) / int(counts.sum())
        return cls(values_seconds=distinct, cdf=cdf, name=name, spec=spec, **more)

    def quantile_seconds(self, uniforms: ArrayLike) -> Floats:
        """Return the values for uniforms in [0, 1): ``values_seconds[searchsorted(cdf, u, side="right")]``.

        Examples
        --------
        >>> SecondsLaw.empirical([4, 1]).quantile_seconds([0.0, 0.5]).tolist()
        [1.0, 4.0]
        """

        u = real_numbers("uniforms", uniforms, minimum=0, maximum=np.nextafter(1.0, 0.0))
        return plain(self.values_seconds[np.searchsorted(self.cdf, u, side="right")])

    def to_dict(self, embed: bool = False) -> dict[str, Any]:
        """Describe the law as plain data; with ``embed`` also what was read from a file."""
        return law_data(self.spec, self.embedded, self.digest, embed)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any], folder: AnyPath | None = None) -> SecondsLaw:
        """Build a law from plain data: ``law`` names the constructor, the other keys are its arguments.

        Examples
        --------
        >>> SecondsLaw.from_dict({"law": "fixed", "seconds": 2.5}).mean_seconds
        2.5
        """
        constructors = {name: getattr(cls, name) for name in _CONSTRUCTORS}
        return law_from_mapping(mapping, constructors, "environment_seconds", folder)

    @property
    def content_digest(self) -> str:
        """The digest; the name is shared with laws that hold more than a table."""
        return self.digest

    def _identity(self) -> tuple[Any, ...]:
        return (self.digest,)

    def __repr__(self) -> str:
        return law_text("SecondsLaw", self.spec)


_CONSTRUCTORS = ("fixed", "uniform", "exponential", "lognormal", "from_scipy", "empirical", "from_file")
