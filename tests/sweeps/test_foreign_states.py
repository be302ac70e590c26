"""States of simulated runs that somebody else made: refused by name before a kernel reads past an array."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from oracle.odd_states import CONFIGS, changed, outcome

from lagsweep.errors import CheckpointError
from lagsweep.kernels.pipeline import records
from lagsweep.kernels.pipeline.records import EVENT_NAMES
from lagsweep.sweeps.checkpoint.checkpoint import checkpoint_as_dict
from lagsweep.sweeps.checkpoint.codec import decode, encode
from lagsweep.sweeps.checkpoint.manifest import content_digest, manifest_from_dict
from lagsweep.sweeps.checkpoint.simulation import restore_simulation, simulation_checkpoint
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.runs.simulate import start_run

LEAN, ABORTING, STARTED = CONFIGS[0], CONFIGS[2], CONFIGS[3]


def _saved(settings, part=0.5):
    config = PipelineConfig(**settings)
    run = start_run(config, rollouts=True)
    run.advance(part * config.duration_seconds)
    return simulation_checkpoint(run)


def _with_state(manifest, **changes):
    payload = checkpoint_as_dict(manifest)
    payload["state"] = encode(decode(payload["state"]) | changes)
    payload["digest"] = content_digest(payload)
    return manifest_from_dict(payload)


def _field(manifest, name, field):
    """The place of a named field in a saved array of records."""
    lean = not manifest.state["engine"]
    kinds = {
        "state": records.LEAN_STATE if lean else records.GENERAL_STATE,
        "slots": records.ROLLOUT if lean else records.SLOT,
        "ring": records.ROLLOUT,
        "groups": records.GROUP,
        "members": records.MEMBER,
        "timeline_rows": records.LEAN_TIMELINE if lean else records.GENERAL_TIMELINE,
    }
    whole = [n for n in kinds[name].names if kinds[name][n].kind == "i"]
    return whole.index(field)


@pytest.mark.parametrize("settings", CONFIGS)
@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 1.0])
def test_every_state_that_a_run_can_have_is_taken(settings, part):
    assert outcome(_saved(settings, part)) == "ended"


@pytest.mark.parametrize(
    ("settings", "name", "field", "value"),
    [
        (LEAN, "state", "idle", 10_000),  # a stack longer than the slots
        (LEAN, "state", "ring_tail", 2**40),  # a queue longer than its ring
        (LEAN, "state", "ring_head", -1),
        (LEAN, "state", "queue_tokens", 2**60),  # a batch that never has its tokens
        (LEAN, "state", "version", -1),
        (LEAN, "state", "published", 2**40),
        (LEAN, "state", "batch_rows", 2**40),
        (LEAN, "state", "next_rollout", 2**40),
        (LEAN, "state", "now", 2**62),
        (ABORTING, "state", "decoding", 10_000),  # a place in the table of rates
        (ABORTING, "state", "work", 2**63 - 1),
        (ABORTING, "state", "free_head", 2**30),
        (ABORTING, "state", "popped_head", 2**30),
        (ABORTING, "state", "idle_cause", 99),
        (ABORTING, "state", "channel", 7),
        (ABORTING, "state", "needed", 2**40),
        (STARTED, "state", "front_count", 10_000),
        (STARTED, "state", "starting", 2**30),
    ],
)
def test_a_state_out_of_range_is_refused_by_its_name(settings, name, field, value):
    manifest = _saved(settings)
    with pytest.raises(CheckpointError, match=r"state\.arrays\."):
        restore_simulation(changed(manifest, name, _field(manifest, name, field), value))


def test_a_list_of_groups_that_is_a_circle_is_refused():
    manifest = _saved(ABORTING)
    groups = manifest.state["arrays"]["groups"]
    following = _field(manifest, "groups", "next")
    free = int(manifest.state["arrays"]["state"][_field(manifest, "state", "free_head")])
    assert free > 0
    for target in (free, len(groups), -1):
        with pytest.raises(CheckpointError, match=r"free_head|groups\.next"):
            restore_simulation(changed(manifest, "groups", (free, following), target))


def test_a_tree_that_does_not_hold_its_smallest_key_is_refused():
    for settings, name in ((LEAN, "tree"), (ABORTING, "time_tree"), (ABORTING, "work_tree")):
        manifest = _saved(settings)
        for value in (0, 1, -1):
            with pytest.raises(CheckpointError, match=name):
                restore_simulation(changed(manifest, name, 1, value))


@pytest.mark.parametrize("field", ["mark", "target", "done", "tail"])
def test_a_decode_that_publications_moved_is_refused_if_it_does_not_add_up(field):
    manifest = _saved({**ABORTING, "decode_slowdown_per_rollout": 0.0})
    run = restore_simulation(manifest)
    assert run.parameters["moves_ends"][0] == 1
    slots, leaves = run.held.slots, int(run.parameters[0].leaves)
    within = run.held.time_tree[leaves : leaves + len(slots)] != records.NEVER
    slot = int(np.flatnonzero((slots["phase"] == records.TIMED) & within)[0])
    place = (slot, _field(manifest, "slots", field))
    for value in (int(slots[field][slot]) + 1, -1, 2**62):
        with pytest.raises(CheckpointError, match=r"state\.arrays\."):
            restore_simulation(changed(manifest, "slots", place, value))


def test_what_slots_keep_of_their_rollouts_is_filled_in_or_refused():
    """A state saved before slots kept the version at a rollout's start goes on as if it had it."""
    manifest = _saved({**ABORTING, "decode_slowdown_per_rollout": 0.0})
    kept = restore_simulation(manifest)
    version = _field(manifest, "slots", "rest")
    old = manifest
    for slot in range(len(kept.held.slots)):
        old = changed(old, "slots", (slot, version), 0)
    again = restore_simulation(old)
    busy = kept.held.slots["phase"] != records.EMPTY
    assert kept.held.slots["rest"][busy].max() > 0
    assert (again.held.slots["rest"] == kept.held.slots["rest"])[busy].all()

    for value in (10**6, -1):
        with pytest.raises(CheckpointError, match=r"state\.arrays\."):
            restore_simulation(changed(manifest, "slots", (0, _field(manifest, "slots", "group")), value))


