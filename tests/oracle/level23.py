"""A slow, obvious twin of the event loop, levels 1 to 3: groups, work clock, publications, admission ledger.

It is written from the page of semantics alone (READINGS.md says how the page is read where it leaves a
choice) and shares only the draws and ticks with the level 1 twin, which it must equal with every option off.

Settings are as for the level 1 twin, with the fields of levels 2 and 3. ``environment_seconds`` is none or a
mapping with ``values`` and ``cdf``; ``limits`` is a list of (count, done, groups); a paired law carries
``rows``, a list of (tokens, seconds) in ascending order, in place of its table, and a law of whole groups
``groups``, the lengths of each, beside it.
"""

from __future__ import annotations

import bisect
import itertools
import math

import numpy as np
from oracle.level1 import DEFAULTS as LEVEL_1_DEFAULTS
from oracle.level1 import LAG_BINS, NAN, Words, ess_of, normal, ticks, uniform

UNIT = 2**24
DEFAULTS = {
    **LEVEL_1_DEFAULTS,
    "decode_slowdown_per_rollout": 0.0,
    "environment_seconds": None,
    "prompt_tokens": 0,
    "publication": "background",
    "resume_seconds": 0.0,
    "reprefill_tokens_per_second": None,
    "publication_blocks_trainer": False,
    "train_slowdown_when_generating": 0.0,
    "drift_length_exponent": 0.0,
    "group_size": 1,
    "prompt_sigma": 0.0,
    "filter_probability": 0.0,
    "updates_per_batch": 1,
    "batch_groups": None,
    "prefetch_batches": 0,
    "limits": (),
    "max_running_groups": None,
    "admit": "group",
    "one_batch_at_a_time": False,
    "queue_order": "fifo",
    "queue_overflow": "block",
    "max_queue_groups": None,
    "stale_check": "update",
    "stale_action": "drop",
    "redraw_on_requeue": False,
    "cancel_in_flight": False,
}
DROP_REASONS = ("stale", "filtered", "evicted", "cancelled")


