"""Every reader of a user's file, over odd files and odd values: our error with its field, or right."""

from __future__ import annotations

import ast
import datetime
import json
import math
import warnings
from functools import partial
from pathlib import Path

import click
import polars as pl
import pytest
from oracle.every_command import LLAMA, commands, prepare, run

import lagsweep.sweeps
from lagsweep import LengthLaw, PipelineConfig
from lagsweep.errors import CheckpointError, ConfigError, LagsweepError
from lagsweep.sweeps import user_files
from lagsweep.sweeps.checkpoint.checkpoint import latest_checkpoint, load_checkpoint, read_manifest
from lagsweep.sweeps.config.config import AXIS_FIELDS
from lagsweep.sweeps.logs.engine_log import read_engine_log
from lagsweep.sweeps.logs.lengths import read_lengths
from lagsweep.sweeps.logs.step_log import read_step_log
from lagsweep.sweeps.memory.hf_config import ARCHITECTURES, shape_from_config
from lagsweep.sweeps.presets.registry import all_presets
from lagsweep.sweeps.records.files import read_records
from lagsweep.sweeps.spec.reading import SAMPLE_KEYS, TOP_KEYS, read_spec_file, spec_from_sections

BOM = b"\xef\xbb\xbf"
DEEP_JSON = "[" * 100_000 + "]" * 100_000
LONG = "9" * 5000


def nested(depth, wrap=lambda value: [value]):
    value = []
    for _ in range(depth):
        value = wrap(value)
    return value


ODD = [
    None, True, False, 0, -1, 1.5, 1e308, math.nan, math.inf, 10**30, 10**400,
    "", "x", "none", "false", "\ud800", b"x",
    [], [[]], [1], [1, "a"], {}, {"a": []}, {1: 2}, nested(900), nested(300, lambda value: {"law": value}),
    datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1), datetime.time(1),
    {"law": []}, {"law": "fixed"}, {"law": "fixed", "n": []}, {"law": "mixture", "parts": [[]]},
    {"law": "grouped", "tokens": [[1], [1, 2]], "groups": [1, 2]},
    {"law": "grouped", "tokens": [1, 2], "groups": [[1], [2]]},
    {"law": "grouped", "tokens": [1, 2], "groups": [1]},
    {"law": "from_file", "path": [], "column": {}}, {"law": "from_file", "path": "\0", "column": "x"},
    {"from": [], "to": 1}, {"from": 0, "to": {}}, {"from": 0, "to": 1, "count": []},
    {"from": 0, "to": 10**400}, {"from": 0, "to": 1, "scale": []}, {"from": 0, "to": 1e308},
    {"from": -1e308, "to": 1e308, "count": 3}, {"from": 0, "to": 1, "step": 1e-320},
]  # fmt: skip


