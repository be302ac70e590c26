"""What no engine can be, through every door: a sentence with field, rule, value and way out, and exit 2."""

from __future__ import annotations

import json

import pytest
from oracle.every_command import run

import lagsweep as ls

SHORT = ["--duration-seconds", "60", "--rollout-workers", "8", "--quiet"]
STEP = ["--engine-step-seconds", "0.02"]
LONGEST = 2048  # of the default length law
LOG = {
    "arrival_s": [0.1 * k for k in range(12)],
    "prompt_tokens": [50] * 12,
    "output_tokens": [40 + k for k in range(12)],
    "e2e_s": [1.0 + 0.02 * k for k in range(12)],
}
# Flags, and how the sentence begins.
BAD = {
    "a cache below one rollout": (
        [*STEP, "--engine-kv-cache-tokens", "2000", "--prompt-tokens", "100"],
        "engine.kv_cache_tokens: must hold one rollout: at least 2148, prompt_tokens and the longest "
        "response, 148 more than it does (got 2000). Raise it, or cut the length law.",
    ),
    "a step beyond the clock": (
        ["--engine-step-seconds", "1", "--engine-step-seconds-per-context-token", "3e6"],
        "engine.step_seconds: a step could last",
    ),
    "a prefill beyond the clock": (
        ["--engine-step-seconds", "1", "--engine-prefill-seconds-per-token", "3e6"],
        "engine.step_seconds: a step could last",
    ),
    "steps whose context overflows a sum": (
        ["--engine-step-seconds", "1e-12", "--duration-seconds", "1e6"],
        "engine.step_seconds: is too short for a run of 1e+06 s",
    ),
    "a run beyond the clock": (
        [*STEP, "--duration-seconds", "4398046.511104"],
        "duration_seconds: must be below 4398046.511104 (2**42 ticks) with an engine (got 4398046.511104)",
    ),
    "a speed beside an engine": (
        [*STEP, "--decode-tokens-per-second", "40"],
        "decode_tokens_per_second: has no effect beside an engine, whose steps say how fast it decodes and "
        "prefills (got 40.0). Drop one of the two.",
    ),
    "a slowdown beside an engine": (
        [*STEP, "--decode-slowdown-per-rollout", "0.01"],
        "decode_slowdown_per_rollout: has no effect beside an engine",
    ),
    "a re-prefill beside an engine": (
        [*STEP, "--publication", "abort", "--reprefill-tokens-per-second", "900"],
        "reprefill_tokens_per_second: has no effect beside an engine",
    ),
}


def field_of(flag):
    """The path of a flag in a spec."""
    name = flag.removeprefix("--").replace("-", "_")
    return name.replace("engine_", "engine.", 1) if name.startswith("engine_") else name


@pytest.mark.parametrize(("flags", "text"), BAD.values(), ids=BAD)
def test_flags_of_simulate_are_refused_with_the_sentence(flags, text):
    answer = run(["simulate", *SHORT, *flags, "--json"])

    assert answer.code == 2
    assert answer.err.decode().startswith(f"error: {text}")
    (finding, *_) = json.loads(answer.out)["error"]["findings"]
    assert finding["field"] == text.partition(":")[0]
    assert finding["way_out"]


@pytest.mark.parametrize(("flags", "text"), BAD.values(), ids=BAD)
def test_a_spec_and_python_say_the_same(tmp_path, flags, text):
    pairs = [(field_of(flag), value) for flag, value in zip(flags[::2], flags[1::2])]
    plain = {"duration_seconds": "60", "rollout_workers": "8"} | dict(pairs)
    lines = ["[base]"]
    lines += [f"{name} = {json.dumps(value) if value == 'abort' else value}" for name, value in plain.items()]
    (tmp_path / "s.toml").write_text("\n".join(lines))
    answer = run(["run", str(tmp_path / "s.toml"), "--dry-run"])
    assert answer.code == 2
    assert f"base.{text}" in answer.err.decode()

    numbers = {name: value if value == "abort" else float(value) for name, value in plain.items()}
    fields = {name: value for name, value in numbers.items() if not name.startswith("engine.")}
    whole = {"rollout_workers", "prompt_tokens"}
    fields = {name: int(value) if name in whole else value for name, value in fields.items()}
    engine = {
        name.removeprefix("engine."): int(value) if name.endswith("tokens") else value
        for name, value in numbers.items()
        if name.startswith("engine.")
    }
    with pytest.raises(ls.ConfigError) as caught:
        ls.PipelineConfig(**fields, engine=ls.Engine(**engine))
    assert any(str(finding).startswith(text) for finding in caught.value.findings)


def test_at_the_limits_a_configuration_is_taken():
    exact = ls.Engine(step_seconds=0.02, kv_cache_tokens=LONGEST + 100)
    assert ls.PipelineConfig(engine=exact, prompt_tokens=100).engine == exact
    assert ls.PipelineConfig(engine=exact, prompt_tokens=100, duration_seconds=4398046.511103)
    with pytest.raises(ls.ConfigError, match="1 more than it does"):
        ls.PipelineConfig(engine=exact, prompt_tokens=101)


@pytest.mark.parametrize("command", ["fit", "show"])
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"output_tokens": None}, "column of output: is required"),
        ({"prompt_tokens": None}, "column of prompt: is required"),
        ({"e2e_s": [1000.0 + k for k in range(12)]}, "it looks like another unit"),
        ({"e2e_s": None, "e2e": [1.0] * 12}, "must have a unit, and its name says none"),
        ({"arrival_s": None, "arrival": [0.1] * 12}, "must have a unit, and its name says none"),
    ],
    ids=["no answers", "no prompts", "milliseconds", "no unit", "arrivals without a unit"],
)
def test_columns_missing_or_in_milliseconds_are_refused_or_asked_for(tmp_path, command, changes, text):
    rows = {name: column for name, column in {**LOG, **changes}.items() if column is not None}
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values()))]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    (tmp_path / "e.toml").write_text("step_seconds = 0.02")
    arguments = {
        "fit": ["fit", tmp_path / "log.csv", "--model", "Llama-3.1-8B", "--accelerator", "H100"],
        "show": ["show", tmp_path / "e.toml", tmp_path / "log.csv"],
    }[command]
    answer = run(["engine", *map(str, arguments)])

    assert answer.code == 2
    assert text in answer.err.decode()
    assert answer.out == b""


def test_a_unit_that_is_said_is_followed(tmp_path):
    rows = {**LOG, "e2e_s": [1000.0 * value for value in LOG["e2e_s"]]}
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values()))]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    (tmp_path / "e.toml").write_text("step_seconds = 0.02")
    answer = run(
        ["engine", "show", str(tmp_path / "e.toml"), str(tmp_path / "log.csv"), "--unit", "end_to_end=ms"]
    )
    assert answer.code == 0, answer.err


def test_a_request_that_no_cache_holds_is_named_by_its_row(tmp_path):
    lines = [",".join(LOG), *(",".join(map(str, row)) for row in zip(*LOG.values()))]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    (tmp_path / "e.toml").write_text("step_seconds = 0.02\nkv_cache_tokens = 95")
    answer = run(["engine", "show", str(tmp_path / "e.toml"), str(tmp_path / "log.csv")])

    assert answer.code == 2
    assert "must fit engine.kv_cache_tokens, 95, with its prompt" in answer.err.decode()
    assert "50 + 46" in answer.err.decode()
