"""Sweeps with rules of a user's own: paired seeds, processes, stores that say so, commands."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
from strategies.custom_rules import (
    EveryOther,
    Fails,
    Growing,
    LongestStep,
    QueuedTokens,
    SameLength,
    TrainedRollouts,
)

import lagsweep as ls
from lagsweep.custom import AdmissionRule, Custom, RunMetric
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.custom.run import CustomRun
from lagsweep.sweeps.spec.reading import read_spec_file
from lagsweep.sweeps.spec.writing import spec_to_toml

BASE = ls.PipelineConfig(duration_seconds=60, max_queue_tokens=None)
AXES = {"max_lag": [0, 1, 3]}
CAP = Custom(QueuedTokens(5000), SameLength(), [LongestStep(), TrainedRollouts()])


def sweep(custom=CAP, seeds=3, **options):
    return ls.run_sweep(BASE, AXES, seeds, custom=custom, **options)


def command(*arguments):
    """What a command says, on stdout and stderr together."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.raises(SystemExit):
        main([str(argument) for argument in arguments])
    return said.getvalue()


def assert_same_values(ours, theirs, names=None):
    for name in names or theirs.data_vars:
        np.testing.assert_array_equal(ours[name].values, theirs[name].values, err_msg=name)


def test_a_rule_that_is_a_setting_gives_the_sweep_of_the_setting():
    plain = ls.run_sweep(BASE.replace(max_queue_tokens=5000), AXES, 3)

    assert_same_values(sweep(), plain, set(plain.data_vars) - {"backpressure_seconds"})


def test_metrics_alone_leave_every_other_variable_as_it_is():
    own = sweep(Custom(metrics=[LongestStep(), TrainedRollouts()]))
    plain = ls.run_sweep(BASE, AXES, 3)

    assert_same_values(own, plain)
    assert set(own.data_vars) - set(plain.data_vars) == {"longest_step_seconds", "trained_again"}
    np.testing.assert_array_equal(own.trained_again, own.trained_rollouts)
    assert own.longest_step_seconds.attrs == {"units": "s", "long_name": "longest training step"}
    run = ls.simulate_custom(ls.config_at(own, {"max_lag": 3}, seed=2), metrics=[LongestStep()])
    assert float(own.longest_step_seconds.sel(max_lag=3, seed=2)) == run.longest_step_seconds


@pytest.mark.parametrize("custom", [CAP, Custom(EveryOther(), Growing())])
def test_results_do_not_hang_on_threads_or_processes(custom):
    alone = sweep(custom, executor="serial")

    assert_same_values(sweep(custom, threads=3), alone)
    assert_same_values(sweep(custom, executor="processes", threads=1), alone)
    assert_same_values(sweep(custom, executor="processes", threads=2), alone)


def test_tables_and_masks_are_those_of_the_runs(tmp_path):
    sweep(store=tmp_path / "s", tables=["batches"], masks=True)
    plain = BASE.replace(max_queue_tokens=5000)
    ls.run_sweep(plain, AXES, 3, tmp_path / "t", tables=["batches"], masks=True)

    for table in ("batches", "masks"):
        ours, theirs = (ls.read_table(tmp_path / name, table).collect() for name in "st")
        assert ours.drop("cell", strict=False).equals(theirs.drop("cell", strict=False))


def test_the_baseline_has_the_lengths_of_the_process_and_no_metric_of_the_user(tmp_path):
    toml = tmp_path / "spec.toml"
    toml.write_text("[base]\nduration_seconds = 60\n[axes]\nmax_lag = [0, 1]\n", encoding="utf-8")
    custom = Custom(length=lambda rollout: 100, metrics=[LongestStep()])
    from lagsweep.sweeps.custom.custom import remember

    ds = ls.run_spec(ls.load_spec(toml).replace(custom=remember(custom)))

    assert ds.baseline_generated_tokens.item() == 100 * ds.baseline_generated_rollouts.item()
    assert "baseline_longest_step_seconds" not in ds


