"""Tasks of a job array share a sweep, and their joined parts are what one process gives, or are refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from oracle.small_sweeps import small_base, tree

import lagsweep as ls
from lagsweep.errors import ConfigError, StoreError
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.execute import plan
from lagsweep.sweeps.execute import work as unit_work
from lagsweep.sweeps.results import dataset as results
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import joining
from lagsweep.sweeps.store.folder_content import content_of_folder
from lagsweep.sweeps.store.joining import join_parts, join_stores
from lagsweep.sweeps.store.lock import StoreLock
from lagsweep.sweeps.store.store import SweepStore, open_sweep, read_table
from lagsweep.sweeps.store.tasks import Task, read_task, task_folder, task_states
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store

AXES = {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]}
SPEC = make_spec(small_base(), AXES, 24, baseline=True, tables=["batches"])
LAGSWEEP = str(Path(sys.executable).with_name("lagsweep"))


def run_tasks(store, count, spec=SPEC, **options):
    for number in range(1, count + 1):
        run_into_store(spec, store, executor="serial", task=Task(number, count), **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "store"
    run_into_store(SPEC, folder, executor="serial")
    return folder


@pytest.fixture(scope="module")
def parts_of_three(tmp_path_factory):
    store = tmp_path_factory.mktemp("parts") / "s"
    run_tasks(store, 3)
    return store


@pytest.fixture
def parts(parts_of_three, tmp_path):
    shutil.copytree(parts_of_three.with_name("s.parts"), tmp_path / "s.parts")
    return tmp_path / "s"


def refused(store, *words):
    """Nothing is left behind by a refused merge."""
    with pytest.raises(StoreError) as error:
        join_parts(store)
    text = str(error.value)
    assert all(word in text for word in words), text
    assert sorted(path.name for path in store.parent.iterdir()) == ["s.parts"]
    return text


@pytest.mark.parametrize(("count", "options"), [(1, {}), (3, {}), (16, {}), (3, {"unit_runs": 2})])
def test_joined_parts_are_byte_for_byte_the_store_of_one_process(count, options, tmp_path, whole):
    run_tasks(tmp_path / "s", count, **options)
    join_parts(tmp_path / "s")
    assert tree(tmp_path / "s") == tree(whole)
    assert content_of_folder(tmp_path / "s") == content_of_folder(whole)
    assert verify_store(tmp_path / "s", everything=True).sound
    xr.testing.assert_identical(open_sweep(tmp_path / "s").load(), open_sweep(whole).load())


def test_tasks_run_every_unit_once_and_share_nothing(parts):
    done = [
        {(part.name, unit) for part in store.parts for unit, _ in store.done_units(part)}
        for store in (SweepStore(task_folder(parts, Task(number, 3))) for number in (1, 2, 3))
    ]
    assert sum(map(len, done)) == len(set().union(*done))
    assert len(set().union(*done)) == len(list(SweepStore(task_folder(parts, Task(1, 3))).units()))
    assert all(done)


def test_stores_of_different_seeds_are_joined_as_if_run_at_once(tmp_path, whole):
    for name, seeds in (("b", range(9, 24)), ("a", range(9))):
        run_into_store(SPEC.replace(seeds=tuple(seeds)), tmp_path / name, executor="serial")
    join_stores([tmp_path / "b", tmp_path / "a"], tmp_path / "joined")
    assert tree(tmp_path / "joined") == tree(whole)
    rows = read_table(tmp_path / "joined", "batches").collect()
    assert rows.equals(read_table(whole, "batches").collect())
    with pytest.raises(StoreError, match="finds seed 0 twice and 8 more"):
        join_stores([tmp_path / "a", whole], tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_failed_runs_are_joined_with_their_reasons(tmp_path, monkeypatch):
    real = unit_work.simulate_batch

    def sometimes(configs, seeds, **options):
        if any(config.max_policy_lag == 1 for config in configs) and 4 in seeds:
            raise FloatingPointError("injected")
        return real(configs, seeds, **options)

    monkeypatch.setattr(unit_work, "simulate_batch", sometimes)
    spec = make_spec(small_base(), AXES, 6)
    run_into_store(spec, tmp_path / "whole", executor="serial")
    run_tasks(tmp_path / "s", 2, spec)
    assert sum(state["failed"] for state in task_states(tmp_path / "s")) == 2
    join_parts(tmp_path / "s")
    ours, theirs = (open_sweep(tmp_path / name).load() for name in ("s", "whole"))
    xr.testing.assert_identical(ours, theirs)
    assert (ours.status == 2).sum() == 2
    failures = read_table(tmp_path / "s", "failures").collect()
    assert failures["reason"].to_list() == ["FloatingPointError: injected"] * 2


def test_a_part_that_is_missing_is_named_with_its_command(parts):
    shutil.rmtree(task_folder(parts, Task(2, 3)))
    refused(parts, "missing 2-of-3", "Run --task 2/3, then merge.")


def test_a_part_that_was_stopped_is_named_and_goes_on_with_the_same_command(tmp_path, whole):
    stop = threading.Event()
    run_tasks(tmp_path / "s", 3, unit_runs=2)
    folder = task_folder(tmp_path / "s", Task(2, 3))
    shutil.rmtree(folder)
    stop.set()
    with pytest.raises(ls.Cancelled):
        run_into_store(SPEC, tmp_path / "s", executor="serial", task=Task(2, 3), unit_runs=2, cancel=stop)
    refused(tmp_path / "s", "misses", "2-of-3", "then merge")
    assert [state["state"] for state in task_states(tmp_path / "s")] == ["finished", "stopped", "finished"]
    run_into_store(SPEC, tmp_path / "s", executor="serial", task=Task(2, 3))
    join_parts(tmp_path / "s")
    assert tree(tmp_path / "s") == tree(whole)


def test_a_part_that_is_there_twice_is_named(parts):
    folder = task_folder(parts, Task(3, 3))
    shutil.rmtree(folder)
    shutil.copytree(task_folder(parts, Task(1, 3)), folder)
    refused(parts, "that another store holds too", "3-of-3", "misses")


def test_parts_of_two_arrays_are_refused(parts):
    shutil.copytree(task_folder(parts, Task(1, 3)), task_folder(parts, Task(1, 2)))
    refused(parts, "parts of 2 and 3")


def test_a_part_of_another_spec_is_refused(parts):
    folder = task_folder(parts, Task(2, 3))
    shutil.rmtree(folder)
    other = make_spec(small_base(sync_seconds=0.25), AXES, 24, baseline=True, tables=["batches"])
    run_into_store(other, parts, executor="serial", task=Task(2, 3))
    refused(parts, "must be of the same spec", "2-of-3")
    with pytest.raises(StoreError, match="must go on with its own sweep"):
        run_into_store(SPEC, parts, executor="serial", task=Task(2, 3))


def test_a_part_of_another_model_revision_is_refused(parts):
    folder = task_folder(parts, Task(2, 3))
    file = folder / "cells.zarr" / "zarr.json"
    root = json.loads(file.read_text())
    root["attributes"]["model_revision"] = 7
    file.write_text(json.dumps(root))
    refused(
        parts,
        "model_revision",
        f"must be {results.revision_of(SPEC)} to be merged, this store has 7",
        "2-of-3",
    )


@pytest.mark.parametrize("pattern", ["cells.zarr/updates/c/*/*/*", "tables/batches/*.parquet"])
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_damaged_part_is_refused_and_mended_by_its_command(pattern, how, parts, whole):
    folder = task_folder(parts, Task(2, 3))
    file = min(path for path in folder.glob(pattern) if path.is_file())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.unlink()
    if how == "changed":
        file.write_bytes(content)
    refused(parts, "finds damage", file.name, "2-of-3", "Give its command again")
    run_into_store(SPEC, parts, executor="serial", task=Task(2, 3))
    join_parts(parts)
    assert tree(parts) == tree(whole)


def test_merging_while_a_task_runs_and_merging_again_are_refused(parts):
    with StoreLock(task_folder(parts, Task(2, 3))):
        refused(parts, "must not be in use", "2-of-3")
        assert task_states(parts)[1]["state"] == "running"
    join_parts(parts)
    with pytest.raises(StoreError, match="must not find the joined store there already"):
        join_parts(parts)
    with pytest.raises(StoreError, match="must not run beside a store that is there already"):
        run_into_store(SPEC, parts, executor="serial", task=Task(2, 3))


@pytest.mark.parametrize("moment", ["gathered", "os.rename"])
def test_a_merge_that_stops_leaves_no_store_and_can_be_given_again(moment, parts, whole, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if moment == "gathered":
            patched.setattr(joining, moment, stopped)
        else:
            original = os.rename
            patched.setattr(
                joining.os, "rename", lambda old, new: stopped() if Path(new) == parts else original(old, new)
            )
        with pytest.raises(KeyboardInterrupt):
            join_parts(parts)
    assert not parts.exists()
    join_parts(parts)
    assert tree(parts) == tree(whole)
    assert sorted(path.name for path in parts.parent.iterdir()) == ["s", "s.parts"]


KILLED = """
import os, signal, sys
from pathlib import Path
from lagsweep.sweeps.execute import plan
from lagsweep.sweeps.store import aside, joining

