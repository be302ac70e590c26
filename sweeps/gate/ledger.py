"""The rules of the simulated pipeline's queue and admission, step by step and without a clock.

The same rules as the general event loop (:mod:`lagsweep.kernels.pipeline`), told as plain Python: what the
loop does at one of its events is one call here. Nothing is locked and no argument is checked: that is
:mod:`.gate`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from . import order
from .decisions import Finish, Pop, Published, Start, Trained
from .group import HELD, POPPED, QUEUED, REQUEUED, RUNNING, Group, training_lags

FREE, DRAINING, TRANSFER = "none", "draining", "transfer"


class Ledger:
    """Groups from their admission to their end, and the numbers that the rules go by.

    Parameters
    ----------
    rules : dict
        As :func:`.rules.checked_rules` gives.
    """

    def __init__(self, rules: dict[str, Any]) -> None:
        self.rules = rules
        self.version = self.published = self.publications = 0
        self.channel, self.publishes, self.waits = FREE, -1, -1
        self.next_rollout = self.next_sample = self.next_group = self.next_admission = 0
        self.live: dict[int, Group] = {}  # running and queued, in the order of admission
        self.queue: dict[int, Group] = {}  # in the order of arrival
        self.held: dict[int, Group] = {}
        self.requeued: deque[Group] = deque()
        self.starting: deque[Group] = deque()  # admitted, with members that have not started
        self.popped: deque[list[Group]] = deque()  # batches taken and not trained
        self.in_flight: dict[int, tuple[Group, int]] = {}
        self.cancelled: set[int] = set()  # and not heard of again
        self.in_hand = False  # the oldest batch taken is in training
        self.started = self.running = self.places = self.queued_tokens = 0
        self.popped_batches = self.popped_groups = self.trained_batches = 0

    # --- starts ------------------------------------------------------------------------------------------

    @property
    def idle(self) -> int:
        """Slots that neither run a rollout nor are kept by a held group."""
        return int(self.rules["rollout_workers"]) - len(self.in_flight) - len(self.held)

    def start(self) -> Start:
        """Start the next rollout, if a slot is idle and admission is open."""
        if self.idle <= 0:
            return Start(bound_by="busy")
        if self.channel == TRANSFER and self.rules["publication"] in ("pause", "abort"):
            return Start(bound_by="publication")
        if not self.starting:
            needed = self._needed()
            closed = self._closed_gate(needed)
            if closed:
                return Start(bound_by=closed)
            for _ in range(needed):
                self._admit()
        group = self.starting[0]
        member = len(group.rollouts)
        if member == len(group.samples):
            group.samples.append(self.next_sample)
            self.next_sample += 1
        number = self.next_rollout
        self.next_rollout += 1
        group.rollouts.append(number)
        group.versions.append(self.published)
        if member == 0:  # the oldest version of all members: what is published never goes back
            group.version = self.published
        self.in_flight[number] = (group, member)
        if member + 1 == self.rules["group_size"]:
            self.starting.popleft()
        return Start(number, group.number, member, group.samples[member], self.published)

    def _needed(self) -> int:
        """Return how many groups are admitted at once: a whole batch, or one in place of one that left."""
        by_batch = self.rules["admit"] == "batch" and self.places == 0
        return int(self.rules["batch_groups"]) if by_batch else 1

    def _closed_gate(self, needed: int) -> str:
        """Name the first gate that closes the admission of so many groups; "" if all are open."""
        rules = self.rules
        if rules["publication"] != "background" and self.channel != FREE:
            return "publication"
        most = rules["max_running_groups"]
        if most is not None and self.running + needed > most:
            return "max_running"
        if rules["one_batch_at_a_time"] and self.places == 0 and self.running > 0:
            return "one_batch"
        if self._cap_closes(needed):
            return "token_cap"
        rooms = [self._room(limit) for limit in rules["limits"]]
        if rooms and min(rooms) < needed:
            return f"limits.{rooms.index(min(rooms))}"
        return ""

    def _cap_closes(self, needed: int) -> bool:
        cap = self.rules["max_queue_tokens"]
        if cap is None or self.rules["queue_overflow"] == "drop_oldest":
            return False
        if self.rules["admission"] == "reserve":
            rollouts = self.rules["group_size"] * (self.running + needed)
            return bool(self.queued_tokens + self.rules["longest_tokens"] * rollouts > cap)
        return bool(self.queued_tokens >= cap)

    def _room(self, limit: dict[str, Any]) -> int:
        """Return how many groups a limit still lets in: ``B * done + groups - count``."""
        batch = self.rules["batch_groups"]
        if batch is None:
            allowed = self.popped_groups
        elif limit["done"] == "published":
            allowed = batch * (self.published // self.rules["updates_per_batch"])
        else:
            allowed = batch * (self.popped_batches if limit["done"] == "popped" else self.trained_batches)
        count = self.started - (self.running if limit["count"] == "finished" else 0)
        return int(allowed + limit["groups"] - count)

    def _admit(self) -> None:
        """Admit one group: one that waits to run again, else a fresh prompt."""
        if self.requeued:
            group = self.requeued.popleft()
            group.run_again(self.next_admission)
            if self.rules["redraw_on_requeue"]:
                group.number, group.samples = self.next_group, []
                self.next_group += 1
        else:
            group = Group(self.next_group, self.next_admission)
            self.next_group += 1
        self.next_admission += 1
        self.live[group.admission] = group
        self.starting.append(group)
        self.running += 1
        self.started += 1
        self.places = max(0, self.places - 1)

    # --- ends of rollouts --------------------------------------------------------------------------------

    def finish(self, rollout: int, tokens: int, filtered: bool) -> Finish:
        """Let a rollout in flight end; its group may be ready with it."""
        group, _ = self.in_flight.pop(rollout)
        group.tokens += tokens
        group.finished += 1
        group.filtered |= filtered
        if group.finished < self.rules["group_size"]:
            return Finish("waiting", group.number)
        evicted: tuple[int, ...] = ()
        if not group.filtered and self._queue_is_full():
            outcome = group.status = HELD
            self.held[group.admission] = group
        else:
            self.running -= 1
            if group.filtered:
                outcome = "filtered"
                self._leave(group, again=False)
            else:
                outcome = self._join(group)
                evicted = self._evict()
        if self.channel == DRAINING:
            self._move_channel()
        return Finish(outcome, group.number, evicted)

    def _queue_is_full(self) -> bool:
        holds = self.rules["queue_overflow"] == "hold"
        return holds and len(self.queue) >= self.rules["max_queue_groups"]

    def _join(self, group: Group) -> str:
        """Put a ready group at the queue's end, unless it is too old on its arrival."""
        if self.rules["stale_check"] == "update" and self._is_stale(group):
            self._discard(group)
            return "discarded"
        group.status = QUEUED
        self.queue[group.admission] = group
        self.queued_tokens += group.tokens
        return "queued"

    def _evict(self) -> tuple[int, ...]:
        limit = self.rules["max_queue_groups"]
        if self.rules["queue_overflow"] != "drop_oldest" or len(self.queue) <= limit:
            return ()
        oldest = next(iter(self.queue.values()))
        self._leave(oldest, again=False)
        return (oldest.number,)

    def join_held(self) -> list[int]:
        """Let held groups join while the queue has room; return those that were too old."""
        discarded = []
        while self.held and not self._queue_is_full():
            group = self.held.pop(next(iter(self.held)))
            self.running -= 1
            if self._join(group) == "discarded":
                discarded.append(group.number)
        return discarded

    # --- what is too old, and what leaves ----------------------------------------------------------------

    def _is_stale(self, group: Group) -> bool:
        return bool(self.version - group.version > self.rules["max_policy_lag"])

    def _discard(self, group: Group) -> None:
        self._leave(group, again=self.rules["stale_action"] == "requeue")

    def _leave(self, group: Group, *, again: bool) -> None:
        """Let a group leave untrained: it gives its quota back once, whatever the reason."""
        if self.queue.pop(group.admission, None) is not None:
            self.queued_tokens -= group.tokens
        del self.live[group.admission]
        self.started -= 1
        self.places += 1
        if again:
            group.status = REQUEUED
            self.requeued.append(group)

    def _drop_stale(self) -> list[int]:
        stale = [group for group in self.queue.values() if self._is_stale(group)]
        for group in stale:
            self._discard(group)
        return [group.number for group in stale]

    def _cancel_running(self) -> list[int]:
        """Cancel every running group that is too old; return its rollouts in flight."""
        found: list[int] = []
        for group in list(self.live.values()):
            if group.status not in (RUNNING, HELD) or group.version < 0 or not self._is_stale(group):
                continue
            in_flight = [number for number in group.rollouts if number in self.in_flight]
            for number in in_flight:
                del self.in_flight[number]
            found += in_flight
            self.held.pop(group.admission, None)
            if self.starting and self.starting[0] is group:
                self.starting.popleft()
            self.running -= 1
            self._discard(group)
        self.cancelled.update(found)
        return found

    # --- the trainer -------------------------------------------------------------------------------------

    def _holds_enough(self) -> bool:
        batch = self.rules["batch_groups"]
        if batch is None:
            return bool(self.queued_tokens >= self.rules["batch_tokens"])
        return bool(len(self.queue) >= batch)

    def _finds_enough(self) -> bool:
        if self.rules["queue_order"] == "started":
            return order.oldest_are_ready(self.live, self.rules["batch_groups"])
        return self._holds_enough()

    def pop(self) -> Pop:
        """Take a batch, if the trainer may and finds enough."""
        discarded = self.join_held()
        while True:
            if self.in_hand and len(self.popped) > self.rules["prefetch_batches"]:
                return Pop((), tuple(discarded), "busy")
            if not self.in_hand and self._trainer_is_blocked():
                return Pop((), tuple(discarded), "publication")
            enough = self._finds_enough()
            dropped = self._drop_stale() if enough and self.rules["stale_check"] == "dequeue" else []
            discarded += dropped
            if not dropped:
                break
            discarded += self.join_held()
        if not enough:
            why = "running_groups" if self._holds_enough() else "batch"
            return Pop((), tuple(discarded), why)
        batch = self._take()
        self.in_hand = True
        discarded += self.join_held()
        return Pop(tuple(group.taken() for group in batch), tuple(discarded))

    def _trainer_is_blocked(self) -> bool:
        return bool(self.rules["publication_blocks_trainer"] and self.channel != FREE)

    def _take(self) -> list[Group]:
        batch: list[Group] = []
        tokens = 0
        for group in order.in_order(self.rules, self.live, self.queue, self.popped_batches):
            if self.rules["batch_groups"] is None:
                if tokens >= self.rules["batch_tokens"]:
                    break
            elif len(batch) == self.rules["batch_groups"]:
                break
            batch.append(group)
            tokens += group.tokens
        for group in batch:
            del self.queue[group.admission]
            del self.live[group.admission]
            group.status, group.dequeue_version = POPPED, self.version
        self.queued_tokens -= tokens
        self.popped.append(batch)
        self.popped_batches += 1
        self.popped_groups += len(batch)
        return batch

    def trained(self) -> Trained:
        """Let the step of the batch in hand be complete: the version grows, old work leaves."""
        batch = self.popped.popleft()
        updates = self.rules["updates_per_batch"]
        lags = training_lags(batch, self.version, updates)
        before = self.version
        self.version += updates
        self.trained_batches += 1
        self.in_hand = False
        every = self.rules["sync_every_updates"]
        if self.version // every > before // every:
            self.waits = self.version
        discarded = self._drop_stale() if self.rules["stale_check"] == "update" else []
        cancelled = self._cancel_running() if self.rules["cancel_in_flight"] else []
        self._move_channel()
        discarded += self._go_on()
        return Trained(self.version, lags, tuple(discarded), tuple(cancelled), self.channel, self.publishes)

    def publish(self) -> Published:
        """Let the publication under way be complete; a newer version that waits is under way then."""
        self.published, self.channel, self.publishes = self.publishes, FREE, -1
        self.publications += 1
        self._move_channel()
        self._go_on()
        return Published(self.published, self.channel, self.publishes)

    def _move_channel(self) -> None:
        if self.channel == FREE and self.waits >= 0:
            self.publishes, self.waits, self.channel = self.waits, -1, DRAINING
        drains = self.rules["publication"] == "drain" and self.running > len(self.held)
        if self.channel == DRAINING and not drains:
            self.channel = TRANSFER

    def _go_on(self) -> list[int]:
        """Take the next batch in hand where nothing blocks the trainer; let held groups join."""
        discarded = self.join_held()
        if self.popped and not self.in_hand and not self._trainer_is_blocked():
            self.in_hand = True
        return discarded
