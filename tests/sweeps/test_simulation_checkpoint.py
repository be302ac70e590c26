"""A simulated run stops anywhere, goes through a file, and ends as if it had never stopped."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import general_configs
from strategies.pipeline_configs import pipeline_settings, to_config

from lagsweep.errors import CheckpointError
from lagsweep.sweeps.checkpoint.checkpoint import (
    checkpoint_as_dict,
    latest_checkpoint,
    load_checkpoint,
    restore_rng,
    save_checkpoint,
)
from lagsweep.sweeps.checkpoint.drill_loop import TrainingLoop
from lagsweep.sweeps.checkpoint.manifest import content_digest, manifest_from_dict
from lagsweep.sweeps.checkpoint.simulation import (
    restore_simulation,
    simulation_checkpoint,
    simulation_components,
)
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.runs.general import GeneralRun
from lagsweep.sweeps.runs.simulate import advance_run, finish_run, start_run


def _facts(result):
    """Everything that a run reports, with NaN comparable."""
    tables = [
        json.dumps([dict(row) for row in getattr(result, name)])
        for name in ("batches", "timeline", "rollouts")
    ]
    return json.dumps(result.metrics), result.lag_counts.tolist(), tables


def _uninterrupted(config):
    run = start_run(config, rollouts=True)
    advance_run(run)
    return _facts(finish_run(run))


@given(pipeline_settings(), st.lists(st.floats(0, 1), max_size=4))
def test_any_run_stopped_anywhere_and_resumed_through_json_is_the_uninterrupted_run(drawn, stops):
    config = to_config(drawn)
    run, manifest = start_run(config, rollouts=True), None
    for part in sorted(stops):
        advance_run(run, part * config.duration_seconds)
        manifest = simulation_checkpoint(run, manifest)
        text = json.dumps(checkpoint_as_dict(manifest))
        run = restore_simulation(manifest_from_dict(json.loads(text)))
    advance_run(run)

    assert _facts(finish_run(run)) == _uninterrupted(config)


@given(pipeline_settings(), st.floats(0, 1))
def test_the_manifest_lists_every_rollout_that_is_not_settled(drawn, part):
    config = to_config(drawn)
    run = start_run(config, rollouts=True)
    advance_run(run, part * config.duration_seconds)
    manifest = simulation_checkpoint(run)
    rows = list(enumerate(finish_run(run).rollouts))
    by_outcome = {
        outcome: {(number, row.tokens) for number, row in rows if row.outcome == outcome}
        for outcome in ("queued", "running", "in_training")
    }
    unsettled = {number for pairs in by_outcome.values() for number, _ in pairs}
    listed = {
        "queued": manifest.queue,
        "running": manifest.in_flight,
        "in_training": manifest.state["elsewhere"],
    }

    for outcome, rollouts in listed.items():
        assert {(rollout["number"], rollout["tokens"]) for rollout in rollouts} == by_outcome[outcome]
    assert manifest.dataset_cursor == min(unsettled, default=len(rows))
    assert manifest.counters["next_rollout"] == len(rows)


def _engine_facts(run):
    result = run.result()
    return json.dumps(result.metrics), [
        json.dumps([dict(row) for row in getattr(result, name)])
        for name in ("batches", "timeline", "rollouts")
    ]


@given(general_configs.general_settings(), st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_any_run_of_the_general_engine_resumes_through_json_too(drawn, stops):
    config = general_configs.to_config(drawn)
    record = {"batches": True, "timeline": True, "rollouts": True}
    run, manifest = GeneralRun(config, **record), None
    for part in sorted(stops):
        run.advance(part * config.duration_seconds)
        manifest = simulation_checkpoint(run, manifest)
        run = restore_simulation(manifest_from_dict(json.loads(json.dumps(checkpoint_as_dict(manifest)))))
    run.advance()
    whole = GeneralRun(config, **record)
    whole.advance()

    assert isinstance(run, GeneralRun)
    assert _engine_facts(run) == _engine_facts(whole)


def test_groups_that_wait_run_or_were_popped_are_listed_once_each():
    config = PipelineConfig(
        group_size=4,
        batch_groups=3,
        batch_tokens=None,
        max_queue_tokens=20_000,
        duration_seconds=200,
        prefetch_batches=1,
    )
    run = GeneralRun(config)
    run.advance(100.0)
    manifest = simulation_checkpoint(run)
    listed = [
        record["number"] for record in (*manifest.queue, *manifest.in_flight, *manifest.state["elsewhere"])
    ]

    assert len(listed) == len(set(listed))
    assert manifest.queue
    assert manifest.in_flight
    assert manifest.dataset_cursor == min(listed)
    assert manifest.counters["next_prompt"] > max(listed)
    assert (
        4 * (manifest.counters["next_prompt"] - 1)
        < manifest.counters["next_rollout"]
        <= 4 * (max(listed) + 1)
    )


def test_the_saved_generator_stands_at_the_next_rollouts_block():
    run = start_run(PipelineConfig(seed=2**64 - 1, duration_seconds=60))
    advance_run(run, 30.0)
    manifest = simulation_checkpoint(run)
    number = manifest.counters["next_rollout"]
    words = np.random.Philox(key=2**64 - 1).random_raw(4 * (number + 1))[-4:]

    assert restore_rng(manifest).bit_generator.random_raw(4).tolist() == words.tolist()


RESUME = """
import json, sys
from lagsweep.sweeps.checkpoint.checkpoint import latest_checkpoint, save_checkpoint
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.runs.simulate import advance_run, finish_run, start_run
from lagsweep.sweeps.checkpoint.simulation import (
    restore_simulation, simulation_checkpoint, simulation_components)

