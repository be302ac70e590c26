"""A path is a name and not a pattern: folders called like patterns, beside others that these would match."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from oracle.every_command import LLAMA, call_of, commands, prepare, run

from lagsweep import LengthLaw, PipelineConfig, open_sweep, read_table, run_sweep
from lagsweep.sweeps.checkpoint.checkpoint import latest_checkpoint, make_checkpoint, save_checkpoint
from lagsweep.sweeps.memory.models import load_model
from lagsweep.sweeps.records.check import validate_records
from lagsweep.sweeps.spec.reading import read_spec_file
from lagsweep.sweeps.user_files import exact_path
from lagsweep.testing import good_record

# A name, and what it would match if it were a pattern.
NAMES = [
    ("a[1] b*", "a1 bc"),
    ("a*b", "aXb"),
    ("q?x", "qyx"),
    ("run[1]", "run1"),
    ("{x,y}", "x"),
    ("**", "z"),
]
ODD_NAMES = [*(name for name, _ in NAMES), "h#1%20", "~t", "caf\u00e9 \u6f22", "-v", "hf:", "$HOME", "a\nb"]


@pytest.mark.parametrize(("name", "sibling"), NAMES)
def test_readers_of_files_take_a_folder_by_its_name(name, sibling, tmp_path):
    for folder, lengths in ((name, [5, 7]), (sibling, [100, 200, 300])):
        (tmp_path / folder).mkdir()
        frame = pl.DataFrame({"n": lengths})
        (tmp_path / folder / "n.csv").write_text(frame.write_csv())
        (tmp_path / folder / "n.jsonl").write_text(frame.write_ndjson())
        frame.write_parquet(tmp_path / folder / "n.parquet")
        pl.DataFrame([good_record()] * len(lengths)).write_parquet(tmp_path / folder / "r.parquet")

    for suffix in ("csv", "jsonl", "parquet"):
        law = LengthLaw.from_file(tmp_path / name / f"n.{suffix}", "n")
        assert law.mean_tokens == 6.0
    assert validate_records(tmp_path / name / "r.parquet").records == 2


@pytest.mark.parametrize("name", ODD_NAMES)
def test_models_specs_and_checkpoints_lie_in_folders_of_any_name(name, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (folder / "n.csv").write_text("n\n5\n7\n")
    law = '{law = "from_file", path = "n.csv", column = "n"}'
    (folder / "spec.toml").write_text(f"[base]\nresponse_length = {law}\n[axes]\nmax_lag = [0]\n")
    numbers = dict.fromkeys(("optimizer_step", "current_version", "published_version", "dataset_cursor"), 3)
    save_checkpoint(make_checkpoint(**numbers, rng=np.random.default_rng(1)), folder / "run")

    assert load_model(folder).shape.num_layers == 32
    assert read_spec_file(folder / "spec.toml").base.response_length.mean_tokens == 6.0
    assert latest_checkpoint(folder).manifest.optimizer_step == 3
    pl.DataFrame([good_record()]).write_parquet(folder / "r.parquet")
    assert validate_records(folder / "r.parquet").records == 1


@pytest.mark.parametrize("name", [*ODD_NAMES, "a::b"])
def test_a_store_of_any_name_is_made_read_and_extended_beside_one_that_it_would_match(name, tmp_path):
    base = PipelineConfig(duration_seconds=60)
    sibling = dict(NAMES).get(name, "other")
    tables = {"tables": ["batches"]}
    run_sweep(base, {"max_lag": [3]}, seeds=4, store=tmp_path / sibling, **tables)
    run_sweep(base, {"max_lag": [0]}, seeds=1, store=tmp_path / name, **tables)
    run_sweep(base, {"max_lag": [0, 1]}, seeds=2, store=tmp_path / name, **tables)
    run_sweep(base, {"max_lag": [0, 1]}, seeds=2, store=tmp_path / "fresh", **tables)

    assert open_sweep(tmp_path / name)["max_lag"].values.tolist() == [0, 1]
    assert open_sweep(tmp_path / sibling)["max_lag"].values.tolist() == [3]
    rows = [read_table(tmp_path / own, "batches").collect().sort("cell", "seed") for own in (name, "fresh")]
    assert rows[0].equals(rows[1])
    for command in ("show", "verify", "recommend"):
        assert run([command, str(tmp_path / name)]).code == 0


def test_every_command_takes_a_folder_called_like_a_pattern_and_leaves_its_sibling_alone(tmp_path):
    folder = prepare(tmp_path / "a[1] b*")
    sibling = tmp_path / "a1 bc"
    sibling.mkdir()
    for name in commands():
        if name not in ("lab", "drill", "completion"):
            answer = run(call_of(name, folder))
            assert answer.code == 0, (name, answer.err)

    assert list(sibling.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"a[1] b*", "a1 bc"}


def test_a_path_for_polars_is_absolute_so_that_no_scheme_is_seen_in_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert exact_path("~t") == tmp_path / "~t"
    assert exact_path("hf:/x").is_absolute()
