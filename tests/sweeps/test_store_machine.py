"""A stored sweep under everything at once: grow, run a little, kill, corrupt, resume, reopen, in any order.

The model is a plain table of runs, each from one call of ``simulate_pipeline``. After every step the
journal is not ahead of the data, what is done equals the model, and ``verify`` finds a fault exactly when
one was planted.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oracle.small_sweeps import small_base

from lagsweep.errors import StoreError
from lagsweep.kernels.pipeline.metrics import METRICS
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.execute.units import unit_of_name
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.runs.simulate import simulate_pipeline
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import cut
from lagsweep.sweeps.store.merge import compact_store
from lagsweep.sweeps.store.packs import pack_name
from lagsweep.sweeps.store.place import Place
from lagsweep.sweeps.store.store import SweepStore, create_store, open_sweep
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import StoredRun, open_or_create, run_into_store

BASE = small_base(duration_seconds=6.0)


@cache
def the_run(lag, cadence, seed):
    """One run, the slow way: every metric by name."""
    config = BASE.replace(max_policy_lag=lag, sync_every_updates=cadence, seed=seed)
    result = simulate_pipeline(config)
    return {metric.name: getattr(result, metric.name) for metric in METRICS}


class Killed(BaseException):
    """Stand in for a kill."""


class StoredSweep(RuleBasedStateMachine):
    """The store, and the plain facts about it."""

    @initialize(seeds=st.integers(1, 5), unit_runs=st.integers(1, 12), most=st.sampled_from([2, 5, 64]))
    def create(self, seeds, unit_runs, most):
        """Made with small units; stores with more than `most` are merged when all is done."""
        self.limits = cut.MOST_UNITS, cut.MERGED_UNITS
        cut.MOST_UNITS, cut.MERGED_UNITS = most, max(1, most // 2)
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "sweep"
        self.axes = {"max_lag": [0, 2]}
        self.seeds = list(range(seeds))
        self.unit_runs = unit_runs
        self.planted = None
        store, lock = create_store(self.folder, self.spec(), unit_runs)
        store.close()
        lock.release()

    def teardown(self):
        if hasattr(self, "root"):
            cut.MOST_UNITS, cut.MERGED_UNITS = self.limits
            shutil.rmtree(self.root)

    def spec(self):
        return make_spec(BASE, self.axes, self.seeds, tables=["batches"])

    def grow(self):
        store, lock = open_or_create(self.spec(), self.folder, unit_runs=None, progress=Progress())
        store.close()
        lock.release()

    @precondition(lambda self: self.planted is None)
    @rule(lag=st.integers(0, 4))
    def add_a_value(self, lag):
        if lag not in self.axes["max_lag"] and len(self.axes["max_lag"]) < 4:
            self.axes = {**self.axes, "max_lag": [*self.axes["max_lag"], lag]}
            self.grow()

    @precondition(lambda self: self.planted is None)
    @rule(more=st.integers(1, 4))
    def add_seeds(self, more):
        if len(self.seeds) < 10:
            self.seeds += range(self.seeds[-1] + 1, self.seeds[-1] + 1 + more)
            self.grow()

    @precondition(lambda self: self.planted is None and "sync_cadence" not in self.axes)
    @rule(front=st.booleans())
    def add_an_axis(self, front):
        cadence = {"sync_cadence": [1, 2]}
        self.axes = {**cadence, **self.axes} if front else {**self.axes, **cadence}
        self.grow()

    @precondition(lambda self: self.planted is None)
    @rule(units=st.integers(1, 6))
    def run_some_units(self, units):
        """Stop after so many units: by units, not by time, so that an example can be played again."""
        cancel, left, real = threading.Event(), [units], StoredRun.accept

        def accept(run, *arguments):
            real(run, *arguments)
            left[0] -= 1
            if left[0] == 0:
                cancel.set()

        StoredRun.accept = accept
        try:
            run_into_store(self.spec(), self.folder, executor="serial", cancel=cancel)
        except Cancelled:
            pass
        finally:
            StoredRun.accept = real

    @precondition(lambda self: self.planted is None)
    @rule(after=st.integers(0, 300))
    def kill(self, after):
        """Die between two files: arrays of some unit, packs, tables, or what is merged."""
        real, left = Place.write, [after]

        def write(place, name, content):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            real(place, name, content)

        Place.write = write
        try:
            run_into_store(self.spec(), self.folder, executor="serial")
        except Killed:
            pass
        finally:
            Place.write = real

    @precondition(lambda self: self.planted is None)
    @rule(cut=st.integers(1, 200))
    def tear_the_journals_tail(self, cut):
        """A full disk or a power cut: the last line is not whole; at most that unit is lost."""
        file = self.folder / "journal.jsonl"
        content = file.read_bytes()
        last = len(content) - (content[:-1].rfind(b"\n") + 1)
        if b'"kind":"unit"' in content[-last:]:
            file.write_bytes(content[: -min(cut, last - 1)])

    @precondition(lambda self: self.planted is None)
    @rule()
    def resume(self):
        dataset = run_into_store(self.spec(), self.folder)
        assert dataset.attrs["complete"]
        assert (dataset.status == 1).all()
        assert verify_store(self.folder, everything=True).findings == []

    @precondition(lambda self: self.planted is None)
    @rule()
    def compact(self):
        """Merge the units of a finished store; of another one nothing is merged."""
        if SweepStore(self.folder).complete:
            compact_store(self.folder)
            assert SweepStore(self.folder).complete
        else:
            with pytest.raises(StoreError, match="must be finished"):
                compact_store(self.folder)

    @precondition(lambda self: self.planted is None)
    @rule(
        how=st.sampled_from(["flip", "cut", "remove", "swap"]),
        variable=st.sampled_from(["updates", "mean_queue_tokens", "status", "lag_counts"]),
        which=st.integers(0, 10**6),
        where=st.integers(0, 10**6),
    )
    def corrupt(self, how, variable, which, where):
        """Plant a fault in a chunk of a unit that is done."""
        store = SweepStore(self.folder)
        units = store.journal.units("cells")
        names = sorted(name for name, record in units.items() if not record.get("rewriting"))
        if not names:
            return
        unit = unit_of_name(names[which % len(names)])
        chunk = store.files.chunk_file(variable, unit)
        packed = "pack" in units[names[which % len(names)]]
        if packed:
            chunk = self.folder / pack_name(names[which % len(names)])
        content = chunk.read_bytes()
        if how == "flip":
            place = where % len(content)
            chunk.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        elif how == "cut":
            chunk.write_bytes(content[: where % len(content)])
        elif how == "remove":
            chunk.unlink()
        else:
            other = store.files.chunk_file("generated_tokens" if variable != "lag_counts" else "status", unit)
            chunk.write_bytes(content[1:] + content[:1] if packed else other.read_bytes())
        if not chunk.exists() or chunk.read_bytes() != content:
            self.planted = (chunk, content)

    @precondition(lambda self: self.planted is not None)
    @rule()
    def find_and_mend(self):
        chunk, content = self.planted
        findings = verify_store(self.folder, sample=0).findings
        assert findings
        assert all(finding.kind == "chunk" for finding in findings)
        chunk.write_bytes(content)
        self.planted = None

    @invariant()
    def the_journal_is_never_ahead_of_the_data(self):
        if self.planted is None:
            assert verify_store(self.folder, sample=0).findings == []

    @invariant()
    def what_is_done_equals_the_model(self):
        if self.planted is not None:
            return
        store = SweepStore(self.folder)
        part = store.part("cells")
        dataset = open_sweep(self.folder)
        assert dataset.sizes["seed"] == len(self.seeds)
        assert set(dataset.max_lag.values.tolist()) == set(self.axes["max_lag"])
        values = {name: dataset[name].values for name in ("updates", "trained_tokens", "mean_queue_tokens")}
        for unit in part.layout.units():
            done = store.done_mask(part, unit).reshape(
                [stop - start for start, stop in part.layout.box(unit)]
            )
            corner = [start for start, _ in part.layout.box(unit)]
            for place in np.argwhere(done):
                at = tuple((place + corner).tolist())
                settings_ = {name: dataset[name].values[k] for name, k in zip(part.dims, at)}
                expected = the_run(
                    int(settings_["max_lag"]), int(settings_.get("sync_cadence", 1)), int(settings_["seed"])
                )
                for name, array in values.items():
                    assert array[at] == expected[name]

    @invariant()
    def nothing_lies_beside_the_store(self):
        assert [path.name for path in self.root.iterdir()] == ["sweep"]


StoredSweep.TestCase.settings = settings(
    max_examples=100 if settings().max_examples > 500 else 10, stateful_step_count=12, deadline=None
)
TestStoredSweep = StoredSweep.TestCase
