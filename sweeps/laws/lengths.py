"""Laws of the response length: built from parameters, data or files, held as one exact integer table.

Whatever a law is made from, a run sees only its table: ``minimum`` and ``cdf`` (see
:mod:`.draws.length_table`). A table starts at the configured minimum and ends at the configured
maximum, also where the law gives the ends no probability: ``maximum`` is what an engine must reserve for
a response. Empirical laws run from the shortest to the longest length seen.

A trace may keep more than lengths: pairs of tokens and seconds (agents' seconds need not follow their
tokens), or groups of rollouts that share a prompt. Its rows are then picked by the same uniform as the
table's length, so that the tokens are the same with and without the extra.

Importing this module loads NumPy only; SciPy and polars come in when a law needs them.
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

from ...kernels._arguments import Integers, listed, plain, real_numbers
from ...kernels.draws.length_table import (
    check_table,
    guide_table,
    law_moments,
    mix_tables,
    table_digest,
    table_from_cdf_values,
    table_from_counts,
)
from ...kernels.errors import ConfigError
from ..checks import flag_of, text_of
from .base import FrozenLaw
from .checks import lengths_from, one_real, one_whole, seconds_from, token_range
from .distributions import normal_distribution, scipy_distribution
from .files import AnyPath, Columns
from .mapping import checked_parts, law_data, law_from_mapping, law_text, parts_from_data
from .rows import TraceRows
from .schedule import checked_segments, pooled_table, segments_from_data
from .seconds import SecondsLaw
from .shipped import shipped_data, source_text

__all__ = ["LengthLaw", "SecondsLaw"]

_DEFAULT_MAXIMUM = 2048  # tokens, of a lognormal law
_MOST_CUT_BY_DEFAULT = 0.05  # a larger share of cut responses has to be asked for


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LengthLaw(FrozenLaw):
    """A law of the response length in whole tokens, at least 1. Build one with a class method.

    Two laws are equal when their tables, their cut and their rows (pairs, groups) are: names and sources
    do not count. Laws are frozen and hashable, can be pickled, and are their own copies.

    Attributes
    ----------
    name : str
        A short label.
    minimum, maximum : int
        Ends of the table, in tokens.
    cdf : ndarray of float64, shape (maximum - minimum + 1,), read-only
        Probability of at most ``minimum + i`` tokens.
    guide : ndarray of int64, read-only
        The sampler's guide, see :func:`.draws.length_table.guide_table`.
    digest : str
        SHA-256 of minimum and cdf, in hexadecimal digits.
    mean_tokens, std_tokens : float
        Mean and standard deviation of the table.
    smallest_tokens, largest_tokens : int
        Ends of what the table really gives.
    cut_at_maximum : bool
        Whether the law went on beyond the maximum and was cut there: a rollout of that length has no end of
        sequence. Never for fixed, uniform and empirical laws.
    source : str or None
        Attribution and license of shipped data, or the file and column.
    rows : TraceRows or None
        The rows of a trace with pairs or groups.
    parts : tuple of (float, LengthLaw)
        Weights and laws of a mixture, else empty.
    segments : tuple of (int, LengthLaw)
        Of a schedule, else empty: the published version from which each law holds. The schedule's own table
        gives every segment the same weight.

    Examples
    --------
    >>> law = LengthLaw.lognormal(median=300, sigma=0.6, minimum=16, maximum=2048)
    >>> law
    LengthLaw.lognormal(median=300.0, sigma=0.6, minimum=16, maximum=2048)
    >>> law.quantile(0.5), round(law.mean_tokens, 1)
    (300, 358.9)
    >>> LengthLaw.from_dict(law.to_dict()) == law
    True
    """

    minimum: int
    cdf: np.ndarray
    name: str
    spec: Mapping[str, Any]
    cut_at_maximum: bool = False
    source: str | None = None
    rows: TraceRows | None = None
    parts: tuple[tuple[float, LengthLaw], ...] = ()
    segments: tuple[tuple[int, LengthLaw], ...] = ()
    embedded: Mapping[str, Any] | None = None
    maximum: int = field(init=False)
    guide: np.ndarray = field(init=False)
    digest: str = field(init=False)
    mean_tokens: float = field(init=False)
    std_tokens: float = field(init=False)
    smallest_tokens: int = field(init=False)
    largest_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        cdf = np.array(check_table(self.minimum, self.cdf))
        guide = guide_table(cdf)
        cdf.flags.writeable = guide.flags.writeable = False
        moments = law_moments(self.minimum, cdf)
        derived = {
            "cdf": cdf,
            "guide": guide,
            "maximum": self.minimum + cdf.size - 1,
            "digest": table_digest(self.minimum, cdf),
            "mean_tokens": moments.mean,
            "std_tokens": math.sqrt(moments.variance),
            "smallest_tokens": moments.smallest,
            "largest_tokens": moments.largest,
        }
        for key, value in derived.items():
            object.__setattr__(self, key, value)

    # What a law is made from.

    @classmethod
    def lognormal(
        cls, median: float = 300, sigma: float = 0.6, minimum: int = 16, maximum: int | None = None
    ) -> LengthLaw:
        """Lognormal: ``F(x) = ndtr((log x - log median) / sigma)``, clipped to minimum … maximum tokens.

        A left-out maximum is 2,048, and is refused where that would cut 5 % of the responses or more.
        """
        median = one_real("median", median, above=0)
        sigma = one_real("sigma", sigma, above=0, way_out="Use LengthLaw.fixed for a law without spread.")
        low, high = token_range(minimum, _DEFAULT_MAXIMUM if maximum is None else maximum)
        x = np.arange(low, high + 1) + 0.5
        with np.errstate(over="ignore"):  # a law without spread: 0 or 1
            values = normal_distribution((np.log(x) - math.log(median)) / sigma)
        cut = 1.0 - values[-1]
        if maximum is None and cut >= _MOST_CUT_BY_DEFAULT:
            raise ConfigError(
                "maximum",
                f"must be given: the default, {high:,} tokens, would cut {cut:.0%} of the responses",
                None,
                "Give the longest response, as an engine's limit.",
            )
        spec = {"law": "lognormal", "median": median, "sigma": sigma, "minimum": low, "maximum": high}
        return cls._continuous(low, values, f"lognormal({median:g}, {sigma:g})", spec)

    @classmethod
    def fixed(cls, n: int) -> LengthLaw:
        """Every response has n tokens."""
        n = one_whole("n", n)
        return cls(minimum=n, cdf=np.ones(1), name=f"fixed({n})", spec={"law": "fixed", "n": n})

    @classmethod
    def uniform(cls, minimum: int, maximum: int) -> LengthLaw:
        """Every whole length from minimum to maximum is equally likely."""
        low, high = token_range(minimum, maximum)
        cdf = table_from_counts(np.ones(high - low + 1, dtype=np.int64))
        spec = {"law": "uniform", "minimum": low, "maximum": high}
        return cls(minimum=low, cdf=cdf, name=f"uniform({low}, {high})", spec=spec)

    @classmethod
    def geometric(cls, mean: float, maximum: int) -> LengthLaw:
        """Geometric law on 1, 2, … with the given mean before the cut, clipped to at most maximum tokens.

        After each token the response ends with probability p = 1 / mean: ``F(k) = 1 - (1 - p)**k``. As for
        the other laws that are clipped, the mean may lie beyond the maximum: all that is longer then has the
        maximum, ``cut_at_maximum`` says so, and so does a note under results.
        """
        mean = one_real("mean", mean, minimum=1)
        _, high = token_range(1, maximum)
        k = np.arange(1, high + 1)
        values = -np.expm1(k * np.log1p(-1.0 / mean)) if mean > 1.0 else np.ones(high)
        spec = {"law": "geometric", "mean": mean, "maximum": high}
        return cls._continuous(1, values, f"geometric({mean:g})", spec)

    @classmethod
    def from_scipy(
        cls, name: str, minimum: int = 1, maximum: int | None = None, **parameters: float
    ) -> LengthLaw:
        """Take any continuous law of ``scipy.stats`` by its name there, clipped to minimum … maximum tokens.

        The maximum must be given; parameters are the shape parameters by name, ``loc`` and ``scale``.

        Examples
        --------
        >>> LengthLaw.from_scipy("gamma", a=2.0, scale=100.0, maximum=4096).quantile(0.5)
        168
        """
        distribution, numbers = scipy_distribution(name, parameters)
        if maximum is None:
            raise ConfigError(
                "maximum", "must be given", None, "Give the longest response, as an engine's limit."
            )
        low, high = token_range(minimum, maximum)
        with np.errstate(all="ignore"):  # what comes of it is checked as a table
            values = distribution.cdf(np.arange(low, high + 1) + 0.5)
        spec = {"law": "from_scipy", "name": name, "minimum": low, "maximum": high, **numbers}
        return cls._continuous(low, values, name, spec)

    @classmethod
    def empirical(cls, lengths: Sequence[int] | np.ndarray) -> LengthLaw:
        """Every length seen is equally likely: the exact counts."""
        tokens, counts = np.unique(lengths_from("lengths", lengths), return_counts=True)
        return cls._counted(tokens, counts, name=f"empirical({int(counts.sum())} lengths)")

    @classmethod
    def from_counts(cls, tokens: Sequence[int], counts: Sequence[int]) -> LengthLaw:
        """Each length of ``tokens`` (no length twice) was seen ``counts`` times."""
        lengths = lengths_from("tokens", tokens)
        times = lengths_from("counts", counts)
        if lengths.shape != times.shape:
            raise ConfigError(
                "counts", f"must have {lengths.size} values, as tokens", times.size, "Give pairs."
            )
        values, first = np.unique(lengths, return_index=True)
        if values.size != lengths.size:
            twice = int(np.setdiff1d(np.arange(lengths.size), first)[0])
            raise ConfigError(
                "tokens", "must name no length twice", int(lengths[twice]), "Add up its counts."
            )
        return cls._counted(values, times[first], name=f"empirical({int(times.sum())} lengths)")

    @classmethod
    def from_table(cls, minimum: int, cdf: Sequence[float], cut_at_maximum: bool = False) -> LengthLaw:
        """Take a table as it is: ``cdf[i]`` is the probability of at most ``minimum + i`` tokens."""
        low, cut = one_whole("minimum", minimum), flag_of("cut_at_maximum", cut_at_maximum)
        table = check_table(low, cdf)
        spec = {
            "law": "from_table",
            "minimum": low,
            "cdf": table.tolist(),
            "cut_at_maximum": cut,
        }
        name = f"table({low}, {low + table.size - 1})"
        return cls(minimum=low, cdf=table, name=name, spec=spec, cut_at_maximum=cut)

    @classmethod
    def from_file(cls, path: AnyPath, column: str) -> LengthLaw:
        """Take the lengths in a column of a CSV, JSON-lines or parquet file: the exact counts."""
        columns = Columns(path, [column])
        tokens, counts = np.unique(columns.lengths(column), return_counts=True)
        spec = {"law": "from_file", "path": _text(path), "column": column}
        return cls._counted(tokens, counts, spec=spec, **_file_labels(columns, column))

    @classmethod
    def mixture(cls, parts: Sequence[tuple[float, LengthLaw]]) -> LengthLaw:
        """Mix laws: each part is drawn with the probability of its weight over the sum of the weights.

        The mixture is cut at its maximum if every part that reaches the maximum was cut there.
        """
        pairs = checked_parts(cls, parts)
        low, cdf = mix_tables([(weight, law.minimum, law.cdf) for weight, law in pairs])
        high = low + cdf.size - 1
        cut = all(law.cut_at_maximum for _, law in pairs if law.largest_tokens == high)
        reached = any(law.largest_tokens == high for _, law in pairs)
        name = " + ".join(f"{weight:g} {law.name}" for weight, law in pairs)
        sources = list(dict.fromkeys(law.source for _, law in pairs if law.source))
        return cls(
            minimum=low,
            cdf=cdf,
            name=f"mixture({name})",
            spec={"law": "mixture"},
            parts=pairs,
            cut_at_maximum=cut and reached,
            source="\n".join(sources) or None,
        )

    @classmethod
    def schedule(cls, segments: Sequence[tuple[int, LengthLaw]]) -> LengthLaw:
        """Let the law follow the published version: each segment's law holds from a version on.

        A rollout's law is that of the version it starts with, read with its own uniform, so a run of one
        segment is that law's run.

        Examples
        --------
        >>> law = LengthLaw.schedule([(0, LengthLaw.fixed(100)), (50, LengthLaw.fixed(300))])
        >>> law.minimum, law.maximum, law.segments[1][0]
        (100, 300, 50)
        """
        pairs = checked_segments(cls, segments)
        laws = [law for _, law in pairs]
        low, cdf = pooled_table(laws)
        high = low + cdf.size - 1
        sources = list(dict.fromkeys(law.source for law in laws if law.source))
        return cls(
            minimum=low,
            cdf=cdf,
            name=f"schedule({', '.join(f'{version}: {law.name}' for version, law in pairs)})",
            spec={"law": "schedule"},
            segments=pairs,
            cut_at_maximum=any(law.cut_at_maximum and law.maximum == high for law in laws),
            source="\n".join(sources) or None,
        )

    @classmethod
    def shipped(cls, name: str) -> LengthLaw:
        """Load a real law that comes with the package; ``source`` gives attribution and license.

        Examples
        --------
        >>> law = LengthLaw.shipped("aime-rl-1000")
        >>> law.minimum, law.maximum
        (11, 7121)
        """
        kind, tokens, column = shipped_data(text_of("name", name, "Name a shipped law."))
        labels: dict[str, Any] = {"name": name, "source": source_text(name)}
        labels["spec"] = {"law": "shipped", "name": name}
        if kind == "pairs":
            return cls._from_rows(TraceRows.of_pairs(tokens, np.array(column, dtype=np.float64)), **labels)
        if kind == "groups":
            return cls._from_rows(TraceRows.of_groups(tokens, column), **labels)
        return cls._counted(tokens, np.array(column, dtype=np.int64), **labels)

    @classmethod
    def paired(cls, tokens: Sequence[int], seconds: Sequence[float]) -> LengthLaw:
        """Keep each rollout's seconds (tools, verifier) with its tokens; a draw picks a whole row."""
        lengths, durations = lengths_from("tokens", tokens), seconds_from("seconds", seconds)
        return cls._from_rows(TraceRows.of_pairs(lengths, durations), name=f"paired({lengths.size} rows)")

    @classmethod
    def paired_from_file(cls, path: AnyPath, tokens_column: str, seconds_column: str) -> LengthLaw:
        """Read pairs of tokens and seconds from two columns of a CSV, JSON-lines or parquet file."""
        columns = Columns(path, [tokens_column, seconds_column])
        rows = TraceRows.of_pairs(columns.lengths(tokens_column), columns.seconds(seconds_column))
        spec = {
            "law": "paired_from_file",
            "path": _text(path),
            "tokens_column": tokens_column,
            "seconds_column": seconds_column,
        }
        return cls._from_rows(rows, spec=spec, **_file_labels(columns, tokens_column))

    @classmethod
    def grouped(cls, tokens: Sequence[int], groups: Sequence[Any]) -> LengthLaw:
        """Keep together the rollouts that share a prompt: ``groups`` holds one id per length."""
        lengths = lengths_from("tokens", tokens)
        ids = tuple(groups) if isinstance(groups, str) else listed("groups", groups, "Give one id a row.")
        rows = TraceRows.of_groups(lengths, ids)
        return cls._from_rows(rows, name=f"grouped({lengths.size} rows)")

    @classmethod
    def grouped_from_file(cls, path: AnyPath, column: str, group_column: str) -> LengthLaw:
        """Read lengths and their group ids from two columns of a CSV, JSON-lines or parquet file."""
        columns = Columns(path, [column, group_column])
        rows = TraceRows.of_groups(columns.lengths(column), columns.groups(group_column))
        spec = {
            "law": "grouped_from_file",
            "path": _text(path),
            "column": column,
            "group_column": group_column,
        }
        return cls._from_rows(rows, spec=spec, **_file_labels(columns, column))

    @classmethod
    def _continuous(cls, low: int, values: np.ndarray, name: str, spec: dict[str, Any]) -> LengthLaw:
        cut = bool(values[-1] < 1.0)
        return cls(minimum=low, cdf=table_from_cdf_values(values), name=name, spec=spec, cut_at_maximum=cut)

    @classmethod
    def _counted(
        cls, tokens: np.ndarray, counts: np.ndarray, *, name: str, spec: Any = None, **more: Any
    ) -> LengthLaw:
        """Build a law from sorted lengths and how often each was seen."""
        dense = np.zeros(int(tokens[-1] - tokens[0]) + 1, dtype=np.int64)
        dense[tokens - tokens[0]] = counts
        data = more.pop("data", None) or {
            "law": "from_counts",
            "tokens": tokens.tolist(),
            "counts": counts.tolist(),
        }
        if spec is None:
            spec = data
        elif "path" in spec:
            more["embedded"] = data
        return cls(minimum=int(tokens[0]), cdf=table_from_counts(dense), name=name, spec=spec, **more)

    @classmethod
    def _from_rows(cls, rows: TraceRows, *, name: str, spec: Any = None, **more: Any) -> LengthLaw:
        tokens, counts = np.unique(rows.tokens, return_counts=True)
        return cls._counted(tokens, counts, name=name, spec=spec, rows=rows, data=rows.to_dict(), **more)

    # What a law is asked.

    @property
    def paired_tokens(self) -> np.ndarray | None:
        """Tokens of the rows of a paired law, in the order of (tokens, seconds); None for other laws."""
        return self.rows.tokens if self.rows is not None and self.rows.seconds is not None else None

    @property
    def paired_seconds(self) -> np.ndarray | None:
        """Seconds of the rows of a paired law; None for other laws."""
        return self.rows.seconds if self.rows is not None else None

    @property
    def brings_seconds(self) -> bool:
        """Whether rollouts have seconds beside their tokens: a paired law, or one among the segments."""
        return self.paired_seconds is not None or any(law.brings_seconds for _, law in self.segments)

    @property
    def group_tokens(self) -> np.ndarray | None:
        """Tokens of the rows of a grouped law, group after group; None for other laws."""
        return self.rows.tokens if self.rows is not None and self.rows.group_starts is not None else None

    @property
    def group_starts(self) -> np.ndarray | None:
        """First row of each group of a grouped law, and at the end the number of rows; None for others."""
        return self.rows.group_starts if self.rows is not None else None

    @property
    def group_of_row(self) -> np.ndarray | None:
        """Group of each row of a grouped law; None for other laws."""
        return self.rows.group_of_row if self.rows is not None else None

    @property
    def truncated_share(self) -> float:
        """Share of the responses that the maximum cuts, so that they have no end of sequence.

        Examples
        --------
        >>> round(LengthLaw.lognormal(median=9000, sigma=0.8, maximum=2048).truncated_share, 3)
        0.968
        """
        if not self.cut_at_maximum:
            return 0.0
        return 1.0 - float(self.cdf[-2]) if self.cdf.size > 1 else 1.0

    def within_group_correlation(self) -> float:
        """Say how alike the lengths of one prompt are: a grouped law's intraclass correlation, ICC(1)."""
        if self.rows is None:
            raise ConfigError(
                "law", "must have groups", self.name, "Build it with LengthLaw.grouped_from_file."
            )
        return self.rows.within_group_correlation()

    def quantile(self, q: ArrayLike) -> Integers:
        """Return the smallest length k with a probability of at least q for k tokens or fewer.

        Parameters
        ----------
        q : float or array_like of float
            In [0, 1]; 0 gives the smallest length that can occur.

        Returns
        -------
        int or ndarray of int64
        """

        probability = np.maximum(real_numbers("q", q, minimum=0, maximum=1), np.nextafter(0.0, 1.0))
        return plain(self.minimum + np.searchsorted(self.cdf, probability, side="left"))

    def sample(self, count: int, seed: int = 0, first: int = 0) -> np.ndarray:
        """Return the lengths of ``count`` rollouts of a seed, from number ``first``, as its runs see them.

        Examples
        --------
        >>> LengthLaw.fixed(7).sample(3).tolist()
        [7, 7, 7]
        """
        from ...kernels.draws.philox import philox_words, uniforms
        from ...kernels.draws.sampler import sample_lengths

        return sample_lengths(uniforms(philox_words(seed, first=first, count=count)[:, 0]), self)

    # A law as data.

    def to_dict(self, embed: bool = False) -> dict[str, Any]:
        """Describe the law as plain data for TOML or JSON; ``from_dict`` builds an equal law from it.

        Parameters
        ----------
        embed : bool
            Put what was read from a file into the result, so that it stands without the file. Otherwise a law
            from a file carries its digest: the file must not change.

        Returns
        -------
        dict
        """
        if self.parts:
            parts = [{"weight": weight, **law.to_dict(embed)} for weight, law in self.parts]
            return {"law": "mixture", "parts": parts}
        if self.segments:
            segments = [{"from": version, **law.to_dict(embed)} for version, law in self.segments]
            return {"law": "schedule", "segments": segments}
        return law_data(self.spec, self.embedded, self.content_digest, embed)

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any], folder: AnyPath | None = None) -> LengthLaw:
        """Build a law from plain data: ``law`` names the constructor, the other keys are its arguments.

        Parameters
        ----------
        mapping : Mapping
            For example ``{"law": "lognormal", "median": 300}``; a mixture has ``parts``, each a law with a
            ``weight``, a schedule ``segments``, each a law with ``from``.
        folder : path_like, optional
            Where a relative ``path`` starts.

        Examples
        --------
        >>> short, long = {"weight": 3, "law": "fixed", "n": 100}, {"weight": 1, "law": "fixed", "n": 300}
        >>> LengthLaw.from_dict({"law": "mixture", "parts": [short, long]}).mean_tokens
        150.0
        """

        def mixture(parts: Any) -> LengthLaw:
            return cls.mixture(parts_from_data(cls, parts, folder))

        def schedule(segments: Any) -> LengthLaw:
            return cls.schedule(segments_from_data(cls, segments, folder))

        constructors = {name: getattr(cls, name) for name in _CONSTRUCTORS}
        constructors |= {"mixture": mixture, "schedule": schedule}
        return law_from_mapping(mapping, constructors, "response_length", folder)

    @property
    def content_digest(self) -> str:
        """The digest, with the rows of a trace or the segments of a schedule where the law has them."""
        if self.segments:
            parts = [f"{version} {law.content_digest} {law.cut_at_maximum}" for version, law in self.segments]
            return hashlib.sha256("\n".join(parts).encode()).hexdigest()
        if self.rows is None:
            return self.digest
        return hashlib.sha256(f"{self.digest} {self.rows.digest}".encode()).hexdigest()

    def _identity(self) -> tuple[Any, ...]:
        return self.content_digest, self.cut_at_maximum

    def __repr__(self) -> str:
        if self.parts:
            return f"LengthLaw.mixture({list(self.parts)!r})"
        if self.segments:
            return f"LengthLaw.schedule({list(self.segments)!r})"
        return law_text("LengthLaw", self.spec)


def _text(path: AnyPath) -> str:
    return Path(path).as_posix()


def _file_labels(columns: Columns, column: str) -> dict[str, str]:
    label = f"{columns.path.name}:{column}"
    return {"name": label, "source": f"File {columns.path.name}, column {column}."}


_CONSTRUCTORS = (
    "lognormal",
    "fixed",
    "uniform",
    "geometric",
    "from_scipy",
    "empirical",
    "from_counts",
    "from_table",
    "from_file",
    "mixture",
    "schedule",
    "shipped",
    "paired",
    "paired_from_file",
    "grouped",
    "grouped_from_file",
)
