"""Dask workers that cannot load the units, or are of another version: said within ten seconds."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import warnings

import pytest
from oracle.small_sweeps import small_base, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.execute import dask as dask_room
from lagsweep.sweeps.execute.dask import connect
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.writing import run_into_store
from lagsweep.sweeps.sweep.run import run_spec

pytestmark = [pytest.mark.dask, pytest.mark.xdist_group("dask")]

WITHOUT_THE_PACKAGE = """
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "lagsweep":
            raise ModuleNotFoundError("No module named 'lagsweep'", name=name)

sys.meta_path.insert(0, Nowhere())
"""
OF_ANOTHER_VERSION = """
from importlib import metadata

real = metadata.version
metadata.version = lambda name: "0.0.7" if name == "lagsweep" else real(name)
"""


def spec():
    return make_spec(small_base(duration_seconds=30.0), {"max_lag": [0, 2]}, 20)


class Cluster:
    """A scheduler and workers in processes of their own."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes, self.nannies = [], []
        self.start("dask_scheduler", "--port", "0", "--no-dashboard")
        while not self.file.exists():
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def start(self, what, *arguments, startup=""):
        """Start a process; `startup` is Python that it runs before anything else."""
        environment = dict(os.environ)
        if startup:
            place = self.folder / f"startup-{len(self.processes)}"
            place.mkdir()
            (place / "sitecustomize.py").write_text(startup)
            environment["PYTHONPATH"] = str(place)
        command = [sys.executable, "-m", f"distributed.cli.{what}", "--scheduler-file", self.file, *arguments]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen(command, env=environment, **quiet))

    def worker(self, startup="", nanny=False):
        self.start("dask_worker", "--nthreads", "1", *([] if nanny else ["--no-nanny"]), startup=startup)
        self.nannies += self.processes[-1:] if nanny else []

    def end(self):
        for process in self.nannies:
            process.terminate()  # it ends its worker
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    found = Cluster(tmp_path)
    yield found
    found.end()


@contextlib.contextmanager
def connected(cluster, workers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with connect(cluster.address) as client:
            if workers:
                client.wait_for_workers(workers, timeout=60)
            yield client


@pytest.mark.parametrize("nanny", [False, True])
def test_a_worker_without_the_package_is_told_within_ten_seconds(tmp_path, cluster, nanny):
    cluster.worker(WITHOUT_THE_PACKAGE, nanny)

    with connected(cluster, 1) as client:
        began = time.monotonic()
        with pytest.raises(
            StoreError, match="dask: must have workers with the same packages, No module named 'lagsweep'"
        ):
            run_into_store(spec(), tmp_path / "sweep", unit_runs=10, executor=client)
        assert time.monotonic() - began < 10

    run_into_store(spec(), tmp_path / "sweep")  # what was begun can be gone on with
    run_into_store(spec(), tmp_path / "threads", unit_runs=10)
    assert tree(tmp_path / "sweep") == tree(tmp_path / "threads")


def test_one_such_worker_among_others_is_told_before_units_are_sent(tmp_path, cluster):
    cluster.worker()
    cluster.worker(WITHOUT_THE_PACKAGE)

    with (
        connected(cluster, 2) as client,
        pytest.raises(StoreError, match="dask: must have workers with the same packages, No module named"),
    ):
        run_spec(spec(), executor=client)


def test_a_worker_of_another_version_is_told(tmp_path, cluster):
    cluster.worker(OF_ANOTHER_VERSION)

    with (
        connected(cluster, 1) as client,
        pytest.raises(
            StoreError,
            match=r"same packages, lagsweep 0\.0\.7 there is not .* Install the same lagsweep on all",
        ),
    ):
        run_into_store(spec(), tmp_path / "sweep", unit_runs=10, executor=client)


def test_the_command_says_it_with_exit_code_3(tmp_path, cluster):
    cluster.worker(WITHOUT_THE_PACKAGE)
    command = [sys.executable, "-m", "lagsweep.sweeps.cli", "run", "--axis", "max_lag=0,2", "--seeds", "4"]
    command += ["--duration-seconds", "20", "--store", "sweep", "--dask", cluster.address]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 3
    assert "error: dask: must have workers with the same packages" in done.stderr
    assert "Install the same lagsweep on all of them" in done.stderr


def test_a_cluster_without_a_worker_is_said_and_one_that_comes_is_used(tmp_path, cluster):
    class Started(Progress):
        said = ()

        def note(self, text):
            self.said += (text,)
            if "no worker" in text:
                cluster.worker()

    progress = Started()
    with connected(cluster, 0) as client:
        run_into_store(spec(), tmp_path / "sweep", unit_runs=10, executor=client, progress=progress)
    run_into_store(spec(), tmp_path / "threads", unit_runs=10)

    assert sum("no worker" in text for text in progress.said) == 1
    assert tree(tmp_path / "sweep") == tree(tmp_path / "threads")


@pytest.mark.parametrize(
    ("startup", "what"),
    [
        (WITHOUT_THE_PACKAGE, "No module named 'lagsweep'"),
        (OF_ANOTHER_VERSION, r"lagsweep 0\.0\.7 there is not"),
    ],
    ids=["no package", "another version"],
)
@pytest.mark.parametrize("nanny", [False, True])
def test_a_worker_that_joins_while_units_run_is_told_though_nobody_looks(
    tmp_path, cluster, monkeypatch, startup, what, nanny
):
    """Units wait for a worker: one that joins is sent some at once, long before the next look."""
    monkeypatch.setattr(dask_room, "_WORKERS_SECONDS", 1e9)
    cluster.worker()
    with connected(cluster, 1) as client:

        class Joined(Progress):
            began = 0.0

            def advance(self, runs):
                if not self.began:
                    self.began = time.monotonic()
                    cluster.worker(startup, nanny)
                time.sleep(0.2)  # lest all is done before it has joined

        progress = Joined()
        with pytest.raises(StoreError, match=f"dask: must have workers with the same packages, {what}"):
            run_into_store(spec(), tmp_path / "sweep", unit_runs=1, executor=client, progress=progress)
        assert time.monotonic() - progress.began < 30
        left = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.worker_plugins))
        assert not [name for name in left if "lagsweep" in name]

    run_into_store(spec(), tmp_path / "sweep")
    run_into_store(spec(), tmp_path / "threads", unit_runs=1)
    assert tree(tmp_path / "sweep") == tree(tmp_path / "threads")


def test_a_good_worker_that_joins_late_is_given_units(tmp_path, cluster):
    cluster.worker()
    with connected(cluster, 1) as client:

        class Joined(Progress):
            more = False

            def advance(self, runs):
                if not self.more:
                    self.more = True
                    cluster.worker()
                    client.wait_for_workers(2, timeout=60)

        run_into_store(spec(), tmp_path / "sweep", unit_runs=1, executor=client, progress=Joined())
    run_into_store(spec(), tmp_path / "threads", unit_runs=1)
    assert tree(tmp_path / "sweep") == tree(tmp_path / "threads")
