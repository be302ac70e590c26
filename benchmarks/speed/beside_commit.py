"""Every preset by this package and by that of an older commit, in turn: processor time of a rollout.

Each side runs in processes of its own that alternate, so that what else the machine does falls on both; the
ratio is taken within a round. Runs are those of the page on speed, their draws made before.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from measuring import ranged, table
from two_sides import run_sides

SECONDS = 6_000.0
REPEATS = 3  # of a run in a process: the least counts, so that a cold cache does not
BASE, GENERAL = "level 1", "level 1 by the general loop"


def measure() -> dict[str, float]:
    """Return nanoseconds of a rollout by preset, of the package that is imported here."""
    from loops import anew, general_run, keeping_up, lean_run
    from preset_cost import _LAW, SLOTS, preset

    from lagsweep import all_presets
    from lagsweep.sweeps.runs.general import GeneralRun
    from lagsweep.sweeps.runs.lean import LeanRun

    kept, core = 1 << 16, keeping_up(SLOTS, 40_000, _LAW)
    runs: dict[str, LeanRun | GeneralRun] = {BASE: lean_run(core, kept), GENERAL: general_run(core, kept)}
    runs |= {name: general_run(preset(name, SECONDS), kept) for name in all_presets()}
    found = {}
    for name, run in runs.items():
        anew(run)
        least = float("inf")
        for _ in range(REPEATS):
            began = time.process_time()
            anew(run)
            least = min(least, time.process_time() - began)
        found[name] = 1e9 * least / int(run.summary().generated_rollouts)
    return found


def page(commit: str, before: Sequence[dict[str, float]], now: Sequence[dict[str, float]], load: str) -> str:
    """Write what was measured, by round and preset, as a page."""
    rows = []
    for name in now[0]:
        if name not in before[0]:
            continue
        sides = [[one[name] for one in rounds] for rounds in (before, now)]
        gain = [a / b for a, b in zip(*sides)]
        level = [one[name] / one[BASE] for one in now]
        rows.append((name, sides, gain, level))
    rows.sort(key=lambda row: -statistics.median(row[2]))
    head = ["preset", "before, ns a rollout", "now, ns a rollout", "before / now", "now / level 1"]
    return "\n".join(
        [
            "# Presets before and now",
            "",
            f"Made by `make beside-commit BEFORE={commit}`. Processor time of a rollout at 256 slots, draws "
            f"made before; median (least…most) of {len(now)} rounds. In a round both packages ran in turn, "
            f"each in a process of its own, a run being the fastest of {REPEATS}. Ratios are of one round.",
            "",
            load,
            "",
            table(
                head,
                [
                    [name, ranged(sides[0]), ranged(sides[1]), ranged(gain, 2), ranged(level, 2)]
                    for name, sides, gain, level in rows
                ],
            ),
            "",
        ]
    )


if __name__ == "__main__":
    run_sides(__file__, __doc__.splitlines()[0], measure, page, rounds=5)
