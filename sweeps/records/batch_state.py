"""What is remembered of the records of a file of any size, for the rules that only the whole shows.

Per record: 16 bytes of digest of its sample id and 8 of its line (and 17 more if it has an episode); per
group: 16 bytes of digest, its size, its first line, its smallest and largest reward, some 56 bytes. Two ids
are taken for the same only where 128 bits agree: among ten million different ones the chance of that is
below 1e-23, so that no finding comes from a digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ...kernels._arguments import is_whole
from ...kernels.contract.batch import MOST_KINDS, BatchWords
from ...kernels.contract.findings import ContractFinding

_SEEDS = {"text": (11, 7_919), "whole": (13, 104_729), "rare": (17, 1_299_709)}
_MERGE_ROWS = 500_000
Digests = tuple[NDArray[np.uint64], NDArray[np.uint64]]


def column_digests(values: pl.Series, kind: str) -> Digests:
    """Digest ids of one kind to 128 bits each; both halves are above 0.

    Parameters
    ----------
    values : polars.Series
        Texts, or whole numbers as Int64; without nulls.
    kind : str
        ``text``, ``whole`` or ``rare``: "1" and 1 differ.
    """
    high, low = (values.hash(seed).to_numpy() for seed in _SEEDS[kind])
    return np.maximum(high, np.uint64(1)), np.maximum(low, np.uint64(1))


def value_digests(values: Sequence[Any]) -> Digests:
    """Digest ids of any kind, one by one of its own; (0, 0) for what is no id.

    Examples
    --------
    >>> high, low = value_digests(["1", 1, None, "1"])
    >>> bool(high[0] == high[3]), bool(high[0] == high[1]), int(high[2])
    (True, False, 0)
    """
    high, low = np.zeros(len(values), dtype=np.uint64), np.zeros(len(values), dtype=np.uint64)
    kinds: dict[str, list[int]] = {"text": [], "whole": [], "rare": []}
    for index, value in enumerate(values):
        if isinstance(value, str) and value.strip():
            # A lone surrogate is no UTF-8, which a column must be.
            kinds["text" if _is_utf8(value) else "rare"].append(index)
        elif is_whole(value) and int(value).bit_length() <= 64:
            kinds["whole" if int(value).bit_length() < 64 else "rare"].append(index)
    for kind, places in kinds.items():
        if places:
            chosen = [values[index] for index in places]
            if kind == "whole":
                series = pl.Series([int(value) for value in chosen], dtype=pl.Int64)
            else:
                texts = [value if kind == "text" else ascii(value) for value in chosen]
                series = pl.Series(texts, dtype=pl.String)
            high[places], low[places] = column_digests(series, kind)
    return high, low


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class BatchState:
    """The records of one file, added some thousand at a time.

    Parameters
    ----------
    group_size : int, optional
        How many rollouts each group must have.
    with_rewards : bool
        Whether the rewards of groups are kept too, which no rule needs.
    """

    def __init__(self, *, group_size: int | None, with_rewards: bool = True) -> None:
        self.group_size = group_size
        self._with_rewards = with_rewards
        self.records = 0
        self.group_field = "prompt_id"
        self._words = BatchWords(lines=True)
        self._samples: list[tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]] = []
        self._episodes: list[tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64], Any]] = []
        self._groups: list[pl.DataFrame] = []
        self._merged = False
        self._kinds: tuple[dict[Any, int], dict[Any, int]] = ({}, {})

    def add(
        self,
        places: NDArray[np.int64],
        samples: Digests,
        groups: Digests,
        episodes: Digests,
        bad: NDArray[np.bool_],
        rewards: NDArray[np.float64] | None,
    ) -> None:
        """Take note of records in the order of their lines; a reward of NaN is none."""
        self.records += places.size
        self._samples.append((*samples, places))
        if episodes[0].any():
            there = episodes[0] != 0
            self._episodes.append(
                (episodes[0][there], episodes[1][there], places[there], bad[there]),
            )
        there = groups[0] != 0
        if there.any():
            chosen = slice(None) if there.all() else there
            part = _group_rows(groups[0][chosen], groups[1][chosen], places[chosen])
            starts = part.pop("starts")
            if self._with_rewards and rewards is not None:
                own = rewards[chosen]
                part["rewards"] = np.add.reduceat(~np.isnan(own), starts, dtype=np.uint32)
                part["least"] = np.fmin.reduceat(own, starts)
                part["most"] = np.fmax.reduceat(own, starts)
            self._groups.append(pl.DataFrame(part).with_columns(pl.col(pl.Float64).fill_nan(None)))
            self._merged = False
            if sum(part.height for part in self._groups[1:]) > max(_MERGE_ROWS, self._groups[0].height):
                self._groups = [self.groups()]

    def note_kinds(self, temperatures: Mapping[Any, int], verifiers: Mapping[Any, int]) -> None:
        """Take note of temperatures and verifiers with the place where each was seen first."""
        for known, seen in zip(self._kinds, (temperatures, verifiers)):
            for kind, place in sorted(seen.items(), key=lambda item: item[1]):
                if len(known) < MOST_KINDS:
                    known.setdefault(kind, place)

    def groups(self) -> pl.DataFrame:
        """Return one row per group: size, first place, how many rewards, the least and the most of them."""
        empty: dict[str, Any] = {"high": pl.UInt64, "low": pl.UInt64, "size": pl.UInt32, "first": pl.Int64}
        sums = [pl.col("size").sum().cast(pl.UInt32), pl.col("first").min()]
        if self._with_rewards:
            empty |= {"rewards": pl.UInt32, "least": pl.Float64, "most": pl.Float64}
            ends = (pl.col("least").min(), pl.col("most").max())
            sums += [pl.col("rewards").sum().cast(pl.UInt32), *ends]
        if len(self._groups) != 1 or not self._merged:
            self._merged = True
            parts = self._groups or [pl.DataFrame(schema=empty)]
            self._groups = [pl.concat(parts).group_by("high", "low").agg(*sums)]
        return self._groups[0]

    def findings(self) -> Iterator[tuple[int, ContractFinding]]:
        """Return the place and the finding of every broken batch rule, one at a time."""
        yield from self._duplicates()
        yield from self._group_sizes()
        yield from self._episodes_in_part()
        yield from self._words.mixtures(*self._kinds)

    def _duplicates(self) -> Iterator[tuple[int, ContractFinding]]:
        """Find ids by half of their digests, and then hold both halves of these few together."""
        if not self._samples:
            return
        keys = np.concatenate([high for high, _, _ in self._samples])
        keys.sort()
        again = np.unique(keys[1:][(keys[1:] == keys[:-1]) & (keys[1:] != 0)])
        del keys
        if not again.size:
            return
        found = []
        for high, low, places in self._samples:
            chosen = np.isin(high, again)
            found.append((high[chosen], low[chosen], places[chosen]))
        high, low, places = (np.concatenate(parts) for parts in zip(*found))
        for run in _runs(high, low):
            for index in run[1:]:
                yield int(places[index]), self._words.duplicate(int(places[index]), int(places[run[0]]))

    def _group_sizes(self) -> Iterator[tuple[int, ContractFinding]]:
        if self.records < 2 and self.group_size is None:
            return
        groups = self.groups()
        if self.group_size is None:
            singles = groups.filter(pl.col("size") == 1)
            if singles.height:
                first: Any = singles["first"].min()
                yield first, self._words.singles(first, self.group_field, singles.height)
            return
        wrong = groups.filter(pl.col("size") != self.group_size).sort("first")
        for place, size in wrong.select("first", "size").iter_rows():
            yield place, self._words.group_size(place, self.group_field, size, self.group_size)

    def _episodes_in_part(self) -> Iterator[tuple[int, ContractFinding]]:
        if not self._episodes:
            return
        high, low, places, bad = (np.concatenate(parts) for parts in zip(*self._episodes))
        for run in _runs(high, low):
            wrong = run[bad[run]]
            if not wrong.size or wrong.size == run.size:
                continue
            for index in run[~bad[run]]:
                place = int(places[index])
                yield place, self._words.episode(place, int(places[wrong[0]]), wrong.size, run.size)


def _group_rows(
    high: NDArray[np.uint64], low: NDArray[np.uint64], places: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Return one row for each run of records that follow one another and are of one group."""
    change = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    starts = np.r_[0, np.flatnonzero(change) + 1]
    sizes = np.diff(starts, append=high.size).astype(np.uint32)
    found = {"high": high[starts], "low": low[starts], "size": sizes, "first": places[starts]}
    return found | {"starts": starts}


def _runs(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
    """Return the indices of equal pairs, two or more of each, in the order of their first ones."""
    order = np.lexsort((low, high))  # stable: within a run the order of lines stays
    change = (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0)
    starts = np.flatnonzero(np.r_[True, change]) if order.size else np.empty(0, dtype=np.int64)
    ends = np.r_[starts[1:], order.size]
    chosen = np.flatnonzero(ends - starts >= 2)
    for run in chosen[np.argsort(order[starts[chosen]])]:
        yield order[starts[run] : ends[run]]
