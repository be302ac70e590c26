"""A slow, obvious twin of the event loop, level 1: plain integers, lists and a scan for the next event.

It is written from the page of semantics alone and shares nothing with the kernels. Where a kernel keeps
running sums, the twin keeps the whole history (what held between two events, and each thing that happened)
and computes every metric from that history when the run is over.

The settings are a mapping with the field names of ``PipelineConfig``; ``response_length`` is a mapping with
``minimum``, ``cdf`` (a list that ends in 1) and ``cut`` (whether the law really was cut at its maximum).
"""

from __future__ import annotations

import bisect
import math
from collections import deque

import numpy as np
from oracle.drift_twin import DriftTwin, middle
from scipy.special import ndtri

NAN = float("nan")
PUBLICATION, STEP, ROLLOUT = 0, 1, 2
EVENT_NAMES = {PUBLICATION: "publication", STEP: "update", ROLLOUT: "rollout"}
LAG_BINS = 65

DEFAULTS = {
    "mode": "bounded_async",
    "duration_seconds": 120.0,
    "stop_after_updates": None,
    "seed": 0,
    "rollout_workers": 8,
    "decode_tokens_per_second": 50.0,
    "rollout_overhead_seconds": 0.5,
    "max_queue_tokens": 7000,
    "admission": "threshold",
    "batch_tokens": 2500,
    "train_overhead_seconds": 1.0,
    "train_tokens_per_second": 350.0,
    "max_policy_lag": 2,
    "sync_every_updates": 1,
    "sync_seconds": 1.0,
    "drift_per_version": 0.2,
    "drift": None,
    "warmup_seconds": 0.0,
}


def ticks(seconds):
    """Whole microseconds, half up, at most 2**52."""
    scaled = seconds * 1e6 + 0.5
    return 2**52 if scaled >= 2.0**52 else math.floor(scaled)


class Words:
    """The Philox words of one key, block by block, in blocks of 64."""

    def __init__(self, key):
        self.key = key
        self.blocks = []

    def block(self, number):
        """Return the four words of a block as Python integers."""
        while number >= len(self.blocks):
            generator = np.random.Philox(key=self.key, counter=len(self.blocks))
            words = [int(word) for word in generator.random_raw(4 * 64)]
            self.blocks += [words[4 * i : 4 * i + 4] for i in range(64)]
        return self.blocks[number]


def uniform(word):
    """53 bits as a float in [0, 1)."""
    return (word >> 11) * 2.0**-53


def normal(word):
    """A standard normal from 52 bits."""
    return float(ndtri(((word >> 12) + 0.5) * 2.0**-52))


def ess_of(lags, noises, scales):
    """Return the normalized effective sample size, and its value for many rollouts of the same lags."""
    count = len(lags)
    log_weights = [s * z - s * s / 2 for s, z in zip(scales, noises)]
    top = max(log_weights)
    weights = [math.exp(value - top) for value in log_weights]
    total = math.fsum(weights)
    normalized = total * total / (count * math.fsum(weight * weight for weight in weights))
    squares = [s * s for s in scales]
    top = max(squares)
    expected = math.exp(-top) / (math.fsum(math.exp(square - top) for square in squares) / count)
    return normalized, expected


class Rollout:
    """One rollout from its start to its outcome."""

    def __init__(self, number, tokens, word, behaviour_version, start, finish, slot):
        self.number = number
        self.tokens = tokens
        self.noise = normal(word)
        self.middle = middle(word)
        self.behaviour_version = behaviour_version
        self.start = start
        self.finish = finish
        self.slot = slot
        self.end = None
        self.lag = None
        self.outcome = "running"