def ceil_div(a, b):
    """Whole quotient, rounded up."""
    return -(-a // b)


class Law:
    """The table of lengths, or the rows of a trace of (tokens, seconds)."""

    def __init__(self, law):
        self.rows, self.groups = law.get("rows"), law.get("groups")
        if self.rows is not None:
            self.minimum, self.maximum = self.rows[0][0], self.rows[-1][0]
            self.mean = math.fsum(tokens for tokens, _ in self.rows) / len(self.rows)
            self.row_cdf = [(i + 1) / len(self.rows) for i in range(len(self.rows))]
            self.cut = law["cut"]
            return
        self.minimum, self.cdf, self.cut = law["minimum"], list(law["cdf"]), law["cut"]
        self.maximum = self.minimum + len(self.cdf) - 1
        steps = itertools.pairwise([0.0, *self.cdf])
        self.mean = math.fsum((self.minimum + i) * (high - low) for i, (low, high) in enumerate(steps))

    def draw_of_group(self, u, place):
        """Return the tokens of a group's member: the row drawn by the first, then the next ones in turn."""
        place_of_row = [(group, first) for group in self.groups for first in range(len(group))]
        row_cdf = [(i + 1) / len(place_of_row) for i in range(len(place_of_row))]
        group, first = place_of_row[bisect.bisect_right(row_cdf, u)]
        return group[(first + place) % len(group)]

    def draw(self, u):
        """Return tokens and, for a trace of pairs, the seconds of the same row."""
        if self.rows is not None:
            return self.rows[bisect.bisect_right(self.row_cdf, u)]
        return self.minimum + bisect.bisect_right(self.cdf, u), 0.0


class Member:
    """One rollout of a group. Phases: waiting, decoding, held (by a pause), off (re-prefill), tail, done."""

    def __init__(self, group):
        self.group = group
        self.number = None
        self.reset()

    def reset(self):
        self.phase = "waiting"
        self.slot = None
        self.row = None


class Group:
    """Rollouts of one prompt. States: running, queued, popped, trained, dropped, requeued."""

    def __init__(self, size):
        self.number = None
        self.members = [Member(self) for _ in range(size)]
        self.state = None
        self.admission = None

    def started(self):
        return [member for member in self.members if member.phase != "waiting"]

    def version(self):
        """The oldest start among the members; None before the first."""
        return min((member.behaviour_version for member in self.started()), default=None)

    def tokens(self):
        return sum(member.tokens for member in self.members)


class Batch:
    """What one pop took."""

    def __init__(self, groups, version, publications):
        self.groups = groups
        self.pop_version = version
        self.pop_publications = publications
        self.tokens = sum(group.tokens() for group in groups)
        self.members = [member for group in groups for member in group.members]


class Publication:
    """The publication under way: its version, and its phase (draining or transferring)."""

    def __init__(self, version):
        self.version = version
        self.phase = "draining"
        self.end = None
        self.held = []


class Run:
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
        self.group_words = Words(np.array([s["seed"], 2], np.uint64))

        self.now = 0
        self.clock = 0  # W, in units of 2**-24 tick of nominal work
        self.version = self.published = 0
        self.publication, self.waiting = None, None
        self.publications = 0  # completed
        self.publication_number = {0: 0}  # of a version
        self.step = None  # a Batch, with start, work, done, version and publications
        self.prefetched = []
        self.running, self.queue, self.requeued = [], [], []
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

    def decoding_is_stopped(self):
        return self.stops_decoding and self.publication is not None

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
        for member in self.decoding():
            if member.target <= self.clock:
                member.phase = "tail"
                member.tail_end = self.now + member.tail
                member.end_version = self.published if self.stops_decoding else member.behaviour_version
        for member in self.in_slots():
            if member.phase == "off" and member.off_end == self.now:
                self.decode_on(member)

    def decode_on(self, member):
        member.phase = "decoding"
        member.target = self.clock + member.remaining

    def next_event(self):
        """The event that is due now, smallest kind and slot first; None if nothing is."""
        if self.publication is not None and self.publication.end == self.now:
            return self.publication_completes, "publication"
        if self.step is not None and self.step.done >= self.step.work:
            return self.step_completes, "update"
        due = [member for member in self.in_slots() if member.phase == "tail" and member.tail_end == self.now]
        if not due:
            return None
        first = min(due, key=self.order_in_tick)
        return (lambda: self.rollout_completes(first)), "rollout"

    def order_in_tick(self, member):
        """Those that end with their decode by (target, slot); a tail counts as a target met exactly."""
        return (member.target if member.tail == 0 else self.clock), member.slot

    def record(self, event):
        self.timeline.append(
            {
                "time": self.now / 1e6,
                "queue_tokens": self.queue_tokens(),
                "in_flight": len(self.in_slots()),
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
        if self.s["publication"] == "drain" and self.running:
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
        if self.publication is not None and self.publication.phase == "draining" and not self.running:
            self.transfer()

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

    # The trainer

    def step_completes(self):
        batch, self.step = self.step, None
        before = self.version
        self.version += self.s["updates_per_batch"]
        self.last_update = self.now
        self.trained_groups += len(batch.groups)
        self.trained += [self.now] * len(batch.groups)
        self.book(batch)
        cadence = self.s["sync_every_updates"]
        if self.version // cadence > before // cadence:
            self.publish(self.version)
        if self.s["stale_check"] == "update":
            for group in list(self.queue):
                if self.too_old(group):
                    self.queue.remove(group)
                    self.reached.add("discard_on_update")
                    self.stale(group)
        if self.s["cancel_in_flight"]:
            for group in list(self.running):
                if self.too_old(group):
                    self.cancel(group)

    def trainer_is_blocked(self):
        if self.publication is None:
            return False
        return self.sequential or self.s["publication_blocks_trainer"]

    def trainer_may_start(self):
        if self.step is None:
            if self.trainer_is_blocked() or (self.sequential and self.running):
                return
            batch = self.prefetched.pop(0) if self.prefetched else self.pop()
            if batch is None:
                return
            self.start_step(batch)
        while len(self.prefetched) < self.s["prefetch_batches"]:
            batch = self.pop()
            if batch is None:
                return
            self.reached.add("prefetch")
            self.prefetched.append(batch)

    def start_step(self, batch):
        tokens = batch.tokens + self.s["prompt_tokens"] * len(batch.members)
        batch.start = self.now
        batch.version = self.version
        batch.publications = self.publications
        batch.work = UNIT * ticks(
            self.s["train_overhead_seconds"] + tokens / self.s["train_tokens_per_second"]
        )
        batch.done = 0
        self.step = batch

    def queue_holds_enough(self):
        if self.s["batch_groups"] is not None:
            return len(self.queue) >= self.s["batch_groups"]
        return self.queue_tokens() >= self.s["batch_tokens"]

    def pop(self):
        """Take the next batch from the queue, or None."""
        chosen = self.choose()
        if chosen is not None and self.s["stale_check"] == "dequeue":
            for group in list(self.queue):
                if self.too_old(group):
                    self.queue.remove(group)
                    self.reached.add("discard_at_dequeue")
                    self.stale(group)
            chosen = self.choose()
        if chosen is None:
            return None
        for group in chosen:
            self.queue.remove(group)
            group.state = "popped"
            for member in group.members:
                member.row["outcome"] = "in_training"
        self.popped_batches += 1
        return Batch(chosen, self.version, self.publications)

    def choose(self):
        """The groups that the next batch would take, in order; None if there are not enough."""
        if not self.queue_holds_enough():
            return None
        if self.sequential:
            return list(self.queue)
        order = self.s["queue_order"]
        if order == "started":
            live = sorted(self.running + self.queue, key=lambda group: group.admission)
            oldest = live[: self.s["batch_groups"]]
            if any(group.state != "queued" for group in oldest):
                self.reached.add("waits_for_running")
                return None
            return oldest
        candidates = list(self.queue)
        if order == "oldest_version":
            candidates.sort(key=lambda group: group.version())
        elif order == "freshest":
            candidates.sort(key=lambda group: -group.version())
        elif order == "random":
            candidates = self.shuffled(candidates)
        chosen = []
        for group in candidates:
            if self.s["batch_groups"] is not None:
                if len(chosen) == self.s["batch_groups"]:
                    break
            elif sum(taken.tokens() for taken in chosen) >= self.s["batch_tokens"]:
                break
            chosen.append(group)
        return chosen

    def shuffled(self, groups):
        """Fisher-Yates from the front; pick i of batch b reads word i % 4 of block (b + 1, i // 4)."""
        groups = list(groups)
        key = np.array([self.s["seed"], 1], np.uint64)
        for i in range(len(groups)):
            # A generator's first block has its counter plus one.
            counter = np.array([self.popped_batches, i // 4, 0, 0], np.uint64)
            word = int(np.random.Philox(key=key, counter=counter).random_raw(4)[i % 4])
            j = i + math.floor(uniform(word) * (len(groups) - i))
            groups[i], groups[j] = groups[j], groups[i]
        return groups

    def book(self, batch):
        """Note what a completed step trained."""
        runs = self.s["updates_per_batch"]
        short, longer = divmod(len(batch.groups), runs)
        sizes = [short + (j < longer) for j in range(runs)]
        run_of_group = [j for j, size in enumerate(sizes) for _ in range(size)]
        details = []
        for group, j in zip(batch.groups, run_of_group):
            group.state = "trained"
            for member in group.members:
                lag = batch.version + j - member.behaviour_version
                member.row.update(outcome="trained", lag=lag)
                work = sum(member.work_by_version.values())
                mean_version = (
                    sum(version * part for version, part in member.work_by_version.items()) / work
                    if work
                    else member.behaviour_version
                )
                number = self.publication_number[member.behaviour_version]
                details.append(
                    {
                        "number": member.number,
                        "tokens": member.tokens,
                        "lag": lag,
                        "lag_at_start": member.start_version - member.behaviour_version,
                        "lag_at_dequeue": batch.pop_version - member.behaviour_version,
                        "publications_at_start": member.start_publications - number,
                        "publications_at_dequeue": batch.pop_publications - number,
                        "publications_at_training": batch.publications - number,
                        "token_lag": batch.version + j - mean_version,
                        "end_lag": batch.version + j - member.end_version,
                    }
                )
        lags = [detail["lag"] for detail in details]
        exponent = self.s["drift_length_exponent"]
        scales = [
            self.s["drift_per_version"] * math.sqrt(lag) * (member.tokens / self.law.mean) ** exponent
            for lag, member in zip(lags, batch.members)
        ]
        normalized, expected = ess_of(lags, [member.noise for member in batch.members], scales)
        self.batches.append(
            {
                "update": self.version,
                "start": batch.start / 1e6,
                "end": self.now / 1e6,
                "tokens": batch.tokens,
                "rollouts": len(batch.members),
                "groups": len(batch.groups),
                "mean_lag": sum(lags) / len(lags),
                "max_lag": max(lags),
                "normalized_ess": normalized,
                "expected_normalized_ess": expected,
                "measured": self.now > self.warmup,
                "details": details,
            }
        )
        for group in batch.groups:
            self.note_leaving(group)

    # Rollouts and groups

    def rollout_completes(self, member):
        member.phase = "done"
        member.row.update(end=self.now / 1e6, outcome="waiting")
        self.free(member)
        self.generated.append((self.now, member.tokens))
        group = member.group
        if any(other.phase != "done" for other in group.members):
            return
        self.running.remove(group)
        self.completed.append(self.now)
        first = self.words.block(group.members[0].number)
        if uniform(first[3]) < self.s["filter_probability"]:
            self.drop(group, "filtered")
        elif self.s["stale_check"] == "update" and self.too_old(group):
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

    # Admission

    def next_admission(self):
        """How many groups the next admission takes."""
        return self.s["batch_groups"] if self.s["admit"] == "batch" and self.places == 0 else 1

    def cap_closes(self, count):
        cap = self.s["max_queue_tokens"]
        if cap is None or self.s["queue_overflow"] == "drop_oldest":
            return False
        if self.s["admission"] == "threshold":
            return self.queue_tokens() >= cap
        each = self.law.maximum * self.s["group_size"]
        return self.queue_tokens() + each * (len(self.running) + count) > cap

    def rooms(self):
        """Groups that each limit still lets in."""
        popped = sum(len(batch.groups) for batch in [*self.prefetched, *([self.step] if self.step else [])])
        finished = len(self.queue) + popped + self.trained_groups
        per_batch = self.s["batch_groups"]
        updates = self.s["updates_per_batch"]
        found = []
        for count, done, groups in self.s["limits"]:
            used = finished if count == "finished" else finished + len(self.running)
            if per_batch is None:
                allowed = popped + self.trained_groups
            else:
                batches = {
                    "published": self.published // updates,
                    "popped": self.popped_batches,
                    "trained": self.version // updates,
                }
                allowed = per_batch * batches[done]
            found.append(allowed + groups - used)
        return found

    def closed_by(self):
        """The first gate that closes the next admission, by name; None when it is open."""
        if self.sequential:
            if self.step is not None or self.publication is not None:
                return "sequential"
            promised = self.queue_tokens() + sum(member.tokens for member in self.in_slots())
            return None if promised < self.s["batch_tokens"] else "sequential"
        count = self.next_admission()
        if self.publication is not None and self.s["publication"] != "background":
            return "publication"
        most = self.s["max_running_groups"]
        if most is not None and len(self.running) + count > most:
            return "max_running"
        new_batch = self.s["admit"] == "batch" and self.places == 0
        if self.s["one_batch_at_a_time"] and new_batch and self.running:
            return "one_batch"
        if self.cap_closes(count):
            return "token_cap"
        rooms = self.rooms()
        if rooms and min(rooms) < count:
            return f"limit_{rooms.index(min(rooms))}"
        return None

    def generation_binding(self):
        """What idle slots wait for."""
        if self.publication is not None and self.s["publication"] != "background" and not self.sequential:
            return "publication"
        return self.closed_by()

    def trainer_binding(self):
        if self.step is not None:
            return "busy"
        if self.trainer_is_blocked():
            return "publication"
        if self.queue_holds_enough():
            return "running_groups"
        return "batch"

    def settle(self):
        self.trainer_may_start()
        while self.idle:
            member = self.next_waiting_member()
            if member is not None:
                if self.decoding_is_stopped():
                    return
                self.start_rollout(member)
            elif self.closed_by() is None:
                self.admit()
            else:
                return

    def next_waiting_member(self):
        for group in self.running:
            for member in group.members:
                if member.phase == "waiting":
                    return member
        return None

    def admit(self):
        count = self.next_admission()
        if self.s["admit"] == "batch" and self.places > 0:
            self.places -= 1
            self.reached.add("replacement")
        for _ in range(count):
            group = self.requeued.pop(0) if self.requeued else Group(self.s["group_size"])
            if group.number is None:
                group.number = self.next_group
                self.next_group += 1
            group.state = "running"
            group.admission = self.admissions
            self.admissions += 1
            self.admitted.append(self.now)
            self.running.append(group)

    def start_rollout(self, member):
        if member.number is None:
            member.number = self.next_number
            self.next_number += 1
        words = self.words.block(member.number)
        tokens, paired_seconds = self.law.draw(uniform(words[0]))
        if self.law.groups is not None:
            members = member.group.members
            first = self.words.block(members[0].number)
            tokens = self.law.draw_of_group(uniform(first[0]), members.index(member))
        sigma = self.s["prompt_sigma"]
        if sigma > 0:
            z = normal(self.group_words.block(member.group.number)[0])
            scaled = tokens * math.exp(sigma * z - sigma * sigma / 2)
            tokens = min(max(math.floor(scaled + 0.5), self.law.minimum), self.law.maximum)
        member.tokens = tokens
        member.noise = normal(words[1])
        total = max(
            1, ticks(self.s["rollout_overhead_seconds"] + tokens / self.s["decode_tokens_per_second"])
        )
        member.tail = min(total, self.overhead_ticks)
        member.work = total - member.tail
        environment = self.s["environment_seconds"]
        if environment is not None:
            index = bisect.bisect_right(environment["cdf"], uniform(words[2]))
            member.tail += ticks(environment["values"][index])
        elif self.law.rows is not None:
            member.tail += ticks(paired_seconds)
        member.behaviour_version = member.end_version = self.published
        member.start_version = self.version
        member.start_publications = self.publications
        member.work_by_version = {}
        member.slot = self.idle.pop()
        self.slots[member.slot] = member
        member.target = self.clock + member.work * UNIT
        if member.work > 0:
            member.phase = "decoding"
        else:
            member.phase = "tail"
            member.tail_end = self.now + member.tail
        member.row = {
            "number": member.number,
            "tokens": tokens,
            "behaviour_version": member.behaviour_version,
            "start": self.now / 1e6,
            "end": None,
            "lag": None,
            "outcome": "running",
            "truncated": self.law.cut and tokens == self.law.maximum,
        }
        self.rollouts.append(member.row)

    # The report

    def integral(self, value, end):
        """Tick-weighted sum of a value of the segments over the measured span."""
        total = 0
        for row in self.segments:
            span = min(row["to"], end) - max(row["from"], self.warmup)
            if span > 0:
                total += value(row) * span
        return total

    def binding_seconds(self, end):
        """Return slot-seconds by what binds generation and seconds by what binds the trainer."""
        slots = len(self.slots)
        found = {"slots_busy_seconds": self.integral(lambda row: row["occupied"], end)}
        names = {row["generation"] for row in self.segments} - {None}
        self.reached |= {f"bound_by_{name}" for name in names}
        for name in ("publication", "max_running", "one_batch", "token_cap", "sequential", *sorted(names)):
            found[f"slots_{name}_seconds"] = self.integral(
                lambda row, name=name: (row["generation"] == name) * (slots - row["occupied"]), end
            )
        for name in ("busy", "publication", "running_groups", "batch"):
            found[f"trainer_{name}_seconds"] = self.integral(
                lambda row, name=name: row["trainer"] == name, end
            )
        seconds = {name: part / 1e6 for name, part in found.items()}
        seconds["slots_limits_seconds"] = (
            sum(part for name, part in found.items() if name.startswith("slots_limit_")) / 1e6
        )
        return seconds

    def report_on_top(self, end, details, drops, left):
        """Return what levels 2 and 3 report beside the metrics of level 1."""

        def counted(times):
            return sum(self.warmup < time <= end for time in times)

        def mean(name):
            return math.fsum(detail[name] for detail in details) / len(details) if details else NAN

        tokens = sum(detail["tokens"] for detail in details)
        trained_mean = tokens / len(details) if details else NAN
        drawn_tokens, drawn = sum(row[1] for row in left), sum(row[2] for row in left)
        found = {
            "trained_groups": counted(self.trained),
            "generated_groups": counted(self.completed),
            "admitted_groups": counted(self.admitted),
            "requeued_groups": counted(self.requeues),
            "admissions_of_the_run": self.admissions,  # those at time 0 too
            "wasted_tokens": sum(row[4] for row in drops),
            "queued_groups": len(self.queue),
            "running_groups": len(self.running),
            "prefetched_groups": sum(len(batch.groups) for batch in self.prefetched),
            "in_training_groups": len(self.step.groups) if self.step is not None else 0,
            "unfinished_group_tokens": sum(
                member.tokens for group in self.running for member in group.members if member.phase == "done"
            ),
            "mean_start_lag": mean("lag_at_start"),
            "mean_dequeue_lag": mean("lag_at_dequeue"),
            "mean_rollout_lag": mean("lag"),
            "mean_start_lag_publications": mean("publications_at_start"),
            "mean_dequeue_lag_publications": mean("publications_at_dequeue"),
            "mean_rollout_lag_publications": mean("publications_at_training"),
            "mean_end_lag": mean("end_lag"),
            "mean_token_lag": (
                math.fsum(detail["tokens"] * detail["token_lag"] for detail in details) / tokens
                if tokens
                else NAN
            ),
            "length_bias_law": trained_mean / self.law.mean,
            "length_bias_drawn": trained_mean / (drawn_tokens / drawn) if details else NAN,
            "last_progress_seconds": self.last_progress / 1e6,
            **self.binding_seconds(end),
        }
        for reason in DROP_REASONS:
            rows = [row for row in drops if row[1] == reason]
            name = "discarded" if reason == "stale" else reason
            found[f"{name}_groups"] = len(rows)
            found[f"{name}_tokens"] = sum(row[2] for row in rows)
        return found

    def report(self, end):
        def counted(rows):
            return [row for row in rows if self.warmup < row[0] <= end]

        def histogram(name):
            counts = [0] * LAG_BINS
            for detail in details:
                counts[min(detail[name], LAG_BINS - 1)] += 1
            return counts

        def share(part, whole):
            return part / whole if whole else NAN

        def mean(name):
            return share(math.fsum(batch[name] for batch in batches), len(batches))

        slots = len(self.slots)
        span = max(0, end - self.warmup)
        seconds = span / 1e6
        batches = [batch for batch in self.batches if batch["measured"]]
        details = [detail for batch in batches for detail in batch["details"]]
        generated, drops, left = counted(self.generated), counted(self.drops), counted(self.left)
        trained_tokens = sum(batch["tokens"] for batch in batches)
        trained_rollouts = len(details)
        popped = [*([self.step] if self.step else []), *self.prefetched]
        busy = self.integral(lambda row: row["busy"], end)
        occupied = self.integral(lambda row: row["occupied"], end)
        at_warmup = [row["queue_tokens"] for row in self.segments if row["from"] <= self.warmup][-1]
        stalled = not self.in_slots() and self.step is None and self.publication is None
        if stalled:
            self.reached.add("stall")
        stale = [row for row in drops if row[1] == "stale"]
        effective = math.fsum(batch["tokens"] * batch["expected_normalized_ess"] for batch in batches)
        return {
            "updates": len(batches) * self.s["updates_per_batch"],
            "trained_tokens": trained_tokens,
            "trained_rollouts": trained_rollouts,
            "generated_tokens": sum(row[1] for row in generated),
            "generated_rollouts": len(generated),
            "discarded_tokens": sum(row[2] for row in stale),
            "discarded_rollouts": sum(row[3] for row in stale),
            "syncs": sum(self.warmup < time <= end for time in self.synced),
            "max_queue_tokens_observed": max([at_warmup] + [row[1] for row in counted(self.joins)]),
            "max_lag_observed": max((detail["lag"] for detail in details), default=-1),
            "lag_counts": histogram("lag"),
            "final_version": self.version,
            "queued_tokens": self.queue_tokens(),
            "in_training_tokens": sum(batch.tokens for batch in popped),
            "trained_tokens_per_second": share(trained_tokens, seconds),
            "effective_tokens_per_second": share(effective, seconds),
            "backpressure_seconds": self.integral(lambda row: row["backpressure"], end) / 1e6,
            "idle_slot_seconds": self.integral(lambda row: slots - row["occupied"], end) / 1e6,
            "mean_queue_tokens": share(self.integral(lambda row: row["queue_tokens"], end), span),
            "mean_lag": mean("mean_lag"),
            "mean_normalized_ess": mean("normalized_ess"),
            "min_normalized_ess": min((batch["normalized_ess"] for batch in batches), default=NAN),
            "mean_expected_normalized_ess": mean("expected_normalized_ess"),
            "seconds_per_update": share(seconds, len(batches) * self.s["updates_per_batch"]),
            "trainer_wait_seconds": (span - busy) / 1e6,
            "trainer_utilization": share(busy, span),
            "rollout_utilization": share(occupied, slots * span),
            "seconds_since_last_update": (end - self.last_update) / 1e6,
            "stalled": stalled,
            "batches": self.batches,
            "timeline": self.timeline,
            "rollouts": self.rollouts,
            **self.report_on_top(end, details, drops, left),
            "measured_ticks": span,
            "end_ticks": end,
            "reached": self.reached,
        }


def run_level23(settings):
    """Simulate one run of the settings; return every metric and the detail rows by name."""
    return Run(settings).run()