plan.wanted_unit_runs = lambda spec: 2
store, moment, when = sys.argv[1:]
owner = {"gathered": joining, "exchange": aside, "rename": os}[moment]
real, calls = getattr(owner, moment), 0

def deadly(*arguments):
    global calls
    calls += 1
    if {"gathered": calls == 5, "exchange": True, "rename": str(arguments[1]) == store}[moment]:
        if when == "after":
            real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)

setattr(owner, moment, deadly)
joining.join_parts(Path(store))
"""


@pytest.fixture(scope="module")
def many_units(tmp_path_factory):
    """A store of so many units that they are merged at the end, and two parts of it."""
    folder = tmp_path_factory.mktemp("many")
    run_into_store(SPEC, folder / "whole", executor="serial", unit_runs=2)
    run_tasks(folder / "s", 2, unit_runs=2)
    assert len(list(SweepStore(folder / "s.parts" / "1-of-2").units())) > 64
    assert len(list(SweepStore(folder / "whole").units())) < 64
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("moment", ["gathered", "exchange", "rename"])
def test_a_merge_that_is_killed_is_whole_or_nothing_and_the_next_begins_anew(
    moment, when, tmp_path, many_units, monkeypatch
):
    shutil.copytree(many_units / "s.parts", tmp_path / "s.parts")
    store = tmp_path / "s"
    killed = subprocess.run([sys.executable, "-c", KILLED, store, moment, when], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list(tmp_path.iterdir())) > 1  # it left something
    monkeypatch.setattr(plan, "wanted_unit_runs", lambda spec: 2)
    if (moment, when) == ("rename", "after"):
        with pytest.raises(StoreError, match="must not find the joined store there already"):
            join_parts(store)
    else:
        assert not store.exists()
        join_parts(store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "s.parts"]
    assert tree(store) == tree(many_units / "whole")
    assert content_of_folder(store) == content_of_folder(many_units / "whole")


def test_a_merge_that_is_asked_to_stop_joins_nothing(parts, whole):
    stop = threading.Event()
    stop.set()
    with pytest.raises(ls.Cancelled):
        join_parts(parts, cancel=stop)
    assert sorted(path.name for path in parts.parent.iterdir()) == ["s.parts"]


def test_what_an_older_part_has_not_recorded_the_joined_store_has_not_either(tmp_path, monkeypatch):
    known = plan.reported_metrics
    for name, seeds in (("old", (0, 1)), ("new", (2, 3))):
        with monkeypatch.context() as patched:
            if name == "old":
                patched.setattr(
                    plan,
                    "reported_metrics",
                    lambda spec: tuple(one for one in known(spec) if one.name != "mean_lag"),
                )
            run_into_store(make_spec(small_base(), AXES, seeds), tmp_path / name, executor="serial")
    join_stores([tmp_path / "new", tmp_path / "old"], tmp_path / "both")
    ds = open_sweep(tmp_path / "both").load()
    assert ds.attrs["complete"]
    assert "mean_lag" not in ds or bool(ds["mean_lag"].isnull().all())
    assert ds.attrs["not_recorded"].split() == ["mean_lag"]
    whole = ls.run_sweep(small_base(), AXES, 4, executor="serial")
    np.testing.assert_array_equal(ds["trained_tokens"], whole["trained_tokens"])
    assert verify_store(tmp_path / "both", everything=True).sound


@pytest.mark.parametrize("option", [("--refine", "1"), ("--dry-run",)])
def test_what_is_about_all_tasks_is_not_given_with_one(option, capsys, tmp_path):
    assert command(*arguments(tmp_path / "s"), "--task", "1/2", *option) == 2
    assert f"cannot be given with {option[0]}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value", ["0/3", "4/3", "3", "a/b", "", 3, (0, 3), (1.0, 3), (True, 3), None, "3/3/3"]
)
def test_what_is_no_task_is_refused(value):
    with pytest.raises(ConfigError, match="must be a number and how many there are"):
        read_task(value)


def test_a_stopping_rule_is_not_shared(tmp_path):
    spec = SPEC.replace(until="effective_tokens_per_second within 5%", tables=())
    with pytest.raises(ConfigError, match="cannot be given with until"):
        run_into_store(spec, tmp_path / "s", task=Task(1, 2))
    assert not list(tmp_path.iterdir())


def test_python_runs_tasks_and_merges_them(tmp_path):
    options = {"base": small_base(), "axes": AXES, "seeds": 4, "store": tmp_path / "s", "executor": "serial"}
    assert not ls.run_sweep(**options, task=(1, 2)).attrs["complete"]
    ls.run_sweep(**options, task="2/2")
    joined = ls.merge_stores(tmp_path / "s")
    assert joined.attrs["complete"]
    alone = ls.run_sweep(small_base(), AXES, 4, executor="serial")
    np.testing.assert_array_equal(joined["trained_tokens"], alone["trained_tokens"])
    with pytest.raises(ConfigError, match="must name the joined store"):
        ls.merge_stores([tmp_path / "s", tmp_path / "t"])
    with pytest.raises(ConfigError, match="needs a store"):
        ls.run_sweep(small_base(), AXES, 4, task=(1, 2))


def command(*words):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code


def arguments(store, seconds=600, seeds=48):
    return (
        *("run", "--axis", "max_lag=0,1,3", "--axis", "sync_cadence=1,2", "--seeds", str(seeds)),
        *("--duration-seconds", str(seconds), "--rollout-workers", "8", "--runs-per-unit", "2"),
        *("--threads", "1", "--store", str(store), "--quiet"),
    )


def test_commands_run_show_and_merge_tasks(tmp_path, capsys):
    store = tmp_path / "s"
    assert command(*arguments(store), "--task", "1/2") == 0
    assert "part 1-of-2: finished" in capsys.readouterr().out
    assert command("show", str(store)) == 0
    assert "part 2-of-2: not begun" in capsys.readouterr().out
    with pytest.MonkeyPatch.context() as patched:  # another store whose name begins so does not mislead
        (store.parent / "s-other" / "cells.zarr").mkdir(parents=True)
        patched.chdir(store.parent)
        assert command("show", "s") == 0
        assert "part 2-of-2: not begun" in capsys.readouterr().out
    assert command("merge", str(store)) == 3
    assert "missing 2-of-2" in capsys.readouterr().err
    assert command(*arguments(store), "--task", "2/2") == 0
    assert command("merge", str(store), "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["complete"]


def journal_of(store, number):
    """The whole lines of a part's journal that tell of units."""
    file = task_folder(store, Task(number, 8)) / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n") and b'"kind":"unit"' in line]


