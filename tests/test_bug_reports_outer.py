"""Faults reported for other systems of this field, tried at the edges of this one: files, names, terminals.

``data/bug_reports_outer.json`` holds each report's input, the right answer and its source.
"""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xarray
from oracle.every_command import call_of, prepare, run, run_unread

from lagsweep import (
    LengthLaw,
    PipelineConfig,
    config_at,
    frontier,
    open_sweep,
    read_table,
    recommend,
    run_sweep,
)
from lagsweep.errors import ConfigError
from lagsweep.sweeps.checkpoint.checkpoint import latest_checkpoint, make_checkpoint, save_checkpoint
from lagsweep.sweeps.spec.axes import expand

DATA = Path(__file__).parent / "data" / "bug_reports_outer.json"


@cache
def _cases():
    return {case["id"]: case for case in json.loads(DATA.read_text("utf-8"))}


def _input(name):
    return _cases()[name]["input"]


def _expected(name):
    return _cases()[name]["expected"]


def _at(step):
    numbers = {"optimizer_step": step, "current_version": step, "published_version": step}
    return make_checkpoint(**numbers, dataset_cursor=step, rng=np.random.default_rng(1))


def test_every_case_has_a_test_and_a_source():
    text = Path(__file__).read_text("utf-8")

    assert all(f'"{name}"' in text and case["source"] for name, case in _cases().items())


def test_the_newest_checkpoint_is_not_chosen_by_its_name(tmp_path):
    case, wanted = _input("ckpt-14"), _expected("ckpt-14")["optimizer_step_resumed"]
    for place, (names, steps) in enumerate(zip(case["cases"], case["optimizer_step"], strict=True)):
        folder = tmp_path / str(place)
        folder.mkdir()
        for name, step in zip(names, steps, strict=True):
            save_checkpoint(_at(step), folder / name)
        assert latest_checkpoint(folder).manifest.optimizer_step == wanted[place]


def test_a_save_is_found_by_the_resume(tmp_path):
    (tmp_path / "run").mkdir()
    for place, path in enumerate(_input("ckpt-15")["save_to"], start=1):
        save_checkpoint(_at(10 * place), tmp_path / path)

    assert latest_checkpoint(tmp_path / "run").path == tmp_path / _expected("ckpt-15")["latest_checkpoint"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("reports"))


def test_a_terminal_that_is_not_utf_8(folder):
    for encoding in _input("cli-10")["PYTHONIOENCODING"]:
        for name in ("presets", "simulate", "show", "recommend", "run"):
            answer = run(call_of(name, folder), encoding)
            assert answer.code == _expected("cli-10")["exit_code"]
            assert b"Traceback" not in answer.err


def test_piping_into_head(folder):
    for name in ("presets", "simulate", "drill", "show", "recommend"):
        assert run_unread(call_of(name, folder)) in _expected("cli-11")["exit_code"]


def test_files_that_begin_with_a_byte_order_mark(folder, tmp_path):
    mark = bytes.fromhex(_input("file-01")["first_bytes"])
    spec = tmp_path / "spec.toml"
    spec.write_bytes(mark + b"seeds = 1\n[axes]\nmax_lag = [0]\n")
    (tmp_path / "config.json").write_bytes(mark + (folder / "config.json").read_bytes())
    (tmp_path / "records.jsonl").write_bytes(mark + (folder / "records.jsonl").read_bytes())
    (tmp_path / "lengths.csv").write_bytes(mark + b"output_tokens\n5\n")
    (tmp_path / "lengths.jsonl").write_bytes(mark + b'{"output_tokens": 5}\n')

    assert _expected("file-01")["read_as_without_it"]
    assert run(["run", str(spec), "--dry-run"]).code == 0
    assert run(["ledger", "--model", str(tmp_path / "config.json")]).code == 0
    assert run(["validate", str(tmp_path / "records.jsonl")]).code == 0
    for name in ("lengths.csv", "lengths.jsonl"):
        assert LengthLaw.from_file(tmp_path / name, "output_tokens").mean_tokens == 5.0


@pytest.mark.parametrize(
    ("on", "first", "key"),
    [
        (False, 28, "kv_bytes_off"),
        (True, 14, "kv_bytes_on_from_layer_14"),
        (True, 28, "kv_bytes_on_from_layer_28"),
    ],
)
def test_a_window_that_is_switched_off(on, first, key, tmp_path):
    case = _input("mem-13")
    config = {
        name: case[name] for name in ("model_type", "num_hidden_layers", "num_key_value_heads", "head_dim")
    }
    sizes = {"hidden_size": 3584, "num_attention_heads": 28, "intermediate_size": 18944, "vocab_size": 152064}
    window = {"sliding_window": case["window_when_on"] if on else case["sliding_window"]}
    switches = {"use_sliding_window": on, "max_window_layers": first}
    (tmp_path / "config.json").write_text(json.dumps({**config, **sizes, **window, **switches}))

    flags = ["--context", str(case["context"]), "--sequences", "8", "--gpus", "8", "--json"]
    answer = run(["ledger", "--model", str(tmp_path / "config.json"), *flags])
    assert f"{_expected('mem-13')[key]}" in answer.out.decode()


