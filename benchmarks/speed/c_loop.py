"""The C loop, compiled on the spot: the same runs as the lean loop, held against it integer for integer."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lagsweep import PipelineConfig
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
    if (ours.lag_counts != theirs.reports["lag_counts"]).any():
        wrong.append("lag_counts")
    return wrong
