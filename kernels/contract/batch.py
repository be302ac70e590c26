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
from ..errors import Words
from .findings import ContractFinding, make_finding, shown
from .record import RecordCheck, is_finite

_MOST_KINDS = 1000


def _digest(value: Any) -> int:
    """Digest an id to 64 bits, 0 for "no id"; the text "1" and the number 1 differ."""
    if isinstance(value, str) and value.strip():
        kind = b"t" + value.encode("utf-8", "surrogatepass")
    elif is_whole(value) and int(value).bit_length() <= 64:
        kind = b"n%d" % value
    else:
        return 0
    return int.from_bytes(blake2b(kind, digest_size=8).digest(), "little") or 1


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
        self.lines = lines
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
        decoding = check.get("decoding")
        if isinstance(decoding, Mapping):
            space = decoding.get("logprobs_temperature", decoding.get("temperature"))
            if is_number(space) and is_finite(space) and len(self._temperatures) < _MOST_KINDS:
                self._temperatures.setdefault(float(space), place)
        verifier = check.get("verifier_version")
        if isinstance(verifier, str) and len(self._verifiers) < _MOST_KINDS:
            self._verifiers.setdefault(verifier, place)

    def findings(self) -> Iterator[tuple[int, ContractFinding]]:
        """Return the place and the finding of every broken batch rule, one at a time."""
        yield from self._duplicates()
        yield from self._group_sizes()
        yield from self._episodes_in_part()
        mixtures = (
            ("mixed_temperature", "decoding", "temperature", self._temperatures),
            ("mixed_verifier", "verifier_version", "verifier version", self._verifiers),
        )
        for code, name, what, kinds in mixtures:
            if len(kinds) > 1:
                second = list(kinds.values())[1]
                values = Words(", ".join(shown(kind) for kind in list(kinds)[:5]))
                way_out = "Form ratios and baselines only between equal settings."
                rule = f"should be of one {what} in a batch, not {len(kinds)}"
                yield second, self._make(code, second, name, rule, values, way_out, len(kinds))

    def _make(
        self, code: str, place: int, name: str, rule: str, value: Any, way_out: str, occurrences: int = 1
    ) -> ContractFinding:
        path = name if self.lines else f"records[{place}].{name}"
        return make_finding(code, path, rule, value, way_out, occurrences=occurrences)

    def _other(self, place: int) -> str:
        return f"line {place}" if self.lines else f"records[{place}]"

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
            first = self._other(self._places[run[0]])
            for index in run[1:]:
                rule = f"must occur once in a batch, and {first} has it already"
                way_out = "Number the rollouts of a prompt apart."
                place = self._places[index]
                got = Words("the same id again")
                yield place, self._make("duplicate_sample_id", place, "sample_id", rule, got, way_out)

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
                rule = f"must have {self.group_size} rollouts in its group"
                got = Words(f"{run.size} from {self._other(place)} on")
                yield place, self._make("group_size", place, name, rule, got, "Drop or complete the group.")
        if singles:
            rule = "should be shared by a group, whose mean is the baseline"
            got = Words(f"{singles} groups of one")
            way_out = "A group id that is new for each sample makes every advantage 0."
            yield first, self._make("group_of_one", first, name, rule, got, way_out, singles)

    def _episodes_in_part(self) -> Iterator[tuple[int, ContractFinding]]:
        for run in self._runs(self._episodes, 2):
            bad = [index for index in run if self._bad[index]]
            if not bad or len(bad) == run.size:
                continue
            broken = self._other(self._places[bad[0]])
            for index in run:
                if not self._bad[index]:
                    place = self._places[index]
                    rule = f"must be that of a whole episode, and {broken} of it has errors"
                    got = Words(f"{len(bad)} bad of {run.size}")
                    way_out = "Drop the episode as a whole."
                    yield place, self._make("episode_incomplete", place, "episode_id", rule, got, way_out)
