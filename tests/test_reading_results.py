"""The recipes of docs/reading-results-in-python.md run as they stand, one block after the other."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reading-results-in-python.md"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    found: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("recipes"))
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
            exec(compile(block, PAGE.name, "exec"), found)
    return found


def test_the_blocks_run(names):
    assert names["run"].updates > 0
    assert names["chart"].to_dict()["mark"]["type"] == "line"


def test_the_best_cell_is_the_recommended_one(names):
    best = names["ls"].recommend(names["ds"], maximize="effective_tokens_per_second", min_ess=0.9)

    assert names["cell"] == best.cell


def test_the_interval_is_that_of_the_frontier(names):
    frame = names["frame"]
    row = frame.row(0, named=True)
    at = {name: row[name] for name in ("queue_cap", "max_lag", "sync_cadence")}

    assert names["half"].sel(at).item() == pytest.approx(row["trained_tokens_per_second_half_width"])


def test_long_rollouts_are_older_when_trained(names):
    trained = names["rollouts"].filter(pl.col("outcome") == "trained")
    by_lag = trained.group_by("lag").agg(pl.col("tokens").mean()).sort("lag")

    assert by_lag["tokens"][-1] > by_lag["tokens"][0]
