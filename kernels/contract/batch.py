"""The rules that only a batch can show: ids that repeat, groups and episodes that are not whole, mixtures.

Records are added one by one and forgotten; what is kept is 33 bytes per record (digests of its ids, its
place, one flag), and some 40 bytes more while the batch is closed. Ids are compared by 64-bit digests:
among ten million different ids the chance of one false match is below 1 in 100,000.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import is_number, is_whole
from ..errors import Words, many
from .findings import ContractFinding, make_finding, shown
from .record import RecordCheck, is_finite

MOST_KINDS = 1000


def _digest(value: Any) -> int:
    """Digest an id to 64 bits, 0 for "no id"; the text "1" and the number 1 differ."""
    if isinstance(value, str) and value.strip():
        kind = b"t" + value.encode("utf-8", "surrogatepass")
    elif is_whole(value) and int(value).bit_length() <= 64:
        kind = b"n%d" % value
    else:
        return 0
    return int.from_bytes(blake2b(kind, digest_size=8).digest(), "little") or 1


class BatchWords:
    """The sentences of the batch rules, for records that are named by line or by index.

    Parameters
    ----------
    lines : bool
        Whether places are physical line numbers of a file, else indices of a list.
    """

    def __init__(self, *, lines: bool) -> None:
        self.lines = lines

    def _make(
        self, code: str, place: int, name: str, rule: str, value: Any, way_out: str, occurrences: int = 1
    ) -> ContractFinding:
        path = name if self.lines else f"records[{place}].{name}"
        return make_finding(code, path, rule, value, way_out, occurrences=occurrences)

    def _other(self, place: int) -> str:
        return f"line {place}" if self.lines else f"records[{place}]"

    def duplicate(self, place: int, first: int) -> ContractFinding:
        """Say that a record has the id of an earlier one."""
        rule = f"must occur once in a batch, and {self._other(first)} has it already"
        way_out = "Number the rollouts of a prompt apart."
        got = Words("the same id again")
        return self._make("duplicate_sample_id", place, "sample_id", rule, got, way_out)

    def group_size(self, place: int, name: str, size: int, wanted: int) -> ContractFinding:
        """Say that a group has another number of rollouts than is wanted."""
        rule = f"must have {wanted} rollouts in its group"
        got = Words(f"{size} from {self._other(place)} on")
        return self._make("group_size", place, name, rule, got, "Drop or complete the group.")

    def singles(self, place: int, name: str, count: int) -> ContractFinding:
        """Say that groups have one rollout each."""
        rule = "should be shared by a group, whose mean is the baseline"
        got = Words(many(count, "group of one", "groups of one"))
        way_out = "A group id that is new for each sample makes every advantage 0."
        return self._make("group_of_one", place, name, rule, got, way_out, count)

    def episode(self, place: int, first_bad: int, bad: int, size: int) -> ContractFinding:
        """Say that another record of the same episode has errors."""
        rule = f"must be that of a whole episode, and {self._other(first_bad)} of it has errors"
        got = Words(f"{bad} bad of {size}")
        way_out = "Drop the episode as a whole."
        return self._make("episode_incomplete", place, "episode_id", rule, got, way_out)

    def mixtures(
        self, temperatures: Mapping[Any, int], verifiers: Mapping[Any, int]
    ) -> Iterator[tuple[int, ContractFinding]]:
        """Say that a batch refers to several temperatures or verifiers; each comes with its first place."""
        mixtures = (
            ("mixed_temperature", "decoding", "temperature", temperatures),
            ("mixed_verifier", "verifier_version", "verifier version", verifiers),
        )
        for code, name, what, kinds in mixtures:
            if len(kinds) > 1:
                second = list(kinds.values())[1]
                values = Words(", ".join(shown(kind) for kind in list(kinds)[:5]))
                way_out = "Form ratios and baselines only between equal settings."
                rule = f"should be of one {what} in a batch, not {len(kinds)}"
                yield second, self._make(code, second, name, rule, values, way_out, len(kinds))


def sampling_space(decoding: Any) -> float | None:
    """Return the temperature that a record's log-probabilities refer to, None if it is no number.

    Examples
    --------
    >>> sampling_space({"temperature": 0.8}), sampling_space({"temperature": None}), sampling_space(3)
    (0.8, None, None)
    """
    if isinstance(decoding, Mapping):
        space = decoding.get("logprobs_temperature", decoding.get("temperature"))
        if is_number(space) and is_finite(space):
            return float(space)
    return None


class BatchCheck:
    """A batch under the rules, one record after the other.

    Parameters
    ----------
    group_size : int, optional
        How many rollouts each group must have.
    lines : bool
        Whether places are physical line numbers of a file, else indices of a list.
    """

    def __init__(self, *, group_size: int | None = None, lines: bool = False) -> None:
        self.group_size = group_size
        self._words = BatchWords(lines=lines)
        self._samples, self._groups, self._episodes = array("Q"), array("Q"), array("Q")
        self._places, self._bad = array("Q"), array("b")
        self._temperatures: dict[Any, int] = {}
        self._verifiers: dict[Any, int] = {}
        self._group_field = "prompt_id"

    def add(self, place: int, check: RecordCheck) -> None:
        """Take note of a checked record, and of whether it had errors."""
        group = check.get("group_id")
        if group is not None:
            self._group_field = check.schema.label("group_id")
        else:
            group, self._group_field = check.get("prompt_id"), check.schema.label("prompt_id")
        for digests, value in (
            (self._samples, check.get("sample_id")),
            (self._groups, group),
            (self._episodes, check.get("episode_id")),
        ):
            digests.append(_digest(value))
        self._places.append(place)
        self._bad.append(any(finding.severity == "error" for finding in check.findings))
        space = sampling_space(check.get("decoding"))
        if space is not None and len(self._temperatures) < MOST_KINDS:
            self._temperatures.setdefault(space, place)
        verifier = check.get("verifier_version")
        if isinstance(verifier, str) and len(self._verifiers) < MOST_KINDS:
            self._verifiers.setdefault(verifier, place)

    def findings(self) -> Iterator[tuple[int, ContractFinding]]:
        """Return the place and the finding of every broken batch rule, one at a time."""
        yield from self._duplicates()
        yield from self._group_sizes()
        yield from self._episodes_in_part()
        yield from self._words.mixtures(self._temperatures, self._verifiers)

    @staticmethod
    def _runs(digests: array[int], least: int) -> Iterator[NDArray[np.int64]]:
        """Return the indices of the records that share an id, for ids of ``least`` records or more.

        Runs come in the order in which their ids first appeared; only one is held at a time.
        """
        if not digests:
            return
        keys = np.frombuffer(digests, dtype=np.uint64)
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(keys[order]) != 0])
        ends = np.r_[starts[1:], keys.size]
        chosen = np.flatnonzero((ends - starts >= least) & (keys[order[starts]] != 0))
        for run in chosen[np.argsort(order[starts[chosen]])]:
            yield order[starts[run] : ends[run]]

    def _duplicates(self) -> Iterator[tuple[int, ContractFinding]]:
        for run in self._runs(self._samples, 2):
            first = self._places[run[0]]
            for index in run[1:]:
                place = self._places[index]
                yield place, self._words.duplicate(place, first)

    def _group_sizes(self) -> Iterator[tuple[int, ContractFinding]]:
        if len(self._places) < 2 and self.group_size is None:
            return
        name, first, singles = self._group_field, -1, 0
        for run in self._runs(self._groups, 1):
            place = self._places[run[0]]
            if self.group_size is None:
                if run.size == 1:
                    first, singles = (place if first < 0 else first), singles + 1
            elif run.size != self.group_size:
                yield place, self._words.group_size(place, name, run.size, self.group_size)
        if singles:
            yield first, self._words.singles(first, name, singles)

    def _episodes_in_part(self) -> Iterator[tuple[int, ContractFinding]]:
        for run in self._runs(self._episodes, 2):
            bad = [index for index in run if self._bad[index]]
            if not bad or len(bad) == run.size:
                continue
            for index in run:
                if not self._bad[index]:
                    place = self._places[index]
                    yield place, self._words.episode(place, self._places[bad[0]], len(bad), run.size)
