"""What is known of each line of a piece: from screened columns, and from records looked at singly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ...kernels._arguments import is_number, is_whole
from ...kernels.contract.batch import sampling_space
from ...kernels.contract.line_shapes import MOST_SETTINGS
from ...kernels.contract.record import RecordCheck, is_finite
from .batch_state import Digests, column_digests, value_digests
from .screening import Screen

Places = NDArray[np.int64] | slice


class Settings(NamedTuple):
    """How some records were decoded: whether that is clean, and the temperature for the batch rules."""

    clean: bool
    space: Any


class LineSettings(NamedTuple):
    """Which settings each line has, and what is known of these."""

    codes: NDArray[np.uint8]
    known: dict[int, Settings]

    def clean(self) -> NDArray[np.bool_] | None:
        """Say of each line whether its settings are; None where all are."""
        if all(each.clean for each in self.known.values()):
            return None
        table = np.zeros(MOST_SETTINGS + 1, dtype=np.bool_)
        for code, each in self.known.items():
            table[code] = each.clean
        found: NDArray[np.bool_] = table[self.codes]
        return found


class Gathered:
    """What is known of each line of a piece."""

    def __init__(self, lines: int, with_batch: bool, with_statistics: bool) -> None:
        self.lines = lines
        self.done = np.zeros(lines, dtype=np.bool_)
        self.read = np.zeros(lines, dtype=np.bool_)
        self.bad = np.zeros(lines, dtype=np.bool_)
        self._with_statistics = with_statistics
        counted = lines if with_statistics else 0
        self.rewards = np.full(counted, np.nan)
        self.versions = np.full(counted, -1, dtype=np.int64)
        self.tokens = np.full(counted, -1, dtype=np.int64)
        self.ids: dict[str, Digests] = {}
        self.spaces: dict[Any, int] = {}
        self.verifiers: dict[Any, int] = {}
        self.names: dict[int, str] = {}
        self._asked = {
            *(("sample", "group", "episode", "space", "verifier") if with_batch else ()),
            *(("version", "reward", "tokens") if with_statistics else ()),
        }
        self._screened: list[tuple[Screen, NDArray[np.int64]]] = []
        self._single_ids: list[tuple[int, Any, Any, Any]] = []

    def take(
        self,
        screen: Screen,
        chosen: NDArray[np.int64],
        frame: pl.DataFrame,
        settings: LineSettings | None = None,
    ) -> None:
        """Screen rows, and take what is asked of those that pass."""
        values = {name: value for name, value in screen.values.items() if name in self._asked}
        found = frame.select(screen.clean.fill_null(False).alias("clean"), **values)
        clean = found["clean"].to_numpy()
        good = None if settings is None else settings.clean()
        clean = clean if good is None else clean & good
        all_clean = bool(clean.all())
        passed = chosen if all_clean else chosen[clean]
        if not passed.size:
            return
        self.done[passed] = self.read[passed] = True
        self._screened.append((screen, passed))
        # Of a row that did not pass, what is taken here is replaced when it is looked at singly.
        where: Places = slice(None) if chosen.size == self.lines else chosen
        for part, kind in screen.kinds.items():
            if part in values:
                self._put_digests(part, where, column_digests(found[part], kind))
        if self._with_statistics:
            for name, place in (("version", self.versions), ("tokens", self.tokens)):
                if name in values:
                    place[where] = found[name].fill_null(-1).to_numpy()
            if "reward" in values:
                self.rewards[where] = found["reward"].fill_null(np.nan).to_numpy()
        for name, seen in (("space", self.spaces), ("verifier", self.verifiers)):
            if name in values:
                _first_places(found[name] if all_clean else found[name].filter(clean), passed, seen)
        if settings is not None and "space" in self._asked:
            codes = settings.codes if all_clean else settings.codes[clean]
            for code, known in settings.known.items():
                first = int((codes == code).argmax())
                if known.space is not None and codes[first] == code:
                    index = int(passed[first])
                    self.spaces[known.space] = min(index, self.spaces.get(known.space, index))

    def _put_digests(self, part: str, where: Places, digests: Digests) -> None:
        """Take digests of ids, of all lines or of some."""
        if isinstance(where, slice):
            self.ids[part] = digests
            return
        high, low = self.digests(part)
        high[where], low[where] = digests

    def digests(self, part: str) -> Digests:
        """Return the digests of the ids of all lines, 0 where there is none."""
        if part not in self.ids:
            self.ids[part] = np.zeros(self.lines, dtype=np.uint64), np.zeros(self.lines, dtype=np.uint64)
        return self.ids[part]

    def name_of(self, index: int) -> str:
        """Return our name of the field that a screened line's group is from."""
        for screen, chosen in self._screened:
            place = int(np.searchsorted(chosen, index))
            if place < chosen.size and chosen[place] == index:
                return screen.group_name
        return "prompt_id"

    def put(self, index: int, check: RecordCheck) -> None:
        """Take what is asked of a record that was looked at singly."""
        self.read[index] = True
        self.bad[index] = any(finding.severity == "error" for finding in check.findings)
        group = check.get("group_id")
        self.names[index] = "prompt_id" if group is None else "group_id"
        ids = (check.get("sample_id"), check.get("prompt_id") if group is None else group)
        self._single_ids.append((index, *map(_id, (*ids, check.get("episode_id")))))
        space = sampling_space(check.get("decoding"))
        if space is not None:
            self.spaces[space] = min(index, self.spaces.get(space, index))
        verifier = check.get("verifier_version")
        if isinstance(verifier, str):
            self.verifiers[verifier] = min(index, self.verifiers.get(verifier, index))
        if not self._with_statistics:
            return
        version = check.get("policy_version")
        versions = check.get("token_versions")
        if "policy_version" not in check.values and isinstance(versions, list) and versions:
            version = min(versions) if all(is_whole(each) for each in versions) else None
        self.versions[index] = version if is_whole(version) and 0 <= version < 2**63 else -1
        self.rewards[index] = _one_reward(check.get("reward"))
        response = check.get("response_tokens")
        self.tokens[index] = len(response) if isinstance(response, list) else -1

    def put_ids(self) -> None:
        """Digest the ids of records that were looked at singly."""
        if self._single_ids:
            places, *columns = map(list, zip(*self._single_ids))
            for part, column in zip(("sample", "group", "episode"), columns):
                self._put_digests(part, np.array(places), value_digests(column))


def _id(value: Any) -> Any:
    """Keep what can be an id, so that no list of a record is held on to."""
    return value if isinstance(value, str) or is_whole(value) else None


def _first_places(values: pl.Series, chosen: NDArray[np.int64], seen: dict[Any, int]) -> None:
    """Note where each value comes first."""
    if values.min() == values.max():
        kinds, firsts = [values[0]], [0]
    else:
        firsts = values.arg_unique().sort().head(1000).to_list()
        kinds = values.gather(firsts).to_list()
    for kind, first in zip(kinds, firsts):
        index = int(chosen[first])
        seen[kind] = min(index, seen.get(kind, index))


def _one_reward(reward: Any) -> float:
    """Return a reward as one number, NaN where it has none."""
    parts = list(reward.values()) if isinstance(reward, dict) else [reward]
    good = parts and all(is_number(part) and is_finite(part) for part in parts)
    return float(sum(parts)) if good else np.nan