folder, until = sys.argv[1], float(sys.argv[2])
config = PipelineConfig.from_dict(json.loads(sys.argv[3]))
found = latest_checkpoint(folder, components=simulation_components(config))
run = start_run(config) if found is None else restore_simulation(found.manifest)
ended = advance_run(run, until)
save_checkpoint(simulation_checkpoint(run, found and found.manifest), f"{folder}/at-{until:.0f}.json")
if ended:
    result = finish_run(run)
    print(json.dumps([result.metrics, result.lag_counts.tolist(), [dict(row) for row in result.batches]]))
"""


def test_a_run_over_four_processes_is_the_run_of_one(tmp_path):
    config = PipelineConfig(duration_seconds=400, max_policy_lag=3, sync_every_updates=2, seed=12016)
    plain = json.dumps(config.to_dict())
    for until in ("37", "153", "154", "400"):
        answer = subprocess.run(
            [sys.executable, "-c", RESUME, str(tmp_path), until, plain], capture_output=True, text=True
        )
        assert answer.returncode == 0, answer.stderr
    run = start_run(config)
    advance_run(run)
    whole = finish_run(run)

    assert json.loads(answer.stdout) == json.loads(
        json.dumps([whole.metrics, whole.lag_counts.tolist(), [dict(row) for row in whole.batches]])
    )
    assert latest_checkpoint(tmp_path, components=simulation_components(config)).path.name == "at-400.json"


def test_a_law_from_a_file_resumes_without_the_file(tmp_path):
    (tmp_path / "lengths.csv").write_text(
        "tokens\n" + "\n".join(str(100 + 7 * k % 90) for k in range(50)) + "\n"
    )
    law = LengthLaw.from_file(tmp_path / "lengths.csv", column="tokens")
    config = PipelineConfig(response_length=law, duration_seconds=60)
    run = start_run(config, rollouts=True)
    advance_run(run, 25.0)
    path = save_checkpoint(simulation_checkpoint(run), tmp_path / "at-25.json")
    (tmp_path / "lengths.csv").unlink()
    resumed = restore_simulation(load_checkpoint(path, components=simulation_components(config)))
    advance_run(resumed)
    advance_run(run)

    assert _facts(finish_run(resumed)) == _facts(finish_run(run))


def test_another_table_of_lengths_is_refused(tmp_path):
    config = PipelineConfig(duration_seconds=60)
    path = save_checkpoint(simulation_checkpoint(start_run(config)), tmp_path / "at-0.json")
    other = config.replace(response_length=LengthLaw.fixed(100))

    with pytest.raises(
        CheckpointError, match=r"got simulation\.response_length: '[0-9a-f]{64}' -> '[0-9a-f]{64}'"
    ):
        load_checkpoint(path, components=simulation_components(other))


def test_a_table_that_changed_under_the_same_settings_is_refused():
    payload = checkpoint_as_dict(simulation_checkpoint(start_run(PipelineConfig(duration_seconds=60))))
    payload["components"]["simulation.response_length"] = "0" * 64
    payload["digest"] = content_digest(payload)

    with pytest.raises(
        CheckpointError, match=r"response_length: must be the table of the save, 000000000000…"
    ):
        restore_simulation(manifest_from_dict(payload))


def test_the_checkpoint_of_something_else_is_refused():
    with pytest.raises(CheckpointError, match="checkpoint: must hold a simulated run"):
        restore_simulation(TrainingLoop(1).run(1).checkpoint())
