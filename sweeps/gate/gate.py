"""The simulator's rules of admission and lag as an object for a trainer of your own, safe in threads.

A trainer asks before it starts a rollout, says when one finishes, takes its batches here and says when a step
is complete and when weights are out. The answers are those of the simulated pipeline
(:mod:`lagsweep.kernels.pipeline`), decision by decision; a test replays simulated runs through it.

It does not move rollouts or weights, and it knows no clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ...kernels._arguments import flag, instance, one_number, one_whole
from ...kernels.errors import ConfigError
from ..config.config import PipelineConfig
from .decisions import Finish, GateCounts, Pop, Published, Start, Trained
from .ledger import DRAINING, FREE, Ledger
from .rules import checked_rules
from .saved import as_plain, from_plain

Answer = TypeVar("Answer")
_CLOSED = "closed"


class RolloutGate:
    """What may start, what is taken, what is too old: the rules of a configuration, for a real trainer.

    A rollout goes ``start`` → ``finish``; a batch goes ``pop`` → ``trained``; weights go ``publish``. All
    calls may come from any thread. ``start`` and ``pop`` answer at once, or wait so many seconds.

    Parameters
    ----------
    config : PipelineConfig
        Its rules are obeyed, those of a preset too; speeds, lengths, engines and seconds are ignored.
        ``rollout_workers`` is the largest number of rollouts in flight.

    Raises
    ------
    ConfigError
        For a configuration with a rule that a gate cannot keep: ``mode = "sequential"``, and evaluations.

    Examples
    --------
    >>> import lagsweep as ls
    >>> gate = RolloutGate(ls.preset_config("areal", batch_groups=1, group_size=1, rollout_workers=4))
    >>> first = gate.start()
    >>> first.rollout, first.version, gate.start().bound_by
    (0, 0, 'max_running')
    >>> gate.finish(first.rollout, tokens=120).outcome
    'queued'
    >>> [taken.rollouts for taken in gate.pop().groups]
    [(0,)]
    >>> gate.start().bound_by  # AReaL at 0: nothing more before the weights are out
    'limits.0'
    >>> gate.trained().publishes, gate.publish().version, gate.start().version
    (1, 1, 1)
    """

    def __init__(self, config: PipelineConfig) -> None:
        instance("config", config, PipelineConfig, "Build one, as preset_config('areal').")
        self.config = config
        self._rules = checked_rules(config)
        self._ledger = Ledger(self._rules)
        self._changed = threading.Condition()
        self._is_closed = False

    def start(self, *, wait_seconds: float = 0.0) -> Start:
        """Ask whether the next rollout may start, and as what.

        Members of a group that was admitted come first; then a new group is admitted, or one that runs
        again. An answer that lets it start has counted it: call ``finish`` for it.

        Parameters
        ----------
        wait_seconds : float
            Wait so long for a yes; infinity: until there is one, or the gate is closed.

        Returns
        -------
        Start

        Raises
        ------
        ConfigError
            If the time to wait is no number of at least 0.
        """
        wait = _seconds(wait_seconds)

        def ask() -> Start:
            return Start(bound_by=_CLOSED) if self._is_closed else self._ledger.start()

        return self._wait_for(ask, wait)

    def finish(self, rollout: int, tokens: int, *, filtered: bool = False) -> Finish:
        """Say that a rollout ended, however it did.

        Parameters
        ----------
        rollout : int
            The number that ``start`` gave it.
        tokens : int
            Of its response, at least 0.
        filtered : bool
            Its group has no learning signal, or it failed: the group leaves when its last member is done,
            and its place is free again.

        Returns
        -------
        Finish
            Also for a rollout that was cancelled before: so a race with an abort does no harm.

        Raises
        ------
        ConfigError
            For a rollout that was not started or has finished, and for a bad number of tokens.
        """
        rollout = one_whole("rollout", rollout, minimum=0, maximum=2**62)
        tokens = one_whole("tokens", tokens, minimum=0, maximum=2**52)
        filtered = flag("filtered", filtered)
        longest = self._rules["longest_tokens"]
        if longest is not None and tokens > longest:
            rule = f"must be at most {longest}, the maximum of response_length, for which room was reserved"
            raise ConfigError("tokens", rule, tokens, "Give the configuration a longer law, or cut there.")
        with self._changed:
            if rollout in self._ledger.cancelled:
                self._ledger.cancelled.remove(rollout)
                return Finish("cancelled", -1)
            self._check_in_flight(rollout)
            done = self._ledger.finish(rollout, tokens, filtered)
            self._changed.notify_all()
            return done

    def pop(self, *, wait_seconds: float = 0.0) -> Pop:
        """Take the next batch, if there is one and the trainer may.

        A batch may be taken ahead of the one in training only with ``prefetch_batches``.

        Parameters
        ----------
        wait_seconds : float
            Wait so long for one; infinity: until there is one, or the gate is closed.

        Returns
        -------
        Pop

        Raises
        ------
        ConfigError
            If the time to wait is no number of at least 0.
        """
        wait = _seconds(wait_seconds)
        discarded: list[int] = []

        def ask() -> Pop:
            taken = self._ledger.pop()
            discarded.extend(taken.discarded)
            if taken.discarded or taken:
                self._changed.notify_all()
            why = _CLOSED if self._is_closed and not taken else taken.bound_by
            return taken._replace(discarded=tuple(discarded), bound_by=why)

        return self._wait_for(ask, wait)

    def trained(self) -> Trained:
        """Say that the step of the oldest batch taken is complete: the trainer's version grows.

        Returns
        -------
        Trained
            Also what to stop as too old, and the version to publish.

        Raises
        ------
        ConfigError
            If no batch is in hand.
        """
        with self._changed:
            if not self._ledger.in_hand:
                waits = "the publication under way blocks the trainer" if self._ledger.popped else "none is"
                rule = f"must be in hand when a step is complete: {waits}"
                way_out = "Call publish() first." if self._ledger.popped else "Call pop() before the step."
                raise ConfigError("batch", rule, None, way_out)
            done = self._ledger.trained()
            self._changed.notify_all()
            return done

    def publish(self, version: int | None = None) -> Published:
        """Say that the publication under way is complete: rollouts start with its version from now on.

        Parameters
        ----------
        version : int, optional
            What was copied, to be checked; none: what ``trained`` said.

        Returns
        -------
        Published

        Raises
        ------
        ConfigError
            For another version than the one under way, one that is not newer than what is published, or
            while groups still run that ``publication = "drain"`` waits for.
        """
        if version is not None:
            version = one_whole("version", version, minimum=0, maximum=2**62)
        with self._changed:
            self._check_publication(version)
            done = self._ledger.publish()
            self._changed.notify_all()
            return done

    def wait_for_drain(self, *, wait_seconds: float) -> bool:
        """Wait until no running group keeps a publication from its transfer; tell whether that is so.

        Parameters
        ----------
        wait_seconds : float

        Raises
        ------
        ConfigError
            If the time to wait is no number of at least 0.
        """
        wait = _seconds(wait_seconds)
        return self._wait_for(lambda: self._ledger.channel != DRAINING, wait)

    def close(self) -> None:
        """Start nothing any more, and wake all who wait; rollouts in flight may still finish."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def in_flight(self) -> tuple[int, ...]:
        """The numbers of the rollouts in flight, in the order of their starts."""
        with self._changed:
            return tuple(self._ledger.in_flight)

    def counts(self) -> GateCounts:
        """Return where the gate stands, all of one moment."""
        with self._changed:
            ledger = self._ledger
            return GateCounts(
                version=ledger.version,
                published=ledger.published,
                publication=ledger.channel,
                publications=ledger.publications,
                started_groups=ledger.started,
                running_groups=ledger.running,
                held_groups=len(ledger.held),
                queued_groups=len(ledger.queue),
                queued_tokens=ledger.queued_tokens,
                groups_to_repeat=len(ledger.requeued),
                in_flight_rollouts=len(ledger.in_flight),
                idle_slots=ledger.idle,
                popped_batches=ledger.popped_batches,
                popped_groups=ledger.popped_groups,
                trained_batches=ledger.trained_batches,
            )

    def save(self) -> dict[str, Any]:
        """Return everything that the gate needs to go on, as data that JSON can hold."""
        with self._changed:
            return as_plain(self._ledger)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what ``save`` returned, of a gate of the same rules.

        Rollouts that were in flight still are: finish those that a restart lost with ``filtered=True``.

        Parameters
        ----------
        state : dict

        Raises
        ------
        CheckpointError
            If it is no saved gate, one of other rules, or its parts contradict each other.
        """
        ledger = from_plain(self._rules, state)
        with self._changed:
            self._ledger = ledger
            self._changed.notify_all()

    def _wait_for(self, ask: Callable[[], Answer], seconds: float) -> Answer:
        """Ask until the answer is yes, the gate is closed or the time is up."""
        with self._changed:
            answer = ask()
            if answer or seconds == 0 or self._is_closed:
                return answer

            def is_settled() -> bool:
                nonlocal answer
                answer = ask()
                return bool(answer) or self._is_closed

            self._changed.wait_for(is_settled, min(seconds, threading.TIMEOUT_MAX))
            return answer

    def _check_in_flight(self, rollout: int) -> None:
        ledger = self._ledger
        if rollout in ledger.in_flight:
            return
        if rollout >= ledger.next_rollout:
            last = f"the last one is {ledger.next_rollout - 1}" if ledger.next_rollout else "none was"
            rule = f"must have been started: {last}"
        else:
            rule = "must be in flight: it has finished before"
        raise ConfigError("rollout", rule, rollout, "Finish each number that start() gave, once.")

    def _check_publication(self, version: int | None) -> None:
        ledger = self._ledger
        if version is not None and version <= ledger.published:
            rule = f"must be above {ledger.published}, which is published: versions never go back"
            raise ConfigError("version", rule, version, "Publish what trained() said.")
        if ledger.channel == FREE:
            rule = f"must be due: every {self._rules['sync_every_updates']} updates, the next after a step"
            raise ConfigError(
                "version", rule, version, "Call publish() when trained() says what it publishes."
            )
        if version is not None and version != ledger.publishes:
            rule = f"must be {ledger.publishes}, the one under way"
            raise ConfigError(
                "version", rule, version, "Publish what trained() said, or set sync_every_updates."
            )
        if ledger.channel == DRAINING:
            running = ledger.running - len(ledger.held)
            rule = f"must wait until no group runs, with publication 'drain': {running} still do"
            raise ConfigError("version", rule, ledger.publishes, "Call wait_for_drain() before the transfer.")


def _seconds(value: float) -> float:
    return one_number("wait_seconds", value, minimum=0, infinity=True)
