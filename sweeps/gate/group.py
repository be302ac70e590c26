"""One group of rollouts in a gate: its members, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field

from .decisions import TakenGroup

RUNNING, HELD, QUEUED, POPPED, REQUEUED = "running", "held", "queued", "popped", "requeued"


@dataclass(slots=True)
class Group:
    """A prompt's rollouts from admission to their end.

    Attributes
    ----------
    number : int
    admission : int
        Place in the order of admissions: names the group inside a gate.
    status : str
    version : int
        The oldest version that a member started with; -1: none has started.
    tokens : int
        Of the members that finished.
    filtered : bool
        It has no learning signal.
    samples : list of int
        Numbers of the draws, kept when it runs again.
    rollouts, versions : list of int
        Of the members that started.
    finished : int
        Members.
    dequeue_version : int
    """

    number: int
    admission: int
    status: str = RUNNING
    version: int = -1
    tokens: int = 0
    filtered: bool = False
    samples: list[int] = field(default_factory=list)
    rollouts: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finished: int = 0
    dequeue_version: int = -1

    def run_again(self, admission: int) -> None:
        """Begin from the start; draws stay."""
        self.admission, self.status = admission, RUNNING
        self.version, self.tokens, self.filtered, self.finished = -1, 0, False, 0
        self.rollouts, self.versions, self.dequeue_version = [], [], -1

    def taken(self) -> TakenGroup:
        """Return it as a part of a batch."""
        lag = self.dequeue_version - self.version
        return TakenGroup(self.number, tuple(self.rollouts), self.version, lag, self.tokens)


def training_lags(groups: list[Group], version: int, updates: int) -> tuple[int, ...]:
    """Return the lag of each rollout of a batch, in the order taken.

    The groups are split into `updates` runs, the first ones longer; run j trains at `version` + j.

    Examples
    --------
    >>> batch = [Group(0, 0, versions=[1]), Group(1, 1, versions=[2]), Group(2, 2, versions=[2])]
    >>> training_lags(batch, 2, 2)
    (1, 0, 1)
    """
    short, longer = divmod(len(groups), updates)
    edge = longer * (short + 1)
    runs = [k // (short + 1) if k < edge else longer + (k - edge) // short for k in range(len(groups))]
    return tuple(
        version + run - behaviour for run, group in zip(runs, groups) for behaviour in group.versions
    )
