"""What both event loops keep: parameters, state, groups, members, slots and rows as records of named fields.

Everything a run needs to go on is in these arrays, so stopping, saving and resuming are the same as running.
Whole numbers are int64: times in ticks (microseconds), amounts in tokens, work in units of the clock (a tick,
or 2**-24 of a tick when decoding slows down). Fields after ``real=`` are float64. A name means the same in
both loops. The order of the fields is that of a saved run: new ones go to the end.

A single record is passed as an array of one and taken out inside the kernel, ``state = arrays.state[0]``:
a record given by itself would be copied (numba/numba#4951). Arrays travel together as named tuples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .metrics import GENERAL_METRICS, GENERAL_SUMS, METRICS, OPTIONAL_METRICS, metrics_of_options

NEVER = 2**63 - 1  # a time, an event key or a target of work that no event has
FULL_RATE = 2**24  # units of work that one tick adds at full speed

# --- what a call of a loop ends with -----------------------------------------------------------------
REACHED = 0  # every event up to the asked time has happened
OUT_OF_BUDGET = 1  # call again
# What to make larger before the next call.
GROW_RING, GROW_GROUPS, GROW_BATCHES, GROW_TIMELINE, GROW_ROLLOUTS = range(2, 7)
# What to answer (in ASKED) before the next call, of a run with rules of the user.
ASKS_ADMISSION, ASKS_LENGTH = range(7, 9)
# What another kernel is to let happen before the next call: a failure, or the beginning of a checkpoint.
FAILS, SAVES = range(9, 11)

# --- values of fields --------------------------------------------------------------------------------
NO_ENVIRONMENT, ENVIRONMENT_LAW, ENVIRONMENT_PAIRED = range(3)  # parameters
BACKGROUND, DRAIN, PAUSE, ABORT = range(4)
FIFO, STARTED, OLDEST_VERSION, FRESHEST, RANDOM = range(5)
AT_UPDATE, AT_DEQUEUE, NO_CHECK = range(3)
DONE_PUBLISHED, DONE_POPPED, DONE_TRAINED = range(3)  # limits
CHANNEL_FREE, CHANNEL_DRAINING, CHANNEL_TRANSFER = range(3)  # state
GROUP_UNUSED, GROUP_RUNNING, GROUP_QUEUED, GROUP_POPPED, GROUP_REQUEUED = range(5)
COMPLETED = -2  # a member's slot; what it is before the member starts means nothing
EMPTY, TIMED, DECODING, TAIL, DUE, OFF_CLOCK, HELD, ON_ENGINE = range(8)  # a slot's phase
EVENT_START, EVENT_PUBLICATION, EVENT_UPDATE, EVENT_ROLLOUT, EVENT_EVALUATION = range(5)
EVENT_FAILURE, EVENT_WORKER_FAILURE, EVENT_CHECKPOINT, EVENT_RESTART = range(5, 9)
EVENT_NAMES = (
    "start", "publication", "update", "rollout", "evaluation",
    "failure", "worker_failure", "checkpoint", "restart",
)  # fmt: skip
RUNNING, QUEUED, IN_TRAINING, TRAINED, DISCARDED, FILTERED, EVICTED, CANCELLED, COMPLETED_MEMBER = range(9)
LOST = 9
OUTCOME_NAMES = (
    "running", "queued", "in_training", "trained", "discarded", "filtered", "evicted", "cancelled", "waiting",
    "lost",
)  # fmt: skip

# --- causes: places in the slot ticks and in the trainer ticks ---------------------------------------
(
    SLOTS_BUSY,
    SLOTS_PUBLICATION,
    SLOTS_MAX_RUNNING,
    SLOTS_ONE_BATCH,
    SLOTS_TOKEN_CAP,
    SLOTS_SEQUENTIAL,  # a phase of `sequential` that starts nothing
    SLOTS_HELD,  # neither idle nor busy: kept by a group that a full queue does not take
    SLOTS_FIRST_LIMIT,  # and one more for each further limit
) = range(8)
(
    TRAINER_BUSY,
    TRAINER_PUBLICATION,
    TRAINER_RUNNING_GROUPS,
    TRAINER_BATCH,
    TRAINER_FETCH,
    TRAINER_EVALUATION,
    TRAINER_CHECKPOINT,
    TRAINER_RESTART,
) = range(8)
TRAINER_CAUSES = 8
CAUSES_WITHOUT_FAILURES = 6  # the trainer's causes of a run that has no failures and writes no checkpoint

# --- histograms of trained rollouts, LAG_BINS bins each ----------------------------------------------
(
    H_TRAINING,  # lags in updates
    H_START,
    H_DEQUEUE,
    H_END,
    H_DEQUEUE_SYNCS,  # lags in publications; at the start it is 0
    H_TRAINING_SYNCS,
    H_TRAINED_DECILES,  # rollouts by decile of the length law; ten bins used
    H_DROPPED_DECILES,
    H_CANCELLED_DECILES,
) = range(9)
H_COUNT = 9
H_OF_TRAINED = 7  # the first ones: of trained rollouts alone


def _record(*whole: str, real: tuple[str, ...] = ()) -> np.dtype:
    """Make the type of a record: int64 fields, then float64 ones; they are attributes without JIT too."""
    fields = [(name, np.int64) for name in whole] + [(name, np.float64) for name in real]
    return np.dtype((np.record, np.dtype(fields, align=True)))


PARAMETERS = _record(
    "sequential",  # 1: never overlap the phases
    "horizon",
    "warmup",
    "stop_after_updates",  # 0: none
    "slots",
    "leaves",  # of a tournament tree: a power of two, at least the slots
    "slot_bits",  # its logarithm: bits of a slot in an event key
    "queue_cap",
    "reserve",  # 1: admission "reserve"
    "batch_tokens",
    "max_lag",
    "sync_every",
    "sync_ticks",
    "law_minimum",
    "law_maximum",
    "record_batches",
    "record_timeline",
    "record_rollouts",
    # of the general loop alone
    "cap_is_open",  # 1: the token cap closes nothing (no cap, or queue_overflow "drop_oldest")
    "max_queue_groups",  # 0: none
    "batch_groups",  # 0: batches by tokens
    "overhead_ticks",  # ticks(rollout_overhead_seconds)
    "virtual_clock",  # 0: every rollout's end is known at its start, or when a publication begins
    "moves_ends",  # 1: a publication that begins moves the ends of the rollouts that decode
    "work_unit",  # units of work in one tick of nominal decode: 1, or 2**24
    "slow_train_rate",  # units of training work a tick does while something decodes
    "environment",
    "prompt_tokens",
    "publication",
    "blocks_trainer",
    "group_size",
    "trace_groups",  # 1: a group's lengths come from one group of the trace
    "updates_per_batch",
    "prefetch",
    "max_running",  # -1: none
    "admit_batch",
    "one_batch",
    "order",
    "stale_check",
    "requeue",
    "redraw",
    "cancel",
    "holds",  # 1: queue_overflow "hold"
    "fetch_ticks",
    "evaluation_every",  # 0: none
    "evaluation_ticks",
    "evaluation_stops",  # 1: an evaluation stops decoding
    "training_stops",  # 1: a training step stops decoding
    "segments",  # of a law by version; 0: one law
    "engines",  # 0: none, decoding has one speed
    "engine_leaves",  # of their tournament tree
    "failures",  # 1: the trainer or a worker fails, or checkpoints are written
    "trainer_fails",
    "workers_fail",
    "restart_ticks",
    "checkpoint_every",  # 0: none
    "checkpoint_ticks",
    "saves_queue",  # 1: checkpoint_scope "full", and there are checkpoints to go back to
    real=(
        "decode_rate",
        "rollout_overhead",
        "train_overhead",
        "train_rate",
        "drift",
        "drift_exponent",
        "mean_tokens",  # of the length law
        "prompt_sigma",
        "filter",
        "resume_seconds",
        "reprefill_rate",  # 0: re-prefill takes no time
        "train_spread",
        "trainer_mtbf",
        "worker_mtbf",
    ),
)
LIMIT = _record("finished", "done", "groups")  # finished 1: the count is "finished"
# A law that holds from a published version on: its table and guide, or the rows of its pairs, are a part of
# the arrays of all segments.
SEGMENT = _record(
    "version",
    "minimum",
    "maximum",
    "cdf_start",
    "cdf_end",
    "guide_start",
    "guide_end",
    "rows_start",
    "rows_end",  # its start: no pairs
    real=("mean_tokens",),
)

# What a measured drift is at one whole lag: the quantiles of two lags among its values, and how to mix them.
DRIFT_LAG = _record(
    "first_start",
    "first_count",
    "second_start",
    "second_count",
    real=("share", "first_moment", "second_moment"),  # share: of the second; moments: of the weights
)

_BATCH_SUMS = (
    "queue_token_ticks",
    "lag_sum",
    "ess_sum",
    "ess_min",
    "expected_ess_sum",
    "effective_tokens",
)  # fmt: skip  (lag_sum is one of batch means)

LEAN_STATE = _record(
    "begun",
    "ended",  # 1: stopped by stop_after_updates
    "now",
    "version",
    "published",
    "publication_time",  # NEVER: none under way
    "publication_version",
    "waiting_version",  # -1: none waits
    "training_time",  # NEVER: the trainer is idle
    "training_start",
    "training_tokens",
    "training_rollouts",
    "training_lag_sum",
    "training_lag_max",
    "queue_tokens",
    "ring_training",  # ring positions count up for ever; this one starts the batch in training
    "ring_head",  # first queued rollout
    "ring_tail",  # one past the last queued rollout
    "in_flight",
    "in_flight_tokens",
    "idle",  # idle slots, on a stack
    "next_rollout",
    "last_update_time",
    # measured sums
    "updates",
    "trained_tokens",
    "trained_rollouts",
    "generated_tokens",
    "generated_rollouts",
    "discarded_tokens",
    "discarded_rollouts",
    "syncs",
    "max_queue",  # -1: the measured span has not begun
    "max_lag",
    "backpressure_ticks",
    "idle_slot_ticks",
    "trainer_wait_ticks",
    "batch_rows",
    "timeline_rows",
    "events",
    real=("training_ess", "training_expected_ess", *_BATCH_SUMS),
)

GENERAL_STATE = _record(
    "begun",
    "ended",  # 1: stopped by stop_after_updates
    "settling",  # 1: came back in the middle of a settle, slots still may start; 2: before it
    "event",  # what the settle under way belongs to
    "freed",  # slot whose leaf still holds the event that just happened; -1: none
    "now",
    "clock",  # tick up to which work is accounted
    "work",  # W, the virtual work clock
    "decoding",  # rollouts decoding now
    "stopped",  # reasons for which decoding stands still, as bits of .stops
    "version",
    "published",
    "channel",
    "publication_time",  # NEVER unless a transfer is under way
    "publication_version",
    "waiting_version",  # -1: none waits
    "publications",  # completed, over the whole run
    "training",  # 1: the trainer has a batch in hand: it is fetched, or its step is under way
    "training_time",  # NEVER unless a step with a fixed end is under way
    "training_start",
    "training_version",
    "training_publications",
    "rest_ticks",  # work left of the step, when training can be slowed down: whole ticks …
    "rest_parts",  # … and 2**-24 of a tick
    "queue_tokens",
    "queue_groups",
    "queue_oldest",  # no queued group has an older version
    "popped_head",  # batches taken and not trained, one after another
    "popped_tail",
    "popped_tokens",
    "prefetched",  # batches taken whose step has not begun
    "requeue_head",
    "requeue_tail",
    "requeued",  # groups waiting to run again
    "free_head",  # unused records
    "free",
    "needed",  # records that the next admission takes
    "running",  # running groups
    "starting",  # group whose members start next; 0: no member waits
    "front",  # first live group that is not queued, in the order of admission; 0: none
    "front_count",  # live groups before it
    "idle",  # idle slots, on a stack
    "in_flight_tokens",
    "due",  # rollouts that end in this tick with their decode
    "due_head",
    "due_tail",
    "next_number",
    "next_group",
    "next_admission",
    "next_row",
    "started",  # groups admitted and not dropped
    "places",  # groups that left untrained and were not replaced yet
    "popped_batches",
    "popped_groups",
    "trained_batches",
    "last_update_time",
    "idle_cause",  # what keeps the idle slots idle since the last settle, one of SLOTS_…
    "cap_closed",
    "trainer_cause",  # one of TRAINER_…
    "cost",  # events and scanned records, for the budget
    "events",
    *GENERAL_SUMS,
    "fetch_time",  # NEVER unless the batch in hand is fetched: its step begins then
    "trainer_booked",  # tick up to which the trainer's time is booked, where that is later than `now`
    "evaluation_due",  # 1: an evaluation waits for the publication under way
    "evaluation_time",  # NEVER unless an evaluation is under way
    "held",  # slots that are kept by groups which a full queue did not take
    "held_head",  # these groups, in the order in which they became ready
    "held_tail",
    "discarded_since",  # rollouts discarded as too old since the last recorded batch
    "engine_time",  # tick of the next boundary of an engine with a change; NEVER: none
    "engines_due",  # tick after whose last event engines that stand still begin; NEVER: none
    "engines_stopped",  # 1: engines know that decoding is stopped
    "engines_in_step",  # engines with a step under way
    real=(*_BATCH_SUMS, "token_lag_sum"),  # tokens × token-weighted lag
)

# What failures and checkpoints keep; apart from the state, so that a saved run without them stays as it is.
FAILURES = _record(
    "strike_time",  # of the next failure of the trainer or of a worker; NEVER: none
    "wait_time",  # when the trainer no longer stands still for a checkpoint or a restart; NEVER: it does not
    "failure_time",  # of the trainer's next failure; NEVER: none
    "count",  # its failures so far
    "restart_time",  # NEVER unless the trainer is down
    "checkpoint_time",  # NEVER unless a checkpoint is being written
    "saved",  # which of the two places holds the last whole checkpoint
    "again",  # group of a member that starts again at once; 0: none
    "again_member",
    "kept_tokens",  # trained and not lost, over the whole run
    "kept_groups",
    "busy_mark",  # the trainer's measured busy ticks when the last checkpoint or failure was
    # measured sums
    "lost_updates",
    "lost_tokens",
    "repeated_groups",
    "lost_busy_ticks",
)

KNOWN_LAGS = _record("count", real=("drift",))  # lags from 0 on whose spreads under a drift are tabulated

ROLLOUT = _record("tokens", "version", "number")  # in a slot or in the queue of the lean loop

# Record 0 of the groups is the end mark of every list.
GROUP = _record(
    "next",  # in the queue, among the popped, among the requeued, or among the unused
    "previous",  # in the queue
    "rank_next",  # queued groups as the trainer takes them, for the orders by version
    "rank_previous",
    "live_next",  # running and queued groups, in the order of admission
    "live_previous",
    "state",
    "number",
    "admission",
    "version",  # oldest start among its members; -1: none has started
    "tokens",  # of completed members
    "started",  # members
    "finished",  # members
    "drawn",  # members that keep the draws of an earlier run
    "filtered",  # 1: no learning signal, by its first member
    "first_row",  # of the trace, with groups from a trace
    "in_front",  # 1: queued, and so is every live group admitted before
    "batch_groups",  # of the batch that begins with this group
    "batch_tokens",
    "dequeue_version",
    "dequeue_publications",
    "fetched",  # of the batch that begins with this group: tick at which its fetch ends
    "held_slot",  # of a held group: the slot that it keeps
    "engine",  # of its first member
    real=("factor",),  # of its members' lengths, by its prompt
)

MEMBER = _record(
    "number",
    "noise",  # upper 52 bits of its word for the staleness noise
    "tokens",
    "version",  # published version at its start
    "trainer_version",  # trainer's version at its start
    "publications",  # completed at its start
    "start",
    "end_version",  # version of its last token
    "slot",
    "decode_ticks",  # nominal
    "row",  # recorded row
    real=("newer_versions",),  # mean version under which its work was done, less its first
)

SLOT = _record(
    "idle_stack",  # the k-th entry of the stack of idle slots
    "due",  # the k-th entry of the ring of rollouts that end in this tick
    "group",
    "member",
    "phase",
    "target",  # value of W at which its decode ends
    "mark",  # value of W up to which its work is accounted
    "done",  # work done up to the mark
    "rest",  # work left, while off the clock; where publications move ends, the version at its start
    "tail",  # ticks after its decode: overhead and environment
    real=("version_work",),  # sum of newer versions × work
)

# How far the ends of rollouts that decode have moved within one call of the general loop; see .shifting.
SHIFT = _record(
    "on",  # 1: the tree and the slots hold ends less the shift
    "ticks",  # the shift
    "stop",  # tick at which decoding stood still last, less the shift
    "book",  # versions summed over ticks: `book + published * tick` since that stop
)

# --- questions that the general loop comes back with, where a user's own rule decides -----------------
NO_ANSWER = -1
ASKED = _record(
    "admission",  # 1: the gate that stands open asks too
    "length",  # 1: each rollout that starts asks
    "answer",  # NO_ANSWER: none yet; else 1 or 0 for an admission, tokens for a length
)
ADMISSION_STATE = _record(
    "groups",  # to be admitted at once
    "version",
    "published",
    "publications",
    "started_groups",
    "running_groups",
    "queued_groups",
    "queued_tokens",
    "in_flight_rollouts",
    "in_flight_tokens",
    "popped_batches",
    "popped_groups",
    "trained_batches",
    real=("seconds",),
)
ROLLOUT_START = _record(
    "number",
    "group",
    "member",
    "law_tokens",  # what the configuration's law gives for these draws
    "version",
    "published",
    real=("seconds", "uniform"),
)

# --- recorded rows -----------------------------------------------------------------------------------
_BATCH = ("start", "end", "tokens", "rollouts", "lag_sum", "max_lag")
_TIMELINE = ("time", "queue_tokens", "in_flight", "version", "published", "event")
_ROLLOUT = ("tokens", "version", "start", "end", "lag", "outcome")
_ESS = ("ess", "expected_ess")
LEAN_BATCH = _record(*_BATCH, real=_ESS)
LEAN_TIMELINE = _record(*_TIMELINE)
LEAN_ROLLOUT = _record(*_ROLLOUT)
GENERAL_BATCH = _record("update", *_BATCH, "groups", "dequeue_lag_sum", "discarded", real=_ESS)
GENERAL_TIMELINE = _record(
    *_TIMELINE, "queue_groups", "running_groups", "idle_cause", "trainer_cause", "fetch_time", "held",
    "running", "engine_waiting", "kv_tokens",
)  # fmt: skip
GENERAL_ROLLOUT = _record("number", *_ROLLOUT, "group", "member", "end_version", "ready")


def _metrics_record(metrics: tuple) -> np.dtype:
    return np.dtype((np.record, np.dtype([(metric.name, metric.dtype) for metric in metrics], align=True)))


LEAN_REPORT = _metrics_record(METRICS)
GENERAL_REPORT = _metrics_record(METRICS + GENERAL_METRICS + metrics_of_options(OPTIONAL_METRICS))


# --- arrays that travel together ---------------------------------------------------------------------


class Draws(NamedTuple):
    """A length law's table and guide, and one seed's first rollouts under it, drawn on demand."""

    cdf: np.ndarray  # float64[maximum - minimum + 1]
    guide: np.ndarray  # int64[…]
    seed: np.ndarray  # uint64[1]: whose they are
    drawn: np.ndarray  # int64[1]: rollouts drawn so far
    tokens: np.ndarray  # int64[d]
    noise: np.ndarray  # float64[d]: standard normals; with a measured drift the uniforms of the same words
    drift_lags: (
        np.ndarray
    )  # DRIFT_LAG[L]: lags 0…L - 1 of a measured drift, the last for all beyond; else empty
    drift_values: np.ndarray  # float64[v]: its log weights


class MemberDraws(NamedTuple):
    """Rollouts of one seed for the general loop, drawn on demand under one length law.

    The first d are kept, for the seed's other configurations; later ones stand in a window of w behind them.
    """

    seed: np.ndarray  # uint64[1]: whose they are
    drawn: np.ndarray  # int64[4]: what is drawn, and what can be read now; see .draws
    tokens: np.ndarray  # int64[d + w]: lengths by the law's table
    words: np.ndarray  # uint64[4, d + w]: w1, w0, w2, w3; [1, d + w] where nothing but w1 is needed again
    normals: np.ndarray  # float64[d]: of the staleness noise; NaN until a trained rollout needs it


class LeanArrays(NamedTuple):
    """All that a run of the lean loop changes; not saved: scratch, and `initial`, the state at time 0."""

    state: np.ndarray  # LEAN_STATE[1]
    tree: np.ndarray  # int64[2 * leaves]
    idle_stack: np.ndarray  # int64[slots]
    slots: np.ndarray  # ROLLOUT[slots]
    ring: np.ndarray  # ROLLOUT[r], r a power of two: rollouts in training, then the queue
    lag_counts: np.ndarray  # int64[LAG_BINS]
    training_lags: np.ndarray  # int64[LAG_BINS]
    batch_rows: np.ndarray  # LEAN_BATCH[b]
    timeline_rows: np.ndarray  # LEAN_TIMELINE[t]
    rollout_rows: np.ndarray  # LEAN_ROLLOUT[n]
    log_weights: np.ndarray  # float64[r]
    lag_spreads: np.ndarray  # float64[LAG_BINS]: drift * sqrt(lag) of the known lags
    lag_inflations: np.ndarray  # float64[LAG_BINS]: exp of its square
    known_lags: np.ndarray  # KNOWN_LAGS[1]
    initial: np.ndarray  # LEAN_STATE[1]


class Tables(NamedTuple):
    """All that a run of the general loop reads and never writes, beside its parameters."""

    cdf: np.ndarray  # float64[maximum - minimum + 1]: the length law
    guide: np.ndarray  # int64[…]
    work_rates: np.ndarray  # int64[slots + 1]: units that a tick adds to W with so many rollouts decoding
    limits: np.ndarray  # LIMIT[n]
    environment_cdf: np.ndarray  # float64[e]: the law of the environment's seconds
    environment_guide: np.ndarray  # int64[…]
    environment_ticks: np.ndarray  # int64[e]
    trace_tokens: np.ndarray  # int64[r]: rows of a trace of pairs or of groups
    trace_ticks: np.ndarray  # int64[r]
    trace_group_starts: np.ndarray  # int64[g + 1]
    trace_group_of_row: np.ndarray  # int64[r]
    decile_edges: np.ndarray  # int64[10]: quantiles of the length law at 0.1…0.9, and an end mark
    decile_guide: np.ndarray  # uint8[…]: how many of them lie below each bucket of lengths
    segments: np.ndarray  # SEGMENT[n]: of a law by version, in the order of versions
    segment_cdf: np.ndarray  # float64[…]
    segment_guide: np.ndarray  # int64[…]
    segment_tokens: np.ndarray  # int64[…]
    segment_ticks: np.ndarray  # int64[…]
    drift_lags: np.ndarray  # DRIFT_LAG[L]: of a measured drift, as in the draws of the lean loop; else empty
    drift_values: np.ndarray  # float64[v]
    lag_spreads: np.ndarray  # float64[LAG_BINS]: drift * sqrt(lag)
    lag_inflations: np.ndarray  # float64[LAG_BINS]: exp of its square


class TrainingTables(NamedTuple):
    """Of the Tables, what a finished batch reads: each array that a call is given is seven words to copy."""

    decile_edges: np.ndarray
    decile_guide: np.ndarray
    segments: np.ndarray
    drift_lags: np.ndarray
    drift_values: np.ndarray
    lag_spreads: np.ndarray
    lag_inflations: np.ndarray


class GeneralArrays(NamedTuple):
    """All that a run of the general loop changes; what is not saved: scratch, and the questions."""

    state: np.ndarray  # GENERAL_STATE[1]
    time_tree: np.ndarray  # int64[2 * leaves]: keys of rollouts and re-prefills that end at a known tick
    work_tree: np.ndarray  # int64[2 * leaves]: targets of W
    slots: np.ndarray  # SLOT[slots]
    groups: np.ndarray  # GROUP[g]
    members: np.ndarray  # MEMBER[g * group_size]
    histograms: np.ndarray  # int64[H_COUNT, LAG_BINS]
    slot_ticks: np.ndarray  # int64[SLOTS_FIRST_LIMIT + n]
    trainer_ticks: np.ndarray  # int64[TRAINER_CAUSES]
    segment_starts: np.ndarray  # int64[n]: measured starts of rollouts by segment of a law by version
    batch_rows: np.ndarray  # GENERAL_BATCH[b]
    timeline_rows: np.ndarray  # GENERAL_TIMELINE[t]
    rollout_rows: np.ndarray  # GENERAL_ROLLOUT[n]
    log_weights: np.ndarray  # float64[g * group_size]
    picks: np.ndarray  # int64[g]
    shift: np.ndarray  # SHIFT[1]
    asked: np.ndarray  # ASKED[1]
    admission_state: np.ndarray  # ADMISSION_STATE[1]
    rollout_start: np.ndarray  # ROLLOUT_START[1]
    engines: np.ndarray  # ENGINE[E]; empty without engines, as the next two
    requests: np.ndarray  # REQUEST[slots]: the rollout of each slot on its engine
    engine_tree: np.ndarray  # int64[2 * engine_leaves]: clock values of their next changes
    coefficients: np.ndarray  # COEFFICIENTS[1]: read, never written


class FleetArrays(NamedTuple):
    """Of GeneralArrays, what rollouts on engines read and change."""

    time_tree: np.ndarray
    slots: np.ndarray
    groups: np.ndarray
    members: np.ndarray
    engines: np.ndarray
    requests: np.ndarray
    engine_tree: np.ndarray
    coefficients: np.ndarray


class FailureArrays(NamedTuple):
    """What failures and checkpoints change in a run of the general loop; empty where nothing fails."""

    failures: np.ndarray  # FAILURES[1]
    worker_tree: np.ndarray  # int64[2 * leaves]: ticks of the slots' next failures; empty without them
    worker_counts: np.ndarray  # int64[slots]: up-times drawn so far
    saved_state: np.ndarray  # GENERAL_STATE[2]: the last checkpoint, and the one being written
    saved_tokens: np.ndarray  # int64[2]: trained and not lost by then, over the whole run
    saved_trained: np.ndarray  # int64[2]: the same in groups
    saved_histograms: np.ndarray  # int64[2, H_OF_TRAINED, LAG_BINS]
    saved_groups: np.ndarray  # GROUP[2 * g]: empty unless a checkpoint holds the queue
    saved_members: np.ndarray  # MEMBER[2 * g * group_size]


def initial_state(kind: np.dtype) -> np.ndarray:
    """Make the state of a run at time 0, but for its idle slots: an array of one LEAN_STATE or GENERAL_STATE.

    Examples
    --------
    >>> int(initial_state(LEAN_STATE)[0].waiting_version)
    -1
    """
    state = np.zeros(1, kind)
    never = {"publication_time": NEVER, "training_time": NEVER, "queue_oldest": 2**62, "ess_min": np.inf}
    never |= {"fetch_time": NEVER, "evaluation_time": NEVER, "engine_time": NEVER, "engines_due": NEVER}
    for name, value in {
        **never, "waiting_version": -1, "freed": -1, "max_queue": -1, "max_lag": -1,
    }.items():  # fmt: skip
        if name in (kind.names or ()):
            state[name] = value
    return state