def test_a_hybrid_models_cache_by_policy():
    case = _input("mem-15")
    short = case["short"]
    wanted = {policy: size * 2**30 for policy, size in _expected("mem-15")["GiB"].items()}

    def cache_bytes(context, sequences, *flags):
        sizes = [
            "--context",
            str(context),
            "--sequences",
            str(sequences),
            "--gpus",
            "1",
            "--rollout-gpus",
            "1",
        ]
        answer = json.loads(run(["ledger", "--model", case["model"], *sizes, *flags, "--json"]).out)
        return answer["phases"]["rollout"]["components_bytes"]["KV cache"], answer["notes"]

    for policy, size in wanted.items():
        found, notes = cache_bytes(case["context"], case["sequences"], "--window-policy", policy)
        assert found == size
        assert any(f"'{policy}'" in note for note in notes)
        flags = ["--window-policy", policy, "--block-tokens", str(short["block_tokens"])]
        assert (
            cache_bytes(short["context"], short["sequences"], *flags)[0] == _expected("mem-15")["short_bytes"]
        )


def test_a_store_whose_name_holds_brackets(tmp_path):
    case = _input("path-01")
    base = PipelineConfig(duration_seconds=120)
    store, sibling = tmp_path / "run[1]", tmp_path / "run1"
    run_sweep(base.replace(duration_seconds=240), case["axes"], seeds=2, store=sibling, tables=case["tables"])
    run_sweep(base, case["axes"], seeds=3, store=store, tables=["batches"])
    assert run(["verify", str(store)]).code == _expected("path-01")["verify_exit_code"]
    run_sweep(base, {"max_lag": [0, 1, 2], "sync_cadence": [1, 2]}, seeds=5, store=store, tables=["batches"])

    assert read_table(store, "batches").collect().height == 193
    assert run(["verify", str(store)]).code == 0


def test_other_special_characters_in_a_stores_name(tmp_path):
    case = _input("path-03")
    base = PipelineConfig(duration_seconds=120)
    run_sweep(base.replace(duration_seconds=240), {"max_lag": [0, 1]}, seeds=2, store=tmp_path / "aXb")
    for name in case["stores"]:
        run_sweep(base, {"max_lag": [0, 1]}, seeds=3, store=tmp_path / name, tables=["batches"])
        trace = ["trace", str(tmp_path / name), "--cell", "max_lag=0", "-o", str(tmp_path / "trace.json")]
        trace.append("--force")
        answers = [run([command, str(tmp_path / name)]) for command in ("show", "verify", "recommend")]
        assert [answer.code for answer in (*answers, run(trace))] == [0, 0, 0, 0]
        assert read_table(tmp_path / name, "batches").collect().height == 36


def test_steps_of_a_tenth_are_tenths():
    case = _input("sweep-13")
    for given, wanted in zip(case["ranges"], _expected("sweep-13")["values"], strict=True):
        assert expand(case["axis"], given) == wanted


def test_a_range_loses_no_end_without_a_word():
    for axis, given in _input("sweep-14")["ranges"]:
        with pytest.raises(ConfigError) as caught:
            expand(axis, given)
        assert all(word in str(caught.value) for word in _expected("sweep-14")["message_mentions"])


def test_an_axis_with_none_beside_numbers():
    case = _input("sweep-16")
    ds = run_sweep(
        PipelineConfig(duration_seconds=60, batch_tokens=4000), {case["axis"]: case["values"]}, seeds=1
    )

    assert ds.sel(queue_cap=5000).sizes["seed"] == 1
    order = ds.sortby("queue_cap").queue_cap.values
    assert order.tolist() == sorted(order)
    assert frontier(ds).frame.filter(pl.col("queue_cap") > 6000).height == 4
    assert config_at(ds, {"queue_cap": 5000}, seed=0).max_queue_tokens == 5000


def test_a_cell_that_trained_nothing_is_not_recommended():
    case = _input("sweep-17")
    ds = run_sweep(PipelineConfig(**case["base"]), case["axes"], seeds=case["seeds"])

    for bounds in ({}, {"max_lag": 1}, {"min_ess": 0.9}):
        found = recommend(ds, **bounds)
        assert found.cell is None
        assert found.settled == _expected("sweep-17")["settled"]


def test_a_stopping_rule_on_a_metric_that_never_exists(tmp_path):
    flags = ["--axis", "max_lag=0,2", "--seeds", "64", "--duration-seconds", "10"]
    answer = run(["run", *flags, "--until", _input("sweep-19")["until"], "--store", str(tmp_path / "s")])

    assert answer.code == 0
    assert b"more seeds do not help" in answer.err


def test_a_slice_of_an_opened_store_is_written_again(tmp_path):
    axes = _input("sweep-20")["axes"]
    base = PipelineConfig(duration_seconds=60, batch_tokens=4000)
    run_sweep(base, axes, seeds=6, store=tmp_path / "s")
    ds = open_sweep(tmp_path / "s")
    slices = [ds, ds.isel(max_lag=0), ds.isel(seed=slice(1, 4)), ds.sel(max_lag=[0, 2]), ds.mean("seed")]
    for place, one in enumerate(slices):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zarr, about text and consolidated metadata
            one.to_zarr(tmp_path / f"{place}.zarr")
            again = xarray.open_zarr(tmp_path / f"{place}.zarr", decode_timedelta=False)
        assert again.load().equals(one.load()) == _expected("sweep-20")["round_trip_equal"]
