"""Stores outlive versions: what an older one has not is not recorded, and never a number.

The samples were written by the code of their time (tests/samples/stores/README.md). A metric of the future is
added to the table, and stores without some metric are made with a shorter one.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from oracle.small_sweeps import small_base

from lagsweep import write_report
from lagsweep.errors import ConfigError, StoreError
from lagsweep.kernels.pipeline.metrics import METRICS, Metric
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.execute import plan
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.recommend.recommend import recommend
from lagsweep.sweeps.results.cell_table import cells_frame
from lagsweep.sweeps.results.frontier import frontier
from lagsweep.sweeps.results.shares import time_shares
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.replay import replay
from lagsweep.sweeps.store.store import SweepStore, open_sweep
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store

SAMPLES = sorted((Path(__file__).resolve().parents[1] / "samples" / "stores").glob("*.tar.xz"))
NEW = Metric("discarded_token_share", "float64", "1", "share of tokens discarded")
AXES = {"max_lag": [1, 2], "sync_cadence": [1, 2]}


class Notes(Progress):
    def __init__(self):
        super().__init__()
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def unpacked(sample, folder):
    with tarfile.open(sample) as archive:
        archive.extractall(folder, filter="data")
    return folder / sample.name.removesuffix(".tar.xz")


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def with_metrics(patch, change):
    """Let every part of a sweep report other metrics."""
    for_sweeps = plan.reported_metrics
    patch.setattr(plan, "reported_metrics", lambda spec: change(for_sweeps(spec)))
    patch.setattr(plan, "METRICS", change(METRICS))


def added(metrics):
    return (*metrics[:3], NEW, *metrics[3:])


def small_store(folder, *, without=(), axes=AXES, seeds=3):
    """Make a store with a table of metrics in which some are missing."""
    with pytest.MonkeyPatch.context() as patch:
        with_metrics(patch, lambda metrics: tuple(one for one in metrics if one.name not in without))
        run_into_store(make_spec(small_base(), axes, seeds, baseline=True), folder)
    return folder


@pytest.mark.parametrize("future", [False, True], ids=["today", "a metric later"])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name.split(".")[0])
def test_a_sample_opens_shows_verifies_and_grows(tmp_path, monkeypatch, capsys, sample, future):
    folder = unpacked(sample, tmp_path)
    before = open_sweep(folder).load()
    if future:
        with_metrics(monkeypatch, added)

    now = open_sweep(folder).load()
    assert now.drop_attrs().identical(before.drop_attrs())
    assert now.attrs.get("not_recorded") == (_names_of_the_future(now) if future else None)
    report = verify_store(folder, everything=True)
    assert report.sound
    assert report.runs_checked >= 8
    assert any("not recorded" in note for note in report.notes) == future
    assert run("show", folder) == 0
    assert ("not recorded in it: discarded_token_share" in capsys.readouterr().err) == future
    assert run("recommend", folder) == 0
    assert run("report", folder, "--output", tmp_path / "page.html", "--no-images") == 0
    assert ("Not recorded in it" in (tmp_path / "page.html").read_text(encoding="utf-8")) == future
    at = ("--cell", "queue_cap=400,max_lag=2", "--seed", 0)
    assert run("trace", folder, *at, "--output", tmp_path / "trace.json") == 0
    assert "replayed bit for bit" in capsys.readouterr().out

    grown = ("run", folder / "spec.toml", "--store", folder, "--seeds", 3, "--axis", "max_lag=1,2,4", "-q")
    assert run(*grown) == 0
    after = open_sweep(folder).load()
    assert after.sizes["seed"] == 3
    assert after.sizes["max_lag"] == 3
    assert (after.status == 1).all()
    assert set(after.data_vars) == set(before.data_vars)
    kept = after.sel(seed=before.seed, max_lag=before.max_lag)
    for name in before.data_vars:
        xr.testing.assert_identical(kept[name].drop_attrs(), before[name].drop_attrs())
    assert verify_store(folder, everything=True).sound


def _names_of_the_future(ds):
    return NEW.name + (f" baseline_{NEW.name}" if "baseline_status" in ds else "")


def test_what_is_not_recorded_is_said_and_never_a_number(tmp_path, monkeypatch, capsys):
    folder = small_store(tmp_path / "s")
    with_metrics(monkeypatch, added)
    spec = make_spec(small_base(), AXES, 5, baseline=True)
    progress = Notes()

    ds = run_into_store(spec, folder, progress=progress)

    assert NEW.name not in ds
    assert any("not recorded in it: discarded_token_share" in note for note in progress.notes)
    with pytest.raises(ConfigError, match="is not recorded: the store was made without it"):
        recommend(ds, minimize=NEW.name)
    with pytest.raises(ConfigError, match="is not recorded"):
        frontier(ds, throughput=NEW.name)
    assert NEW.name not in cells_frame(ds).columns
    capsys.readouterr()
    assert run("show", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["not_recorded"] == [NEW.name, f"baseline_{NEW.name}"]
    # All of it again: then it is recorded.
    again = run_into_store(spec, folder, rerun=True)
    assert NEW.name in again
    assert "not_recorded" not in again.attrs
    assert verify_store(folder, everything=True).sound


def test_a_store_that_was_made_when_a_metric_was_there_has_it(tmp_path, monkeypatch):
    with_metrics(monkeypatch, added)
    folder = tmp_path / "s"

    ds = run_into_store(make_spec(small_base(), AXES, 2), folder)

    assert ds[NEW.name].dims == ("max_lag", "sync_cadence", "seed")


def test_an_extension_that_was_killed_goes_on_without_the_metric(tmp_path, monkeypatch):
    folder = small_store(tmp_path / "s")
    with_metrics(monkeypatch, added)
    spec = make_spec(small_base(), AXES | {"max_lag": [1, 2, 3]}, 3, baseline=True)

    class Killed(Exception):
        pass

    with monkeypatch.context() as patch:
        patch.setattr("lagsweep.sweeps.store.writing.make_ready", _raise(Killed))
        with pytest.raises(Killed):
            run_into_store(spec, folder)
    ds = run_into_store(spec, folder)

    assert ds.attrs["not_recorded"].split()[0] == NEW.name
    assert bool(ds.attrs["complete"])
    assert verify_store(folder, everything=True).sound


def _raise(error):
    def fail(*_):
        raise error

    return fail


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return open_sweep(small_store(tmp_path_factory.mktemp("whole") / "s")).load()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_tables_and_recommendations_go_without_any_metric_but_the_compared(tmp_path, whole, metric):
    ds = open_sweep(small_store(tmp_path / "s", without=[metric.name]))
    compared = metric.name in ("trained_tokens_per_second", "mean_expected_normalized_ess")

    assert metric.name not in ds
    if compared:
        with pytest.raises(ConfigError, match="is not recorded"):
            frontier(ds)
    else:
        assert str(frontier(ds))
        assert frontier(ds).frame["runs"].to_list() == frontier(whole).frame["runs"].to_list()
    if metric.name == "trained_tokens_per_second":
        best, other = (recommend(one, maximize="trained_tokens") for one in (ds, whole))
    else:
        best, other = recommend(ds), recommend(whole)
    assert best.cell == other.cell
    assert str(best)
    for one in time_shares(ds, range(4)):
        for parts in one.values():
            assert sum(parts.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    "lost", [["updates"], ["stalled", "mean_lag"], ["effective_tokens_per_second"], ["rollout_utilization"]]
)
def test_a_page_goes_without_a_metric(tmp_path, capsys, lost):
    folder = small_store(tmp_path / "s", without=lost)

    made = write_report(open_sweep(folder), tmp_path / "page.html", images=False)

    assert "Not recorded in it: " in made.page.read_text(encoding="utf-8")
    assert run("show", folder) == 0
    assert "-1" not in capsys.readouterr().out


def test_shares_of_which_a_part_is_missing_are_left_out(tmp_path):
    ds = open_sweep(small_store(tmp_path / "s", without=["rollout_utilization"]))

    assert set(time_shares(ds, [0])[0]) == {"trainer", "tokens"}
    assert "slots: not recorded" in str(recommend(ds))


def test_an_axis_that_brings_metrics_leaves_them_out(tmp_path, capsys):
    no_baseline = tmp_path / "n"
    run_into_store(make_spec(small_base(), AXES, 2, baseline=False), no_baseline)
    axis = ("--axis", "publication=background,pause")
    assert run("run", no_baseline / "spec.toml", "--store", no_baseline, *axis) == 0
    assert "not recorded in it: trained_groups" in capsys.readouterr().err
    ds = open_sweep(no_baseline)
    assert (ds.status == 1).all()
    assert "slots_busy_seconds" not in ds
    assert set(time_shares(ds, [0])[0]) == {"tokens"}
    assert verify_store(no_baseline, everything=True).sound


def test_a_dask_worker_and_a_replay_keep_to_what_the_store_has(tmp_path, monkeypatch):
    folder = small_store(tmp_path / "s")
    with_metrics(monkeypatch, added)

    store = SweepStore(folder)
    again = replay(open_sweep(folder), {"max_lag": 1, "sync_cadence": 1}, 0)

    assert all(NEW.name in part.unrecorded for part in store.parts)
    assert again.same


class TestDamageIsNotAge:
    def test_a_missing_array_of_a_finished_store(self, tmp_path):
        folder = small_store(tmp_path / "s")
        shutil.rmtree(folder / "cells.zarr" / "mean_lag")

        with pytest.raises(StoreError, match="mean_lag"):
            open_sweep(folder)
        assert not verify_store(folder).sound

    def test_a_missing_array_of_an_unfinished_store(self, tmp_path):
        folder = small_store(tmp_path / "s")
        _unfinish(folder)
        shutil.rmtree(folder / "cells.zarr" / "mean_lag")

        with pytest.raises(StoreError, match="mean_lag"):
            open_sweep(folder)

    def test_a_missing_array_of_a_store_that_lacks_a_metric_too(self, tmp_path, monkeypatch):
        folder = small_store(tmp_path / "s")
        _unfinish(folder)
        shutil.rmtree(folder / "cells.zarr" / "mean_lag")
        with_metrics(monkeypatch, added)

        # Which of the two was never there cannot be told: nothing is read.
        with pytest.raises(StoreError):
            open_sweep(folder)

    def test_a_missing_array_is_run_again_and_the_old_metric_stays_out(self, tmp_path, monkeypatch):
        folder = small_store(tmp_path / "s")
        was = open_sweep(folder).load()
        shutil.rmtree(folder / "cells.zarr" / "mean_lag")
        with_metrics(monkeypatch, added)

        ds = run_into_store(make_spec(small_base(), AXES, 3, baseline=True), folder)

        assert NEW.name not in ds
        np.testing.assert_array_equal(ds.mean_lag.values, was.mean_lag.values)
        assert verify_store(folder, everything=True).sound


def _unfinish(folder):
    file = folder / "cells.zarr" / "zarr.json"
    facts = json.loads(file.read_text())
    facts["attributes"]["complete"] = False
    facts.pop("consolidated_metadata", None)
    file.write_text(json.dumps(facts))
