"""Where each quantity stands in the flat arrays of the general engine: parameters, state, outputs.

Everything a run needs to go on is in these arrays, so stopping, saving and resuming are the same as running.
All int64 unless said otherwise; times in ticks (microseconds), amounts in tokens, work in units of the clock
(a tick, or 2**-24 of a tick when decoding slows down). Record 0 of the groups is the end mark of every list.
"""

from __future__ import annotations

from .metrics import LAG_BINS

NEVER = 2**63 - 1  # a time, an event key or a target of work that no event has
MAXIMUM_TICKS = 2**52
FULL_RATE = 2**24  # units of work that one tick adds at full speed

# --- parameters, int64 -------------------------------------------------------------------------------
(
    P_SEQUENTIAL,
    P_HORIZON,
    P_WARMUP,
    P_STOP_AFTER_UPDATES,  # 0: none
    P_SLOTS,
    P_LEAVES,  # leaves of the tournament trees: a power of two, at least the slots
    P_SLOT_BITS,  # its logarithm: bits of a slot in the key of a known tick
    P_QUEUE_CAP,
    P_RESERVE,  # 1: admission "reserve"
    P_CAP_IS_OPEN,  # 1: the token cap closes nothing (no cap, or queue_overflow "drop_oldest")
    P_MAX_QUEUE_GROUPS,  # 0: none
    P_BATCH_TOKENS,
    P_BATCH_GROUPS,  # 0: batches by tokens
    P_MAX_LAG,
    P_SYNC_EVERY,
    P_SYNC_TICKS,
    P_LAW_MINIMUM,
    P_LAW_MAXIMUM,
    P_OVERHEAD_TICKS,  # ticks(rollout_overhead_seconds)
    P_VIRTUAL_CLOCK,  # 0: every rollout's end is known at its start
    P_WORK_UNIT,  # units of work in one tick of nominal decode: 1, or 2**24
    P_SLOW_TRAIN_RATE,  # units of training work a tick does while something decodes
    P_ENVIRONMENT,  # one of ENVIRONMENT_…
    P_PROMPT_TOKENS,
    P_PUBLICATION,  # one of BACKGROUND, DRAIN, PAUSE, ABORT
    P_BLOCKS_TRAINER,
    P_GROUP_SIZE,
    P_TRACE_GROUPS,  # 1: a group's lengths come from one group of the trace
    P_UPDATES_PER_BATCH,
    P_PREFETCH,
    P_MAX_RUNNING,  # -1: none
    P_ADMIT_BATCH,
    P_ONE_BATCH,
    P_ORDER,  # one of FIFO, STARTED, OLDEST_VERSION, FRESHEST, RANDOM
    P_STALE_CHECK,  # one of AT_UPDATE, AT_DEQUEUE, NO_CHECK
    P_REQUEUE,
    P_REDRAW,
    P_CANCEL,
    P_RECORD_BATCHES,
    P_RECORD_TIMELINE,
    P_RECORD_ROLLOUTS,
    P_COUNT,
) = range(42)

NO_ENVIRONMENT, ENVIRONMENT_LAW, ENVIRONMENT_PAIRED = range(3)
BACKGROUND, DRAIN, PAUSE, ABORT = range(4)
FIFO, STARTED, OLDEST_VERSION, FRESHEST, RANDOM = range(5)
AT_UPDATE, AT_DEQUEUE, NO_CHECK = range(3)

# --- parameters, float64 -----------------------------------------------------------------------------
(
    PF_DECODE_RATE,
    PF_ROLLOUT_OVERHEAD,
    PF_TRAIN_OVERHEAD,
    PF_TRAIN_RATE,
    PF_DRIFT,
    PF_DRIFT_EXPONENT,
    PF_MEAN_TOKENS,  # of the length law
    PF_PROMPT_SIGMA,
    PF_FILTER,
    PF_RESUME_SECONDS,
    PF_REPREFILL_RATE,  # 0: re-prefill takes no time
    PF_COUNT,
) = range(12)

# --- limits of the admission ledger: one row each ----------------------------------------------------
LIMIT_FINISHED, LIMIT_DONE, LIMIT_GROUPS = range(3)  # 1: count is "finished"; one of DONE_…; constant
LIMIT_COLUMNS = 3
DONE_PUBLISHED, DONE_POPPED, DONE_TRAINED = range(3)

