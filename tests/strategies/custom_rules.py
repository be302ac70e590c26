"""Rules of a user's own that the tests run: importable, so that processes find them too."""

from __future__ import annotations

from lagsweep.custom import AdmissionRule, LengthProcess, RunMetric, uniforms


class AlwaysOpen(AdmissionRule):
    def admits(self, state):
        return True


class QueuedTokens(AdmissionRule):
    """The token cap, threshold, in Python."""

    def __init__(self, cap):
        self.cap = cap

    def admits(self, state):
        return state.queued_tokens < self.cap


class Limits(AdmissionRule):
    """The ledger of limits, in Python: (count, done, groups) each."""

    version = "1"

    def __init__(self, limits):
        self.limits = limits

    def begin(self, config, seed):
        self.batch, self.updates = config.batch_groups, config.updates_per_batch

    def admits(self, state):
        return all(self._room(state, *limit) >= state.groups for limit in self.limits)

    def _room(self, state, count, done, groups):
        if self.batch is None:
            allowed = state.popped_groups
        else:
            published = state.published // self.updates
            batches = {
                "published": published,
                "popped": state.popped_batches,
                "trained": state.trained_batches,
            }
            allowed = self.batch * batches[done]
        running = state.running_groups if count == "finished" else 0
        return allowed + groups - (state.started_groups - running)


class EveryOther(AdmissionRule):
    """Keeps something in itself: it says no to every second question."""

    def __init__(self):
        self.asked = 0

    def admits(self, state):
        self.asked += 1
        return self.asked % 2 == 1 or state.in_flight_rollouts == 0


class SameLength(LengthProcess):
    def tokens(self, rollout):
        return rollout.law_tokens


class Growing(LengthProcess):
    """Lengths grow with the trainer's version, with noise of their own."""

    def __init__(self, tokens_per_version=10):
        self.tokens_per_version = tokens_per_version

    def begin(self, config, seed):
        self.longest, self.seed = config.response_length.maximum, seed

    def tokens(self, rollout):
        extra = self.tokens_per_version * rollout.version * uniforms(self.seed, rollout.number)[0]
        return min(self.longest, rollout.law_tokens + int(extra))


class LongestStep(RunMetric):
    name, units, long_name = "longest_step_seconds", "s", "longest training step"
    tables = ("batches",)

    def value(self, run):
        return max((batch.end - batch.start for batch in run.batches), default=float("nan"))


class TrainedRollouts(RunMetric):
    """What the kernels count too, from the rows of rollouts."""

    name, units, tables = "trained_again", "rollouts", ("rollouts",)

    def value(self, run):
        return sum(rollout.outcome == "trained" for rollout in run.rollouts)


class Fails(AdmissionRule):
    """A rule with a mistake in it, met at one seed only."""

    def begin(self, config, seed):
        self.seed = seed

    def admits(self, state):
        return state.queued_tokens / (self.seed - 1) < 1e9
