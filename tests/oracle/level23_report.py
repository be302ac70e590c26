"""What the level 2 and 3 twin reports, computed from the whole history of a run."""

from __future__ import annotations

import math

from oracle.level1 import LAG_BINS, NAN

DROP_REASONS = ("stale", "filtered", "evicted", "cancelled")


class Report:
    """The reporting half of a run: it only reads what the loop has noted."""

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
        found = {"slots_busy_seconds": self.integral(lambda row: row["occupied"] - row["held"], end)}
        found["slots_held_seconds"] = self.integral(lambda row: row["held"], end)
        names = {row["generation"] for row in self.segments} - {None}
        self.reached |= {f"bound_by_{name}" for name in names}
        for name in ("publication", "max_running", "one_batch", "token_cap", "sequential", *sorted(names)):
            found[f"slots_{name}_seconds"] = self.integral(
                lambda row, name=name: (row["generation"] == name) * (slots - row["occupied"]), end
            )
        for name in ("busy", "publication", "running_groups", "batch", "fetch", "evaluation"):
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
            # What is admitted at time 0 counts where there is no warm-up.
            "admitted_groups": counted(self.admitted) + (self.admitted.count(0) if self.warmup == 0 else 0),
            "requeued_groups": counted(self.requeues),
            "admissions_of_the_run": self.admissions,  # those at time 0 too
            "wasted_tokens": sum(row[4] for row in drops),
            "queued_groups": len(self.queue),
            "running_groups": len(self.running),
            "prefetched_groups": sum(len(batch.groups) for batch in self.prefetched),
            "in_training_groups": sum(len(batch.groups) for batch in self.in_hand()),
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
            "length_bias_law": trained_mean / self.mean_of_law(end),
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

    def mean_of_law(self, end):
        if not self.law.segments:
            return self.law.mean
        if len(self.law.segments) == 1:
            return self.law.at(0).mean
        means = [law.mean for time, law in self.law_starts if self.warmup < time or self.warmup == 0]
        return math.fsum(means) / len(means) if means else NAN

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
        done = [batch for batch in self.batches if batch["measured"]]
        batches = [batch for batch in done if not batch["lost"]]
        details = [detail for batch in batches for detail in batch["details"]]
        generated, drops, left = counted(self.generated), counted(self.drops), counted(self.left)
        trained_tokens = sum(batch["tokens"] for batch in batches)
        trained_rollouts = len(details)
        popped = [*self.in_hand(), *self.prefetched]
        busy = self.integral(lambda row: row["busy"], end)
        occupied = self.integral(lambda row: row["occupied"], end)
        at_warmup = [row["queue_tokens"] for row in self.segments if row["from"] <= self.warmup][-1]
        works = self.in_hand() or self.publication is not None or self.evaluation_end is not None
        works = works or self.checkpoint_end is not None or self.restart_end is not None
        stalled = not self.busy_slots() and not works
        if stalled:
            self.reached.add("stall")
        stale = [row for row in drops if row[1] == "stale"]
        effective = math.fsum(batch["tokens"] * batch["expected_normalized_ess"] for batch in batches)
        return {
            "updates": len(done) * self.s["updates_per_batch"],
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
            "seconds_per_update": share(seconds, len(done) * self.s["updates_per_batch"]),
            "trainer_wait_seconds": (span - busy) / 1e6,
            "trainer_utilization": share(busy, span),
            "rollout_utilization": share(occupied, slots * span),
            "seconds_since_last_update": (end - self.last_update) / 1e6,
            "stalled": stalled,
            "batches": self.batches,
            "timeline": self.timeline,
            "rollouts": self.rollouts,
            "drops": self.drops,
            **self.report_on_top(end, details, drops, left),
            "measured_ticks": span,
            "end_ticks": end,
            "reached": self.reached,
        }