def refused_or_right(read, *arguments):
    """Call a reader; whatever it raises must be ours, and say what is wrong with what."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ()
        try:
            read(*arguments)
        except LagsweepError as error:
            found = error.findings
    assert all(finding.rule for finding in found)
    assert not found or any(finding.field or finding.way_out for finding in found)


# Specs


def test_any_value_of_any_key_of_a_spec_is_right_or_refused():
    axes = {"axes": {"max_lag": [0, 1]}, "seeds": 2}
    for value in ODD:
        for key in TOP_KEYS:
            refused_or_right(spec_from_sections, {**axes, key: value})
        for key in SAMPLE_KEYS:
            sampled = {"axes": {"max_lag": {"from": 0, "to": 9}}, "sample": {"points": 4, key: value}}
            refused_or_right(spec_from_sections, sampled)
        for key in [*PipelineConfig.model_fields, *AXIS_FIELDS, "preset", "nothing"]:
            refused_or_right(spec_from_sections, {**axes, "base": {key: value}})


@pytest.mark.parametrize("form", ["bare", "list", "pair", "zip", "points", "sample"])
def test_any_value_of_any_axis_is_right_or_refused(form):
    for name in [*PipelineConfig.model_fields, *AXIS_FIELDS, "system", "preset"]:
        for value in ODD:
            content = {
                "bare": {"axes": {name: value}},
                "list": {"axes": {name: [value]}},
                "pair": {"axes": {name: [value, value]}},
                "zip": {"zip": [{name: value, "sync_seconds": [1, 2]}]},
                "points": {"points": [{name: value, "sync_seconds": 1}]},
                "sample": {"axes": {name: value}, "sample": {"points": 4}},
            }[form]
            refused_or_right(spec_from_sections, content)


@pytest.mark.parametrize("name", all_presets())
def test_any_value_of_any_knob_is_right_or_refused(name):
    for knob in all_presets()[name].knobs:
        for value in ODD:
            base = {"base": {"preset": name}}
            refused_or_right(spec_from_sections, {"base": {"preset": name, knob.name: value}})
            refused_or_right(spec_from_sections, {**base, "axes": {"preset": {knob.name: value}}})
            refused_or_right(spec_from_sections, {**base, "axes": {f"preset.{knob.name}": [value]}})


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        ("preset = [1]", "preset", "is not a key of the top level"),
        ("[base]\npreset = [1]", "preset", "must be a known preset"),
        ("[base]\npreset = {a = 1}", "preset", "must be a known preset"),
        (
            '[base]\npreset = "areal"\n[axes]\npreset.max_head_offpolicyness = [[]]',
            "axes.preset.max_head_offpolicyness",
            "must be a number, a word, true, false or none",
        ),
        (
            '[base]\npreset = "areal"\n[axes]\npreset.max_head_offpolicyness = [{a = 1}]',
            "axes.preset.max_head_offpolicyness",
            "must be a number, a word, true, false or none",
        ),
        (f"seeds = {LONG}", "spec.toml", "must not hold integers of over 4300 digits"),
        (f"[base]\nbatch_tokens = {LONG}", "spec.toml", "must not hold integers of over 4300 digits"),
        (f"x = {DEEP_JSON}", "spec.toml", "must not be nested this deeply"),
    ],
)
def test_examples_of_specs_are_refused_with_field_and_rule(text, field, rule, tmp_path):
    (tmp_path / "spec.toml").write_text(text)

    with pytest.raises(ConfigError) as caught:
        read_spec_file(tmp_path / "spec.toml")
    assert caught.value.findings[0].field.endswith(field)
    assert caught.value.findings[0].rule == rule
    assert caught.value.findings[0].way_out
    assert run(["run", str(tmp_path / "spec.toml")]).code == 2


@pytest.mark.parametrize("value", ["1e308", "9" * 400, "-1e308"])
def test_a_knob_beyond_all_bounds_is_refused_by_name(value):
    answer = run(
        ["simulate", "--preset", "verl_fully_async", "--knob", f"trigger_parameter_sync_step={value}"]
    )

    assert answer.code == 2
    assert b"trigger_parameter_sync_step: must be" in answer.err


# config.json


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model_type": ["llama"]}, "model_type"),
        ({"model_type": {}}, "model_type"),
        ({"model_type": 5}, "model_type"),
        ({"model_type": "gemma3", "text_config": "x"}, "text_config"),
        ({"model_type": "gemma3", "text_config": [1]}, "text_config"),
        ({"layer_types": 5}, "layer_types"),
        ({"layer_types": [[], {}]}, "layer_types"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": 5}, "mlp_only_layers"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": "01"}, "mlp_only_layers"),
        ({"vocab_size": [[]]}, "vocab_size"),
        ({"vocab_size": 10**400}, "vocab_size"),
        ({"num_hidden_layers": "x"}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"attention_bias": "false"}, "attention_bias"),
        ({"model_type": "qwen2", "use_sliding_window": "false"}, "use_sliding_window"),
        ({"tie_word_embeddings": 0}, "tie_word_embeddings"),
        ({"mlp_bias": 0}, "mlp_bias"),
    ],
)
def test_a_config_json_of_wrong_kinds_names_the_field(change, field):
    with pytest.raises(ConfigError, match=rf"^config\.json: {field}: must "):
        shape_from_config({**LLAMA, **change}, "mine")


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_any_value_in_a_config_json_is_right_or_refused(kind):
    names = {
        *LLAMA, "sliding_window", "layer_types", "max_window_layers", "use_sliding_window", "attention_bias",
        "head_dim", "tie_word_embeddings", "max_position_embeddings", "mlp_bias", "num_local_experts",
        "num_experts_per_tok", "num_experts", "moe_intermediate_size", "decoder_sparse_step",
        "mlp_only_layers", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
        "v_head_dim", "n_routed_experts", "n_shared_experts", "first_k_dense_replace", "moe_layer_freq",
        "sliding_window_pattern",
    }  # fmt: skip
    whole = dict.fromkeys(names - {"layer_types", "mlp_only_layers"}, 8)
    flags = dict.fromkeys(("use_sliding_window", "attention_bias", "tie_word_embeddings", "mlp_bias"), False)
    good = {**whole, **flags, "decoder_sparse_step": 1, "moe_layer_freq": 1, "num_hidden_layers": 9}
    shape_from_config({**good, "model_type": kind}, "good")
    for name in names:
        for value in ODD:
            refused_or_right(shape_from_config, {**good, "model_type": kind, name: value}, "odd")


# Bytes


@pytest.mark.parametrize("mark", [b"", BOM], ids=["plain", "mark"])
def test_a_byte_order_mark_is_skipped_in_every_format(mark, tmp_path):
    folder = prepare(tmp_path)
    texts = {
        "lengths.csv": b"output_tokens\n5\n7\n",
        "lengths.jsonl": b'{"output_tokens": 5}\n{"output_tokens": 7}\n',
        "spec.toml": b"seeds = 2\n[base]\nduration_seconds = 60\n[axes]\nmax_lag = [0]\n",
        "config.json": json.dumps(LLAMA).encode(),
        "records.jsonl": (folder / "records.jsonl").read_bytes(),
    }
    for name, text in texts.items():
        (folder / name).write_bytes(mark + text)

    for name in ("lengths.csv", "lengths.jsonl"):
        assert LengthLaw.from_file(folder / name, "output_tokens").name
    assert run(["validate", str(folder / "records.jsonl")]).code == 0
    assert len(list(read_records(folder / "records.jsonl"))) == 1
    assert run(["run", str(folder / "spec.toml"), "--dry-run"]).code == 0
    assert run(["ledger", "--model", str(folder / "config.json")]).code == 0


ODD_BYTES = {
    "empty": b"",
    "latin-1": b"# caf\xe9\nx = 1\n",
    "UTF-16": "x = 1".encode("utf-16"),
    "zeros": bytes(64),
    "deep": DEEP_JSON.encode(),
    "deep object": b'{"a":' * 100_000,
    "long integer": LONG.encode(),
    "long integer inside": f'{{"output_tokens": {LONG}, "model_type": {LONG}}}'.encode(),
    "parquet cut short": b"PAR1" + bytes(40) + b"PAR1",
    "a list": b"[1]\n",
}


@pytest.mark.parametrize("suffix", [".toml", ".json", ".jsonl", ".csv", ".parquet", ""])
@pytest.mark.parametrize("content", ODD_BYTES)
def test_every_command_ends_without_a_traceback_on_an_odd_file(content, suffix, tmp_path):
    path = tmp_path / f"odd{suffix}"
    tried = 0
    for name, parameter in _file_parameters():
        path.write_bytes(ODD_BYTES[content])
        argument = [str(path)] if isinstance(parameter, click.Argument) else [parameter.opts[0], str(path)]
        answer = run([*name.split(), *argument, *(["--dry-run"] if name == "run" else [])])
        # An empty configuration is one of defaults alone. 1: records that are none.
        right = (0,) if name in ("run", "drill") and content == "empty" else (1, 2, 3)
        assert answer.code in right, (name, parameter.name)
        assert b"Traceback" not in answer.err
        tried += 1
    assert tried >= 9


def _file_parameters():
    """Find every parameter that names what is read, be it a path or a text that may be one."""
    made = {("run", "store"), ("compare", "store"), ("plan", "store")}
    for name, command in commands().items():
        for parameter in command.params:
            text = isinstance(parameter.type, click.Path) or parameter.type is click.STRING
            known = parameter.name in ("store", "spec", "files", "model", "models")
            if text and known and (name, parameter.name) not in made:
                yield name, parameter


@pytest.mark.parametrize("content", ODD_BYTES)
def test_a_checkpoint_of_odd_bytes_is_refused_by_its_own_error(content, tmp_path):
    path = tmp_path / "step-3.json"
    path.write_bytes(ODD_BYTES[content])

    for read in (load_checkpoint, read_manifest, latest_checkpoint):
        with pytest.raises(CheckpointError):
            read(path if read is not latest_checkpoint else tmp_path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("content", ODD_BYTES)
def test_every_law_of_a_file_refuses_an_odd_file(content, suffix, tmp_path):
    path = tmp_path / f"odd{suffix}"
    path.write_bytes(ODD_BYTES[content])

    with pytest.raises(ConfigError) as caught:
        LengthLaw.from_file(path, "output_tokens")
    assert caught.value.findings[0].field


@pytest.mark.parametrize("read", [read_step_log, read_engine_log, read_lengths])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".parquet", ".log", ".csv.gz"])
@pytest.mark.parametrize("content", ODD_BYTES)
def test_every_reader_of_logs_refuses_an_odd_file(content, suffix, read, tmp_path):
    path = tmp_path / f"odd{suffix}"
    path.write_bytes(ODD_BYTES[content])

    with pytest.raises(ConfigError) as caught:
        read(path)
    assert caught.value.findings[0].field


def test_a_cell_of_a_column_may_hold_anything(tmp_path):
    for number, value in enumerate([[], {}, "x", None, True, LONG, [[1], [2, 3]]]):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(json.dumps({"n": 5, "g": "a"}) + "\n" + json.dumps({"n": value, "g": value}) + "\n")
        refused_or_right(LengthLaw.from_file, path, "n")
        refused_or_right(LengthLaw.grouped_from_file, path, "n", "g")
        refused_or_right(partial(read_step_log, columns={"step": "g", "step_seconds": "n"}), path)
        refused_or_right(partial(read_lengths, columns={"response_tokens": "n", "prompt": "g"}), path)
        refused_or_right(
            partial(read_engine_log, columns={"running": "n", "generated_tokens_per_second": "g"}), path
        )
    frame = pl.DataFrame({"n": [[1], [1, 2]], "g": [{"a": 1}, {"a": 2}]})
    frame.write_parquet(tmp_path / "lists.parquet")
    refused_or_right(LengthLaw.from_file, tmp_path / "lists.parquet", "n")
    refused_or_right(LengthLaw.grouped_from_file, tmp_path / "lists.parquet", "n", "g")
    refused_or_right(
        partial(read_step_log, columns={"step": "g", "step_seconds": "n"}), tmp_path / "lists.parquet"
    )


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_an_endless_file_is_refused_before_memory_ends(monkeypatch):
    monkeypatch.setattr(user_files, "MOST_BYTES", 2**20)
    with pytest.raises(ConfigError, match="must be at most 1 MiB"):
        user_files.read_bytes("/dev/zero", "spec", most=2**20)
    with pytest.raises(ConfigError, match="must be a readable file"):
        user_files.read_bytes("a\0b", "spec")


# The door itself

DOORS = {
    "execute.processes",  # what processes that this one started send back
    "custom.custom",  # text that the spec itself made
    "user_files",  # the door
    "records.findings_file",  # what it wrote itself
    "records.bulk",  # lines that were read through the door of records
    "records.cleaning",  # a table that was checked
    "records.files", "laws.files", "logs.tables",  # one format more, through the door
    "checkpoint.files", "checkpoint.manifest",  # the manifest's own strict reader
    "files", "frame_files", "json_text",
    "memory.models", "laws.shipped", "pages.page",  # data that the package ships
    "engines.accelerators", "plan.networks",  # the same
    "logs.frameworks", "logs.engine_log",  # the same: maps of columns
    "pages.sections", "spec.carried",  # what a store holds
    "real_model.channel", "real_model.models", "real_model.pair",  # what its own processes and packages wrote
}  # fmt: skip
READS = {"loads", "load", "read_text", "read_csv", "read_parquet", "scan_parquet", "read_json", "read_ndjson"}
READERS_OF = {"json", "tomllib", "pl", "polars", "pickle"}


def test_no_module_reads_files_past_the_door():
    found = set()
    root = Path(lagsweep.sweeps.__path__[0])
    for file in root.rglob("*.py"):
        name = ".".join(file.relative_to(root).with_suffix("").parts)
        if name.startswith("store."):  # a store is nobody's own file, and has a page of guarantees
            continue
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in READS
            ):
                owner = node.func.value
                by_name = isinstance(owner, ast.Name) and owner.id in READERS_OF
                if by_name or node.func.attr == "read_text":
                    found.add(name)

    assert found <= DOORS
    assert not {name for name in found if "pickle" in name}
