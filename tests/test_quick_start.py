"""The quick start, word for word, and that each of its lines gives what it says."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

QUICK_START = """
import lagsweep as ls

base = ls.PipelineConfig(rollout_workers=64, batch_tokens=120_000, train_tokens_per_second=2_000,
                         duration_seconds=3600, warmup_seconds=600,
                         response_length=ls.LengthLaw.shipped("aime-rl-1000"))
ds = ls.run_sweep(base, axes={"queue_cap": [150_000, 300_000], "max_lag": [1, 2, 4],
                              "sync_cadence": [1, 2]}, seeds=100)          # an xarray.Dataset
print(ls.frontier(ds))                                                      # throughput against ESS
best = ls.recommend(ds, maximize="trained_tokens_per_second", min_ess=0.9)
print(best)                                                       # choice, interval, ties, what binds
ls.plot_frontier(ds)
run = ls.simulate_pipeline(ls.config_at(ds, best.cell, seed=0))             # that cell again, in full detail
run.batches_frame()                                                         # polars
"""


@pytest.fixture(scope="module")
def quick_start():
    printed = io.StringIO()
    names: dict = {}
    with contextlib.redirect_stdout(printed):
        exec(QUICK_START, names)
    return names, printed.getvalue()


def test_the_dataset_has_the_axes_then_the_seed(quick_start):
    names, _ = quick_start

    assert names["ds"]["updates"].dims == ("queue_cap", "max_lag", "sync_cadence", "seed")
    assert names["ds"].sizes["seed"] == 100


def test_both_tables_are_printed_within_80_columns(quick_start):
    _, text = quick_start

    assert "worth a look" in text
    assert "Choice: queue_cap=300,000 max_lag=2 sync_cadence=1" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_choice_is_the_fastest_cell_that_is_fresh_enough(quick_start):
    names, _ = quick_start
    ds = names["ds"]
    means = ds[["trained_tokens_per_second", "mean_expected_normalized_ess"]].mean("seed")
    fresh = means.trained_tokens_per_second.where(means.mean_expected_normalized_ess >= 0.9)

    assert names["best"].cell == int(ds["cell"].values.reshape(-1)[np.nanargmax(fresh.values)])


def test_the_cell_run_again_gives_the_stored_run(quick_start):
    names, _ = quick_start
    ds, run = names["ds"], names["run"]
    stored = ds.sel(names["best"].settings).sel(seed=0)

    assert run.updates == int(stored["updates"])
    assert run.trained_tokens_per_second == float(stored["trained_tokens_per_second"])


def test_the_batches_are_a_polars_frame(quick_start):
    import polars

    names, _ = quick_start
    frame = names["run"].batches_frame()

    assert isinstance(frame, polars.DataFrame)
    assert frame.height == names["run"].final_version


def test_the_plot_is_an_altair_chart_with_every_cell(quick_start):
    names, _ = quick_start
    chart = names["ls"].plot_frontier(names["ds"]).to_dict()

    points = [layer for layer in chart["layer"] if layer["mark"]["type"] == "point"]
    assert len(points[0].get("data", chart.get("data"))["values"]) == 12
    assert points[0]["encoding"]["y"]["title"] == "trained tokens per second"
