"""Guard against slower kernels: instructions an event, counted, held against those of a stored baseline.

Counts do not depend on what else the machine does. The kernels are compiled for a generic processor into a
cache of their own; then the same work is run in processes that differ only in how often one kernel is called,
so that start-up and loading cancel. Hardware counters are read where the machine lets them be (perf), else
valgrind counts. Counts are compared only with a baseline of the same counter, machine, Numba and llvmlite.

Ends with 1 if a kernel needs over a tenth more than its baseline, else with 0; ``--write`` stores a baseline.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
BASELINE = FOLDER / "instructions.json"
MOST_RISE = 0.10
# Calls of each kernel in its long process: about 10⁹ instructions, a hundred times the noise of start-up.
CALLS = {"lean": 400, "general": 200, "preset": 180, "ess": 1_000}
NAMES = {
    "lean": "lean loop, 8 slots",
    "general": "general loop, options off, 8 slots",
    "preset": "slime fully async, 64 slots",
    "ess": "ESS of ragged groups, a weight",
}
_HOW = "`make guard-baseline` counts anew and stores it"


@dataclass(frozen=True)
class Counter:
    """A way to count the instructions of a process.

    Attributes
    ----------
    name : str
    prefix : tuple of str
        What goes before the command; the counter writes into standard error.
    pattern : str
        Finds the count there.
    """

    name: str
    prefix: tuple[str, ...]
    pattern: str

    def read(self, text: str) -> int | None:
        """Return the count that the counter wrote, or None."""
        found = re.search(self.pattern, text, re.MULTILINE)
        return None if found is None else int(found[1].replace(",", ""))


COUNTERS = (
    Counter("perf", ("perf", "stat", "-x", ";", "-e", "instructions:u"), r"^(\d+);[^;]*;instructions:u"),
    Counter(
        "valgrind",
        ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
        r"I +refs: +([\d,]+)",
    ),
)


@dataclass(frozen=True)
class Counts:
    """Instructions an event, and what they may be compared with.

    Attributes
    ----------
    counter, machine, numba, llvmlite : str
    instructions : dict of str to float
        By kernel: an event of a loop, a weight of an ESS.
    """

    counter: str
    machine: str
    numba: str
    llvmlite: str
    instructions: dict[str, float]

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What must be equal for counts to be comparable."""
        return self.counter, self.machine, self.numba, self.llvmlite


@dataclass(frozen=True)
class Verdict:
    """What a comparison found: lines to print, and the exit code."""

    lines: list[str]
    exit_code: int


def usable_counter(which: Callable[[str], str | None] = shutil.which) -> Counter | None:
    """Return the first counter that really counts on this machine, or None."""
    for counter in COUNTERS:
        if which(counter.prefix[0]) is None:
            continue
        done = subprocess.run([*counter.prefix, "true"], capture_output=True, text=True, check=False)
        if counter.read(done.stderr):
            return counter
    return None


def baselines(path: Path = BASELINE) -> list[Counts]:
    """Read the stored baselines; none if there is no file."""
    if not path.exists():
        return []
    try:
        found = [Counts(**one) for one in json.loads(path.read_text(encoding="utf-8"))]
        sound = all(0 < value < math.inf for one in found for value in one.instructions.values())
    except (ValueError, TypeError, AttributeError) as error:
        raise SystemExit(f"{path.name}: must hold the stored counts ({error}). Delete it; {_HOW}.") from error
    if not sound:
        raise SystemExit(f"{path.name}: must hold numbers above 0. Delete it; {_HOW}.")
    return found