@pytest.mark.slow
@pytest.mark.jit_only
def test_eight_processes_that_are_killed_and_begun_again_give_the_store_of_one(tmp_path):
    draw, store, numbers = random.Random(16), tmp_path / "s", range(1, 9)
    options = {"seconds": 60_000, "seeds": 24}  # a unit takes about 0.1 s, a task has nine
    subprocess.run([LAGSWEEP, *arguments(tmp_path / "whole", **options)], check=True, capture_output=True)

    def begun(number):
        words = [LAGSWEEP, *arguments(store, **options), "--task", f"{number}/8"]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    running = {number: begun(number) for number in numbers}
    while running:  # each is killed a moment after it has finished a unit
        for number, process in list(running.items()):
            if journal_of(store, number) or process.poll() is not None:
                time.sleep(draw.uniform(0, 0.02))
                process.kill()
                process.wait()
                del running[number]
        time.sleep(0.002)
    known = {number: journal_of(store, number) for number in numbers}
    states = task_states(store)
    assert sum(state["state"] == "stopped" and state["units_done"] > 0 for state in states) >= 4
    processes = [begun(number) for number in numbers]
    assert [process.wait() for process in processes] == [0] * 8
    for number in numbers:  # what was finished is not run again: at most the unit in hand was lost
        lines = journal_of(store, number)
        assert lines[: len(known[number])] == known[number]
        assert len({(line["part"], line["unit"]) for line in lines}) == len(lines)
    subprocess.run([LAGSWEEP, "merge", str(store), "--quiet"], check=True, capture_output=True)
    assert content_of_folder(store) == content_of_folder(tmp_path / "whole")
    xr.testing.assert_equal(open_sweep(store).load(), open_sweep(tmp_path / "whole").load())
    assert verify_store(store, sample=20).sound
