"""The front door has types: right calls pass a type checker, wrong ones fail, and nothing public is Any."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
import typing
from itertools import pairwise
from pathlib import Path

import pytest

import lagsweep
from lagsweep.kernels.pipeline.metrics import (
    GENERAL_METRICS,
    METRICS,
    OPTIONAL_METRICS,
    MetricAttributes,
    metrics_of_options,
)
from lagsweep.sweeps.config import settings
from lagsweep.sweeps.spec.axes import is_whole

RIGHT = """
from decimal import Decimal
from fractions import Fraction
from typing import Any, assert_type

from hypothesis import given

import numpy as np
import polars as pl
import xarray as xr

import lagsweep as ls
from lagsweep import kernels, testing
from lagsweep.kernels.memory import kv_cache_bytes

base = ls.PipelineConfig(
    rollout_workers=np.int64(16), batch_tokens=2e4, train_tokens_per_second=np.float32(600),
    max_queue_tokens=None, duration_seconds=60, response_length=ls.LengthLaw.shipped("aime-rl-1000"),
    publication="pause",
    limits=[ls.Limit("started", "published", 16), {"groups": 3}, ("finished", "trained", 4)],
    publication_blocks_trainer=np.bool_(True), environment_seconds={"law": "fixed", "seconds": 1.0},
)
assert_type(base.max_policy_lag, int)
assert_type(base.replace(max_policy_lag=4), ls.PipelineConfig)
areal = ls.preset_config("areal", max_head_offpolicyness=2, rollout_workers=32)
ds = ls.run_sweep(base, axes={"max_lag": [1, 2], "sync_cadence": np.arange(1, 3)}, seeds=4, store="results/x")
assert_type(ds, xr.Dataset)
best = ls.recommend(ds, min_ess=0.9)
assert best.cell is not None
run = ls.simulate_pipeline(ls.config_at(ds, best.cell, seed=0))
assert_type(run, ls.PipelineResult)
assert_type(run.updates, int)
assert_type(run.mean_lag, float)
assert_type(run.batches_frame(), pl.DataFrame)
frame: pl.DataFrame = ls.frontier(ds).frame
slots: dict[str, int] = run.slot_ticks
binding = ls.constraint_intervals(run)
table: pl.LazyFrame = ls.read_table("results/x", "batches")
started = ls.start_run(areal)
done: bool = ls.advance_run(started, until_seconds=10)
manifest = ls.simulation_checkpoint(started)
step: int = manifest.optimizer_step
verified: ls.VerifyReport = ls.verify_store("results/x", cell={"max_lag": 1})
spec = ls.load_spec("sweep.toml", max_policy_lag=3).replace(seeds=(0, 1))
report = ls.validate_records("records.jsonl", contract=kernels.RolloutContract(max_policy_lag=2), keep=5)
cache = kernels.memory.kv_cache_bytes(8, [1024, 2048], 28, 8, 128, element_bytes=Fraction(1, 2))
half = kv_cache_bytes(8, np.array([1024, 2048]), 28, 8, 128, element_bytes=Decimal("0.5"))
text: str = kernels.human_bytes(7e9)
lengths = kernels.draws.philox_words(1)
gate = ls.RolloutGate(areal)
begun = gate.start(wait_seconds=0.5)
if begun:
    outcome: str = gate.finish(begun.rollout, tokens=120).outcome
batch = gate.pop()
taken: list[int] = [rollout for group in batch.groups for rollout in group.rollouts]
assert_type(gate.trained().lags, tuple[int, ...])
gate.restore(gate.save())
counts: ls.GateCounts = gate.counts()


class Fifo:
    def __init__(self) -> None:
        self.items: list[testing.Item] = []

    def put(self, item: testing.Item) -> bool:
        self.items.append(item)
        return True

    def take(self, n: int) -> list[testing.Item]:
        return [self.items.pop(0) for _ in range(min(n, len(self.items)))]

    def publish(self, version: int) -> None: ...


@given(testing.configurations("core"), testing.log_ratios(), testing.rollout_records(), testing.token_masks())
def check(config: ls.PipelineConfig, logs: list[float], record: dict[str, Any], mask: np.ndarray) -> None:
    history: list[testing.Event] = testing.simulated_history(config)


testing.check_buffer(Fifo, testing.BufferRules(takes="rest", saves=False))
try:
    pass
except ls.ConfigError as error:
    print(error)
