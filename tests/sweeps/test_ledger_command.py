"""``lagsweep ledger`` and its sums: tables of at most 80 columns, labelled units, JSON, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.ledger.command import command
from lagsweep.sweeps.cli.main import main

BUGS = {
    bug["id"]: bug
    for bug in json.loads((Path(__file__).parents[1] / "data" / "memory_bug_reports.json").read_text())
}
MODEL = ["--model", "Qwen3-8B", "--gpus", "8", "--context", "8192"]
CHECKPOINT = ["checkpoint", "--checkpoint-seconds", "180", "--mtbf-seconds", "36000"]
SYNC = ["sync", "--payload", "14GB", "--gigabytes-per-second", "25"]
KV = ["kv", "--layers", "16,32", "--kv-heads", "4", "--head-dim", "128"]


def _run(*arguments):
    return CliRunner().invoke(command, list(arguments), standalone_mode=False, catch_exceptions=False)


def _exit_code(capsys, *arguments) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main(["ledger", *arguments])
    return caught.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [MODEL, ["models"], ["models", "--sources"], SYNC, CHECKPOINT, [*KV, "--pool", "3GiB,12GiB"], KV]
    + [["--model", name, "--gpus", "512", "--critic"] for name in ("DeepSeek-V3", "Qwen3-235B-A22B")],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_tables_fit_80_columns_without_colour_codes(arguments):
    result = _run(*arguments)

    assert result.output
    assert max(map(len, result.output.splitlines())) <= 80
    assert "\x1b" not in result.output


def test_a_narrow_terminal_gets_a_narrow_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")

    assert max(map(len, _run(*MODEL).output.splitlines())) <= 60


def test_the_phase_table_names_phases_what_fits_and_what_is_left_out():
    output = _run(*MODEL).output

    for phase in ("rollout", "training", "publication"):
        assert f"{phase}: fits" in output
    for part in ("engine weights", "KV cache", "gradients", "logits of the loss", "bucket"):
        assert f"  {part}" in output
    assert "Qwen3-8B: 8,190,735,360 parameters (published)." in output
    assert "One GPU: 74.51 GiB (80.00 GB)." in output
    assert "Most sequences of 8,192 tokens that fit: 320." in output
    assert "Left out:\n  - CUDA context" in output


def test_every_size_is_labelled_gib_or_gb():
    lines = _run(*MODEL).output.splitlines()
    heading = next(line for line in lines if line.startswith("Per GPU"))

    assert heading.split() == ["Per", "GPU", "GiB", "GB", "of", "GPU"]
    row = next(line for line in lines if "engine weights" in line).split()
    assert (float(row[-4]), float(row[-3])) == (15.26, 16.38)


def test_80gb_and_80gib_leave_different_room():
    rooms = [
        json.loads(_run(*MODEL, "--json", "--device-memory", size).output)["headroom_bytes"]
        for size in ("80GB", "80GiB")
    ]

    assert rooms[1] - rooms[0] == 80 * (2**30 - 10**9)


def test_json_holds_the_phases_in_bytes():
    document = json.loads(_run(*MODEL, "--json", "--lora-rank", "32", "--kv-format", "fp8").output)

    assert document["parameters"] == 8_190_735_360
    assert document["parameters_label"] == "published"
    assert document["fits"] is True
    assert document["settings"]["context_tokens"] == 8192
    assert document["settings"]["kv_element_bytes"] == 1
    for phase in document["phases"].values():
        assert phase["total_bytes"] == sum(phase["components_bytes"].values())
    assert document["phases"]["rollout"]["components_bytes"]["KV cache"] == 8 * 8192 * 147_456 // 2
    assert document["left_out"]


def test_a_phase_that_does_not_fit_is_said_and_checked():
    arguments = [*MODEL, "--device-memory", "30GB"]
    shown, checked = _run(*arguments), _run(*arguments, "--check")

    assert (shown.return_value, checked.return_value) == (0, 1)
    assert "rollout: DOES NOT FIT" in shown.output
    assert "missing; its largest part is engine weights." in shown.output
    assert _run(*MODEL, "--check").return_value == 0


def test_a_model_that_is_not_known_is_a_usage_error_with_the_nearest(capsys):
    code, text = _exit_code(capsys, "--model", "Qwen3-9B")

    assert code == 2
    assert "Did you mean 'Qwen3-8B'?" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--model: is required. Known are Llama-3.1-8B"),
        ([*MODEL, "--device-memory", "80"], "--device-memory: must be a number with a unit"),
        ([*MODEL, "--gpus", "0"], "0 is not in the range x>=1"),
        ([*MODEL, "--tensor-parallel", "3"], "tensor_parallel: must divide gpus"),
        ([*MODEL, "--recipe", "adamw"], "recipe: must be one of adam_mixed"),
        (["kvv"], "No such command 'kvv'"),
        ([*KV, "--pool", "1GiB,2GiB,3GiB"], "--pool: must be one size, or one for each stage (got 3)"),
        ([*KV, "--pool", "1GiB,,2GiB"], "--pool: must list values"),
        ([*KV, "--tensor-parallel", "3"], "tensor_parallel: must divide num_kv_heads"),
        (["sync", "--gigabytes-per-second", "25"], "--payload: must be given, or else --model"),
        ([*SYNC, "--model", "Qwen3-8B"], "--payload: must be given, or else --model"),
        (["sync", "--payload", "14GB"], "--gigabytes-per-second: must be given, or else"),
        ([*SYNC, "--gigabits-per-second", "400"], "--gigabytes-per-second: must be given, or else"),
        (["sync", "--payload", "14"], "--payload: must be a number with a unit"),
        (["checkpoint", "--checkpoint-seconds", "0"], "x>0"),
    ],
)
def test_errors_are_usage_errors_without_a_traceback(capsys, arguments, words):
    code, text = _exit_code(capsys, *arguments)

    assert code == 2
    assert words in text
    assert "Traceback" not in text


def test_kv_compares_need_and_room_stage_by_stage():
    bug = BUGS["bug-mem-06"]
    result = _run(*KV, "--tokens", "262144", "--pool", "3.18GiB,12GiB", "--block-tokens", "1", "--json")
    document = json.loads(result.output)

    assert [stage["max_tokens"] for stage in document["stages"]] == bug["expected"]["max_tokens_per_stage"]
    assert document["max_tokens"] == bug["expected"]["max_tokens"]
    needed = [stage["needed_bytes"] / 2**30 for stage in document["stages"]]
    assert needed == bug["expected"]["need_gib_per_stage"]
    assert document["sequences_admitted"] == 0


def test_kv_takes_kv_heads_and_whole_blocks():
    grouped = ["kv", "--layers", "28", "--kv-heads", "2", "--head-dim", "128", "--json"]
    document = json.loads(_run(*grouped, "--tokens", "20000", "--pool", "1879048192B").output)

    (stage,) = document["stages"]
    assert stage["bytes_per_token"] == BUGS["bug-mem-04"]["expected"]["bytes_per_token"]
    expected = BUGS["bug-mem-09"]["expected"]
    assert (stage["blocks"], stage["blocks_per_sequence"]) == (expected["blocks"], expected["blocks_per_seq"])
    assert document["sequences_admitted"] == expected["admitted"]


def test_kv_shares_a_groups_prompt():
    arguments = [
        "kv",
        "--layers",
        "28",
        "--kv-heads",
        "2",
        "--head-dim",
        "128",
        "--tokens",
        "20000",
        "--pool",
    ]
    shared = ["--prompt-tokens", "16000", "--group-size", "8"]
    document = json.loads(_run(*arguments, "1879048192B", *shared, "--json").output)

    assert document["sequences_admitted"] == 8
    assert document["stages"][0]["shared_blocks_per_group"] == 1000


def test_sync_gives_the_courses_seconds_and_its_lower_bound():
    document = json.loads(_run(*SYNC, "--efficiency", "0.8", "--setup-seconds", "0.15", "--json").output)

    assert document["total_seconds"] == pytest.approx(0.85)
    assert document["lower_bound_seconds"] == pytest.approx(0.56)
    lags = {row["sync_every_updates"]: (row["mean_lag"], row["max_lag"]) for row in document["cadences"]}
    assert lags == {1: (0.0, 0), 2: (0.5, 1), 4: (1.5, 3), 8: (3.5, 7)}


def test_sync_keeps_bits_and_bytes_apart_and_counts_calls():
    bits = ["sync", "--payload", "25GB", "--gigabits-per-second", "400"]
    slow = json.loads(_run(*bits, "--calls", "200", "--seconds-per-call", "0.6", "--json").output)
    one = json.loads(_run(*bits, "--bucket", "25GB", "--seconds-per-call", "0.6", "--json").output)

    assert slow["total_seconds"] == pytest.approx(120.5)
    assert (one["calls"], one["total_seconds"]) == (1, pytest.approx(1.1))
    assert slow["lower_bound_seconds"] == pytest.approx(0.5)


def test_sync_takes_a_models_weights_in_bf16():
    document = json.loads(
        _run("sync", "--model", "Qwen3-8B", "--gigabytes-per-second", "25", "--json").output
    )

    assert document["payload_bytes"] == 2 * 8_190_735_360


def test_checkpoint_lists_the_rules_with_youngs_first():
    document = json.loads(_run(*CHECKPOINT, "--interval-seconds", "1000", "--json").output)
    rules = {row["rule"]: row for row in document["rules"]}

    assert next(iter(rules)) == "young"
    assert rules["young"]["interval_seconds"] == 3600.0
    assert rules["young"]["overhead"] == pytest.approx(0.107106, abs=5e-7)
    assert min(row["overhead"] for row in rules.values()) == rules["exact"]["overhead"]
    assert rules["given"]["interval_seconds"] == 1000.0


def test_checkpoint_shows_a_rule_that_has_no_interval():
    arguments = ["checkpoint", "--checkpoint-seconds", "100", "--mtbf-seconds", "10"]
    rules = {row["rule"]: row for row in json.loads(_run(*arguments, "--json").output)["rules"]}

    assert rules["daly_first"]["overhead"] is None
    assert "Daly, first order" in _run(*arguments).output


def test_models_lists_every_shape_with_its_sources():
    rows = json.loads(_run("models", "--json").output)["models"]
    shown = _run("models", "--sources").output

    assert len(rows) == 12
    assert "computed from the shape" in shown
    assert all(row["model"] in shown for row in rows)


def test_a_users_config_file_is_a_model(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
    }
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    output = _run("--model", str(folder), "--gpus", "1", "--sequences", "2").output

    assert output.startswith("mine: ")
    assert "parameters (computed)." in output


def test_help_names_the_sums_and_loads_nothing_heavy():
    assert {"kv", "sync", "checkpoint", "models"} <= {
        line.split()[0] for line in _run("--help").output.splitlines() if line.strip()
    }
    code = (
        "import sys; from lagsweep.sweeps.cli.main import main\n"
        "try: main(['ledger', '--help'])\n"
        "except SystemExit: pass\n"
        "bad = {'numba', 'xarray', 'polars', 'scipy'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_size_option_without_a_unit_raises_the_packages_error():
    with pytest.raises(ConfigError, match=r"^--bucket: must be a number with a unit"):
        _run(*MODEL, "--bucket", "5")