# --- state, int64 scalars ----------------------------------------------------------------------------
(
    S_BEGUN,
    S_ENDED,  # 1: stopped by stop_after_updates
    S_SETTLING,  # 1: came back in the middle of a settle, slots still may start
    S_EVENT,  # what the settle under way belongs to
    S_FREED,  # slot whose leaf still holds the event that just happened; -1: none
    S_NOW,
    S_CLOCK,  # tick up to which work is accounted
    S_WORK,  # W, the virtual work clock
    S_DECODING,  # rollouts decoding now
    S_STOPPED,  # 1: a publication has stopped decoding
    S_VERSION,
    S_PUBLISHED,
    S_CHANNEL,  # one of CHANNEL_…
    S_PUBLICATION_TIME,  # NEVER unless a transfer is under way
    S_PUBLICATION_VERSION,
    S_WAITING_VERSION,  # -1: none waits
    S_PUBLICATIONS,  # completed, over the whole run
    S_TRAINING,  # 1: a step is under way
    S_TRAINING_TIME,  # NEVER unless a step with a fixed end is under way
    S_TRAINING_START,
    S_TRAINING_VERSION,
    S_TRAINING_PUBLICATIONS,
    S_REST_TICKS,  # work left of the step, when training can be slowed down: whole ticks …
    S_REST_PARTS,  # … and 2**-24 of a tick
    S_QUEUE_TOKENS,
    S_QUEUE_GROUPS,
    S_QUEUE_OLDEST,  # no queued group has an older version
    S_POPPED_HEAD,  # batches taken and not trained, one after another
    S_POPPED_TAIL,
    S_POPPED_TOKENS,
    S_PREFETCHED,  # batches taken whose step has not begun
    S_REQUEUE_HEAD,
    S_REQUEUE_TAIL,
    S_REQUEUED,  # groups waiting to run again
    S_FREE_HEAD,  # unused records
    S_FREE,
    S_NEEDED,  # records that the next admission takes
    S_RUNNING,  # running groups
    S_STARTING,  # group whose members start next; 0: no member waits
    S_FRONT,  # first live group that is not queued, in the order of admission; 0: none
    S_FRONT_COUNT,  # live groups before it
    S_IDLE,  # idle slots, on a stack
    S_IN_FLIGHT_TOKENS,
    S_DUE,  # rollouts that end in this tick with their decode
    S_DUE_HEAD,
    S_DUE_TAIL,
    S_NEXT_NUMBER,
    S_NEXT_GROUP,
    S_NEXT_ADMISSION,
    S_NEXT_ROW,
    S_STARTED,  # groups admitted and not dropped
    S_PLACES,  # groups that left untrained and were not replaced yet
    S_POPPED_BATCHES,
    S_POPPED_GROUPS,
    S_TRAINED_BATCHES,
    S_LAST_UPDATE_TIME,
    S_IDLE_CAUSE,  # what keeps the idle slots idle since the last settle, one of C_…
    S_CAP_CLOSED,
    S_TRAINER_CAUSE,  # one of T_CAUSE_…
    S_COST,  # events and scanned records, for the budget
    S_EVENTS,
    # measured sums
    S_UPDATES,
    S_BATCHES,
    S_TRAINED_TOKENS,
    S_TRAINED_ROLLOUTS,
    S_TRAINED_GROUPS,
    S_GENERATED_TOKENS,
    S_GENERATED_ROLLOUTS,
    S_GENERATED_GROUPS,
    S_DISCARDED_TOKENS,
    S_DISCARDED_GROUPS,
    S_FILTERED_TOKENS,
    S_FILTERED_GROUPS,
    S_EVICTED_TOKENS,
    S_EVICTED_GROUPS,
    S_CANCELLED_TOKENS,
    S_CANCELLED_GROUPS,
    S_WASTED_TOKENS,
    S_REQUEUED_GROUPS,
    S_ADMITTED_GROUPS,
    S_LEFT_TOKENS,  # drawn lengths of the groups that left
    S_LEFT_ROLLOUTS,
    S_SYNCS,
    S_MAX_QUEUE,  # -1: the measured span has not begun
    S_MAX_LAG,
    S_LAG_START_SUM,  # over trained rollouts, in updates …
    S_LAG_DEQUEUE_SUM,
    S_LAG_TRAINING_SUM,
    S_LAG_END_SUM,
    S_SYNC_LAG_DEQUEUE_SUM,  # … and in publications
    S_SYNC_LAG_TRAINING_SUM,
    S_BACKPRESSURE_TICKS,
    S_IDLE_SLOT_TICKS,
    S_BATCH_ROWS,
    S_TIMELINE_ROWS,
    S_COUNT,
) = range(96)

CHANNEL_FREE, CHANNEL_DRAINING, CHANNEL_TRANSFER = range(3)

# --- state, float64 scalars --------------------------------------------------------------------------
(
    F_QUEUE_TOKEN_TICKS,
    F_LAG_SUM,  # of batch means
    F_ESS_SUM,
    F_ESS_MIN,
    F_EXPECTED_ESS_SUM,
    F_EFFECTIVE_TOKENS,
    F_TOKEN_LAG_SUM,  # tokens × token-weighted lag
    F_COUNT,
) = range(8)

