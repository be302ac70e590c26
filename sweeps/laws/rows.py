"""The rows of a trace that says more than lengths: seconds beside tokens, or prompts with several rollouts.

Rows are drawn by the uniform that draws a length. With rows in the order of their tokens (pairs),
:func:`.draws.sampler.pick_row` gives exactly the tokens that the table gives. A group is
drawn by a row too: the row picked is the first member, the next members are the next rows of its group,
from its start again after its end (:func:`.draws.sampler.member_row`). So each member's
length follows the trace's lengths, and groups with more rows are drawn more often.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError


@dataclass(frozen=True, eq=False)
class TraceRows:
    """Rows of a trace, as read-only arrays.

    Attributes
    ----------
    tokens : ndarray of int64, shape (rows,)
        Length of each rollout; sorted by (tokens, seconds) for pairs, group after group for groups.
    seconds : ndarray of float64, shape (rows,), or None
        Seconds of each rollout, for pairs.
    group_starts : ndarray of int64, shape (groups + 1,), or None
        First row of each group, and the number of rows.
    group_of_row : ndarray of int64, shape (rows,), or None
        Group of each row.
    """

    tokens: np.ndarray
    seconds: np.ndarray | None = None
    group_starts: np.ndarray | None = None
    group_of_row: np.ndarray | None = None

    def __post_init__(self) -> None:
        for array in (self.tokens, self.seconds, self.group_starts, self.group_of_row):
            if array is not None:
                array.flags.writeable = False

    def __reduce__(self) -> Any:
        # Built anew, because NumPy's pickles forget that an array is read-only.
        return TraceRows, (self.tokens, self.seconds, self.group_starts, self.group_of_row)

    @classmethod
    def of_pairs(cls, tokens: np.ndarray, seconds: np.ndarray) -> TraceRows:
        """Sort pairs by tokens, then seconds, so that the order in the trace does not matter."""
        if tokens.shape != seconds.shape:
            raise ConfigError(
                "seconds", f"must have {tokens.size} values, as tokens", seconds.size, "Give pairs."
            )
        order = np.lexsort((seconds, tokens))
        return cls(tokens[order], seconds[order])

    @classmethod
    def of_groups(cls, tokens: np.ndarray, ids: Sequence[Any]) -> TraceRows:
        """Put the rows of a group together; groups come in the order of their first rows."""
        if len(ids) != tokens.size:
            raise ConfigError(
                "groups", f"must have {tokens.size} values, as tokens", len(ids), "Give one id a row."
            )
        for key in ids:
            if isinstance(key, list | dict | set | np.ndarray):
                raise ConfigError("groups", "must be texts or numbers", key, "Give one id a row.")
        number: dict[Any, int] = {}
        group = np.array([number.setdefault(key, len(number)) for key in ids], dtype=np.int64)
        order = np.argsort(group, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(group))]).astype(np.int64)
        return cls(tokens[order], None, starts, group[order])

    @property
    def digest(self) -> str:
        """SHA-256 of all arrays, little-endian, each preceded by its size."""
        digest = hashlib.sha256()
        for array, kind in ((self.tokens, "<i8"), (self.seconds, "<f8"), (self.group_starts, "<i8")):
            size = -1 if array is None else array.size
            digest.update(size.to_bytes(8, "little", signed=True))
            if array is not None:
                digest.update(array.astype(kind).tobytes())
        return digest.hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the rows as plain data, by the arguments of ``LengthLaw.paired`` or ``.grouped``."""
        if self.seconds is not None:
            return {"law": "paired", "tokens": self.tokens.tolist(), "seconds": self.seconds.tolist()}
        groups = [] if self.group_of_row is None else self.group_of_row.tolist()
        return {"law": "grouped", "tokens": self.tokens.tolist(), "groups": groups}

    def within_group_correlation(self) -> float:
        """Return the intraclass correlation of the lengths, ICC(1): 1 if groups tell all, near 0 if nothing.

        With mean squares between and within groups ``B`` and ``W`` of a one-way analysis of variance and
        ``n0 = (n - sum(n_g**2) / n) / (groups - 1)``: ``(B - W) / (B + (n0 - 1) * W)`` (P. E. Shrout,
        J. L. Fleiss, "Intraclass correlations", Psychological Bulletin 86 (1979) 420-428; n0 for groups of
        unequal size: A. Donner, International Statistical Review 54 (1986) 67-82). It may be negative;
        NaN if all lengths are equal.

        Raises
        ------
        ConfigError
            If there are no groups, one only, or none with two rows.

        Examples
        --------
        >>> rows = TraceRows.of_groups(np.array([10, 14, 30, 34]), ["a", "a", "b", "b"])
        >>> round(rows.within_group_correlation(), 2)  # (400 - 8) / (400 + 8)
        0.96
        """
        if self.group_starts is None or self.group_of_row is None:
            raise ConfigError(
                "groups", "must be there", None, "Build the law with LengthLaw.grouped_from_file."
            )
        sizes = np.diff(self.group_starts).astype(np.float64)
        groups, n = sizes.size, float(self.tokens.size)
        if groups < 2 or n == groups:
            raise ConfigError(
                "groups", "must be two or more, one with two rows", groups, "Group by another column."
            )
        tokens = self.tokens.astype(np.float64)
        means = np.add.reduceat(tokens, self.group_starts[:-1]) / sizes
        between = float(np.sum(sizes * (means - tokens.mean()) ** 2)) / (groups - 1)
        within = float(np.sum((tokens - means[self.group_of_row]) ** 2)) / (n - groups)
        n0 = (n - float(np.sum(sizes**2)) / n) / (groups - 1)
        bottom = between + (n0 - 1.0) * within
        return (between - within) / bottom if bottom > 0.0 else math.nan
