"""Where each quantity stands in the flat arrays of the level 1 pipeline: parameters, state, outputs.

Everything a run needs to go on is in these arrays, so stopping, saving and resuming are the same as running.
All int64 unless said otherwise; times in ticks (microseconds), amounts in tokens.
"""

from __future__ import annotations

NEVER = 2**63 - 1  # a time, or an event key, that no event has

# --- parameters, int64 -------------------------------------------------------------------------------
P_SEQUENTIAL = 0  # 1: never overlap the phases
P_HORIZON = 1
P_WARMUP = 2
P_STOP_AFTER_UPDATES = 3  # 0: none
P_SLOTS = 4
P_QUEUE_CAP = 5
P_RESERVE = 6  # 1: admission "reserve"
P_BATCH_TOKENS = 7
P_MAX_LAG = 8
P_SYNC_EVERY = 9
P_SYNC_TICKS = 10
P_LAW_MINIMUM = 11
P_LAW_MAXIMUM = 12
P_SLOT_BITS = 13  # bits of a slot number in an event key
P_LEAVES = 14  # leaves of the tournament tree: a power of two, at least the slots
P_RECORD_BATCHES = 15
P_RECORD_TIMELINE = 16
P_RECORD_ROLLOUTS = 17
P_COUNT = 18

# --- parameters, float64 -----------------------------------------------------------------------------
PF_DECODE_RATE = 0
PF_ROLLOUT_OVERHEAD = 1
PF_TRAIN_OVERHEAD = 2
PF_TRAIN_RATE = 3
PF_DRIFT = 4
PF_COUNT = 5

# --- state, int64 scalars ----------------------------------------------------------------------------
S_BEGUN = 0
S_ENDED = 1  # 1: stopped by stop_after_updates
S_NOW = 2
S_VERSION = 3
S_PUBLISHED = 4
S_PUBLICATION_TIME = 5  # NEVER: none under way
S_PUBLICATION_VERSION = 6
S_WAITING_VERSION = 7  # -1: none waits
S_TRAINING_TIME = 8  # NEVER: the trainer is idle
S_TRAINING_START = 9
S_TRAINING_TOKENS = 10
S_TRAINING_ROLLOUTS = 11
S_TRAINING_LAG_SUM = 12
S_TRAINING_LAG_MAX = 13
S_QUEUE_TOKENS = 14
S_RING_TRAINING = 15  # ring positions count up for ever; this one starts the batch in training
S_RING_HEAD = 16  # first queued rollout
S_RING_TAIL = 17  # one past the last queued rollout
S_IN_FLIGHT = 18
S_IN_FLIGHT_TOKENS = 19
S_IDLE = 20  # idle slots, on a stack
S_NEXT_ROLLOUT = 21
S_LAST_UPDATE_TIME = 22
# measured sums
S_UPDATES = 23
S_TRAINED_TOKENS = 24
S_TRAINED_ROLLOUTS = 25
S_GENERATED_TOKENS = 26
S_GENERATED_ROLLOUTS = 27
S_DISCARDED_TOKENS = 28
S_DISCARDED_ROLLOUTS = 29
S_SYNCS = 30
S_MAX_QUEUE = 31  # -1: the measured span has not begun
S_MAX_LAG = 32
S_BACKPRESSURE_TICKS = 33
S_IDLE_SLOT_TICKS = 34
S_TRAINER_WAIT_TICKS = 35
S_BATCH_ROWS = 36
S_TIMELINE_ROWS = 37
S_EVENTS = 38
S_COUNT = 39

# --- state, float64 scalars --------------------------------------------------------------------------
F_TRAINING_ESS = 0
F_TRAINING_EXPECTED_ESS = 1
F_QUEUE_TOKEN_TICKS = 2
F_LAG_SUM = 3  # of batch means
F_ESS_SUM = 4
F_ESS_MIN = 5
F_EXPECTED_ESS_SUM = 6
F_EFFECTIVE_TOKENS = 7
F_COUNT = 8

# --- columns of the ring of finished rollouts, and of a slot -----------------------------------------
R_TOKENS = 0
R_VERSION = 1
R_NUMBER = 2
R_COUNT = 3

# --- recorded rows -----------------------------------------------------------------------------------
B_START, B_END, B_TOKENS, B_ROLLOUTS, B_LAG_SUM, B_MAX_LAG = range(6)
B_COUNT = 6
BF_ESS, BF_EXPECTED_ESS = range(2)
BF_COUNT = 2
T_TIME, T_QUEUE_TOKENS, T_IN_FLIGHT, T_VERSION, T_PUBLISHED, T_EVENT = range(6)
T_COUNT = 6
O_TOKENS, O_VERSION, O_START, O_END, O_LAG, O_OUTCOME = range(6)
O_COUNT = 6

EVENT_START, EVENT_PUBLICATION, EVENT_UPDATE, EVENT_ROLLOUT = range(4)
EVENT_NAMES = ("start", "publication", "update", "rollout")
RUNNING, QUEUED, IN_TRAINING, TRAINED, DISCARDED = range(5)
OUTCOME_NAMES = ("running", "queued", "in_training", "trained", "discarded")

# --- what a call of the kernel ends with -------------------------------------------------------------
REACHED = 0  # every event up to the asked time has happened
OUT_OF_BUDGET = 1  # call again
GROW_RING = 2  # the ring is full: double it, call again
GROW_BATCHES = 3
GROW_TIMELINE = 4
GROW_ROLLOUTS = 5