# --- columns of a group's record ---------------------------------------------------------------------
(
    G_NEXT,  # in the queue, among the popped, among the requeued, or among the unused
    G_PREVIOUS,  # in the queue
    G_RANK_NEXT,  # queued groups as the trainer takes them, for the orders by version
    G_RANK_PREVIOUS,
    G_LIVE_NEXT,  # running and queued groups, in the order of admission
    G_LIVE_PREVIOUS,
    G_STATE,
    G_NUMBER,
    G_ADMISSION,
    G_VERSION,  # oldest start among its members; -1: none has started
    G_TOKENS,  # of completed members
    G_STARTED,  # members
    G_FINISHED,  # members
    G_DRAWN,  # members that keep the draws of an earlier run
    G_FILTERED,  # 1: no learning signal, by its first member
    G_FIRST_ROW,  # of the trace, with groups from a trace
    G_IN_FRONT,  # 1: queued, and so is every live group admitted before
    G_BATCH_GROUPS,  # of the batch that begins with this group
    G_BATCH_TOKENS,
    G_DEQUEUE_VERSION,
    G_DEQUEUE_PUBLICATIONS,
    G_COUNT,
) = range(22)
G_UNUSED, G_RUNNING, G_QUEUED, G_POPPED, G_REQUEUED = range(5)  # values of G_STATE

# --- columns of a member -----------------------------------------------------------------------------
(
    M_NUMBER,
    M_NOISE,  # upper 52 bits of its word for the staleness noise
    M_TOKENS,
    M_VERSION,  # published version at its start
    M_TRAINER_VERSION,  # trainer's version at its start
    M_PUBLICATIONS,  # completed at its start
    M_START,
    M_END_VERSION,  # version of its last token
    M_SLOT,  # -1: not started; -2: completed
    M_DECODE_TICKS,  # nominal
    M_ROW,  # recorded row
    M_COUNT,
) = range(12)
NOT_STARTED, COMPLETED = -1, -2

# --- columns of a slot -------------------------------------------------------------------------------
(
    L_IDLE_STACK,  # the k-th entry of the stack of idle slots
    L_DUE,  # the k-th entry of the ring of rollouts that end in this tick
    L_GROUP,
    L_MEMBER,
    L_PHASE,
    L_TARGET,  # value of W at which its decode ends
    L_MARK,  # value of W up to which its work is accounted
    L_DONE,  # work done up to the mark
    L_REST,  # work left, while off the clock
    L_TAIL,  # ticks after its decode: overhead and environment
    L_COUNT,
) = range(11)
EMPTY, TIMED, DECODING, TAIL, DUE, OFF_CLOCK = range(6)  # values of L_PHASE

# --- causes: rows of the slot ticks and of the trainer ticks -----------------------------------------
(
    C_BUSY,
    C_PUBLICATION,
    C_MAX_RUNNING,
    C_ONE_BATCH,
    C_TOKEN_CAP,
    C_SEQUENTIAL,  # a phase of `sequential` that starts nothing
    C_FIRST_LIMIT,  # and one more for each further limit
) = range(7)
T_CAUSE_BUSY, T_CAUSE_PUBLICATION, T_CAUSE_RUNNING_GROUPS, T_CAUSE_BATCH = range(4)
T_CAUSES = 4

# --- histograms of trained rollouts, 65 bins each ----------------------------------------------------
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
    H_COUNT,
) = range(10)
H_BINS = LAG_BINS

# --- recorded rows -----------------------------------------------------------------------------------
(
    B_UPDATE,
    B_START,
    B_END,
    B_TOKENS,
    B_ROLLOUTS,
    B_LAG_SUM,
    B_MAX_LAG,
    B_GROUPS,
    B_DEQUEUE_LAG_SUM,
    B_COUNT,
) = range(10)
BF_ESS, BF_EXPECTED_ESS = range(2)
BF_COUNT = 2
(
    T_TIME,
    T_QUEUE_TOKENS,
    T_IN_FLIGHT,
    T_VERSION,
    T_PUBLISHED,
    T_EVENT,
    T_QUEUE_GROUPS,
    T_RUNNING_GROUPS,
    T_IDLE_CAUSE,
    T_TRAINER_CAUSE,
    T_COUNT,
) = range(11)
(
    O_NUMBER,
    O_TOKENS,
    O_VERSION,
    O_START,
    O_END,
    O_LAG,
    O_OUTCOME,
    O_GROUP,
    O_MEMBER,
    O_END_VERSION,
    O_READY,
    O_COUNT,
) = range(12)
RUNNING, QUEUED, IN_TRAINING, TRAINED, DISCARDED, FILTERED, EVICTED, CANCELLED, COMPLETED_MEMBER = range(9)
OUTCOME_NAMES = (
    "running",
    "queued",
    "in_training",
    "trained",
    "discarded",
    "filtered",
    "evicted",
    "cancelled",
    "waiting",
)

# --- what a call of the kernel ends with -------------------------------------------------------------
REACHED = 0  # every event up to the asked time has happened
OUT_OF_BUDGET = 1  # call again
GROW_GROUPS = 2  # too few unused records: make room for S_NEEDED more, call again
GROW_BATCHES = 3
GROW_TIMELINE = 4
GROW_ROLLOUTS = 5
