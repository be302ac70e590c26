"""Shares of lags read in pieces along the seeds: the same figures, and never all counts at once."""

from __future__ import annotations

import numpy as np
import pytest
from oracle.small_sweeps import small_base

from lagsweep.kernels.intervals import mean_interval
from lagsweep.sweeps.charts.plots import plot_lag
from lagsweep.sweeps.pages.report import write_report
from lagsweep.sweeps.results import lag_shares
from lagsweep.sweeps.results.lag_shares import lag_intervals
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.proof import StoredVariable
from lagsweep.sweeps.store.store import open_sweep
from lagsweep.sweeps.store.writing import run_into_store
from lagsweep.sweeps.sweep.run import run_spec

SEEDS = 50
ROWS = [0, 3, 5]


def spec():
    return make_spec(small_base(duration_seconds=40), {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]}, SEEDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lag") / "sweep"
    run_into_store(spec(), folder, unit_runs=10)
    return folder


@pytest.fixture(scope="module")
def in_memory():
    return run_spec(spec())


def of_the_whole(ds, rows):
    counts = ds["lag_counts"].values.reshape(-1, ds.sizes["seed"], 65)[rows].astype(float)
    totals = counts.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = np.moveaxis(counts / totals, 1, -1)
    shares[..., :] = np.where(ds["status"].values.reshape(-1, 1, SEEDS)[rows] == 1, shares, np.nan)
    return mean_interval(np.ascontiguousarray(np.moveaxis(shares, -1, 0)).transpose(1, 2, 0), 0.9)


@pytest.mark.parametrize("piece_runs", [1, 30, 100_000])
def test_in_pieces_or_not_stored_or_not_the_figures_are_the_same(monkeypatch, folder, in_memory, piece_runs):
    monkeypatch.setattr(lag_shares, "PIECE_RUNS", piece_runs)

    for ds in (open_sweep(folder), in_memory):
        for own, whole in zip(lag_intervals(ds, ROWS, 0.9), of_the_whole(in_memory, ROWS)):
            np.testing.assert_array_equal(own, whole)


def test_runs_that_are_not_done_or_trained_nothing_are_left_out(in_memory):
    ds = in_memory.copy(deep=True)
    ds["status"][0, 0, 3] = 2
    ds["lag_counts"][0, 0, 7] = 0

    mean, half = lag_intervals(ds, [0], 0.95)

    kept = in_memory.isel(max_lag=[0], sync_cadence=[0], seed=[k for k in range(SEEDS) if k not in (3, 7)])
    np.testing.assert_allclose(mean, lag_intervals(kept, [0], 0.95)[0], rtol=1e-14)
    np.testing.assert_allclose(half, lag_intervals(kept, [0], 0.95)[1], rtol=1e-12)


def test_a_sweep_without_axes_has_one_row():
    ds = run_spec(make_spec(small_base(duration_seconds=40), {}, 4))

    mean, _ = lag_intervals(ds, [0], 0.95)

    assert mean.shape == (1, 65)
    assert mean.sum() == pytest.approx(1)


@pytest.fixture
def reads(monkeypatch):
    """The runs whose lag counts are read, request by request, and the chunks that were decoded."""
    found = {"runs": [], "chunks": []}
    read, chunk = StoredVariable.read, StoredVariable.chunk

    def counted_read(self, at):
        values = read(self, at)
        if self.name == "lag_counts":
            found["runs"].append(values.size // 65)
        return values

    def counted_chunk(self, place):
        if self.name == "lag_counts":
            found["chunks"].append(place)
        return chunk(self, place)

    monkeypatch.setattr(StoredVariable, "read", counted_read)
    monkeypatch.setattr(StoredVariable, "chunk", counted_chunk)
    return found


def test_a_report_never_holds_the_counts_of_all_runs(monkeypatch, folder, reads, tmp_path):
    monkeypatch.setattr(lag_shares, "PIECE_RUNS", 10)

    write_report(open_sweep(folder), tmp_path / "report.html", images=False)

    assert reads["runs"]
    assert max(reads["runs"]) <= 6 * 10 < 6 * SEEDS  # of at most six cells
    assert max(map(reads["chunks"].count, reads["chunks"])) <= 2  # once for the means, once for the spread


def test_few_runs_are_read_once(folder, reads):
    plot_lag(open_sweep(folder), [{"max_lag": 1, "sync_cadence": 1}])

    assert len(reads["runs"]) == 1
    assert len(reads["chunks"]) == len(set(reads["chunks"])) > 1
