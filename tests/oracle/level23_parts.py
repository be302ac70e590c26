"""The parts of the level 2 and 3 twin: settings with their defaults, laws, groups and their members."""

from __future__ import annotations

import bisect
import itertools
import math

from oracle.level1 import DEFAULTS as LEVEL_1_DEFAULTS

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
    "generation_while_training": True,
    "fetch_seconds": 0.0,
    "evaluation_every_updates": None,
    "evaluation_seconds": 0.0,
    "evaluation_stops_generation": False,
    "train_spread": 0.0,
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
    "trainer_mtbf_seconds": None,
    "restart_seconds": 0.0,
    "checkpoint_every_updates": None,
    "checkpoint_seconds": 0.0,
    "checkpoint_scope": "full",
    "worker_mtbf_seconds": None,
}


def ceil_div(a, b):
    """Whole quotient, rounded up."""
    return -(-a // b)


class Law:
    """The table of lengths, or the rows of a trace of (tokens, seconds)."""

    def __init__(self, law):
        self.segments = [(first, Law(part)) for first, part in law.get("segments", ())]
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

    def at(self, version):
        """The law that holds at a published version: its segment, or itself."""
        return [part for first, part in [(0, self), *self.segments] if first <= version][-1]

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
