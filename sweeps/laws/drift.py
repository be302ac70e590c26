"""Laws of drift: what a lag does to importance weights, measured from rollout records.

A law holds the log ratios of every lag that was measured, and gives a run a table of them (see
:mod:`.staleness.measured_drift`): at each lag one empirical law of mean weight 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ...kernels._arguments import listed, real_numbers, whole_numbers
from ...kernels.errors import ConfigError
from ...kernels.staleness.measured_drift import DriftTable, drift_table
from ..checks import WholeNumber, checked, path_of, text_of
from ..records.log_ratios import LARGEST_LAG, MOST_LOG_RATIOS, Level, checked_level, read_log_ratios
from .base import FrozenLaw
from .files import AnyPath
from .mapping import law_data, law_from_mapping, law_text

Beyond = Literal["refuse", "last"]
LARGEST_LOG_RATIO = 1e6  # more than a sequence has, and far from where sums overflow


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DriftLaw(FrozenLaw):
    """A drift measured from rollout records. Build one with a class method.

    Two laws are equal when their log ratios, their level and what they say of larger lags are. Laws are
    frozen and hashable, can be pickled, and are their own copies.

    Attributes
    ----------
    name : str
        A short label.
    level : {"token", "sequence"}
        What one weight is of.
    lags : ndarray of int64, shape (m,), read-only
        The measured lags, rising.
    log_ratios : tuple of ndarray of float64, each (n,), read-only
        Of each lag: trainer minus behaviour log probability, rising, as they were measured.
    beyond : {"refuse", "last"}
        What holds of lags above the largest measured one: nothing, so that a configuration which may have
        such lags is refused; or the law of the largest one.
    table : DriftTable
        What a run reads.
    digest : str
        SHA-256 of lags, log ratios, level and `beyond`, in hexadecimal digits.
    source : str or None
        The file.

    Examples
    --------
    >>> law = DriftLaw.from_log_ratios([0, 1], [[0.0, 0.0], [-0.4, 0.2]], level="sequence")
    >>> [round(law.normalized_ess(lag), 3) for lag in (0, 1)], DriftLaw.from_dict(law.to_dict()) == law
    ([1.0, 0.922], True)
    """

    level: Level
    lags: np.ndarray
    log_ratios: tuple[np.ndarray, ...]
    name: str
    spec: Mapping[str, Any]
    beyond: Beyond = "refuse"
    source: str | None = None
    embedded: Mapping[str, Any] | None = None
    table: DriftTable = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        level, beyond = checked_level(self.level), _beyond(self.beyond)
        lags, ratios = _checked(self.lags, self.log_ratios)
        digest = hashlib.sha256(f"{level} {beyond} {lags.tolist()}".encode())
        for array in (lags, *ratios):
            array.flags.writeable = False
            digest.update(len(array).to_bytes(8, "little") + array.astype("<f8").tobytes())
        derived = {
            "level": level,
            "beyond": beyond,
            "lags": lags,
            "log_ratios": ratios,
            "table": drift_table(lags.tolist(), ratios),
            "digest": digest.hexdigest(),
        }
        for key, value in derived.items():
            object.__setattr__(self, key, value)

    @classmethod
    def from_records(cls, path: AnyPath, level: str, beyond: str = "refuse") -> DriftLaw:
        """Take the log ratios of rollout records, JSON lines or parquet, with ``trainer_logprobs``.

        Parameters
        ----------
        path : path_like
            Records as ``docs/rollout-contract.md`` says.
        level : {"token", "sequence"}
            Whether every token has a weight, or a whole response one.
        beyond : {"refuse", "last"}
            Whether lags above the largest measured one are refused, or have its law.
        """
        read = read_log_ratios(path, level)
        by_lag = read.by_lag()
        spec = {"law": "from_records", "path": path_of("path", path).as_posix(), "level": read.level}
        lags, ratios = list(by_lag), [np.sort(one).tolist() for one in by_lag.values()]
        return cls._of(
            read.level, lags, ratios, _beyond(beyond), f"{read.file}:{read.level}", spec, f"File {read.file}."
        )

    @classmethod
    def from_log_ratios(
        cls,
        lags: Sequence[int],
        log_ratios: Sequence[Sequence[float]],
        level: str,
        beyond: str = "refuse",
        name: str | None = None,
    ) -> DriftLaw:
        """Take log ratios as they are: one list for each lag, trainer minus behaviour log probability."""
        chosen, held = checked_level(level), _beyond(beyond)
        known, ratios = _checked(lags, log_ratios)
        total = sum(map(len, ratios))
        label = (
            f"{chosen} drift({total} log ratios)" if name is None else text_of("name", name, "Give a word.")
        )
        return cls._of(chosen, known.tolist(), [one.tolist() for one in ratios], held, label)

    @classmethod
    def _of(
        cls,
        level: Level,
        lags: list[int],
        ratios: list[list[float]],
        beyond: Beyond,
        name: str,
        spec: dict[str, Any] | None = None,
        source: str | None = None,
    ) -> DriftLaw:
        more = {"level": level, **({} if beyond == "refuse" else {"beyond": beyond})}
        data = {"law": "from_log_ratios", "lags": lags, "log_ratios": ratios, **more, "name": name}
        return cls(
            level=level,
            lags=np.array(lags),
            log_ratios=tuple(map(np.array, ratios)),
            name=name,
            spec=data if spec is None else {**spec, **more},
            beyond=beyond,
            source=source,
            embedded=None if spec is None else data,
        )

    @property
    def largest_lag(self) -> int:
        """The largest lag that was measured."""
        return int(self.lags[-1])

    @property
    def words(self) -> str:
        """What the law is from, in a few words, and what it takes for granted.

        Examples
        --------
        >>> DriftLaw.from_log_ratios([1, 3], [[0.0], [0.1]], level="token", beyond="last", name="mine").words
        'mine, measured at lags 1, 3 (lag 0: weights of 1; lags beyond 3: as 3)'
        """
        lags = self.lags.tolist()
        whole = lags == list(range(lags[0], lags[-1] + 1)) and len(lags) > 2
        measured = f"{lags[0]} to {lags[-1]}" if whole else ", ".join(map(str, lags))
        notes = [*(["lag 0: weights of 1"] if lags[0] else [])]
        notes += [f"lags beyond {lags[-1]}: as {lags[-1]}"] if self.beyond == "last" else []
        said = f"{self.name}, measured at lag{'s' if len(lags) > 1 else ''} {measured}"
        return f"{said} ({'; '.join(notes)})" if notes else said

    def normalized_ess(self, lag: int) -> float:
        """Return the expected normalized ESS of many rollouts at one lag: ``m1**2 / m2``.

        Raises
        ------
        ConfigError
            For a lag above the largest measured one, unless the last law holds beyond it.
        """
        wanted = checked(WholeNumber, "lag", lag, low=0, high=2**52)
        if wanted > self.largest_lag and self.beyond == "refuse":
            way_out = "Measure larger lags, or build it with beyond='last'."
            raise ConfigError(
                "lag", f"must be at most {self.largest_lag}, the largest measured", lag, way_out
            )
        at = min(wanted, self.largest_lag)
        return float(self.table.first_moment[at] ** 2 / self.table.second_moment[at])

    def to_dict(self, embed: bool = False) -> dict[str, Any]:
        """Describe the law as plain data; with ``embed`` the log ratios that were read from a file, too."""
        return law_data(self.spec, self.embedded, self.digest, embed)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any], folder: AnyPath | None = None) -> DriftLaw:
        """Build a law from plain data: ``law`` names the constructor, the other keys are its arguments.

        Examples
        --------
        >>> data = {"law": "from_log_ratios", "lags": [1], "log_ratios": [[-0.1, 0.1]], "level": "token"}
        >>> DriftLaw.from_dict(data).largest_lag
        1
        """
        constructors = {name: getattr(cls, name) for name in _CONSTRUCTORS}
        return law_from_mapping(mapping, constructors, "drift", folder)

    @property
    def content_digest(self) -> str:
        """The digest; the name is shared with laws that hold more than a table."""
        return self.digest

    def _identity(self) -> tuple[Any, ...]:
        return (self.digest,)

    def __repr__(self) -> str:
        if "log_ratios" not in self.spec:
            return law_text("DriftLaw", self.spec)
        return law_text(
            "DriftLaw", {**self.spec, "log_ratios": [one for row in self.log_ratios for one in row]}
        )


def _checked(lags: Any, log_ratios: Any) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return lags and, for each, its log ratios in rising order."""
    known = np.atleast_1d(whole_numbers("lags", lags, minimum=0)).astype(np.int64)
    rows = listed("log_ratios", log_ratios, "Give one list for each lag.")
    if known.ndim != 1 or not len(known) or (np.diff(known) <= 0).any() or known[-1] > LARGEST_LAG:
        raise ConfigError("lags", f"must rise from 0 or more to at most {LARGEST_LAG}", lags, "Sort them.")
    if len(rows) != len(known):
        rule = f"must have one list for each lag, {len(known)}"
        raise ConfigError("log_ratios", rule, len(rows), "Give one list for each lag.")
    ratios = []
    for place, row in enumerate(rows):
        numbers = np.atleast_1d(real_numbers(f"log_ratios[{place}]", row))
        if numbers.ndim != 1 or not numbers.size or np.abs(numbers).max() > LARGEST_LOG_RATIO:
            rule = f"must be a list of numbers, none beyond ±{LARGEST_LOG_RATIO:g}"
            raise ConfigError(f"log_ratios[{place}]", rule, row, "Leave out a lag of which nothing is known.")
        ratios.append(np.sort(numbers.astype(np.float64)))
    total = sum(map(len, ratios))
    if total > MOST_LOG_RATIOS:
        rule = f"must be at most {MOST_LOG_RATIOS:,} numbers"
        raise ConfigError("log_ratios", rule, total, "Give a part of them.")
    return known, tuple(ratios)


def _beyond(value: Any) -> Beyond:
    chosen: Beyond = checked(Beyond, "beyond", value, way_out="Write 'last' to hold the last law.")
    return chosen


_CONSTRUCTORS = ("from_records", "from_log_ratios")