def test_an_event_of_a_recorded_row_that_has_no_name_is_refused():
    manifest = _saved(LEAN)
    for value in (-1, len(EVENT_NAMES), 2**40):
        place = (0, _field(manifest, "timeline_rows", "event"))
        with pytest.raises(CheckpointError, match=r"timeline_rows\.event"):
            restore_simulation(changed(manifest, "timeline_rows", place, value))


@pytest.mark.parametrize("settings", [LEAN, ABORTING])
@pytest.mark.parametrize(
    "change",
    [
        lambda array: array[:-1],
        lambda array: array[:0],
        lambda array: np.ones(array.shape, np.int32),
        lambda array: np.ones(array.shape, np.float32),
        lambda array: array.reshape(-1, 1, 1),
        lambda array: array.tolist(),
        lambda array: None,
    ],
)
def test_an_array_of_another_shape_or_type_is_refused(settings, change):
    manifest = _saved(settings)
    arrays = manifest.state["arrays"]
    for name, array in arrays.items():
        if name == "seed" or not array.size:
            continue
        replaced = change(array)
        rows = name.endswith(("_rows", "_floats")) and isinstance(replaced, np.ndarray)
        if rows and replaced.dtype == array.dtype and replaced.ndim == array.ndim and len(replaced):
            continue  # rows to spare may be fewer
        if name == "rollout_rows" and isinstance(replaced, np.ndarray) and not len(replaced):
            continue  # a run that keeps none
        with pytest.raises(CheckpointError, match=r"state\.arrays"):
            restore_simulation(_with_state(manifest, arrays={**arrays, name: replaced}))
    for fewer in ({}, None, 3, {"state": arrays["state"]}, {**arrays, "more": arrays["state"]}):
        with pytest.raises(CheckpointError, match=r"state\.arrays"):
            restore_simulation(_with_state(manifest, arrays=fewer))


def test_settings_and_loops_that_no_save_has_are_refused():
    manifest = _saved(ABORTING)
    for engine in (False, 0, "yes", None):
        with pytest.raises(CheckpointError, match=r"state\.engine"):
            restore_simulation(_with_state(manifest, engine=engine))
    config = manifest.state["config"]
    for settings in ({**config, "rollout_workers": -1}, {**config, "x": 1}, {**config, "rollout_workers": 3}):
        with pytest.raises(CheckpointError, match=r"state\.(config|arrays)"):
            restore_simulation(_with_state(manifest, config=settings))


def test_states_changed_at_random_never_end_the_process():
    script = Path(__file__).parent.parent / "oracle" / "odd_states.py"
    ended = subprocess.run(
        [sys.executable, script, "12016", "300"], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    counts = json.loads(ended.stdout)
    assert counts["still running"] == 0
    assert min(counts["refused"], counts["ended"]) > 50
