"""The simulator's own state through the checkpoint manifest: stop anywhere, save, resume bit for bit.

A simulated run has no generator: rollout number i draws from the Philox block i + 1 of its seed, so the
number of the next rollout is the whole state of its draws. The manifest says that in its own terms (a Philox
generator that stands at that block), lists queue and rollouts in flight readably, and carries the event
loop's arrays exactly. The digests of the laws are components: another table would be another run.

Both loops are known: the fast one of level 1 and the general engine, whose queue holds groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.errors import CheckpointError
from ...kernels.pipeline import lean_layout as pipeline_layout
from ...kernels.pipeline import state as engine_state
from ..config.config import PipelineConfig
from ..runs.general import EngineRun
from ..runs.lean import SingleRun
from .checkpoint import Manifest, make_checkpoint

LAWS = ("response_length", "environment_seconds")
Records = list[dict[str, int]]


def simulation_components(config: PipelineConfig) -> dict[str, Any]:
    """Name what must be the same at a resume, for ``load_checkpoint(path, components=...)``.

    Parameters
    ----------
    config : PipelineConfig
        The run's configuration.

    Returns
    -------
    dict
        The digests of the tables of its laws.
    """
    laws = {name: getattr(config, name) for name in LAWS}
    return {f"simulation.{name}": law.content_digest for name, law in laws.items() if law is not None}


def simulation_checkpoint(run: SingleRun | EngineRun, previous: Manifest | None = None) -> Manifest:
    """Take the whole state of a simulated run, wherever it was stopped.

    Parameters
    ----------
    run : SingleRun or EngineRun
        From ``start_run``; advanced or not.
    previous : Manifest, optional
        The run's checkpoint before.

    Returns
    -------
    Manifest
        ``current_version`` and ``optimizer_step`` are the trainer's version, ``dataset_cursor`` the first
        prompt (rollout, or group of rollouts) that has not left the pipeline.

    Examples
    --------
    >>> from lagsweep import advance_run, finish_run, start_run
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
    view = _engine_view(run) if isinstance(run, EngineRun) else _level_1_view(run)
    live = [record["number"] for part in ("queue", "in_flight", "elsewhere") for record in view[part]]
    version, next_prompt = view["version"], view["next_prompt"]
    return make_checkpoint(
        optimizer_step=version,
        current_version=version,
        published_version=view["published"],
        dataset_cursor=min(live, default=next_prompt),
        rng=np.random.Generator(np.random.Philox(key=run.config.seed, counter=view["next_rollout"])),
        python_random=False,
        components=simulation_components(run.config),
        counters={
            "next_rollout": view["next_rollout"],
            "next_prompt": next_prompt,
            "events": view["events"],
        },
        queue=view["queue"],
        in_flight=view["in_flight"],
        state={
            "config": _self_contained(run.config),
            "engine": isinstance(run, EngineRun),
            "elsewhere": view["elsewhere"],
            "record_rollouts": view["record_rollouts"],
            "arrays": run.arrays(),
        },
        previous=previous,
    )


def restore_simulation(manifest: Manifest) -> SingleRun | EngineRun:
    """Make a simulated run again; it goes on as if it had never stopped.

    Parameters
    ----------
    manifest : Manifest
        From :func:`simulation_checkpoint`, through a file or not.

    Returns
    -------
    SingleRun or EngineRun
        For ``advance_run`` and ``finish_run``.

    Raises
    ------
    CheckpointError
        If it is the checkpoint of something else, or its configuration now gives another table.
    """
    state = manifest.state
    if not {"config", "engine", "record_rollouts", "arrays"} <= set(state):
        raise CheckpointError(
            "checkpoint",
            "must hold a simulated run",
            sorted(state),
            "Give one made by simulation_checkpoint.",
        )
    config = PipelineConfig.from_dict(state["config"])
    for name, current in simulation_components(config).items():
        saved = manifest.components.get(name)
        if saved != current:
            raise CheckpointError(
                name,
                f"must be the table of the save, {str(saved)[:12]}…",
                f"{current[:12]}…",
                "Resume with the library versions of the save.",
            )
    if state["engine"]:
        return EngineRun.from_arrays(config, state["arrays"])
    run = SingleRun(config, rollouts=state["record_rollouts"])
    run.restore(state["arrays"])
    return run


def _self_contained(config: PipelineConfig) -> dict[str, Any]:
    """Settings as data, with laws from files embedded: a resume does not need the files."""
    plain = config.to_dict()
    for name in LAWS:
        law = getattr(config, name)
        if law is not None:
            plain[name] = law.to_dict(embed=True)
    return plain


def _level_1_view(run: SingleRun) -> dict[str, Any]:
    """What the manifest says about a level 1 run; `elsewhere` is the batch in training."""
    layout, workspace = pipeline_layout, run.workspace
    state, ring = workspace.state, workspace.ring
    training, head, tail = (
        int(state[place]) for place in (layout.S_RING_TRAINING, layout.S_RING_HEAD, layout.S_RING_TAIL)
    )

    def record(row: np.ndarray) -> dict[str, int]:
        columns = (("number", layout.R_NUMBER), ("tokens", layout.R_TOKENS))
        return {
            **{name: int(row[column]) for name, column in columns},
            "behaviour_version": int(row[layout.R_VERSION]),
        }

    def waiting(first: int, last: int) -> Records:
        return [record(ring[position & (len(ring) - 1)]) for position in range(first, last)]

    idle = set(workspace.idle_stack[: state[layout.S_IDLE]].tolist())
    running = [record(row) for slot, row in enumerate(workspace.slots) if slot not in idle]
    return {
        "version": int(state[layout.S_VERSION]),
        "published": int(state[layout.S_PUBLISHED]),
        "next_rollout": int(state[layout.S_NEXT_ROLLOUT]),
        "next_prompt": int(state[layout.S_NEXT_ROLLOUT]),
        "events": int(state[layout.S_EVENTS]),
        "record_rollouts": bool(run.params[layout.P_RECORD_ROLLOUTS]),
        "queue": waiting(head, tail),
        "in_flight": sorted(running, key=lambda rollout: rollout["number"]),
        "elsewhere": waiting(training, head),
    }


def _engine_view(run: EngineRun) -> dict[str, Any]:
    """What the manifest says about an engine's run; `elsewhere` are groups popped or waiting to run again."""
    layout, state = engine_state, run.state
    columns = (
        ("number", layout.G_NUMBER),
        ("tokens", layout.G_TOKENS),
        ("behaviour_version", layout.G_VERSION),
        ("finished_members", layout.G_FINISHED),
    )

    def groups(*states: int) -> Records:
        rows = run.groups[np.isin(run.groups[:, layout.G_STATE], states)]
        ordered = rows[np.argsort(rows[:, layout.G_ADMISSION], kind="stable")]
        return [{name: int(row[column]) for name, column in columns} for row in ordered]

    return {
        "version": int(state[layout.S_VERSION]),
        "published": int(state[layout.S_PUBLISHED]),
        "next_rollout": int(state[layout.S_NEXT_NUMBER]),
        "next_prompt": int(state[layout.S_NEXT_GROUP]),
        "events": int(state[layout.S_EVENTS]),
        "record_rollouts": bool(run.parameters.whole[layout.P_RECORD_ROLLOUTS]),
        "queue": groups(layout.G_QUEUED),
        "in_flight": groups(layout.G_RUNNING),
        "elsewhere": groups(layout.G_POPPED, layout.G_REQUEUED),
    }
