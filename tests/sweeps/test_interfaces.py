"""What leaves a sweep for other programs: netCDF, CSV of all cells, pandas; and stores named in short."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xarray

import lagsweep as ls
from lagsweep.errors import StoreError
from lagsweep.sweeps.cli.main import main

BASE = ls.PipelineConfig(duration_seconds=200, rollout_workers=8, batch_tokens=2000)
AXES = {"queue_cap": ["none", 5000], "queue_order": ["fifo", "freshest"]}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(folder, **axes):
    return ls.run_sweep(BASE, axes or AXES, seeds=3, progress=False, store=folder)


def ran(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return stop.value.code, *capsys.readouterr()


@pytest.mark.parametrize("stored", [False, True])
def test_a_sweep_survives_netcdf(here, stored):
    ds = made("mine") if stored else ls.run_sweep(BASE, AXES, seeds=3, progress=False, masks=True)
    ds.to_netcdf(here / "sweep.nc")
    back = xarray.open_dataset(here / "sweep.nc", decode_timedelta=False)

    assert set(back.variables) == set(ds.variables)
    for name in ds.variables:
        np.testing.assert_array_equal(back[name].values, ds[name].values, err_msg=name)
    assert str(ls.frontier(back)) == str(ls.frontier(ds))
    assert ls.recommend(back).cell == ls.recommend(ds).cell
    assert ls.cells_frame(back).equals(ls.cells_frame(ds))
    assert ls.config_at(back, {"queue_cap": "none", "queue_order": "fifo"}, seed=1) == ls.config_at(
        ds, {"queue_cap": "none", "queue_order": "fifo"}, seed=1
    )


def test_seconds_that_came_back_as_time_differences_are_refused(here):
    ds = made("mine").load()
    back = ds.assign(backpressure_seconds=ds["backpressure_seconds"].astype("timedelta64[s]"))

    for call in (ls.frontier, ls.recommend, ls.cells_frame):
        with pytest.raises(ls.ConfigError, match="decode_timedelta=False"):
            call(back)


def test_every_cell_is_a_row_with_every_metric(here):
    ds = made("mine")
    frame = ls.cells_frame(ds)

    assert frame.columns[:5] == ["cell", "queue_cap", "queue_order", "runs", "failed_runs"]
    assert frame.height == 4
    assert set(frame["runs"]) == {3}
    for name, variable in ds.data_vars.items():
        if variable.dims == ds["status"].dims and name != "status":
            np.testing.assert_allclose(frame[name], variable.mean("seed").values.ravel(), rtol=1e-12)
    wide, narrow = (ls.cells_frame(ds, ["trained_tokens"], confidence=share) for share in (0.99, 0.5))
    assert (wide["trained_tokens_half_width"] > narrow["trained_tokens_half_width"]).all()


@pytest.mark.parametrize("metrics", ["nothing_like_it", ["nothing_like_it"], [1], 3])
def test_metrics_that_are_none_are_refused(here, metrics):
    with pytest.raises(ls.ConfigError, match="metric"):
        ls.cells_frame(made("mine"), metrics)


def test_show_prints_all_cells_as_csv(here, capsys):
    ds = made("mine")
    code, out, _ = ran(capsys, "show", "mine", "--csv")

    assert code == 0
    read = pl.read_csv(io.StringIO(out))
    assert read.height == 4
    assert (
        read["trained_tokens_per_second"].to_list()
        == ls.cells_frame(ds)["trained_tokens_per_second"].to_list()
    )
    assert ran(capsys, "show", "mine", "--csv", "--json")[0] == 2


def test_the_beginning_of_a_name_is_enough(here, capsys):
    made("results/mine-0a1b2c3d")

    for name in ("mine", "results/mine", "mine-0a1b2c3d", "results/mine-0a1b2c3d/"):
        code, out, _ = ran(capsys, "show", name, "--json")
        assert code == 0
        assert json.loads(out)["store"] == "results/mine-0a1b2c3d"
    for command in ("recommend", "report", "verify"):
        assert ran(capsys, command, "mine")[0] == 0
    assert ran(capsys, "trace", "mine", "--cell", "queue_cap=5000,queue_order=fifo", "-q")[0] == 0


def test_two_stores_of_one_beginning_are_named(here, capsys):
    made("results/mine-1")
    made("results/mine-2", max_lag=[1, 2])

    code, _, error = ran(capsys, "show", "mine")
    assert code == 2
    assert "2 stores match: results/mine-1, results/mine-2. Name one." in error


def test_an_exact_name_comes_before_those_that_only_begin_so(here, capsys):
    made("results/sky-0a1b2c3d")
    made("results/sky2-0a1b2c3d", max_lag=[1, 2])
    made("results/sky-lark-0a1b2c3d", max_lag=[1, 3])

    for name in ("sky", "results/sky"):
        code, out, _ = ran(capsys, "show", name, "--json")
        assert code == 0
        assert json.loads(out)["store"] == "results/sky-0a1b2c3d"
    with pytest.raises(StoreError, match="Did you mean 'results/sky-0a1b2c3d'"):
        ls.open_sweep("sky")
    code, _, error = ran(capsys, "show", "sk")
    assert code == 2
    assert "3 stores match" in error

    made("results/sky-3c2b1a0d", max_lag=[1, 4])
    code, _, error = ran(capsys, "show", "sky")
    assert code == 2
    assert "2 stores match: results/sky-0a1b2c3d, results/sky-3c2b1a0d. Name one." in error

    made("results/sky", max_lag=[1, 5])
    assert json.loads(ran(capsys, "show", "sky", "--json")[1])["store"] == "results/sky"


def test_what_a_pattern_matches_beside_a_store_is_skipped(here, capsys):
    made("results/mine-1")
    assert ran(capsys, "report", "results/mine-1")[0] == 0
    matched = sorted(str(path.relative_to(here)) for path in (here / "results").iterdir())

    assert len(matched) > 1
    assert ran(capsys, "show", *matched)[0] == 0
    made("results/mine-2", max_lag=[1, 2])
    code, _, error = ran(capsys, "show", *matched, "results/mine-2")
    assert code == 2
    assert "2 stores match" in error


@pytest.mark.parametrize("mark", [".extending-", ".replaced-", ".building-"])
def test_a_store_that_is_being_made_is_none(here, capsys, mark):
    made(f"results/mine-1{mark}x")

    code, _, error = ran(capsys, "show", "mine")
    assert code == 3
    assert "must be the folder of a stored sweep (got 'mine')" in error


@pytest.mark.usefixtures("here")
def test_python_names_the_stores_that_may_be_meant():
    rule = "store: must be the folder of a stored sweep (got {}). {}"
    wants = [
        ("mine", "Check the path, or run the sweep."),
        ("mine", "Did you mean 'results/mine-1'?"),
        ("mien", "Did you mean 'results/mine-1'?"),
        ("mine", "Stores that begin so: results/mine-1, results/mine-2."),
        ("results/mine-3", "Did you mean 'results/mine-2'?"),
        ("results", "Stores in it: results/mine-1, results/mine-2."),
        ("", "Check the path, or run the sweep."),
    ]
    for number, (given, way_out) in enumerate(wants):
        with pytest.raises(StoreError) as caught:
            ls.open_sweep(given)
        assert str(caught.value) == rule.format(repr(str(Path(given))), way_out)
        if number in (0, 2):
            made(f"results/mine-{1 + number // 2}", max_lag=[1, 2 + number])
    with pytest.raises(StoreError, match="Stores that begin so"):
        ls.read_table("mine", "batches")