def compared(counts: Counts | None, stored: Sequence[Counts], most_rise: float = MOST_RISE) -> Verdict:
    """Hold counts against the baseline that they may be compared with.

    Parameters
    ----------
    counts : Counts or None
        None: no counter on this machine.
    stored : sequence of Counts
    most_rise : float
        The largest rise that is let pass, as a share.
    """
    if counts is None:
        return Verdict(["not measured: neither perf nor valgrind counts instructions on this machine"], 0)
    same = next((one for one in stored if one.place == counts.place), None)
    told = f"Instructions an event by {counts.counter} on {counts.machine}, numba {counts.numba}, "
    lines = [f"{told}llvmlite {counts.llvmlite}:"]
    if same is None:
        known = "; ".join(
            f"{one.counter} on {one.machine}, numba {one.numba}, llvmlite {one.llvmlite}" for one in stored
        )
        lines += [f"  {NAMES[name]}: {value:,.1f}" for name, value in counts.instructions.items()]
        lines.append(f"not compared: the baseline is of {known or 'nothing yet'}. {_HOW}.")
        return Verdict(lines, 0)
    worse, better = [], []
    for name, value in counts.instructions.items():
        if name not in same.instructions:
            lines.append(f"  {NAMES[name]}: {value:,.1f}; not compared: no baseline. {_HOW}.")
            continue
        before = same.instructions[name]
        rise = value / before - 1
        lines.append(f"  {NAMES[name]}: {value:,.1f}, baseline {before:,.1f} ({rise:+.1%})")
        (worse if rise > most_rise else better if rise < -most_rise else []).append(NAMES[name])
    lines += [
        f"  {NAMES.get(name, name)}: not counted"
        for name in same.instructions
        if name not in counts.instructions
    ]
    if better:
        lines.append(f"fewer by over {most_rise:.0%}: {', '.join(better)}. {_HOW}, so that it stays so.")
    if worse:
        lines.append(f"FAILED: over {most_rise:.0%} more instructions: {', '.join(worse)}.")
        lines.append(f"Make it faster again; if the work is worth it, {_HOW}.")
    return Verdict(lines, 1 if worse else 0)


def child_environment(cache: Path) -> dict[str, str]:
    """Return the environment of a counted process: generic code, a cache of its own, one thread."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "LAGSWEEP_"))}
    fixed = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "LAGSWEEP_CACHE_DIR": str(cache)}
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return kept | fixed | one | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def _command(calls: Mapping[str, int]) -> list[str]:
    given = [f"{name}={times}" for name, times in calls.items()]
    return [sys.executable, str(FOLDER / "guarded_kernels.py"), *given]


def count(counter: Counter, calls: Mapping[str, int] = CALLS) -> Counts:
    """Count the instructions an event of each kernel.

    Raises
    ------
    RuntimeError
        If a counted process fails or its counter tells nothing.
    """
    once = dict.fromkeys(calls, 1)
    with tempfile.TemporaryDirectory() as folder:
        environment = child_environment(Path(folder))
        warm = [
            subprocess.run(_command(once), env=environment, capture_output=True, text=True) for _ in "12"
        ][-1]
        if warm.returncode:
            raise RuntimeError(warm.stderr[-2000:])
        sizes: dict[str, int] = json.loads(warm.stdout)

        def counted(asked: Mapping[str, int]) -> int:
            command = [*counter.prefix, *_command(asked)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            found = counter.read(done.stderr)
            if done.returncode or found is None:
                raise RuntimeError(f"{counter.name} counted nothing: {done.stderr[-2000:]}")
            return found

        works = [once, *(once | {name: 1 + times} for name, times in calls.items())]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            base, *long = pool.map(counted, works)
    each = {
        name: round((total - base) / (times * sizes[name]), 2)
        for (name, times), total in zip(calls.items(), long)
    }
    return Counts(counter.name, platform.machine(), version("numba"), version("llvmlite"), each)


def stored_with(counts: Counts, stored: Sequence[Counts]) -> str:
    """Return the baseline file's text with new counts in the place of those they replace."""
    kept = [one for one in stored if one.place != counts.place]
    listed: list[dict[str, Any]] = [asdict(one) for one in sorted([*kept, counts], key=lambda one: one.place)]
    return json.dumps(listed, indent=1) + "\n"


def main() -> int:
    """Count, compare or store; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store the counts as the baseline")
    options = parser.parse_args()
    counter = usable_counter()
    stored = baselines()  # a damaged file is told before minutes of counting
    counts = None if counter is None else count(counter)
    if options.write and counts is not None:
        BASELINE.write_text(stored_with(counts, stored), encoding="utf-8")
        stored = baselines()
    verdict = compared(counts, stored)
    print("\n".join(verdict.lines))
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
