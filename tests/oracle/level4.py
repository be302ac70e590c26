"""Failures on top of the level 2 and 3 twin: checkpoints, restarts of the trainer, failures of workers.

Written from the page's level 4 (READINGS.md says where it leaves a choice). A checkpoint is a set of copies;
going back puts copies of these copies in place. Nothing is shared with the kernels but the draws.
"""

from __future__ import annotations

import copy
import math

import numpy as np
from oracle.level1 import NAN, ticks, uniform
from oracle.level23 import Run
from oracle.level23_engines import EngineRun


def copy_of(group):
    """A group as it is now; the recorded rows stay the same ones."""
    other = copy.copy(group)
    other.members = [copy.copy(member) for member in group.members]
    for member in other.members:
        member.group = other
        if getattr(member, "work_by_version", None) is not None:
            member.work_by_version = dict(member.work_by_version)
    return other


class Failures:
    """What failures change in a run, with or without engines."""

    def __init__(self, settings):
        super().__init__(settings)
        self.trainer_failures = 0
        self.trainer_failure = self.up_time(4, 0, 0, self.s["trainer_mtbf_seconds"])
        self.worker_failures = [
            [0, self.up_time(5, 0, slot, self.s["worker_mtbf_seconds"])] for slot in range(len(self.slots))
        ]
        self.checkpoint_is_due = False
        self.writing, self.saved = None, self.snapshot()
        self.again = None
        self.losses = []  # (time, updates, tokens, groups)

    def up_time(self, stream, number, slot, mtbf):
        """Ticks; None where nothing fails."""
        if mtbf is None:
            return None
        key = np.array([self.s["seed"], stream], np.uint64)
        counter = np.array([number, slot, 0, 0], np.uint64)
        u = uniform(int(np.random.Philox(key=key, counter=counter).random_raw(4)[0]))
        return max(1, ticks(-mtbf * math.log1p(-u)))

    # Time and events

    def next_time(self):
        times = [self.trainer_failure, self.checkpoint_end, self.restart_end]
        times += [time for _, time in self.worker_failures]
        own = min((time for time in times if time is not None), default=None)
        if own == self.now:
            return own
        other = super().next_time()
        return min((time for time in (own, other) if time is not None), default=None)

    def next_event(self):
        if self.trainer_failure == self.now:
            return self.trainer_fails, "failure"
        for slot, (number, time) in enumerate(self.worker_failures):
            if time != self.now:
                continue
            up_time = self.up_time(5, number + 1, slot, self.s["worker_mtbf_seconds"])
            self.worker_failures[slot] = [number + 1, self.now + up_time]
            member = self.slots[slot]
            if member is not None and member.phase != "done":
                return (lambda member=member: self.worker_fails(member)), "worker_failure"
            self.reached.add("idle_worker_fails")
        return super().next_event()

    def wait_that_ends(self):
        if self.checkpoint_end == self.now:
            return self.checkpoint_ends, "checkpoint"
        if self.restart_end == self.now:
            return self.restart_ends, "restart"
        return None

    # Checkpoints

    def step_completes(self):
        before = self.version
        super().step_completes()
        every = self.s["checkpoint_every_updates"]
        self.checkpoint_is_due = every is not None and self.version // every > before // every

    def look_for_the_start_of_a_checkpoint(self):
        if not self.checkpoint_is_due:
            return
        self.checkpoint_is_due = False
        self.writing = self.snapshot()
        length = ticks(self.s["checkpoint_seconds"])
        if length == 0:
            self.checkpoint_ends()
        else:
            self.checkpoint_end = self.now + length

    def checkpoint_ends(self):
        self.reached.add("checkpoint")
        self.checkpoint_end = None
        self.saved, self.writing = self.writing, None

    def restart_ends(self):
        self.restart_end = None

    def snapshot(self):
        return {
            "version": self.version,
            "batches": len(self.batches),
            "trained": len(self.trained),
            "steps": sum(not batch["lost"] for batch in self.batches),
            "places": self.places,
            "queue": [copy_of(group) for group in self.queue],
            "running": [copy_of(group) for group in self.running],
            "requeued": [copy_of(group) for group in self.requeued],
            "popped": sum(len(batch.groups) for batch in self.prefetched),
        }

    def book(self, batch):
        super().book(batch)
        self.batches[-1]["rows"] = [member.row for member in batch.members]
        self.batches[-1]["ticks"] = (batch.start, self.now)

    # A failure of the trainer

    def trainer_fails(self):
        saved, full = self.saved, self.s["checkpoint_scope"] == "full"
        self.reached.add("failure")
        for name, happens in (
            ("failure_in_a_step", self.step is not None),
            ("failure_in_a_checkpoint", self.checkpoint_end is not None),
            ("failure_in_a_publication", self.publication is not None),
            ("failure_with_a_queue_to_go_back_to", full and saved["queue"]),
            ("failure_with_work_to_start_again", full and saved["running"]),
        ):
            if happens:
                self.reached.add(name)
        lost = [batch for batch in self.batches[saved["batches"] :] if not batch["lost"]]
        tokens = sum(batch["tokens"] for batch in lost)
        self.losses.append(
            [self.now, self.version - saved["version"], tokens, sum(b["groups"] for b in lost)]
        )
        for batch in lost:
            batch["lost"] = True
            for row in batch["rows"]:
                row.update(outcome="lost", lag=None)
        self.lose_what_is_live({group.admission for group in saved["queue"]} if full else set())
        self.version = self.published = saved["version"]
        self.publication_number[self.version] = self.publications
        self.trained_groups = saved["trained"]
        del self.trained[saved["trained"] :]
        self.popped_batches = self.steps_begun = saved["steps"]
        self.queue, self.requeued, self.places = [], [], 0
        if full:
            self.bring_back(saved)
        self.joins.append((self.now, self.queue_tokens()))
        length = ticks(self.s["restart_seconds"])
        self.restart_end = self.now + length if length else None
        self.trainer_failures += 1
        up_time = self.up_time(4, self.trainer_failures, 0, self.s["trainer_mtbf_seconds"])
        self.trainer_failure = self.now + length + up_time

    def lose_what_is_live(self, comes_back):
        """Everything in flight, queued or popped leaves; ready groups by whose admission come back."""
        ready = self.queue + [
            group for batch in [*self.in_hand(), *self.prefetched] for group in batch.groups
        ]
        for group in ready + self.running:
            self.note_leaving(group)
            if group in self.running or group.admission not in comes_back:
                done = [member.tokens for member in group.members if member.phase == "done"]
                self.losses[-1][2] += sum(done)
            for member in group.started():
                member.row.update(outcome="lost")
        for member in self.in_slots():
            self.lose_in_flight(member)
        self.slots = [None] * len(self.slots)
        self.idle = list(range(len(self.slots) - 1, -1, -1))
        self.running, self.held, self.prefetched = [], [], []
        self.step = self.fetching = None
        self.evaluation_end, self.evaluation_is_due = None, False
        self.checkpoint_end = self.writing = None
        self.publication = self.waiting = None

    def lose_in_flight(self, member):
        """With engines it leaves its engine."""

    def bring_back(self, saved):
        self.queue = [copy_of(group) for group in saved["queue"]]
        for group in self.queue:
            for member in group.members:
                member.row.update(outcome="queued", lag=None)
        again = [copy_of(group) for group in saved["running"]]
        for group in again:
            group.state = "requeued"
            for member in group.members:
                member.reset()
            if self.s["redraw_on_requeue"] and all(member.number is None for member in group.members):
                group.number = None
        self.requeued = again + [copy_of(group) for group in saved["requeued"]]
        if self.s["admit"] == "batch":
            self.places = saved["places"] + len(again) + saved["popped"]

    # A failure of a worker

    def worker_fails(self, member):
        self.reached.add("worker_failure")
        self.reached.add(f"worker_failure_{member.phase}")
        self.lose_in_flight(member)
        member.row.update(outcome="lost")
        self.again = member
        member.phase = "again"

    def start_again(self):
        if self.again is not None:
            member, self.again = self.again, None
            self.slots[member.slot] = None
            self.idle.append(member.slot)
            self.start_rollout(member)

    # What the trainer does

    def trainer_may_start(self):
        if self.restart_end is None:
            super().trainer_may_start()

    def stands_still(self):
        return self.checkpoint_end is not None or super().stands_still()

    def trainer_binding(self):
        if self.restart_end is not None:
            return "restart"
        if self.checkpoint_end is not None:
            return "checkpoint"
        return super().trainer_binding()

    # Reports

    def report(self, end):
        found = super().report(end)
        span = max(0, end - self.warmup)
        rows = [row for row in self.losses if self.warmup < row[0] <= end]
        kept = [batch["ticks"] for batch in self.batches if not batch["lost"]]
        if self.step is not None:
            kept.append((self.step.start, end))
        busy = sum(max(0, min(to, end) - max(since, self.warmup)) for since, to in kept)

        def trainer(*causes):
            return self.integral(lambda row: row["trainer"] in causes, end)

        could = span - trainer("running_groups", "batch", "fetch")
        return found | {
            "lost_updates": sum(row[1] for row in rows),
            "lost_tokens": sum(row[2] for row in rows),
            "repeated_prompts": sum(row[3] for row in rows),
            "trainer_checkpoint_seconds": trainer("checkpoint") / 1e6,
            "trainer_restart_seconds": trainer("restart") / 1e6,
            "goodput_fraction": busy / could if could else NAN,
        }


class FailingRun(Failures, Run):
    """A run with failures."""


class FailingEngineRun(Failures, EngineRun):
    """A run with failures and engines."""

    def lose_in_flight(self, member):
        if member.phase == "engine":
            self.cancel_request(member.engine, self.request_of(member))

    def trainer_fails(self):
        super().trainer_fails()
        for engine in self.engines:
            engine.abort_until = None


def run_level4(settings):
    """Simulate one run of settings of any level."""
    return (FailingEngineRun if settings.get("engine") else FailingRun)(settings).run()
