"""docs/custom.md: its blocks run as one module, and what they print is what the page says."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "custom.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The blocks as a module: rules have a source there, as in a user's file."""
    folder = tmp_path_factory.mktemp("page")
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (folder / "blocks_of_custom_page.py").write_text("\n\n".join(blocks), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("blocks_of_custom_page")
        patch.delitem(sys.modules, "blocks_of_custom_page")


def test_the_blocks_run_and_the_rules_bind(page):
    slow = page.ls.simulate_custom(page.config, admission=page.Backlog(16))

    assert slow.slot_ticks["custom rule"] > 0
    assert page.run.longest_step_seconds > 0
    assert page.fast.slot_ticks["custom rule"] > 0


def test_a_store_goes_by_the_version(page):
    stored = page.ls.open_sweep("careful")

    assert stored.attrs["custom"] == "admission by Careful (version 2)"
    assert page.ls.verify_store("careful").sound


def test_derived_variables_work_in_recommendations_frontiers_and_charts(page):
    ds = page.ds
    cheapest = page.ls.recommend(ds, minimize="dollars_per_million")
    means = ds.dollars_per_million.mean("seed")

    assert cheapest.units == "$"
    assert cheapest.settings["max_lag"] == means.idxmin()
    found = page.ls.frontier(ds, throughput="trained_tokens_per_second", ess="discarded_share").frame
    assert found["discarded_share"].to_list() == pytest.approx(
        [ds.discarded_share.sel(max_lag=lag).mean().item() for lag in found["max_lag"]]
    )
    assert "discarded_share" in str(page.chart.to_dict())
    assert page.ls.plot_heatmap(ds, "discarded_share", x="max_lag").to_dict()


def test_what_is_computed_from_runs_done_again_is_one_number_a_run(page):
    assert page.ds.longest_gap.dims == ("max_lag", "seed")
    assert np.isfinite(page.ds.longest_gap.values).all()
    best = page.ls.recommend(page.ds, minimize="longest_gap")
    assert best.cell is not None


def test_a_number_a_run_is_asked_of_the_function(page):
    with pytest.raises(page.ls.ConfigError, match="function: must return a number"):
        page.ls.map_runs(page.ds, lambda run: None)
    with pytest.raises(page.ls.ConfigError, match="function: must be a function of a run"):
        page.ls.map_runs(page.ds, "updates")
