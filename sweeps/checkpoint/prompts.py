"""Which prompts were handed out, trained or dropped: the data cursor of an asynchronous run.

Rollouts finish out of order and some are dropped as too old, so "how far are we in the data" has two
answers. ``next_number`` is the next prompt to hand out; ``cursor`` is the first one that is not *settled*
(neither trained nor dropped). A checkpoint stores the cursor and, beside it, what is settled above it. The
usual mistakes each break one rule that is kept here:

- numbers are absolute over all epochs and resumes, and both positions only grow;
- the end of epoch e is the start of epoch e + 1, so no resume gets an empty epoch;
- a dropped prompt is settled too, or the cursor would stay behind it for ever;
- every prompt is settled exactly once, and one handed out again after a resume is counted apart.

Prompt number n of a shuffled epoch comes from the seed and the epoch alone, not from a generator's position,
so the order of the data does not depend on where a run was stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...kernels._arguments import listed
from ...kernels.errors import CheckpointError, ConfigError
from ..checks import WholeNumber, checked, mapping_of

OUTCOMES = ("trained", "dropped")


class PromptCursor:
    """Hands out prompts over epochs, and knows which of them are settled.

    Parameters
    ----------
    samples : int
        Prompts in an epoch, at least 1.
    epochs : int, optional
        How many epochs there are; none means without end.
    shuffle_seed : int, optional
        Each epoch is a permutation of its own, made from (seed, epoch); none keeps the order.

    Examples
    --------
    >>> prompts = PromptCursor(samples=4)
    >>> [prompts.issue() for _ in range(5)]
    [0, 1, 2, 3, 4]
    >>> prompts.settle(0, "trained"), prompts.settle(1, "dropped"), prompts.settle(3, "trained")
    (None, None, None)
    >>> prompts.cursor, prompts.outstanding(), prompts.trained_count, prompts.dropped_count
    (2, [2, 4], 2, 1)
    """

    def __init__(self, samples: int, *, epochs: int | None = None, shuffle_seed: int | None = None) -> None:
        self.samples = _count("samples", samples)
        self.epochs = None if epochs is None else _count("epochs", epochs)
        self.shuffle_seed = shuffle_seed
        self.next_number = 0
        self.cursor = 0
        self.trained_count = 0
        self.dropped_count = 0
        self.reissued_count = 0
        self._settled_above: dict[int, str] = {}
        self._to_reissue: list[int] = []
        self._epoch_order: tuple[int, np.ndarray] | None = None

    @property
    def planned(self) -> int | None:
        """Prompts in all epochs together; none without end."""
        return None if self.epochs is None else self.samples * self.epochs

    @property
    def exhausted(self) -> bool:
        """Whether no prompt is left to hand out."""
        return not self._to_reissue and self.planned is not None and self.next_number >= self.planned

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and offset of the next prompt; the end of an epoch is the start of the next."""
        return divmod(self.next_number, self.samples)

    def issue(self) -> int:
        """Hand out a prompt: first those to be done again, then the next new one.

        Returns
        -------
        int
            Its absolute number.
        """
        if self._to_reissue:
            self.reissued_count += 1
            return self._to_reissue.pop(0)
        if self.exhausted:
            raise CheckpointError(
                "epochs", "must hold enough prompts for the planned updates", self.epochs, "Add epochs."
            )
        number = self.next_number
        self.next_number += 1
        return number

    def prompt_id(self, number: int) -> int:
        """Which prompt of the data set a number stands for.

        Parameters
        ----------
        number : int
            Absolute number, from :meth:`issue`.

        Returns
        -------
        int
            0 … samples - 1.
        """
        number = _whole("number", number)
        epoch, offset = divmod(number, self.samples)
        if self.shuffle_seed is None:
            return offset
        if self._epoch_order is None or self._epoch_order[0] != epoch:
            stream = np.random.default_rng([self.shuffle_seed, epoch])
            self._epoch_order = (epoch, stream.permutation(self.samples))
        return int(self._epoch_order[1][offset])

    def settle(self, number: int, outcome: str) -> None:
        """Record that a prompt was trained or dropped, and move the cursor over what is settled.

        Parameters
        ----------
        number : int
            A prompt that was handed out and is not settled.
        outcome : {"trained", "dropped"}
            What became of it.

        Raises
        ------
        CheckpointError
            If it was never handed out, or is settled already: it would be trained twice.
        """
        if not isinstance(outcome, str) or outcome not in OUTCOMES:
            raise ConfigError("outcome", f"must be one of {', '.join(OUTCOMES)}", outcome, "Name one.")
        number = _whole("number", number)
        if not self.cursor <= number < self.next_number or number in self._settled_above:
            raise CheckpointError(
                "number",
                "must be a prompt that was handed out and is not settled",
                number,
                "Its state and the cursor are not from one snapshot.",
            )
        self._settled_above[number] = outcome
        if outcome == "trained":
            self.trained_count += 1
        else:
            self.dropped_count += 1
        while self.cursor in self._settled_above:
            del self._settled_above[self.cursor]
            self.cursor += 1

    def outstanding(self) -> list[int]:
        """Return the numbers that were handed out and are not settled, in order."""
        return [n for n in range(self.cursor, self.next_number) if n not in self._settled_above]

    def reissue(self, numbers: Iterable[int]) -> None:
        """Hand these out again before new ones: what a resume without its buffers must do.

        Parameters
        ----------
        numbers : iterable of int
            Outstanding prompts whose rollouts are gone.
        """
        outstanding = set(self.outstanding())
        for number in listed("numbers", numbers, "List outstanding numbers."):
            number = _whole("number", number)
            if number not in outstanding or number in self._to_reissue:
                raise CheckpointError(
                    "number", "must be outstanding", number, "Only unsettled prompts are done again."
                )
            self._to_reissue.append(number)

    def as_state(self) -> dict[str, Any]:
        """Return everything that a checkpoint must keep, as plain values."""
        return {
            "samples": self.samples,
            "epochs": self.epochs,
            "shuffle_seed": self.shuffle_seed,
            "next_number": self.next_number,
            "cursor": self.cursor,
            "trained_count": self.trained_count,
            "dropped_count": self.dropped_count,
            "reissued_count": self.reissued_count,
            "settled_above": [[number, outcome] for number, outcome in sorted(self._settled_above.items())],
            "to_reissue": list(self._to_reissue),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> PromptCursor:
        """Make the cursor again from :meth:`as_state`.

        Parameters
        ----------
        state : dict
            As it was saved.

        Returns
        -------
        PromptCursor
            One that goes on where the saved one stood.
        """
        way_out = "Give what as_state returned."
        state = mapping_of("state", state, way_out)
        fresh = cls(1).as_state()
        if not set(fresh) <= set(state):
            missing = sorted(set(fresh) - set(state))
            raise ConfigError("state", "must be the whole state of a cursor", missing, way_out)
        cursor = cls(state["samples"], epochs=state["epochs"], shuffle_seed=state["shuffle_seed"])
        for name in ("next_number", "cursor", "trained_count", "dropped_count", "reissued_count"):
            setattr(cursor, name, _whole(f"state.{name}", state[name]))
        for pair in listed("state.settled_above", state["settled_above"], way_out):
            number, outcome = listed("state.settled_above", pair, way_out)
            cursor._settled_above[_whole("state.settled_above", number)] = outcome
        numbers = listed("state.to_reissue", state["to_reissue"], way_out)
        cursor._to_reissue = [_whole("state.to_reissue", number) for number in numbers]
        return cursor


def _whole(name: str, value: Any) -> int:
    number: int = checked(WholeNumber, name, value, low=-(2**63), high=2**63)
    return number


def _count(name: str, value: Any) -> int:
    rule = "must be a whole number of at least 1"
    return checked(WholeNumber, name, value, low=1, rule=rule, way_out="Give a count.")
