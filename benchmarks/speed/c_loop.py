"""The C loop, compiled on the spot: the same runs as the lean loop, held against it integer for integer."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from loops import lean_cells, run_cells
from measuring import Section, in_turn, ranged, ratios, scaled, table

from lagsweep import LengthLaw, PipelineConfig
from lagsweep.sweeps.execute.unit_arrays import all_lag_bins
from lagsweep.sweeps.runs.lean import LeanCells
from lagsweep.sweeps.runs.parameters import pack

_INTEGERS = (
    *("horizon", "warmup", "slots", "slot_bits", "queue_cap", "reserve", "batch_tokens", "max_lag"),
    *("sync_every", "sync_ticks", "law_minimum", "law_maximum"),
)
_REALS = ("decode_rate", "rollout_overhead", "train_overhead", "train_rate", "drift")
RULES = np.dtype([(name, np.int64) for name in _INTEGERS] + [(name, np.float64) for name in _REALS])
_COUNTS = (
    *("events", "updates", "syncs", "trained_tokens", "trained_rollouts", "generated_tokens"),
    *("generated_rollouts", "discarded_tokens", "discarded_rollouts", "max_queue_tokens_observed"),
    *("max_lag_observed", "final_version", "backpressure_ticks", "idle_slot_ticks", "trainer_wait_ticks"),
)
_SUMS = ("queue_token_ticks", "lag_sum", "ess_sum", "expected_ess_sum", "ess_min", "effective_tokens")
REPORT = np.dtype(
    [(name, np.int64) for name in _COUNTS]
    + [(name, np.float64) for name in _SUMS]
    + [("lag_counts", np.int64, 65)]
)
AIMS = {8: 1.2, 64: 0.6, 1_024: 0.4}  # times the C loop's time, by slots
SAMPLE_EVENTS = 1_000_000  # of a sample, at least about so many
# No contraction of a product and a sum into one rounding: Numba makes none, and the integers must be equal.
FLAGS = ("-O3", "-march=native", "-ffp-contract=off")


def compiler() -> str | None:
    """Name the C compiler of this machine, or None."""
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path) -> ctypes.CDLL:
    """Compile the C loop into a folder and load it."""
    library = folder / "c_loop.so"
    source = Path(__file__).with_name("c_loop.c")
    command = [str(compiler()), *FLAGS, "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class CCells:
    """Some configurations of one length law at one seed, run by the C loop one after another."""

    def __init__(self, library: ctypes.CDLL, configs: Sequence[PipelineConfig], rollouts: int) -> None:
        packed = pack(configs)
        self._library = library
        self._rules = np.zeros(len(packed), RULES)
        for name in RULES.names or ():
            self._rules[name] = packed[name]
        self._law = configs[0].response_length
        self._tokens = np.zeros(rollouts, np.int64)
        self._normals = np.zeros(rollouts, np.float64)
        slots = max(config.rollout_workers for config in configs)
        self._ring_size = max(1 << 12, 1 << (4 * slots - 1).bit_length())
        self.reports = np.zeros(len(packed), REPORT)

    def draw(self, seed: int) -> None:
        """Draw the seed's rollouts, for all configurations."""
        law = self._law
        self._library.draw(
            ctypes.c_uint64(seed),
            ctypes.c_int64(0),
            ctypes.c_int64(len(self._tokens)),
            ctypes.c_int64(law.minimum),
            _pointer(law.cdf),
            _pointer(law.guide),
            ctypes.c_int64(len(law.guide) - 1),
            _pointer(self._tokens),
            _pointer(self._normals),
        )

    def run(self) -> None:
        """Run every configuration at the seed drawn last."""
        status = self._library.run_cells(
            _pointer(self._rules),
            ctypes.c_int64(len(self._rules)),
            _pointer(self._tokens),
            _pointer(self._normals),
            ctypes.c_int64(len(self._tokens)),
            ctypes.c_int64(self._ring_size),
            _pointer(self.reports),
        )
        if status:
            raise SystemExit(f"the C loop needs more {'ring' if status == 1 else 'draws'}")


def differences(ours: LeanCells, theirs: CCells) -> list[str]:
    """Name the fields in which the two loops differ, of those that both report."""
    names = set(ours.metrics.dtype.names or ()) & set(_COUNTS)
    wrong = [name for name in sorted(names) if (ours.metrics[name] != theirs.reports[name]).any()]
    if (all_lag_bins(ours.lag_counts) != theirs.reports["lag_counts"]).any():
        wrong.append("lag_counts")
    return wrong


def cells_of(slots: int) -> list[PipelineConfig]:
    """Return 320 configurations of 240 s runs; 64 where runs are long."""
    base = PipelineConfig(
        rollout_workers=slots,
        response_length=LengthLaw.lognormal(),
        duration_seconds=240.0,
        batch_tokens=1_000 * slots,
        train_tokens_per_second=60.0 * slots,
    )
    caps = [1_500 * slots * step for step in range(1, 9)]
    found = [
        base.replace(max_queue_tokens=cap, max_policy_lag=lag, sync_every_updates=every, sync_seconds=seconds)
        for cap, lag, every, seconds in itertools.product(caps, (0, 1, 2, 4, 8), (1, 2), (0.0, 1.0, 3.0, 5.0))
    ]
    return found if slots < 1_000 else found[::5]


def compared(library: ctypes.CDLL, slots: int, rounds: int) -> tuple[list[str], float]:
    """Run both loops in turn: a row and the median ratio; ends where they differ in an integer."""
    configs = cells_of(slots)
    theirs, ours = CCells(library, configs, 60_000), lean_cells(configs)
    theirs.draw(3)
    run_cells(ours, 3)
    theirs.run()
    if wrong := differences(ours, theirs):
        raise SystemExit(f"the loops differ at {slots} slots in {', '.join(wrong)}")
    # As in a sweep, one run follows another: a sample of a few milliseconds would measure cold caches too.
    repeats = max(1, round(SAMPLE_EVENTS / float(theirs.reports["events"].sum())))
    forms = {
        "C": lambda: [theirs.run() for _ in range(repeats)],
        "lean": lambda: [run_cells(ours, 3) for _ in range(repeats)],
    }
    seconds = in_turn(forms, rounds, time.process_time)
    each = {name: scaled(samples, 1e6 / len(configs) / repeats) for name, samples in seconds.items()}
    over = ratios(each, "lean", "C")
    row = [f"{slots:,}", f"{theirs.reports['events'].mean():,.0f}", ranged(each["C"]), ranged(each["lean"])]
    return [*row, ranged(over, 2), f"{AIMS[slots]:g}"], statistics.median(over)


def section(rounds: int, tiny: bool = False) -> Section:
    """Measure where there is a compiler."""
    found = Section("The lean loop beside one in C")
    if compiler() is None:
        found.text.append("not measured: there is no C compiler on this machine")
        return found
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        rows = {slots: compared(library, slots, rounds) for slots in list(AIMS)[: 1 if tiny else None]}
    found.text += [
        "Runs of 240 s within a sweep at one seed, the draws shared, microseconds of processor time a run. "
        f"The C loop (`benchmarks/speed/c_loop.c`, a binary heap) is compiled here by `{' '.join(FLAGS)}` "
        "and is equal to the lean loop in every integer of every run.",
        table(["slots", "events a run", "C", "lean", "lean / C", "aim"], [row for row, _ in rows.values()]),
    ]
    for slots, (_, ratio) in rows.items():
        found.at_most(f"times the C loop's time at {slots:,} slots", ratio, AIMS[slots])
    return found
