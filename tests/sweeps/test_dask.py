"""Dask: the same bytes as threads, a killed worker loses nothing, and workers that do not fit are told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import xarray as xr
from oracle.small_sweeps import small_base, tree

from lagsweep.errors import ConfigError, StoreError
from lagsweep.sweeps.execute import dask as dask_executor
from lagsweep.sweeps.execute.dask import UnitsLost, connect
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import cluster
from lagsweep.sweeps.store.store import SweepStore
from lagsweep.sweeps.store.writing import run_into_store
from lagsweep.sweeps.sweep.run import run_spec

# One cluster: under xdist all of these run in one process.
pytestmark = [pytest.mark.dask, pytest.mark.xdist_group("dask")]

AXES = {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]}
KEEP = {"baseline": True, "masks": True, "tables": ["batches"]}


def spec(seeds=20, seconds=30.0, **options):
    return make_spec(small_base(duration_seconds=seconds), AXES, seeds, **(KEEP | options))


@pytest.fixture(scope="module")
def client():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ports in use, slow nannies: the cluster's own talk
        with connect("local", 2) as client:
            yield client


def test_serial_threads_and_dask_give_the_same_bytes(tmp_path, client):
    run_into_store(spec(), tmp_path / "dask", unit_runs=12, executor=client)
    run_into_store(spec(), tmp_path / "threads", unit_runs=12)
    run_into_store(spec(), tmp_path / "serial", unit_runs=12, executor="serial")

    assert tree(tmp_path / "dask") == tree(tmp_path / "threads") == tree(tmp_path / "serial")


def test_in_memory_too(client):
    plain = spec(tables=())

    xr.testing.assert_identical(run_spec(plain, executor=client), run_spec(plain))


def test_a_stopping_rule_runs_on_a_cluster(tmp_path, client):
    ruled = spec(seeds=64, until="trained_tokens_per_second within 1%")

    run_into_store(ruled, tmp_path / "dask", unit_runs=50, executor=client)
    run_into_store(ruled, tmp_path / "threads", unit_runs=50)

    assert tree(tmp_path / "dask") == tree(tmp_path / "threads")


class KillOneWorker(Progress):
    """Kill a worker process when some units are done."""

    def __init__(self, client, after):
        self.client, self.after, self.units, self.killed = client, after, 0, None

    def block(self, unit, runs, seconds):
        self.units += 1
        if self.units == self.after:
            pids = self.client.run(os.getpid)
            self.killed = next(iter(pids.values()))
            os.kill(self.killed, signal.SIGKILL)


def test_a_worker_killed_in_mid_run_loses_nothing(tmp_path, client):
    run_into_store(spec(seeds=60), tmp_path / "threads", unit_runs=6)
    killer = KillOneWorker(client, after=10)

    run_into_store(spec(seeds=60), tmp_path / "dask", unit_runs=6, executor=client, progress=killer)

    assert killer.killed is not None
    assert killer.units == 60 + 10
    assert tree(tmp_path / "dask") == tree(tmp_path / "threads")


def test_units_that_kill_their_workers_are_told_and_the_others_are_kept(tmp_path, client, monkeypatch):
    class KilledWorker(Exception):
        """As distributed names it."""

    real = dask_executor.windowed

    def some_lost(*arguments):
        for number, (item, result) in enumerate(real(*arguments)):
            yield item, KilledWorker() if number == 3 else result

    monkeypatch.setattr(dask_executor, "windowed", some_lost)
    with pytest.raises(UnitsLost, match="dask: units killed their workers; the others are done"):
        run_into_store(spec(), tmp_path / "sweep", unit_runs=12, executor=client)
    store = SweepStore(tmp_path / "sweep")
    assert len(store.journal.units("cells")) + len(store.journal.units("baseline")) == 10 + 2 - 1
    monkeypatch.undo()

    run_into_store(spec(), tmp_path / "sweep")
    run_into_store(spec(), tmp_path / "threads", unit_runs=12)

    assert tree(tmp_path / "sweep") == tree(tmp_path / "threads")


def test_a_run_on_a_cluster_can_be_stopped(tmp_path, client):
    cancel = threading.Event()

    class StopSoon(Progress):
        def block(self, unit, runs, seconds):
            cancel.set()

    with pytest.raises(Cancelled):
        run_into_store(
            spec(seeds=200),
            tmp_path / "sweep",
            unit_runs=6,
            executor=client,
            progress=StopSoon(),
            cancel=cancel,
        )
    assert 0 < len(SweepStore(tmp_path / "sweep").journal.records) < 200


def test_a_stop_after_the_last_unit_finds_nothing_left_to_stop(tmp_path, client):
    cancel, units = threading.Event(), []

    class StopAtTheLast(Progress):
        def block(self, unit, runs, seconds):
            units.append(unit)
            if len(units) == 10 + 2:
                cancel.set()

    run_into_store(
        spec(), tmp_path / "sweep", unit_runs=12, executor=client, progress=StopAtTheLast(), cancel=cancel
    )

    assert cancel.is_set()
    assert SweepStore(tmp_path / "sweep").complete


def test_only_a_window_of_units_is_in_dasks_hands(tmp_path, client, monkeypatch):
    most, real = [0], client.submit
    running = set()

    def submit(*arguments, **options):
        future = real(*arguments, **options)
        running.add(future.key)
        running.intersection_update(client.futures)
        most[0] = max(
            most[0], sum(not f.done() for f in [client.futures[key] for key in running] if hasattr(f, "done"))
        )
        most[0] = max(most[0], len(running))
        return future

    monkeypatch.setattr(client, "submit", submit)
    run_into_store(spec(seeds=100), tmp_path / "sweep", unit_runs=6, executor=client)

    assert most[0] <= dask_executor.WINDOW_PER_WORKER * 2 + 2


def break_lag_1():
    """Make every run at lag 1 and seed 4 raise in this (worker) process."""
    from lagsweep.sweeps.execute import work as unit_work

    real = unit_work.simulate_batch

    def sometimes(configs, seeds, **options):
        if any(config.max_policy_lag == 1 for config in configs) and 4 in seeds:
            raise FloatingPointError("injected")
        return real(configs, seeds, **options)

    unit_work.simulate_batch = sometimes
    unit_work.real = real


def mend():
    """Take it back."""
    from lagsweep.sweeps.execute import work as unit_work

    unit_work.simulate_batch = unit_work.real


def test_a_failure_on_a_worker_is_data_and_can_be_retried_there(tmp_path, client):
    """The workers have opened the store before the failures were in its journal."""
    client.run(break_lag_1)
    try:
        ds = run_into_store(spec(), tmp_path / "sweep", unit_runs=12, executor=client)
    finally:
        client.run(mend)
    assert ((ds.status == 2) == ((ds.max_lag == 1) & (ds.seed == 4))).all()
    assert ds.reason.sel(max_lag=1, sync_cadence=1, seed=4).item() == "FloatingPointError: injected"

    run_into_store(spec(), tmp_path / "sweep", executor=client, retry_failed=True)
    run_into_store(spec(), tmp_path / "threads", unit_runs=12)

    assert tree(tmp_path / "sweep") == tree(tmp_path / "threads")


def test_a_folder_made_anew_with_other_units_is_opened_anew(tmp_path, client):
    run_into_store(spec(), tmp_path / "sweep", unit_runs=12, executor=client)
    shutil.rmtree(tmp_path / "sweep")

    run_into_store(spec(), tmp_path / "sweep", unit_runs=30, executor=client)
    run_into_store(spec(), tmp_path / "threads", unit_runs=30)

    assert tree(tmp_path / "sweep") == tree(tmp_path / "threads")


def test_workers_that_see_another_sweep_or_other_versions_are_refused(tmp_path, monkeypatch):
    run_into_store(spec(), tmp_path / "sweep")
    cut = tuple(part.layout.chunks for part in SweepStore(tmp_path / "sweep").parts)
    cluster._store_on_worker.cache_clear()

    with pytest.raises(StoreError, match="store: must be the sweep that is run"):
        cluster._store_on_worker(str(tmp_path / "sweep"), "0" * 32, ())
    monkeypatch.setattr("lagsweep.sweeps.store.cluster.versions", lambda: {"numba_version": "0.1"})
    with pytest.raises(StoreError, match=r"numba_version: must be .*, as where the store was made"):
        cluster._store_on_worker(str(tmp_path / "sweep"), spec().fingerprint, cut)


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch):
    import distributed

    class Silent:
        def __init__(self, *_, **__):
            raise OSError("Timed out trying to connect")

    monkeypatch.setattr(distributed, "Client", Silent)

    with (
        pytest.raises(ConfigError, match="--dask: must be a scheduler that answers"),
        connect("tcp://127.0.0.1:1"),
    ):
        pass


def test_a_scheduler_that_is_lost_is_told_within_ten_seconds(tmp_path):
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen([*command, "--scheduler-file", file], **quiet)
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", file, "--no-nanny"], **quiet
    )
    try:
        while not file.exists():
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]

        class EndScheduler(Progress):
            ended = 0.0

            def block(self, unit, runs, seconds):
                if not self.ended:
                    scheduler.kill()
                    self.ended = time.monotonic()

        progress = EndScheduler()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with connect(address) as client, pytest.raises(StoreError, match="dask: must keep its scheduler"):
                run_into_store(
                    spec(seeds=200), tmp_path / "sweep", unit_runs=6, executor=client, progress=progress
                )
        assert time.monotonic() - progress.ended < 10
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
    assert SweepStore(tmp_path / "sweep").journal.records


def test_workers_compute_on_one_numba_thread_each(client):
    def numba_threads():
        import numba

        return numba.config.NUMBA_NUM_THREADS

    assert set(client.run(numba_threads).values()) == {1}


def test_a_second_kernel_call_after_a_warm_up_in_the_parent_works_in_workers(tmp_path, client):
    """Workers are spawned, not forked: a parent that ran kernels before does not break them."""
    run_spec(spec(tables=(), seeds=2))
    began = time.monotonic()

    run_into_store(spec(seeds=4), tmp_path / "sweep", unit_runs=6, executor=client)

    assert SweepStore(tmp_path / "sweep").complete
    assert time.monotonic() - began < 300


def test_the_command_runs_on_a_local_cluster(tmp_path, monkeypatch, capsys):
    from lagsweep.sweeps.cli.main import main

    monkeypatch.chdir(tmp_path)
    arguments = ["run", "--axis", "max_lag=0,2", "--duration-seconds", "20", "--seeds", "8", "-q"]
    arguments += ["--runs-per-unit", "4"]
    on_dask = ["--dask", "local", "--threads", "1", "--store", "dask"]
    warnings.simplefilter("ignore")  # the cluster's own talk; pytest puts the filters back
    with pytest.raises(SystemExit) as ended:
        main([*arguments, *on_dask])
    assert ended.value.code == 0
    with pytest.raises(SystemExit):
        main([*arguments, "--store", "threads"])

    assert tree(tmp_path / "dask") == tree(tmp_path / "threads")
    assert "seq." in capsys.readouterr().out