def test_a_run_whose_rule_raises_fails_with_the_reason_and_the_others_are_done():
    ds = sweep(Custom(Fails()))

    assert ds.status.sel(seed=1).values.tolist() == [2, 2, 2]
    assert ds.status.sel(seed=[0, 2]).values.tolist() == [[1, 1]] * 3
    assert ds.reason.sel(seed=1).values.tolist() == ["ZeroDivisionError: division by zero"] * 3


def test_a_store_says_which_rules_its_results_come_from(tmp_path):
    ds = sweep(store=tmp_path / "s")
    stored = ls.open_sweep(tmp_path / "s")

    assert_same_values(stored, ds)
    assert stored.attrs["custom"].startswith("admission by QueuedTokens (cap=5000, source ")
    assert "lengths by SameLength (source " in stored.attrs["custom"]
    assert "longest_step_seconds by LongestStep (source " in stored.attrs["custom"]
    text = (tmp_path / "s" / "spec.toml").read_text(encoding="utf-8")
    spec = read_spec_file(tmp_path / "s" / "spec.toml")
    assert spec_to_toml(spec) == text
    assert spec.fingerprint == stored.attrs["fingerprint"]
    assert spec.fingerprint != spec.replace(custom=None).fingerprint


def test_a_stored_sweep_is_extended_and_resumed_with_the_same_rules_to_the_same_values(tmp_path):
    sweep(store=tmp_path / "s", seeds=2)
    stop = threading.Event()

    def stop_soon(done, total):
        if done > 7:
            stop.set()

    from lagsweep.sweeps.custom.custom import remember
    from lagsweep.sweeps.spec.make import make_spec

    spec = make_spec(BASE, AXES, 40, custom=remember(CAP))
    with pytest.raises(ls.Cancelled):
        ls.run_spec(spec, tmp_path / "s", "serial", progress=stop_soon, cancel=stop)
    grown = sweep(store=tmp_path / "s", seeds=40, executor="processes", threads=2)

    assert_same_values(grown, sweep(seeds=40))
    assert ls.verify_store(tmp_path / "s", everything=True).runs_checked == 120


def test_another_rule_another_setting_or_another_source_is_another_sweep(tmp_path):
    sweep(store=tmp_path / "s")

    with pytest.raises(
        ls.StoreError, match=r"custom: admission by QueuedTokens \(cap=5000.*cap=4000"
    ) as refused:
        sweep(Custom(QueuedTokens(4000), SameLength(), CAP.metrics), store=tmp_path / "s")
    assert "in the store" in str(refused.value)
    with pytest.raises(ls.StoreError, match=r"custom: .* in the store, none asked"):
        sweep(None, store=tmp_path / "s")


def _versioned(version, body="return True"):
    made = {}
    exec(
        f"class Rule(AdmissionRule):\n version = {version!r}\n def admits(self, state):\n  {body}\n",
        {"AdmissionRule": AdmissionRule},
        made,
    )
    return made["Rule"]()


def test_a_version_stands_in_the_place_of_the_source():
    first, same, other = (
        sweep(Custom(rule)).attrs
        for rule in (
            _versioned("1"),
            _versioned("1", "return not False"),
            _versioned("2"),
        )
    )

    assert first["custom"] == "admission by Rule (version 1)"
    assert first["fingerprint"] == same["fingerprint"] != other["fingerprint"]


def test_a_rule_without_source_needs_a_version():
    with pytest.raises(ls.ConfigError, match="admission: must have a source that can be read, or a version"):
        sweep(Custom(_versioned(None)))
    with pytest.raises(ls.ConfigError, match=r"admission\.version: must be a text"):
        sweep(Custom(_versioned(3)))


def test_settings_that_are_arrays_or_objects_count_by_their_content():
    class Holds(AdmissionRule):
        def __init__(self, held):
            self.held = held

        def admits(self, state):
            return True

    held = [np.arange(3), np.arange(4), {"a": [1, (2.5, None)]}, {"a": [1, (2.5, True)]}, np.int64(3)]
    held += [frozenset([1]), frozenset([2])]
    prints = [sweep(Custom(Holds(one)), seeds=1).attrs["fingerprint"] for one in held]

    assert len(set(prints)) == len(held)
    assert prints[0] == sweep(Custom(Holds(np.arange(3))), seeds=1).attrs["fingerprint"]
    with pytest.raises(ls.ConfigError, match=r"admission\.held: must be plain, an array, or something"):
        sweep(Custom(Holds(threading.Lock())))


