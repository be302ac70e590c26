"""The trainer of the level 2 and 3 twin: pops by order, steps, several updates a batch."""

from __future__ import annotations

import math

import numpy as np
from oracle.drift_twin import DriftTwin
from oracle.level1 import ess_of, normal, ticks, uniform
from oracle.level23_parts import UNIT, Batch


class Trainer:
    """The half of a run that takes batches and trains them."""

    def step_completes(self):
        batch, self.step = self.step, None
        before = self.version
        self.version += self.s["updates_per_batch"]
        self.last_update = self.now
        self.trained_groups += len(batch.groups)
        self.trained += [self.now] * len(batch.groups)
        self.book(batch)
        every = self.s["evaluation_every_updates"]
        if every is not None and self.version // every > before // every:
            self.evaluation_is_due = ticks(self.s["evaluation_seconds"]) > 0
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

    def in_hand(self):
        """The batch that the trainer has: it is fetched, or trained."""
        return [batch for batch in (self.fetching, self.step) if batch is not None]

    def evaluation_ends(self):
        self.evaluation_end = None

    def look_for_the_start_of_an_evaluation(self):
        if self.evaluation_is_due and not self.trainer_is_blocked():
            self.evaluation_is_due = False
            self.reached.add("evaluation")
            self.evaluation_end = self.now + ticks(self.s["evaluation_seconds"])

    def trainer_may_start(self):
        if not self.in_hand() and self.evaluation_end is None:
            if self.trainer_is_blocked() or (self.sequential and self.running):
                return
            batch = self.prefetched.pop(0) if self.prefetched else self.pop()
            if batch is None:
                return
            self.fetching = batch
            if batch.fetched <= self.now:
                self.begin_step()
        while len(self.prefetched) < self.s["prefetch_batches"]:
            batch = self.pop()
            if batch is None:
                return
            self.reached.add("prefetch")
            self.prefetched.append(batch)

    def begin_step(self):
        batch, self.fetching = self.fetching, None
        tokens = batch.tokens + self.s["prompt_tokens"] * len(batch.members)
        batch.start = self.now
        batch.version = self.version
        batch.publications = self.publications
        seconds = self.s["train_overhead_seconds"] + tokens / self.s["train_tokens_per_second"]
        spread = self.s["train_spread"]
        if spread > 0:
            z = normal(self.step_words.block(self.steps_begun)[1])
            seconds = seconds * math.exp(spread * z - spread * spread / 2)
        self.steps_begun += 1
        batch.work = UNIT * ticks(seconds)
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
        batch = Batch(chosen, self.version, self.publications)
        batch.fetched = self.now + ticks(self.s["fetch_seconds"])
        self.let_held_join()
        return batch

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
            self.s["drift_per_version"]
            * math.sqrt(lag)
            * (member.tokens / self.law.at(member.behaviour_version).mean) ** exponent
            for lag, member in zip(lags, batch.members)
        ]
        if self.s["drift"] is not None:
            middles = [member.middle for member in batch.members]
            normalized, expected = DriftTwin(self.s["drift"]).ess_of(lags, middles)
        else:
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