"""

# Each line is one wrong call, and what must be said of it.
WRONG = {
    "ls.PipelineConfig(max_policy_lags=2)": "max_policy_lags",
    "ls.PipelineConfig(max_policy_lag='2')": "max_policy_lag",
    "ls.PipelineConfig(publication='stop')": "publication",
    "ls.PipelineConfig(4)": "positional",
    "ls.PipelineConfig(response_length=300)": "response_length",
    "ls.PipelineConfig().replace(max_policy_lags=2)": "max_policy_lags",
    "ls.PipelineConfig().max_policy_lags": "max_policy_lags",
    "ls.Limit('started', 'published')": "overload",
    "ls.Limit(count='begun', groups=3)": "overload",
    "ls.preset_config('areal', max_head_offpolicynes=2)": "max_head_offpolicynes",
    "ls.preset_config('areal', max_head_offpolicyness='two')": "max_head_offpolicyness",
    "ls.preset_config('trl_grpo', vllm_mode='remote')": "vllm_mode",
    "ls.simulate_pipeline(ls.PipelineConfig(), rollout=True)": "rollout",
    "ls.simulate_pipeline({'max_policy_lag': 2})": "PipelineConfig",
    "ls.simulate_pipeline(ls.PipelineConfig()).update": "update",
    "ls.run_sweep(ls.PipelineConfig(), {'max_lag': [1]}, seeds='all')": "seeds",
    "ls.run_sweep(ls.PipelineConfig(), {'max_lag': [1]}, 1, executor='fibres')": "executor",
    "ls.load_spec('sweep.toml', max_policy_lags=3)": "max_policy_lags",
    "ls.nonsense": "nonsense",
    "ls.RolloutGate(ls.PipelineConfig()).finish('1', 3)": "finish",
    "testing.BufferRules(order='filo')": "order",
    "testing.check_buffer(list, testing.BufferRules())": "Callable[[], Buffer]",
    "testing.nonsense": "nonsense",
    "kernels.nonsense": "nonsense",
    "kernels.memory.nonsense": "nonsense",
    "kernels.kv_cache_bytes(8, '1024', 28, 8, 128)": "SupportsFloat",
    "kernels.require_contract({}, max_lag=2)": "max_lag",
}


def _check(tool: list[str], elsewhere: Path, script: Path) -> list[tuple[int, str]]:
    """Type-check a script as a user of the wheel does; line numbers and texts of the errors."""
    outcome = subprocess.run(
        [sys.executable, "-m", *tool, str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=script.parent,
    )
    assert outcome.returncode in (0, 1), outcome.stdout + outcome.stderr
    found = re.findall(rf"{script.name}:(\d+)(?::\d+)?:? .*?error: (.*)", outcome.stdout)
    assert bool(found) == (outcome.returncode == 1), outcome.stdout
    return [(int(line), text) for line, text in found]


def _mypy(elsewhere: Path) -> list[str]:
    python = elsewhere / "bin" / "python"
    return ["mypy", "--strict", "--python-executable", str(python), "--cache-dir", str(elsewhere / "mypy")]


@pytest.mark.slow
def test_right_calls_against_the_wheel_have_no_error(elsewhere, tmp_path):
    script = tmp_path / "right.py"
    script.write_text(RIGHT)

    assert _check(_mypy(elsewhere), elsewhere, script) == []


@pytest.mark.slow
def test_every_wrong_call_against_the_wheel_is_an_error(elsewhere, tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(
        "import lagsweep as ls\nfrom lagsweep import kernels, testing\n" + "\n".join(WRONG) + "\n"
    )

    found = _check(_mypy(elsewhere), elsewhere, script)

    said = {call: " ".join(t for line, t in found if line == number) for number, call in enumerate(WRONG, 3)}
    assert {call: text for call, text in said.items() if WRONG[call] not in text} == {}


# --- what must be the same in two places ---


def test_the_keyword_arguments_are_the_fields():
    assert list(settings.Settings.__annotations__) == list(lagsweep.PipelineConfig.model_fields)


@pytest.mark.parametrize("name", lagsweep.PipelineConfig.model_fields)
def test_a_keyword_argument_accepts_what_the_field_does(name):
    given = settings.Settings.__annotations__[name].__forward_arg__
    field = lagsweep.PipelineConfig.model_fields[name]
    choices = [choice for choice in typing.get_args(field.annotation) if isinstance(choice, str)]

    assert given.endswith("| None") == (type(None) in typing.get_args(field.annotation))
    assert re.findall(r"'(\w+)'", given) == choices
    if not choices and not {"Law", "Engine"} & set(re.findall("Law|Engine", given)) and given != "Limits":
        kinds = {bool: "Flag", float: "Real", int: "Whole"}
        bare = given.removesuffix(" | None")
        assert bare == ("Whole" if is_whole(name) else kinds.get(field.annotation, "Real"))


def test_editors_show_the_line_of_each_field():
    body = next(
        node.body
        for node in ast.parse(inspect.getsource(settings)).body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    )
    shown = {
        field.target.id: line.value.value
        for field, line in pairwise(body)
        if isinstance(field, ast.AnnAssign)
    }

    assert shown == {name: f.description for name, f in lagsweep.PipelineConfig.model_fields.items()}


def test_help_lists_every_field_with_its_line_and_default():
    text = pydoc.render_doc(lagsweep.PipelineConfig, renderer=pydoc.plaintext)

    for name, field in lagsweep.PipelineConfig.model_fields.items():
        default = "LengthLaw.lognormal()" if field.default_factory else repr(field.default)
        assert field.description
        assert re.search(
            rf"{name} : default {re.escape(default)}, "
            rf".*(core|generation|rules|failures)\n.*{field.description}",
            text,
        )
    assert "duration_seconds : default 120.0, s, core" in text


def test_the_knobs_of_all_presets_are_keyword_arguments():
    knobs = {knob.name: knob for preset in lagsweep.all_presets().values() for knob in preset.knobs}
    given = settings.PresetSettings.__annotations__

    assert set(given) == {*knobs, *lagsweep.PipelineConfig.model_fields}
    for name, knob in knobs.items():
        text = given[name].__forward_arg__
        assert tuple(re.findall(r"'(\w+)'", text)) == knob.choices
        assert (text == "bool") == isinstance(knob.default, bool)
        assert text.endswith("| None") == (knob.default is None)


def test_a_result_declares_every_metric():
    kinds = {"int64": "int", "float64": "float"}
    told = (*METRICS, *GENERAL_METRICS, *metrics_of_options(OPTIONAL_METRICS))
    expected = {metric.name: kinds[metric.dtype] for metric in told}

    assert MetricAttributes.__annotations__ == expected | {"stalled": "bool"}


# --- no Any at the front door ---

# What really is anything: an item of a row, what a user put into a checkpoint.
# What a user keeps in a checkpoint, and what a user's own rules are asked and answer.
OPEN = {"Manifest.queue", "Manifest.in_flight", "Manifest.state", "Custom.admits", "Custom.tokens"}
# What a user's own buffer is given and answers, and the fields of a record or a preset.
OPEN |= {"Buffer.put", "Buffer.take", "Buffer.publish", "good_record", "preset_configurations"}


def _public():
    """Return every public function and class once, by name."""
    found = {}
    for module in (lagsweep, lagsweep.kernels):
        topics = [getattr(module, name) for name in module.__all__]
        for place in (module, *(topic for topic in topics if hasattr(topic, "__all__"))):
            found |= {name: getattr(place, name) for name in place.__all__}
    return {name: thing for name, thing in found.items() if callable(thing)}


def _functions(name, thing):
    if not inspect.isclass(thing):
        yield name, inspect.unwrap(thing)
    elif not issubclass(thing, Exception):
        for member, raw in vars(thing).items():
            function = getattr(raw, "__func__", None) or getattr(raw, "fget", None) or raw
            function = getattr(function, "func", function)
            if inspect.isfunction(function) and not member.startswith(("_", "model_")):
                yield f"{name}.{member}", function


def test_nothing_public_is_any():
    loose = []
    for name, thing in _public().items():
        for path, function in _functions(name, thing):
            signature = inspect.signature(function)
            hints = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
            hints["return"] = signature.return_annotation
            for where, hint in hints.items():
                untyped = hint is inspect.Signature.empty and where not in {"self", "cls"}
                if path not in OPEN and (untyped or str(hint) in {"Any", "Any | None"}):
                    loose.append(f"{path}({where})")
        fields = inspect.get_annotations(thing) if inspect.isclass(thing) else {}
        loose += [f"{name}.{field}" for field, hint in fields.items() if str(hint) in {"Any", "Any | None"}]

    assert loose == []