class Run:
    """One simulated run."""

    def __init__(self, settings):
        self.s = {**DEFAULTS, **settings}
        law = self.s["response_length"]
        self.law_minimum, self.cdf, self.cut = law["minimum"], list(law["cdf"]), law["cut"]
        self.law_maximum = self.law_minimum + len(self.cdf) - 1
        self.horizon = ticks(self.s["duration_seconds"])
        self.warmup = ticks(self.s["warmup_seconds"])
        self.sync_ticks = ticks(self.s["sync_seconds"])
        self.sequential = self.s["mode"] == "sequential"
        self.words = Words(self.s["seed"])
        self.drift = None if self.s["drift"] is None else DriftTwin(self.s["drift"])

        self.now = 0
        self.version = 0
        self.published = 0
        self.publication = None  # (end, version) of the one under way
        self.waiting = None  # a version that waits for the channel
        self.step = None  # (start, end, rollouts, lags)
        self.queue = deque()
        self.slots = [None] * self.s["rollout_workers"]
        self.idle = list(range(self.s["rollout_workers"] - 1, -1, -1))  # a stack, its top is the end
        self.rollouts = []
        self.last_update = 0

        self.batches = []
        self.timeline = []
        self.segments = []  # (from, to, queue tokens, in flight, trainer busy, backpressure)
        self.generated = []  # (time, tokens)
        self.discarded = []  # (time, tokens)
        self.synced = []  # times
        self.joins = []  # (time, queue tokens right after)
        self.reached = set()

    # What holds now

    def queue_tokens(self):
        return sum(rollout.tokens for rollout in self.queue)

    def in_flight(self):
        return [rollout for rollout in self.slots if rollout is not None]

    def cap_is_open(self):
        level = self.queue_tokens()
        if self.s["admission"] == "threshold":
            return level < self.s["max_queue_tokens"]
        return level + self.law_maximum * (len(self.in_flight()) + 1) <= self.s["max_queue_tokens"]

    def admission_is_open(self):
        if not self.sequential:
            return self.cap_is_open()
        if self.step is not None or self.publication is not None:
            return False
        promised = self.queue_tokens() + sum(rollout.tokens for rollout in self.in_flight())
        return promised < self.s["batch_tokens"]

    # The loop

    def run(self):
        end = self.horizon
        self.settle()
        self.record("start")
        while True:
            event = self.next_event()
            if event is None or event[0] > self.horizon:
                break
            time, kind, slot = event
            self.close_segment(time)
            if time == self.now and self.timeline[-1]["event"] != "start":
                self.reached.add("tie")
            if time == self.horizon:
                self.reached.add("event_on_horizon")
            if time == self.warmup:
                self.reached.add("event_on_warmup")
            self.now = time
            if kind == PUBLICATION:
                self.publication_completes()
            elif kind == STEP:
                self.step_completes()
            else:
                self.rollout_completes(slot)
            self.settle()
            self.record(EVENT_NAMES[kind])
            if kind == STEP and self.version == self.s["stop_after_updates"]:
                end = self.now
                self.reached.add("stopped_by_update")
                break
        self.close_segment(end)
        self.now = end
        return self.report(end)

    def next_event(self):
        candidates = []
        if self.publication is not None:
            candidates.append((self.publication[0], PUBLICATION, 0))
        if self.step is not None:
            candidates.append((self.step[1], STEP, 0))
        for rollout in self.in_flight():
            candidates.append((rollout.finish, ROLLOUT, rollout.slot))
        return min(candidates, default=None)

    def close_segment(self, until):
        idle = len(self.slots) - len(self.in_flight())
        backpressure = not self.sequential and idle > 0 and not self.cap_is_open()
        self.segments.append(
            (self.now, until, self.queue_tokens(), len(self.in_flight()), self.step is not None, backpressure)
        )

    def record(self, event):
        self.timeline.append(
            {
                "time": self.now / 1e6,
                "queue_tokens": self.queue_tokens(),
                "in_flight": len(self.in_flight()),
                "version": self.version,
                "published": self.published,
                "event": event,
            }
        )

    # Events

    def publication_completes(self):
        self.published = self.publication[1]
        self.publication = None
        self.synced.append(self.now)
        if self.waiting is not None:
            version, self.waiting = self.waiting, None
            self.start_publication(version)

    def start_publication(self, version):
        if self.publication is not None:
            self.reached.add("waiting_publication" if self.waiting is None else "replaced_publication")
            self.waiting = version
        elif self.sync_ticks == 0:
            self.reached.add("instant_publication")
            self.published = version
            self.synced.append(self.now)
        else:
            self.publication = (self.now + self.sync_ticks, version)

    def step_completes(self):
        start, end, members, lags = self.step
        self.step = None
        self.version += 1
        self.last_update = self.now
        self.finish_batch(start, end, members, lags)
        if self.version % self.s["sync_every_updates"] == 0:
            self.start_publication(self.version)
        for rollout in list(self.queue):
            if self.version - rollout.behaviour_version > self.s["max_policy_lag"]:
                self.queue.remove(rollout)
                self.discard(rollout, "discard_on_update")

    def finish_batch(self, start, end, members, lags):
        for rollout, lag in zip(members, lags):
            rollout.outcome = "trained"
            rollout.lag = lag
        if self.drift is not None:
            normalized, expected = self.drift.ess_of(lags, [rollout.middle for rollout in members])
        else:
            scales = [self.s["drift_per_version"] * math.sqrt(lag) for lag in lags]
            normalized, expected = ess_of(lags, [rollout.noise for rollout in members], scales)
        self.batches.append(
            {
                "update": self.version,
                "start": start / 1e6,
                "end": end / 1e6,
                "tokens": sum(rollout.tokens for rollout in members),
                "rollouts": len(members),
                "mean_lag": sum(lags) / len(lags),
                "max_lag": max(lags),
                "normalized_ess": normalized,
                "expected_normalized_ess": expected,
                "measured": end > self.warmup,
                "numbers": [rollout.number for rollout in members],
                "lags": list(lags),
            }
        )

    def rollout_completes(self, slot):
        rollout = self.slots[slot]
        self.slots[slot] = None
        self.idle.append(slot)
        rollout.end = self.now
        self.generated.append((self.now, rollout.tokens))
        if self.version - rollout.behaviour_version > self.s["max_policy_lag"]:
            self.discard(rollout, "discard_on_arrival")
            return
        rollout.outcome = "queued"
        self.queue.append(rollout)
        self.joins.append((self.now, self.queue_tokens()))
        if not self.sequential and self.queue_tokens() > self.s["max_queue_tokens"]:
            self.reached.add("overshoot")

    def discard(self, rollout, why):
        rollout.outcome = "discarded"
        self.discarded.append((self.now, rollout.tokens, rollout.behaviour_version, self.version, why))
        self.reached.add(why)

    # The settle

    def settle(self):
        self.trainer_may_start()
        while self.idle and self.admission_is_open():
            self.start_rollout()

    def trainer_may_start(self):
        if self.step is not None or self.queue_tokens() < self.s["batch_tokens"]:
            return
        if self.sequential and (self.in_flight() or self.publication is not None):
            return
        members = []
        while self.queue and (
            self.sequential or sum(rollout.tokens for rollout in members) < self.s["batch_tokens"]
        ):
            members.append(self.queue.popleft())
        lags = [self.version - rollout.behaviour_version for rollout in members]
        for rollout in members:
            rollout.outcome = "in_training"
        tokens = sum(rollout.tokens for rollout in members)
        lasts = ticks(self.s["train_overhead_seconds"] + tokens / self.s["train_tokens_per_second"])
        if lasts == 0:
            self.reached.add("instant_step")
        self.step = (self.now, self.now + lasts, members, lags)

    def start_rollout(self):
        number = len(self.rollouts)
        words = self.words.block(number)
        tokens = self.law_minimum + bisect.bisect_right(self.cdf, uniform(words[0]))
        seconds = self.s["rollout_overhead_seconds"] + tokens / self.s["decode_tokens_per_second"]
        slot = self.idle.pop()
        rollout = Rollout(
            number,
            tokens,
            words[1],
            self.published,
            self.now,
            self.now + max(1, ticks(seconds)),
            slot,
        )
        self.slots[slot] = rollout
        self.rollouts.append(rollout)

    # The report

    def report(self, end):
        warmup = self.warmup

        def counted(rows):
            return [row for row in rows if warmup < row[0] <= end]

        def integral(value):
            """Tick-weighted sum of a value over the measured span."""
            return sum(
                value(row) * (min(row[1], end) - max(row[0], warmup))
                for row in self.segments
                if min(row[1], end) > max(row[0], warmup)
            )

        slots = len(self.slots)
        measured_ticks = max(0, end - warmup)
        seconds = measured_ticks / 1e6
        batches = [batch for batch in self.batches if batch["measured"]]
        generated, discarded = counted(self.generated), counted(self.discarded)
        lags = [lag for batch in batches for lag in batch["lags"]]
        lag_counts = [0] * LAG_BINS
        for lag in lags:
            lag_counts[min(lag, LAG_BINS - 1)] += 1
        # Rows start where the previous ends, so the last that starts by the warm-up holds the level there.
        at_warmup = [row[2] for row in self.segments if row[0] <= warmup][-1]
        trained_tokens = sum(batch["tokens"] for batch in batches)
        effective = math.fsum(batch["tokens"] * batch["expected_normalized_ess"] for batch in batches)
        busy = integral(lambda row: row[4])
        occupied = integral(lambda row: row[3])
        in_training = self.step[2] if self.step is not None else []
        stalled = not self.in_flight() and self.step is None and self.publication is None
        if stalled:
            self.reached.add("stall")
        too_old = self.version - self.published > self.s["max_policy_lag"]
        if too_old and self.step is None and self.publication is None:
            self.reached.add("starvation")
        self.reached.add("sequential" if self.sequential else self.s["admission"])

        def mean(name):
            return math.fsum(batch[name] for batch in batches) / len(batches) if batches else NAN

        def share(part, whole):
            return part / whole if whole else NAN

        return {
            "updates": len(batches),
            "trained_tokens": trained_tokens,
            "trained_rollouts": sum(batch["rollouts"] for batch in batches),
            "generated_tokens": sum(row[1] for row in generated),
            "generated_rollouts": len(generated),
            "discarded_tokens": sum(row[1] for row in discarded),
            "discarded_rollouts": len(discarded),
            "syncs": sum(warmup < time <= end for time in self.synced),
            "max_queue_tokens_observed": max([at_warmup] + [row[1] for row in counted(self.joins)]),
            "max_lag_observed": max(lags, default=-1),
            "lag_counts": lag_counts,
            "final_version": self.version,
            "queued_tokens": self.queue_tokens(),
            "in_training_tokens": sum(rollout.tokens for rollout in in_training),
            "trained_tokens_per_second": share(trained_tokens, seconds),
            "effective_tokens_per_second": share(effective, seconds),
            "backpressure_seconds": integral(lambda row: row[5]) / 1e6,
            "idle_slot_seconds": integral(lambda row: slots - row[3]) / 1e6,
            "mean_queue_tokens": share(integral(lambda row: row[2]), measured_ticks),
            "mean_lag": mean("mean_lag"),
            "mean_normalized_ess": mean("normalized_ess"),
            "min_normalized_ess": min((batch["normalized_ess"] for batch in batches), default=NAN),
            "mean_expected_normalized_ess": mean("expected_normalized_ess"),
            "seconds_per_update": share(seconds, len(batches)),
            "trainer_wait_seconds": (measured_ticks - busy) / 1e6,
            "trainer_utilization": share(busy, measured_ticks),
            "rollout_utilization": share(occupied, slots * measured_ticks),
            "seconds_since_last_update": (end - self.last_update) / 1e6,
            "stalled": stalled,
            "batches": self.batches,
            "timeline": self.timeline,
            "rollouts": [self.rollout_row(rollout) for rollout in self.rollouts],
            "discards": self.discarded,
            "end_ticks": end,
            "reached": self.reached,
        }

    def rollout_row(self, rollout):
        return {
            "number": rollout.number,
            "tokens": rollout.tokens,
            "behaviour_version": rollout.behaviour_version,
            "start": rollout.start / 1e6,
            "end": None if rollout.end is None else rollout.end / 1e6,
            "lag": rollout.lag,
            "outcome": rollout.outcome,
            "truncated": self.cut and rollout.tokens == self.law_maximum,
        }


def run_level1(settings):
    """Simulate one run of the settings; return every metric and the detail rows by name."""
    return Run(settings).run()
