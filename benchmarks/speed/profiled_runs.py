"""The runs that are profiled: ``python profiled_runs.py compile|count FOLDER``.

``compile`` fills the cache with kernels that have line tables. ``count`` does every run once to draw its
rollouts and load its kernels, then once more between two calls of a function of the C library that nothing
else calls, at which the counter writes what it has counted. Nothing here looks at a clock.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from line_tables import keep_loaded_code, write_code_map, write_line_tables

MARK = "getppid"
SLOTS = 256
EVENTS = 6_000
SECONDS = 3_000.0
PRESETS = ("skyrl", "slime_fully_async", "nemo_rl_in_order")  # those that take longest, drawing their own

Work = Callable[[], int]


def works() -> dict[str, Work]:
    """Return what is profiled by name: each does one run, or twenty short ones, and gives its rollouts."""
    from guarded_kernels import lean
    from loops import anew, general_run, keeping_up
    from preset_cost import preset

    from lagsweep.sweeps.runs.general import GeneralRun

    lean_work, _ = lean()

    def general(run: GeneralRun, drawing: bool = False) -> Work:
        def work() -> int:
            anew(run, drawing)
            return int(run.summary().generated_rollouts)

        return work

    config = keeping_up(SLOTS, EVENTS)
    shared, alone = general_run(config, 2 * EVENTS), general_run(config)
    return {
        "Lean loop, 8 slots": lambda: int(lean_work()["generated_rollouts"].sum()),  # type: ignore[index]
        f"General loop, options off, {SLOTS} slots": general(shared),
        f"General loop, options off, {SLOTS} slots, drawing its own": general(alone, drawing=True),
    } | {
        f"{name}, {SLOTS} slots": general(general_run(preset(name, SECONDS), 4 * EVENTS)) for name in PRESETS
    }


def compile_kernels(folder: Path) -> None:
    """Do every run, so that its kernels are in the cache, and write the files of their lines."""
    files = write_line_tables()
    for work in works().values():
        work()
    (folder / "files.json").write_text(json.dumps(files), encoding="utf-8")


def count(folder: Path) -> None:
    """Do every run twice, the second time between two marks; write where the code lay."""
    kept = keep_loaded_code()
    rollouts = {}
    for name, work in works().items():
        rollouts[name] = work()
        os.getppid()
        work()
        os.getppid()
    write_code_map(kept, folder)
    (folder / "rollouts.json").write_text(json.dumps(rollouts), encoding="utf-8")


if __name__ == "__main__":
    {"compile": compile_kernels, "count": count}[sys.argv[1]](Path(sys.argv[2]))
