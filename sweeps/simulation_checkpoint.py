"""The simulator's own state through the checkpoint manifest: stop anywhere, save, resume bit for bit.

A simulated run has no generator: rollout number i draws from the Philox block i + 1 of its seed, so the
number of the next rollout is the whole state of its draws. The manifest says that in its own terms (a Philox
generator that stands at that block), lists queue and rollouts in flight readably, and carries the event
loop's arrays exactly. The length table's digest is a component: another table would be another run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lagsweep.errors import CheckpointError, message
from lagsweep.kernels import pipeline_layout as layout
from lagsweep.sweeps.checkpoint import Manifest, make_checkpoint
from lagsweep.sweeps.config import PipelineConfig

if TYPE_CHECKING:
    from lagsweep.sweeps.level1 import SingleRun

LENGTH_TABLE = "simulation.length_table"


def simulation_components(config: PipelineConfig) -> dict[str, Any]:
    """Name what must be the same at a resume, for ``load_checkpoint(path, components=...)``.

    Parameters
    ----------
    config : PipelineConfig
        The run's configuration.

    Returns
    -------
    dict
        The digest of the table of response lengths.
    """
    return {LENGTH_TABLE: config.response_length.content_digest}


def simulation_checkpoint(run: SingleRun, previous: Manifest | None = None) -> Manifest:
    """Take the whole state of a simulated run, wherever it was stopped.

    Parameters
    ----------
    run : SingleRun
        From ``start_run``, advanced or not.
    previous : Manifest, optional
        The run's checkpoint before.

    Returns
    -------
    Manifest
        ``current_version`` and ``optimizer_step`` are the trainer's version, ``dataset_cursor`` the first
        rollout that is neither trained nor discarded.

    Examples
    --------
    >>> from lagsweep.sweeps.simulate import advance_run, finish_run, start_run
    >>> config = PipelineConfig(duration_seconds=60)
    >>> run = start_run(config)
    >>> advance_run(run, until_seconds=20.0)
    False
    >>> resumed = restore_simulation(simulation_checkpoint(run))
    >>> advance_run(resumed), advance_run(run)
    (True, True)
    >>> finish_run(resumed).metrics == finish_run(run).metrics
    True
    """
    state, config = run.workspace.state, run.config
    queue = _queued(run, int(state[layout.S_RING_HEAD]))
    in_training = _queued(run, int(state[layout.S_RING_TRAINING]), int(state[layout.S_RING_HEAD]))
    in_flight = _in_flight(run)
    next_rollout = int(state[layout.S_NEXT_ROLLOUT])
    unsettled = [rollout["number"] for rollout in (*queue, *in_training, *in_flight)]
    version = int(state[layout.S_VERSION])
    return make_checkpoint(
        optimizer_step=version,
        current_version=version,
        published_version=int(state[layout.S_PUBLISHED]),
        dataset_cursor=min(unsettled, default=next_rollout),
        rng=np.random.Generator(np.random.Philox(key=config.seed, counter=next_rollout)),
        python_random=False,
        components=simulation_components(config),
        counters={"next_rollout": next_rollout, "events": int(state[layout.S_EVENTS])},
        queue=queue,
        in_flight=in_flight,
        state={
            "config": _self_contained(config),
            "in_training": in_training,
            "record_rollouts": bool(run.params[layout.P_RECORD_ROLLOUTS]),
            "arrays": run.arrays(),
        },
        previous=previous,
    )


def restore_simulation(manifest: Manifest) -> SingleRun:
    """Make a simulated run again; it goes on as if it had never stopped.

    Parameters
    ----------
    manifest : Manifest
        From :func:`simulation_checkpoint`, through a file or not.

    Returns
    -------
    SingleRun
        For ``advance_run`` and ``finish_run``.

    Raises
    ------
    CheckpointError
        If it is the checkpoint of something else, or its configuration now gives another table of lengths.
    """
    from lagsweep.sweeps.simulate import start_run

    state = manifest.state
    if not {"config", "record_rollouts", "arrays"} <= set(state):
        raise CheckpointError(
            message(
                "checkpoint",
                "must hold a simulated run",
                sorted(state),
                "Give one made by simulation_checkpoint.",
            )
        )
    config = PipelineConfig.from_dict(state["config"])
    saved, current = manifest.components.get(LENGTH_TABLE), config.response_length.content_digest
    if saved != current:
        raise CheckpointError(
            message(
                LENGTH_TABLE,
                f"must be the table of the save, {str(saved)[:12]}…",
                f"{current[:12]}…",
                "Resume with the library versions of the save.",
            )
        )
    run = start_run(config, rollouts=state["record_rollouts"])
    run.restore(state["arrays"])
    return run


def _self_contained(config: PipelineConfig) -> dict[str, Any]:
    """Settings as data, with laws from files embedded: a resume does not need the files."""
    plain = config.to_dict()
    plain["response_length"] = config.response_length.to_dict(embed=True)
    return plain


def _queued(run: SingleRun, first: int, last: int | None = None) -> list[dict[str, int]]:
    """Rows of the ring of finished rollouts, as records."""
    ring = run.workspace.ring
    last = int(run.workspace.state[layout.S_RING_TAIL]) if last is None else last
    return [_record(ring[position & (len(ring) - 1)]) for position in range(first, last)]


def _in_flight(run: SingleRun) -> list[dict[str, int]]:
    """Rollouts in the slots that are not idle, by number."""
    workspace = run.workspace
    idle = set(workspace.idle_stack[: workspace.state[layout.S_IDLE]].tolist())
    running = [_record(row) for slot, row in enumerate(workspace.slots) if slot not in idle]
    return sorted(running, key=lambda rollout: rollout["number"])


def _record(row: np.ndarray) -> dict[str, int]:
    return {
        "number": int(row[layout.R_NUMBER]),
        "tokens": int(row[layout.R_TOKENS]),
        "behaviour_version": int(row[layout.R_VERSION]),
    }