def test_a_function_of_numba_has_the_identity_of_its_source_and_runs_in_sweeps():
    @numba.njit
    def cap(state):
        return state.queued_tokens < 5000

    ds = sweep(Custom(cap))

    assert_same_values(ds, sweep(Custom(QueuedTokens(5000))))
    assert ds.attrs["custom"].startswith("admission by ")
    assert "cap (source " in ds.attrs["custom"]


def test_threads_that_copy_one_function_of_numba_at_once_all_get_a_copy():
    base = ls.PipelineConfig(duration_seconds=30)
    for _ in range(60):  # without a lock one copy in twenty fails
        custom = Custom(numba.njit(lambda state: state.queued_tokens < 5000))
        together = threading.Barrier(4)

        def copied(custom=custom, together=together):
            run = CustomRun(base, custom)
            together.wait()
            return run.copies

        with ThreadPoolExecutor(4) as pool:
            copies = [future.result() for future in [pool.submit(copied) for _ in range(4)]]
        assert len(set(map(id, copies))) == 4


def test_processes_are_for_rules_of_the_users_own_and_clusters_are_not():
    with pytest.raises(ls.ConfigError, match="only rules of your own need processes"):
        sweep(None, executor="processes")

    class Cluster:
        scheduler_info = submit = print

    with pytest.raises(ls.ConfigError, match="executor: must be one of threads, serial, processes"):
        sweep(executor=Cluster())


def test_what_cannot_be_pickled_is_named_before_anything_runs(tmp_path):
    with pytest.raises(ls.ConfigError, match=r"length: must be picklable to run in processes") as refused:
        sweep(Custom(length=lambda rollout: 100), executor="processes", store=tmp_path / "s")

    assert "Put its class into a module of its own" in str(refused.value)
    assert not (tmp_path / "s").exists()


def test_a_script_without_its_guard_is_told_what_is_missing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import lagsweep as ls
            from lagsweep.custom import AdmissionRule, Custom

            class Rule(AdmissionRule):
                def admits(self, state):
                    return True

            ls.run_sweep(ls.PipelineConfig(duration_seconds=20), {"max_lag": [0]}, 1,
                         custom=Custom(Rule()), executor="processes", threads=1)
            """
        ),
        encoding="utf-8",
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    assert ran.returncode == 1
    assert "if __name__ == '__main__':" in ran.stderr


def test_a_session_without_a_file_is_told_that_its_classes_cannot_be_found(tmp_path):
    code = (
        "import lagsweep as ls\nfrom lagsweep.custom import AdmissionRule, Custom\n"
        "class Rule(AdmissionRule):\n    version = '1'\n"
        "ls.run_sweep(ls.PipelineConfig(), {'max_lag': [0]}, 1, custom=Custom(Rule()),"
        " executor='processes')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (
        "admission: must be importable by other processes, which a session's own classes are not"
        in ran.stderr
    )


def test_a_metric_may_not_be_called_like_an_axis():
    class Lag(RunMetric):
        name = "max_lag"

    with pytest.raises(ls.ConfigError, match=r"metrics.name: must not be the name of an axis"):
        sweep(Custom(metrics=[Lag()]))


@pytest.mark.parametrize("custom", [3, {"admit": None}, "rules"])
def test_what_is_no_custom_is_refused(custom):
    with pytest.raises(ls.ConfigError, match="custom: "):
        sweep(custom)


def test_a_mapping_does_for_a_custom():
    assert_same_values(sweep({"admission": QueuedTokens(5000)}), sweep(Custom(QueuedTokens(5000))))


def test_a_stored_run_is_replayed_with_its_rules(tmp_path):
    from lagsweep.sweeps.store.replay import replay

    ds = sweep(store=tmp_path / "s")
    again = replay(ds, {"max_lag": 1}, 2)

    assert again.stored
    assert not again.different
    assert "longest_step_seconds" in again.result.metrics


# --- another process, which has the store and not the rules ----------------------------------------------

RULES = """
from lagsweep.custom import AdmissionRule, Custom, RunMetric


