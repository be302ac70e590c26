"""A slow, obvious twin of the event loop, levels 1 to 3: groups, work clock, publications, admission ledger.

It is written from the page of semantics alone (READINGS.md says how the page is read where it leaves a
choice) and shares only the draws and ticks with the level 1 twin, which it must equal with every option off.

Settings are as for the level 1 twin, with the fields of levels 2 and 3. ``environment_seconds`` is none or a
mapping with ``values`` and ``cdf``; ``limits`` is a list of (count, done, groups); a paired law carries
``rows``, a list of (tokens, seconds) in ascending order, in place of its table, and a law of whole groups
``groups``, the lengths of each, beside it.
"""

from __future__ import annotations

import math

import numpy as np
from oracle.level1 import Words, ticks, uniform
from oracle.level23_admission import Admission
from oracle.level23_parts import DEFAULTS, UNIT, Law, Publication, ceil_div
from oracle.level23_report import Report
from oracle.level23_trainer import Trainer


class Run(Trainer, Admission, Report):
    """One simulated run."""

    def __init__(self, settings):
        self.s = s = {**DEFAULTS, **settings}
        self.law = Law(s["response_length"])
        self.horizon, self.warmup = ticks(s["duration_seconds"]), ticks(s["warmup_seconds"])
        self.sync_ticks = ticks(s["sync_seconds"])
        self.overhead_ticks = ticks(s["rollout_overhead_seconds"])
        self.sequential = s["mode"] == "sequential"
        self.stops_decoding = s["publication"] in ("pause", "abort")
        self.words = Words(s["seed"])
        self.step_words = Words(np.array([s["seed"], 3], np.uint64))
        self.group_words = Words(np.array([s["seed"], 2], np.uint64))

        self.now = 0
        self.clock = 0  # W, in units of 2**-24 tick of nominal work
        self.version = self.published = 0
        self.publication, self.waiting = None, None
        self.publications = 0  # completed
        self.publication_number = {0: 0}  # of a version
        self.step = None  # a Batch, with start, work, done, version and publications
        self.fetching = None  # a Batch that the trainer has in hand before its step
        self.evaluation_end, self.evaluation_is_due = None, False
        self.checkpoint_end = self.restart_end = None  # of level 4
        self.steps_begun = 0
        self.law_starts = []  # (time, law) of every rollout
        self.prefetched = []
        self.running, self.queue, self.requeued = [], [], []
        self.held = []  # groups that a full queue did not take, each with the member that keeps its slot
        self.trained_groups = self.popped_batches = 0
        self.admissions = self.places = 0
        self.next_number = self.next_group = 0
        self.slots = [None] * s["rollout_workers"]
        self.idle = list(range(s["rollout_workers"] - 1, -1, -1))
        self.last_update = 0

        self.rollouts, self.batches, self.timeline, self.segments = [], [], [], []
        self.generated, self.synced, self.joins = [], [], []
        self.drops = []  # (time, reason, tokens of completed members, completed members, wasted tokens)
        self.left = []  # (time, drawn tokens, drawn members) of every group that left
        self.admitted, self.completed, self.requeues, self.trained = [], [], [], []  # times, one per group
        self.last_progress = 0
        self.reached = set()

    # What holds now

    def queue_tokens(self):
        return sum(group.tokens() for group in self.queue)

    def in_slots(self):
        return [member for member in self.slots if member is not None]

    def decoding(self):
        return [member for member in self.in_slots() if member.phase == "decoding"]

    def busy_slots(self):
        """Those in which a rollout is in flight: a member that keeps its slot for a held group is done."""
        return [member for member in self.in_slots() if member.phase != "done"]

    def starts_are_stopped(self):
        return self.stops_decoding and self.publication is not None

    def decoding_is_stopped(self):
        if self.starts_are_stopped():
            return True
        if self.evaluation_end is not None and self.s["evaluation_stops_generation"]:
            return True
        if self.s["generation_while_training"]:
            return False
        return self.step is not None or (self.trainer_is_blocked() and self.s["publication"] != "drain")

    def clock_rate(self):
        """Growth of W in one tick."""
        count = len(self.decoding())
        if count == 0 or self.decoding_is_stopped():
            return 0
        slowdown = self.s["decode_slowdown_per_rollout"]
        return max(1, math.floor(UNIT / (1 + slowdown * (count - 1)) + 0.5))

    def training_rate(self):
        """Growth of the training work in one tick."""
        if self.decoding() and not self.decoding_is_stopped():
            return math.floor(UNIT / (1 + self.s["train_slowdown_when_generating"]) + 0.5)
        return UNIT

    def too_old(self, group):
        version = group.version()
        return version is not None and self.version - version > self.s["max_policy_lag"]

    # The loop

    def run(self):
        end = self.horizon
        self.settle()
        self.record("start")
        while True:
            time = self.next_time()
            if time is None or time > self.horizon:
                break
            self.pass_time(time)
            event = self.next_event()
            if event is None:
                continue
            if time == self.horizon:
                self.reached.add("event_on_horizon")
            handle, name = event
            self.last_progress = self.now
            handle()
            self.look_for_the_end_of_a_drain()
            self.look_for_the_start_of_a_checkpoint()
            self.look_for_the_start_of_an_evaluation()
            self.settle()
            self.record(name)
            stop = self.s["stop_after_updates"]
            if name == "update" and stop is not None and self.version >= stop:
                end = self.now
                self.reached.add("stopped_by_update")
                break
        self.pass_time(end)
        return self.report(end)

    def next_time(self):
        """The next tick at which anything changes, an event or not."""
        times = []
        if self.publication is not None and self.publication.end is not None:
            times.append(self.publication.end)
        if self.step is not None:
            left, rate = self.step.work - self.step.done, self.training_rate()
            if left <= 0:
                times.append(self.now)
            elif rate > 0:
                times.append(self.now + ceil_div(left, rate))
        if self.fetching is not None:
            times.append(self.fetching.fetched)
        if self.evaluation_end is not None:
            times.append(self.evaluation_end)
        rate = self.clock_rate()
        for member in self.in_slots():
            if member.phase == "decoding" and rate > 0:
                times.append(self.now + max(0, ceil_div(member.target - self.clock, rate)))
            elif member.phase == "off":
                times.append(member.off_end)
            elif member.phase == "tail":
                times.append(member.tail_end)
        return min(times, default=None)

    def pass_time(self, until):
        """Bring everything forward to a tick, and do what time alone brings about there."""
        self.close_segment(until)
        passed = until - self.now
        grown = self.clock + passed * self.clock_rate()
        if self.step is not None:
            self.step.done += passed * self.training_rate()
        for member in self.decoding():
            version = self.published if self.stops_decoding else member.behaviour_version
            growth = max(0, min(grown, member.target) - self.clock)
            member.work_by_version[version] = member.work_by_version.get(version, 0) + growth
        self.clock = grown
        self.now = until
        self.end_decodes()
        for member in self.in_slots():
            if member.phase == "off" and member.off_end == self.now:
                self.decode_on(member)
        if self.fetching is not None and self.fetching.fetched == self.now:
            self.reached.add("fetch")
            self.begin_step()

    def end_decodes(self):
        for member in self.decoding():
            if member.target <= self.clock:
                member.phase = "tail"
                member.tail_end = self.now + member.tail
                member.end_version = self.published if self.stops_decoding else member.behaviour_version

    def decode_on(self, member):
        member.phase = "decoding"
        member.target = self.clock + member.remaining

    def next_event(self):
        """The event that is due now, smallest kind and slot first; None if nothing is."""
        if self.publication is not None and self.publication.end == self.now:
            return self.publication_completes, "publication"
        if self.step is not None and self.step.done >= self.step.work:
            return self.step_completes, "update"
        if self.evaluation_end == self.now:
            return self.evaluation_ends, "evaluation"
        wait = self.wait_that_ends()
        if wait is not None:
            return wait
        due = [member for member in self.in_slots() if member.phase == "tail" and member.tail_end == self.now]
        if not due:
            return None
        first = min(due, key=self.order_in_tick)
        return (lambda: self.rollout_completes(first)), "rollout"

    # What level 4 adds

    def wait_that_ends(self):
        """A checkpoint or a restart."""

    def look_for_the_start_of_a_checkpoint(self):
        pass

    def start_again(self):
        """Let the rollout of a worker that failed start again."""

    def order_in_tick(self, member):
        """Those that end with their decode by (target, slot); a tail counts as a target met exactly."""
        return (member.target if member.tail == 0 else self.clock), member.slot

    def record(self, event):
        self.timeline.append(
            {
                "time": self.now / 1e6,
                "queue_tokens": self.queue_tokens(),
                "in_flight": len(self.busy_slots()),
                "version": self.version,
                "published": self.published,
                "event": event,
            }
        )

    def close_segment(self, until):
        idle = len(self.idle)
        capped = not self.sequential and idle > 0 and self.cap_closes(self.next_admission())
        self.segments.append(
            {
                "from": self.now,
                "to": until,
                "queue_tokens": self.queue_tokens(),
                "occupied": len(self.in_slots()),
                "held": len(self.held),
                "backpressure": capped,
                "busy": self.step is not None,
                "generation": self.generation_binding() if idle else None,
                "trainer": self.trainer_binding(),
            }
        )

    # Publications

    def publish(self, version):
        if self.publication is not None:
            self.reached.add("waiting_publication" if self.waiting is None else "replaced_publication")
            self.waiting = version
        else:
            self.begin_publication(version)

    def begin_publication(self, version):
        self.publication = Publication(version)
        if self.s["publication"] == "drain" and self.unfinished():
            self.reached.add("drain")
            return
        if self.s["publication"] == "abort":
            for member in self.decoding():
                self.reached.add("abort")
                member.phase = "held"
                member.remaining = member.target - self.clock
                self.publication.held.append(member)
        elif self.s["publication"] == "pause" and self.decoding():
            self.reached.add("pause")
        self.transfer()

    def transfer(self):
        self.publication.phase = "transferring"
        if self.sync_ticks == 0:
            self.reached.add("instant_publication")
            self.publication_completes()
        else:
            self.publication.end = self.now + self.sync_ticks

    def look_for_the_end_of_a_drain(self):
        if self.publication is not None and self.publication.phase == "draining" and not self.unfinished():
            self.transfer()

    def unfinished(self):
        """Running groups that have a member waiting or in flight: a held group has none."""
        return [group for group in self.running if any(member.phase != "done" for member in group.members)]

    def publication_completes(self):
        done, self.publication = self.publication, None
        self.published = done.version
        self.publications += 1
        self.publication_number[done.version] = self.publications
        self.synced.append(self.now)
        for member in done.held:
            if member.phase != "held":
                continue  # cancelled meanwhile
            reprefill = self.s["reprefill_tokens_per_second"]
            seconds = self.s["resume_seconds"]
            if reprefill is not None:
                seconds = seconds + self.tokens_so_far(member) / reprefill
            delay = ticks(seconds)
            if delay == 0:
                self.decode_on(member)
            else:
                self.reached.add("reprefill")
                member.phase = "off"
                member.off_end = self.now + delay
        if self.waiting is not None:
            version, self.waiting = self.waiting, None
            self.begin_publication(version)

    def tokens_so_far(self, member):
        """Whole tokens decoded by now; all of them once the decode is over, none before the start."""
        if member.phase == "waiting":
            return 0
        if member.phase in ("tail", "done"):
            return member.tokens
        left = member.target - self.clock if member.phase == "decoding" else member.remaining
        work = member.work * UNIT
        return member.tokens * (work - left) // work

    # Rollouts and groups

    def rollout_completes(self, member):
        member.phase = "done"
        member.row.update(end=self.now / 1e6, outcome="waiting")
        self.generated.append((self.now, member.tokens))
        group = member.group
        if any(other.phase != "done" for other in group.members):
            self.free(member)
            return
        self.completed.append(self.now)
        first = self.words.block(group.members[0].number)
        filtered = uniform(first[3]) < self.s["filter_probability"]
        if not filtered and self.s["queue_overflow"] == "hold" and not self.queue_has_room():
            self.reached.add("held")
            self.held.append((group, member))
            return
        self.free(member)
        self.running.remove(group)
        if filtered:
            self.drop(group, "filtered")
        else:
            self.arrive(group)

    def queue_has_room(self):
        return len(self.queue) < self.s["max_queue_groups"]

    def let_held_join(self):
        while self.held and self.queue_has_room():
            group, member = self.held.pop(0)
            self.free(member)
            self.running.remove(group)
            self.arrive(group)

    def arrive(self, group):
        if self.s["stale_check"] == "update" and self.too_old(group):
            self.reached.add("discard_on_arrival")
            self.stale(group)
        else:
            self.join(group)

    def free(self, member):
        self.slots[member.slot] = None
        self.idle.append(member.slot)

    def join(self, group):
        group.state = "queued"
        for member in group.members:
            member.row["outcome"] = "queued"
        self.queue.append(group)
        if self.s["queue_overflow"] == "drop_oldest":
            if len(self.queue) > self.s["max_queue_groups"]:
                self.drop(self.queue.pop(0), "evicted")
        elif self.s["max_queue_tokens"] is not None and self.queue_tokens() > self.s["max_queue_tokens"]:
            self.reached.add("overshoot")
        self.joins.append((self.now, self.queue_tokens()))

    def stale(self, group):
        if self.s["stale_action"] == "requeue":
            self.requeue(group, "stale")
        else:
            self.drop(group, "stale")

    def cancel(self, group):
        self.running.remove(group)
        for held, member in list(self.held):
            if held is group:
                self.reached.add("held_group_cancelled")
                self.free(member)
                self.held.remove((held, member))
        wasted = sum(self.tokens_so_far(member) for member in group.members)
        if self.s["stale_action"] == "requeue":
            self.requeue(group, "cancelled", wasted)
        else:
            self.drop(group, "cancelled", wasted)

    def leave(self, group, reason, wasted):
        """What every way out but training does, once: free the slots, open a place, count."""
        self.reached.add(reason)
        self.note_leaving(group)
        completed = [member for member in group.members if member.phase == "done"]
        tokens = sum(member.tokens for member in completed)
        self.drops.append((self.now, reason, tokens, len(completed), wasted))
        for member in group.started():
            member.row["outcome"] = "discarded" if reason == "stale" else reason
        for member in group.members:
            if member.phase not in ("waiting", "done"):
                self.free(member)
                member.phase = "cancelled"
        if self.s["admit"] == "batch":
            self.places += 1

    def drop(self, group, reason, wasted=0):
        self.leave(group, reason, wasted)
        group.state = "dropped"

    def requeue(self, group, reason, wasted=0):
        self.leave(group, reason, wasted)
        self.reached.add("requeue")
        group.state = "requeued"
        for member in group.members:
            member.reset()
            if self.s["redraw_on_requeue"]:
                member.number = None
        if self.s["redraw_on_requeue"]:
            group.number = None
        self.requeued.append(group)
        self.requeues.append(self.now)

    def note_leaving(self, group):
        started = group.started()
        self.left.append((self.now, sum(member.tokens for member in started), len(started)))


def run_level23(settings):
    """Simulate one run of the settings; return every metric and the detail rows by name."""
    return Run(settings).run()
