"""A drill: the real command, killed by SIGKILL at random moments and given again, ends as undisturbed.

At least 30 kills, of which at least 24 land with some but not all units done, 2 while the store is made and 2
while it is finished. Where each landed is told by what lies on disk afterwards, and printed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from oracle.small_sweeps import tree

from lagsweep.sweeps.store.journal import FINISHED, JOURNAL_NAME, Journal
from lagsweep.sweeps.store.verify import verify_store

pytestmark = [pytest.mark.slow, pytest.mark.jit_only]

LAGSWEEP = str(Path(sys.executable).with_name("lagsweep"))
SEED = 20_261_129  # of the moments; the machine's speed decides the rest
WANTED = {"creation": 2, "partial": 24, "finishing": 2}
MOST_KILLS = 90
POLL_SECONDS = 0.0005
ARGUMENTS = (
    *(
        "run",
        "--axis",
        "max_lag=0,1,3",
        "--axis",
        "sync_cadence=1,2",
        "--seeds",
        "96",
    ),
    *(
        "--law",
        "uniform:20:80",
        "--rollout-workers",
        "3",
        "--duration-seconds",
        "30",
        "--batch-tokens",
        "150",
    ),
    *(
        "--max-queue-tokens",
        "400",
        "--train-tokens-per-second",
        "100",
        "--tables",
        "batches",
        "--store",
        "sweep",
    ),
)
RUNS_PER_UNIT = {"as they are": 12, "merged": 6}
UNITS = {12: 48 + 8, 6: 96 + 16}  # of the cells, and of the baseline; more than 64 are merged at the end


def start(folder, runs, **options):
    return subprocess.Popen(
        [LAGSWEEP, *ARGUMENTS, "--runs-per-unit", str(runs)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )


def lines_written(folder):
    """How many units and other lines the journal holds; cheap, for polling."""
    try:
        content = (folder / "sweep" / JOURNAL_NAME).read_bytes()
    except FileNotFoundError:
        return 0, False
    return content.count(b'"kind":"unit"'), f'"kind":"{FINISHED}"'.encode() in content


def wait_for(process, reached):
    while process.poll() is None and not reached():
        time.sleep(POLL_SECONDS)


def kill_in(phase, folder, rng, runs):
    """Start the command and kill it in a phase at a random moment of it."""
    process = start(folder, runs)
    if phase == "creation":
        wait_for(process, lambda: any(folder.glob("sweep.building-*")) or (folder / "sweep").exists())
        time.sleep(rng.uniform(0, 0.06))
    elif phase == "finishing":
        wait_for(process, lambda: lines_written(folder)[0] >= UNITS[runs])
        time.sleep(rng.uniform(0, 0.004 if runs == 12 else 0.6))
    else:
        before = lines_written(folder)[0]
        target = rng.randint(before + 1, max(before + 1, min(UNITS[runs] - 3, before + 8)))
        wait_for(process, lambda: lines_written(folder)[0] >= target)
        time.sleep(rng.uniform(0, 0.03))
    process.send_signal(signal.SIGKILL)
    return process.wait()


def landed(folder, runs):
    """Tell from what lies on disk where a kill landed."""
    if not (folder / "sweep").exists():
        return "creation" if any(folder.glob("sweep.building-*")) else "start"
    journal = Journal(folder / "sweep" / JOURNAL_NAME)
    units = sum(len(journal.units(part)) for part in ("cells", "baseline"))
    if journal.finished:
        return "after the end"
    if units >= UNITS[runs]:
        return "finishing"
    return f"partial, {units} of {UNITS[runs]} units" if units else "before the first unit"


@pytest.mark.parametrize("runs", RUNS_PER_UNIT.values(), ids=RUNS_PER_UNIT)
def test_killed_at_random_moments_it_ends_as_undisturbed(tmp_path, runs):
    rng = random.Random(SEED)
    calm = tmp_path / "calm"
    calm.mkdir()
    assert start(calm, runs).wait() == 0
    undisturbed = tree(calm / "sweep")
    counts, kills, round_number = Counter(), [], 0

    while any(counts[phase] < wanted for phase, wanted in WANTED.items()) or len(kills) < 30:
        round_number += 1
        folder = tmp_path / f"round-{round_number}"
        folder.mkdir()
        phases = [phase for phase, wanted in WANTED.items() if counts[phase] < wanted] or ["partial"]
        # In one store: perhaps a kill while it is made, several on the way, perhaps one at the end.
        plan = (
            ["creation"] * ("creation" in phases) + ["partial"] * 5 + ["finishing"] * ("finishing" in phases)
        )
        for phase in plan:
            if phase == "partial" and lines_written(folder)[0] >= UNITS[runs] - 4:
                continue
            if kill_in(phase, folder, rng, runs) == 0:
                continue  # it was faster than the kill
            where = landed(folder, runs)
            kills.append(where)
            counts[where.split(",")[0]] += 1
            print(f"kill {len(kills):2}: aimed at {phase:9} landed {where}")
        assert start(folder, runs).wait() == 0
        assert tree(folder / "sweep") == undisturbed
        assert sorted(path.name for path in folder.iterdir()) == ["sweep"]
        assert len(kills) <= MOST_KILLS, f"kills keep missing their phases: {counts}"

    print(f"{len(kills)} kills in {round_number} stores: {dict(counts)}")
    assert verify_store(folder / "sweep", everything=True).findings == []
    assert len(kills) >= 30
    for phase, wanted in WANTED.items():
        assert counts[phase] >= wanted


def test_a_whole_process_group_killed_leaves_nothing_running(tmp_path):
    """No state says "running": what is done is in the journal, all else is still to do."""
    process = start(tmp_path, 12, start_new_session=True)
    wait_for(process, lambda: lines_written(tmp_path)[0] >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = lines_written(tmp_path)[0]

    assert start(tmp_path, 12).wait() == 0

    assert 3 <= done < UNITS[12]
    journal = Journal(tmp_path / "sweep" / JOURNAL_NAME)
    assert [record["kind"] for record in journal.records].count("unit") == UNITS[12]
    assert not journal.torn or done
