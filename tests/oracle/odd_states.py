"""Saved runs with one place of their state replaced, restored and run on: each is refused, or ends.

As a script (``python odd_states.py SEED COUNT``) it prints how many were refused and how many went on; a
kernel that reads past its arrays ends the process by a signal, which the caller sees.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from lagsweep.errors import CheckpointError, ConfigError
from lagsweep.sweeps.checkpoint.checkpoint import checkpoint_as_dict
from lagsweep.sweeps.checkpoint.codec import decode, encode
from lagsweep.sweeps.checkpoint.manifest import content_digest, manifest_from_dict
from lagsweep.sweeps.checkpoint.simulation import restore_simulation, simulation_checkpoint
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.runs.simulate import start_run

ODD = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 64, 1000, 2**31, 2**40, 2**53, 2**62, 2**63 - 1)
_GROUPS = {"group_size": 3, "batch_groups": 4, "batch_tokens": None, "duration_seconds": 300.0}
CONFIGS = (
    {"duration_seconds": 300.0},
    {"duration_seconds": 300.0, "mode": "sequential"},
    {**_GROUPS, "publication": "abort", "decode_slowdown_per_rollout": 0.1, "max_policy_lag": 1},
    {**_GROUPS, "publication": "drain", "queue_order": "started", "prefetch_batches": 2},
    {**_GROUPS, "queue_order": "freshest", "prompt_sigma": 0.3, "train_slowdown_when_generating": 0.2},
    {**_GROUPS, "queue_order": "random", "stale_check": "dequeue", "stale_action": "requeue"},
    {
        **_GROUPS,
        "cancel_in_flight": True,
        "stale_action": "requeue",
        "max_policy_lag": 0,
        "publication": "pause",
    },
)


def changed(manifest, name: str, index, value):
    """The manifest with one place of one array replaced, and a digest that is right again."""
    payload = checkpoint_as_dict(manifest)
    state = decode(payload["state"])
    array = state["arrays"][name]
    array[index] = value
    payload["state"] = encode(state)
    payload["digest"] = content_digest(payload)
    return manifest_from_dict(json.loads(json.dumps(payload)))


def outcome(manifest) -> str:
    """Restore and run on for at most some steps: ``refused``, ``ended`` or ``still running``."""
    try:
        run = restore_simulation(manifest)
    except CheckpointError:
        return "refused"
    simulation_checkpoint(run)
    try:
        for _ in range(200):
            if run.step(budget=10_000):
                run.result()
                return "ended"
    except ConfigError:
        return "ended"  # more rollouts than memory allows: a run may say so
    return "still running"


def main(seed: int, count: int) -> None:
    """Change places at random, and count what comes of it."""
    rng = np.random.default_rng(seed)
    counts = {"refused": 0, "ended": 0, "still running": 0}
    saved = []
    for settings in CONFIGS:
        config = PipelineConfig(**settings)
        for part in (0.0, 0.31, 0.77):
            run = start_run(config, rollouts=bool(rng.integers(2)))
            run.advance(part * config.duration_seconds)
            saved.append(simulation_checkpoint(run))
    for _ in range(count):
        manifest = saved[rng.integers(len(saved))]
        arrays = manifest.state["arrays"]
        names = [name for name, array in arrays.items() if array.size and array.dtype.kind in "if"]
        name = names[rng.integers(len(names))]
        array = arrays[name]
        place = tuple(int(rng.integers(min(size, 60))) for size in array.shape)
        whole = array.dtype.kind == "i"
        value = ODD[rng.integers(len(ODD))] if whole else rng.choice([np.nan, np.inf, -np.inf, -1.0, 1e300])
        if whole and rng.random() < 0.5:
            value = int(np.clip(int(array[place]) + int(rng.integers(-2, 3)), -(2**63), 2**63 - 1))
        print(name, place, value, file=sys.stderr, flush=True)
        counts[outcome(changed(manifest, name, place, value))] += 1
    print(json.dumps(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
