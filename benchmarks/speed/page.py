"""The page on speed: every figure of one run on one machine, compared figures measured in turn.

``--only loops,presets`` measures some sections alone; ``--check`` ends with 1 if an aim is missed by over a
tenth.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
with contextlib.suppress(ImportError):
    import cimba  # noqa: F401  (compiles its models only where it was imported before any other kernel)

import c_loop
import engine_cost
import fresh_process
import growth
import loops
import mask_kernels
import preset_cost
import queue_peers
import sweep_rates
from measuring import Section

SECTIONS: dict[str, Callable[[int, bool], Section]] = {
    "loops": loops.section,
    "c-loop": c_loop.section,
    "queue": queue_peers.section,
    "presets": preset_cost.section,
    "engines": engine_cost.section,
    "sweeps": sweep_rates.section,
    "growth": growth.section,
    "memory": fresh_process.memory_section,
    "start": fresh_process.start_section,
    "masks": mask_kernels.section,
}
QUICK = ("loops", "c-loop", "sweeps")  # what goes in a minute and needs no process of its own


def processor() -> str:
    """Return the processor's model name, as far as the machine tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def facts() -> str:
    """Say what the figures were measured on."""
    versions = [f"{name} {version(name)}" for name in ("lagsweep", "numba", "llvmlite", "numpy")]
    return (
        f"{processor()} ({platform.machine()}), {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, {', '.join(versions)}"
    )


def page(names: Iterable[str], rounds: int, tiny: bool = False) -> tuple[str, list[Section]]:
    """Measure sections; gives the page and what was measured."""
    load, began = os.getloadavg()[0], time.perf_counter()
    some = f"`python benchmarks/speed/page.py --only {','.join(names)}`"
    command = "`make speed-page`" if list(names) == list(SECTIONS) else some
    sections = []
    for name in names:
        started = time.perf_counter()
        sections.append(SECTIONS[name](rounds, tiny))
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    promises = [one for section in sections for one in section.promises]
    missed = [f"- {one.text}" for one in promises if not one.met]
    lines = [
        "# How fast",
        "",
        f"Made by {command} in {(time.perf_counter() - began) / 60:.1f} minutes; rounds: {rounds}. "
        "What is compared was measured in turn, round by round, in one process; figures are medians "
        "(least…most), and ratios are taken within a round. Figures depend on the machine and on what else "
        "it does, ratios much less. `docs/benchmarks.md` says what is compared with what.",
        "",
        f"Measured on {facts()}. Load of the machine before {load:.1f}, after {os.getloadavg()[0]:.1f}.",
        "",
        f"{len(promises) - len(missed)} of {len(promises)} aims are met{'; missed:' if missed else '.'}",
        *(["", *missed] if missed else []),
    ]
    return "\n".join(lines) + "\n\n" + "\n".join(section.markdown() for section in sections), sections


def _chosen(text: str) -> list[str]:
    groups = {"all": list(SECTIONS), "quick": list(QUICK)}
    asked = [name.strip() for name in text.split(",") if name.strip()]
    names = list(dict.fromkeys(one for name in asked for one in groups.get(name, [name])))
    if not names:
        raise SystemExit(f"--only: names no section. Known: {', '.join(SECTIONS)}, quick, all.")
    if unknown := [name for name in names if name not in SECTIONS]:
        raise SystemExit(
            f"--only: no section {', '.join(unknown)}. Known: {', '.join(SECTIONS)}, quick, all."
        )
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print or write the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="all", help="sections by commas, or quick")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--tiny", action="store_true", help="the smallest sizes: for tests, figures mean nothing"
    )
    parser.add_argument("--check", action="store_true", help="end with 1 if an aim is missed by over a tenth")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    text, sections = page(_chosen(options.only), options.rounds, options.tiny)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    broken = [one.text for section in sections for one in section.promises if one.broken]
    if options.check and broken:
        print("FAILED: " + "; ".join(broken), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
