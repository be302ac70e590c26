"""A real model, a tiny one: needs the extra ``model`` (``make test-model``); nothing here is skipped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from lagsweep.errors import CheckpointError, ConfigError
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.real_model.lags import lag_curve
from lagsweep.sweeps.real_model.models import LETTERS, digest_of, one_thread, prepare, read_facts
from lagsweep.sweeps.real_model.policies import ModelLearner, ModelSampler, batch_of
from lagsweep.sweeps.real_model.resume import WEIGHTS, Run, restore, save
from lagsweep.sweeps.real_model.workloads import model_choice, workload_of

pytestmark = pytest.mark.model

TINY = model_choice("tiny-qwen3")
WORK = workload_of(TINY)
SETTINGS = asdict(WORK)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    prepare(TINY, folder, WORK.seed)
    return folder


# The model and its samples


def test_the_tiny_model_is_made_from_its_seed(model, tmp_path):
    again, other = tmp_path / "again", tmp_path / "other"
    for folder, seed in ((again, WORK.seed), (other, WORK.seed + 1)):
        folder.mkdir()
        prepare(TINY, folder, seed)

    weights = [(one / "weights.safetensors").read_bytes() for one in (model, again, other)]
    assert weights[0] == weights[1] != weights[2]
    assert read_facts(model).prompts == read_facts(again).prompts
    assert 50_000 < read_facts(model).parameters < 200_000


def test_samples_come_from_the_seed_and_end_as_they_say(model):
    facts = read_facts(model)
    groups = [
        [ModelSampler(model, {**SETTINGS, "seed": seed}).sample(3, 7) for _ in range(2)] for seed in (1, 2)
    ]

    assert groups[0][0] == groups[0][1]
    assert groups[0][0] != groups[1][0]
    for record in (one for pair in groups for group in pair for one in group):
        tokens = record["response_tokens"]
        assert 1 <= len(tokens) == len(record["behavior_logprobs"]) <= WORK.max_new_tokens
        assert (tokens[-1] in facts.eos) == (record["stop_reason"] == "eos")
        assert not set(tokens[:-1]) & set(facts.eos)
        assert all(value <= 0 for value in record["behavior_logprobs"])
        assert record["policy_version"] == 7


def _gpt2(folder, model):
    """A model with absolute positions, under the facts of the tiny one: a wrong position shows there."""
    import torch
    from safetensors.torch import save_file
    from transformers import GPT2Config, GPT2LMHeadModel

    facts = read_facts(model)
    config = GPT2Config(vocab_size=facts.vocabulary, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        made = GPT2LMHeadModel(config)
    config.to_json_file(folder / "config.json", use_diff=False)
    save_file(
        {name: one.detach().clone() for name, one in made.named_parameters()}, folder / "weights.safetensors"
    )
    for name in (LETTERS, "facts.json"):
        (folder / name).write_bytes((model / name).read_bytes())


@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
def test_scores_of_whole_responses_are_those_of_sampling_token_by_token(kind, model, tmp_path):
    if kind == "gpt2":
        _gpt2(tmp_path, model)
    folder = tmp_path if kind == "gpt2" else model
    sampler, learner = ModelSampler(folder, SETTINGS), ModelLearner(folder, SETTINGS)
    sampler.model = learner.model  # in float32: what is left is the order of sums
    for number in range(4):
        group = sampler.sample(number, 0)
        _, told, lengths = batch_of(group, 0)
        active = np.arange(told.shape[1]) < lengths[:, None]
        np.testing.assert_allclose(learner.scores(group)[active], told[active], atol=2e-5)


# Old and new policies


@pytest.fixture(scope="module")
def curve(model):
    return lag_curve(ModelSampler(model, SETTINGS), ModelLearner(model, SETTINGS), WORK)


def test_samples_lose_weight_as_the_policy_moves_on_and_sequences_more_than_tokens(curve):
    assert [row["lag"] for row in curve.rows] == [0, 1, 2, 3, 4]
    assert curve.rows[0]["token"] > 0.999
    assert curve.rows[-1]["token"] < curve.rows[1]["token"] < curve.rows[0]["token"]
    for row in curve.rows[1:]:
        assert row["sequence"] < row["token"] < 1
        assert row["sequence"] < row["sequence_geometric"] < 1
        assert row["drift"] > 0
    assert [row["update"] for row in curve.updates] == [1, 2, 3, 4]


def test_every_record_keeps_the_contract_and_every_fault_is_found(curve):
    assert len(curve.held) == WORK.held_groups * WORK.group_size
    assert curve.faults[0]["findings"] == 0
    assert all(row["findings"] >= 1 for row in curve.faults[1:])
    assert curve.active_tokens == sum(len(record["response_tokens"]) for record in curve.held)


def test_the_curve_is_the_same_from_the_same_seed(curve, model):
    again = lag_curve(ModelSampler(model, SETTINGS), ModelLearner(model, SETTINGS), WORK)

    assert again.rows == curve.rows
    assert [row["loss"] for row in again.updates] == [row["loss"] for row in curve.updates]


def test_training_raises_the_reward(model):
    work = {**SETTINGS, "learning_rate": 3e-3, "group_size": 16}
    sampler, learner = ModelSampler(model, work), ModelLearner(model, work)
    rewards = []
    for number in range(40):
        rewards.append(learner.train(sampler.sample(number, learner.version))["reward"])
        sampler.follow(learner)

    assert np.mean(rewards[-10:]) > np.mean(rewards[:10]) + 0.1


# Checkpoints


def test_a_resume_has_the_losses_and_weights_of_the_run_that_went_on(model, tmp_path):
    run = Run(model, WORK)
    run.updates(3, 1)
    manifest = save(run, tmp_path)
    wanted = [one.hex() for one in run.updates(4, 1)]
    again = Run(model, WORK)
    restore(again, tmp_path)

    assert len(manifest.queue) == 1, "a group of an older policy waits"
    assert manifest.queue[0][0]["policy_version"] < manifest.current_version
    assert [one.hex() for one in again.updates(4, 1)] == wanted
    assert digest_of(again.learner.model) == digest_of(run.learner.model)
    assert again.queue == run.queue


@pytest.mark.parametrize("lost", ["optimizer", "generator", "queue"])
def test_a_resume_that_loses_a_part_trains_on_otherwise(lost, model, tmp_path):
    run = Run(model, WORK)
    run.updates(3, 1)
    save(run, tmp_path)
    wanted = run.updates(4, 1)
    again = Run(model, WORK)
    restore(again, tmp_path)
    if lost == "optimizer":
        again.learner.optimizer.state.clear()
    elif lost == "generator":
        again.sampler.random.manual_seed(WORK.seed)
    else:
        again.queue.clear()

    assert again.updates(4, 1) != wanted


def test_an_altered_checkpoint_is_refused(model, tmp_path):
    run = Run(model, WORK)
    save(run, tmp_path)
    content = bytearray((tmp_path / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (tmp_path / WEIGHTS).write_bytes(content)

    with pytest.raises(CheckpointError, match=WEIGHTS):
        restore(Run(model, WORK), tmp_path)


# The hub, without one


def test_a_hubs_model_that_cannot_be_had_is_refused_with_a_way_out(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    choice = model_choice("nobody/nothing@" + 40 * "0")

    with pytest.raises(ConfigError, match="must be in the hub's cache or to be fetched"):
        prepare(choice, tmp_path, 0)


# The section, end to end


def test_the_section_measures_everything_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    arguments = ["--model", "tiny-qwen3", "--output", str(tmp_path / "out"), "--json"]
    with pytest.raises(SystemExit) as stopped:
        main(["lab", "--profile", "real-model", *arguments])
    document = json.loads(capsys.readouterr().out)
    tables = document["sections"][9]["tables"]

    assert stopped.value.code == 0
    assert [section["number"] for section in document["sections"]] == list(range(1, 11))
    assert document["sections"][9]["plots"] == ["real_lags", "real_prediction"]
    assert [row["equal_losses"] for row in tables["real_resume"]] == [True, True, False]
    assert [row["lag"] for row in tables["real_loops"]] == [0.0, pytest.approx(1.0, abs=0.1)]
    for row in tables["real_prediction"]:
        assert row["low"] <= row["predicted"] <= row["high"]
        assert row["measured"] > 0
    assert tables["real_contract"][0]["findings"] == 0
    assert (tmp_path / "out" / "plots" / "real_lags.svg").exists()
    assert list(temporary.glob("lagsweep-*")) == []  # torch may make a cache folder of its own


# The command, but for the nine sections before.
TENTH_ALONE = """
import lagsweep.sweeps.lab.lab as lab
from lagsweep.sweeps.cli import main
from lagsweep.sweeps.real_model.workloads import model_choice

lab.run_lab = lambda profile, model, tell: iter([lab.real_model_section(model_choice(model), tell)])
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_ends_its_processes_and_leaves_nothing(number, code, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr:
        running = subprocess.Popen(
            [
                *(sys.executable, "-c", TENTH_ALONE, "lab"),
                *("--profile", "real-model", "--model", "tiny-qwen3", "--output", str(tmp_path / "out")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        end = time.monotonic() + 300
        while b"two processes" not in errors.read_bytes() or not list(temporary.glob("*/loops/weights/*")):
            assert running.poll() is None, errors.read_text()
            assert time.monotonic() < end
            time.sleep(0.02)
        running.send_signal(number)
        assert running.wait(60) == code

    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "out").exists()
    assert not [one for one in Path("/proc").glob("[0-9]*") if str(temporary).encode() in _environment(one)]


def _environment(process):
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
