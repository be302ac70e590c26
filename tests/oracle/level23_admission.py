"""Admission in the level 2 and 3 twin: the settle, the gates, and the start of a rollout with its draws."""

from __future__ import annotations

import bisect
import math

from oracle.drift_twin import middle
from oracle.level1 import normal, ticks, uniform
from oracle.level23_parts import UNIT, Group


class Admission:
    """The half of a run that lets groups in and starts their members."""

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
        popped = sum(len(batch.groups) for batch in [*self.prefetched, *self.in_hand()])
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
            if self.in_hand() or self.publication is not None:
                return "sequential"
            if self.evaluation_end is not None and self.s["evaluation_stops_generation"]:
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
        if self.publication is not None and self.s["publication"] != "background":
            return "publication"
        return self.closed_by()

    def trainer_binding(self):
        if self.step is not None:
            return "busy"
        if self.fetching is not None:
            return "fetch"
        if self.evaluation_end is not None:
            return "evaluation"
        if self.trainer_is_blocked():
            return "publication"
        if self.queue_holds_enough():
            return "running_groups"
        return "batch"

    def settle(self):
        self.let_held_join()
        self.trainer_may_start()
        while self.held and self.queue_has_room():
            self.let_held_join()
            self.trainer_may_start()
        while self.idle:
            member = self.next_waiting_member()
            if member is not None:
                if self.starts_are_stopped():
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
        law = self.law.at(self.published)
        self.law_starts.append((self.now, law))
        tokens, paired_seconds = law.draw(uniform(words[0]))
        if self.law.groups is not None:
            members = member.group.members
            first = self.words.block(members[0].number)
            tokens = self.law.draw_of_group(uniform(first[0]), members.index(member))
        sigma = self.s["prompt_sigma"]
        if sigma > 0:
            z = normal(self.group_words.block(member.group.number)[0])
            scaled = tokens * math.exp(sigma * z - sigma * sigma / 2)
            tokens = min(max(math.floor(scaled + 0.5), law.minimum), law.maximum)
        member.tokens = tokens
        member.noise = normal(words[1])
        member.middle = middle(words[1])
        total = max(
            1, ticks(self.s["rollout_overhead_seconds"] + tokens / self.s["decode_tokens_per_second"])
        )
        member.tail = min(total, self.overhead_ticks)
        member.work = total - member.tail
        environment = self.s["environment_seconds"]
        if environment is not None:
            index = bisect.bisect_right(environment["cdf"], uniform(words[2]))
            member.tail += ticks(environment["values"][index])
        elif law.rows is not None:
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
            "truncated": law.cut and tokens == law.maximum,
        }
        self.rollouts.append(member.row)
