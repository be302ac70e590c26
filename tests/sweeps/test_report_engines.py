"""A report of a store with engines draws what ran, waited, was cached and preempted in a chosen run."""

from __future__ import annotations

import numpy as np
import pytest

from lagsweep import Engine, LengthLaw, PipelineConfig, config_at, run_sweep, simulate_pipeline
from lagsweep.custom import Custom
from lagsweep.sweeps.custom import custom as known_rules
from lagsweep.sweeps.pages.content import gather
from lagsweep.sweeps.pages.engine_runs import engine_figures
from lagsweep.sweeps.pages.report import write_report

ENGINE = Engine(count=2, step_seconds=0.02, kv_cache_tokens=900, prefill_seconds_per_token=1e-4)
BASE = PipelineConfig(
    engine=ENGINE, rollout_workers=8, prompt_tokens=50, response_length=LengthLaw.uniform(100, 400),
    batch_tokens=1500, duration_seconds=200.0, warmup_seconds=40.0, max_queue_tokens=None, max_policy_lag=3,
)  # fmt: skip
HEADING = "Engines over time"


def page_of(ds, folder, **options):
    return write_report(ds, folder / "r.html", **{"images": False, **options}).page.read_text("utf-8")


def rows_of(figure):
    chart = figure.draw(False).to_dict()
    return chart["data"]["values"] if "data" in chart else chart["layer"][0]["data"]["values"]


def test_a_store_with_engines_has_the_section_with_figures_of_at_most_three_cells(tmp_path):
    ds = run_sweep(BASE, {"engine.max_running": [1, 2, 3, None], "max_lag": [2, 3]}, seeds=2)
    figures = {one.name: one for one in engine_figures(gather(ds))}
    page = page_of(ds, tmp_path)

    assert HEADING in page
    assert {"engines-1-load", "engines-1-cache"} <= figures.keys()
    assert {name[:9] for name in figures} <= {"engines-1", "engines-2", "engines-3"}
    assert all(f'id="chart-{name}"' in page for name in figures)
    assert "1,800 when full" in figures["engines-1-cache"].caption
    assert any("engine max running" in one.title for one in figures.values())


def test_the_run_shown_is_of_the_seed_nearest_to_the_mean_and_has_all_its_preemptions():
    ds = run_sweep(BASE, {"max_lag": [3]}, seeds=5)
    content = gather(ds)
    (one,) = content.looked_at
    load, cache, preempted = engine_figures(content)
    throughput = ds["trained_tokens_per_second"].values.reshape(-1)
    seed = int(np.abs(throughput - throughput.mean()).argmin())
    config = config_at(ds, one.cell, seed=seed)
    rows = rows_of(preempted)

    assert f"Seed {seed}, all 2 engines together" in load.caption
    assert config.engine == ENGINE
    assert rows[-1]["preemptions"] == simulate_pipeline(config.replace(warmup_seconds=0.0)).preemptions > 0
    assert rows[-1]["seconds"] == 200
    assert 4 <= max(row["running"] for row in rows_of(load)) <= 8
    assert 1000 < max(row["kv_tokens"] for row in rows_of(cache)) <= 1800


def test_engines_without_a_limit_have_no_figure_of_preemptions():
    plain = BASE.replace(engine=Engine(step_seconds=0.02))
    names = [one.name for one in engine_figures(gather(run_sweep(plain, {"max_lag": [3]}, seeds=2)))]
    assert names == ["engines-1-load", "engines-1-cache"]


def test_cells_without_engines_are_passed_over(tmp_path):
    ds = run_sweep(BASE.replace(engine=None), {"engine": [None, ENGINE], "max_lag": [2, 3]}, seeds=2)
    figures = engine_figures(gather(ds))
    assert figures
    assert not any("engine none" in one.title for one in figures)

    without = run_sweep(BASE.replace(engine=None), {"max_lag": [2, 3]}, seeds=2)
    assert engine_figures(gather(without)) == []
    assert HEADING not in page_of(without, tmp_path)


def test_rules_of_the_users_own_decide_in_the_run_shown_and_it_is_left_out_without_them(
    monkeypatch, tmp_path
):
    custom = Custom(admission=lambda state: state.in_flight_rollouts < 3)
    ds = run_sweep(BASE, {"max_lag": [2, 3]}, seeds=2, custom=custom)
    load = engine_figures(gather(ds))[0]
    assert max(row["running"] + row["waiting"] for row in rows_of(load)) == 3

    monkeypatch.setattr(known_rules, "_KNOWN", {})
    assert engine_figures(gather(ds)) == []
    assert HEADING not in page_of(ds, tmp_path)


def test_an_unfinished_store_shows_what_is_done(tmp_path):
    ds = run_sweep(BASE, {"max_lag": [2, 3]}, seeds=2).copy(deep=True)
    for name in ds.data_vars:
        if ds[name].dtype.kind == "f" and "seed" in ds[name].dims:
            ds[name][{"max_lag": 1, "seed": 1}] = np.nan
    ds["status"][{"max_lag": 1, "seed": 1}] = 0
    assert HEADING in page_of(ds, tmp_path)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_each_figure_is_a_file_too(tmp_path, kind):
    ds = run_sweep(BASE, {"max_lag": [3]}, seeds=2)
    report = write_report(ds, tmp_path / "r.html")
    names = {path.name for path in report.images if path.suffix == f".{kind}"}
    assert {f"engines-1-{what}.{kind}" for what in ("load", "cache", "preemptions")} <= names