class Cap(AdmissionRule):
    def admits(self, state):
        return state.queued_tokens < 5000


class Steps(RunMetric):
    name, units, long_name = "steps", "updates", "training steps"

    def value(self, run):
        return len(run.batches)


custom = Custom(Cap(), metrics=[Steps()])
"""


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_rules.py").write_text(RULES, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "own_rules", raising=False)
    flags = [
        "--duration-seconds",
        "60",
        "--max-queue-tokens",
        "none",
        "--axis",
        "max_lag=0,1",
        "--seeds",
        "2",
    ]
    said = command("run", *flags, "--store", "s", "--custom", "own_rules.py:custom", "--quiet")
    assert "note: with rules of your own: admission by Cap (source " in said
    from lagsweep.sweeps.custom import custom

    monkeypatch.setattr(custom, "_KNOWN", {})
    return tmp_path / "s"


def test_every_command_reads_a_store_without_its_rules(stored):
    assert "note: with rules of your own: admission by Cap" in command("show", stored)
    assert "rules of your own" in " ".join(command("recommend", stored).split())
    assert json.loads(command("recommend", stored, "--json"))["custom"].startswith("admission by Cap")
    assert json.loads(command("recommend", stored, "--maximize", "steps", "--json"))["objective"] == "steps"
    command("report", stored, "-o", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Rules of the user&#39;s own: admission by Cap" in page
    assert "--custom FILE.py:NAME" in page


def test_without_its_rules_the_files_of_a_store_are_verified_and_its_runs_are_not(stored):
    said = command("verify", stored)

    assert "0 runs done again" in said
    assert "note: runs are not done again without their rules (admission by Cap" in said
    assert "6 runs done again" in command("verify", stored, "--custom", "own_rules.py:custom")


def test_without_its_rules_a_store_is_not_gone_on_with(stored):
    grow = ["run", "s/spec.toml", "--store", "s", "--seeds", "3", "--quiet"]
    before = sorted(path.name for path in stored.iterdir())

    assert "custom: must be given to run such runs" in command(*grow)
    assert "--custom FILE.py:NAME" in command("trace", "s", "--cell", "max_lag=1")
    assert sorted(path.name for path in stored.iterdir()) == before
    command(*grow, "--custom", "own_rules.py:custom")
    assert ls.open_sweep(stored).sizes["seed"] == 3
    assert "replayed bit for bit" in command(
        "trace", "s", "--cell", "max_lag=1", "--custom", "own_rules.py:custom"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("own_rules.py", "must read FILE.py:NAME"),
        ("own_rules.txt:custom", "must read FILE.py:NAME"),
        ("missing.py:custom", "must name a file that is there"),
        ("own_rules.py:Cap", "must name a Custom in own_rules.py"),
        ("wrong.py:custom", "must be a file that can be run: NameError"),
        ("folder/json.py:custom", "must not have the name of a module that is loaded already"),
    ],
)
def test_a_file_of_rules_that_cannot_be_used_is_named(stored, text, message):
    Path("wrong.py").write_text("custom = what\n", encoding="utf-8")
    Path("folder").mkdir()
    Path("folder/json.py").write_text("", encoding="utf-8")

    assert message in command("verify", "s", "--custom", text)


def test_a_trace_from_flags_takes_no_file_of_rules():
    assert "--custom: needs a store" in command("trace", "--custom", "own_rules.py:custom")


def test_windows_of_a_sweep_with_rules_are_those_of_the_setting():
    base = BASE.replace(stop_after_updates=4, duration_seconds=400)
    own = ls.run_sweep(base, AXES, 2, windows=2, custom=Custom(QueuedTokens(5000), metrics=[LongestStep()]))
    plain = ls.run_sweep(base.replace(max_queue_tokens=5000), AXES, 2, windows=2)

    assert_same_values(own, plain, [name for name in plain.data_vars if name.startswith("window_")])
    assert own.sizes["window"] == 2
