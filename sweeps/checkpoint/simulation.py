"""The simulator's own state through the checkpoint manifest: stop anywhere, save, resume bit for bit.

A simulated run has no generator: rollout number i draws from the Philox block i + 1 of its seed, so the
number of the next rollout is the whole state of its draws. The manifest says that in its own terms (a Philox
generator that stands at that block), lists queue and rollouts in flight readably, and carries the event
loop's arrays exactly. The digests of the laws are components: another table would be another run.

Both loops are known: the lean one of level 1 and the general one, whose queue holds groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels._arguments import instance
from ...kernels.errors import CheckpointError, ConfigError
from ...kernels.pipeline import records
from ..config.config import PipelineConfig
from ..runs.general import GeneralRun
from ..runs.lean import LeanRun
from ..runs.run import Run
from . import general_arrays, lean_arrays
from .checkpoint import Manifest, make_checkpoint
from .saved_arrays import check_shapes, recorded_tables

LAWS = ("response_length", "environment_seconds", "drift")
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
    instance("config", config, PipelineConfig, "Give the configuration of the run.")
    laws = {name: getattr(config, name) for name in LAWS}
    return {f"simulation.{name}": law.content_digest for name, law in laws.items() if law is not None}


def simulation_checkpoint(run: Run, previous: Manifest | None = None) -> Manifest:
    """Take the whole state of a simulated run, wherever it was stopped.

    Parameters
    ----------
    run : Run
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
    instance("run", run, Run, "Give what start_run returns.")
    view = (_general_view if isinstance(run, GeneralRun) else _lean_view)(run)
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
            "engine": isinstance(run, GeneralRun),
            "elsewhere": view["elsewhere"],
            "record_rollouts": view["record_rollouts"],
            "arrays": run.arrays(),
        },
        previous=previous,
    )


def restore_simulation(manifest: Manifest) -> Run:
    """Make a simulated run again; it goes on as if it had never stopped.

    Parameters
    ----------
    manifest : Manifest
        From :func:`simulation_checkpoint`, through a file or not.

    Returns
    -------
    Run
        For ``advance_run`` and ``finish_run``.

    Raises
    ------
    CheckpointError
        If it is the checkpoint of something else, its configuration now gives another table, or its arrays
        are none that a run of this configuration can have.
    """
    way_out = "Give what simulation_checkpoint or load_checkpoint returned."
    state = instance("manifest", manifest, Manifest, way_out).state
    if not isinstance(state, dict) or not {"config", "engine", "record_rollouts", "arrays"} <= set(state):
        raise CheckpointError(
            "checkpoint",
            "must hold a simulated run",
            sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__,
            "Give one made by simulation_checkpoint.",
        )
    config = _saved_config(state["config"])
    for name, current in simulation_components(config).items():
        saved = manifest.components.get(name)
        if saved != current:
            raise CheckpointError(
                name,
                f"must be the table of the save, {str(saved)[:12]}…",
                f"{current[:12]}…",
                "Resume with the library versions of the save.",
            )
    return _restored(config, state["engine"], state["arrays"])


def _saved_config(settings: Any) -> PipelineConfig:
    try:
        return PipelineConfig.from_dict(settings)
    except ConfigError as error:
        raise CheckpointError(*error.within("state.config.").findings) from error


def _restored(config: PipelineConfig, engine: Any, arrays: Any) -> Run:
    """Make the run again and hold its arrays against the rules of its loop; no kernel has seen them yet."""
    if not isinstance(engine, bool) or not (engine or config.is_level_1):
        rule = "must be true, but for a run of level 1"
        raise CheckpointError("state.engine", rule, engine, "Give one made by simulation_checkpoint.")
    loop: type[GeneralRun] | type[LeanRun] = GeneralRun if engine else LeanRun
    recorded: Any = recorded_tables(arrays)
    run = loop(config, **recorded)
    check_shapes(run, arrays, general_arrays.GROWING if engine else lean_arrays.GROWING)
    run.restore(arrays)
    if isinstance(run, GeneralRun):
        general_arrays.check_general(run)
    else:
        lean_arrays.check_lean(run)
    return run


def _self_contained(config: PipelineConfig) -> dict[str, Any]:
    """Settings as data, with laws from files embedded: a resume does not need the files."""
    plain = config.to_dict()
    for name in LAWS:
        law = getattr(config, name)
        if law is not None:
            plain[name] = law.to_dict(embed=True)
    return plain


def _lean_view(run: Run) -> dict[str, Any]:
    """What the manifest says about a run of the lean loop; `elsewhere` is the batch in training."""
    state, held = run.state, run.held

    def listed(rows: np.ndarray) -> Records:
        columns = {"number": "number", "tokens": "tokens", "behaviour_version": "version"}
        return [{name: int(row[field]) for name, field in columns.items()} for row in rows]

    def waiting(first: int, last: int) -> Records:
        return listed(held.ring[np.arange(first, last) & (len(held.ring) - 1)])

    running = np.ones(len(held.slots), bool)
    running[held.idle_stack[: state.idle]] = False
    return {
        "version": int(state.version),
        "published": int(state.published),
        "next_rollout": int(state.next_rollout),
        "next_prompt": int(state.next_rollout),
        "events": int(state.events),
        "record_rollouts": bool(run.parameters[0].record_rollouts),
        "queue": waiting(state.ring_head, state.ring_tail),
        "in_flight": sorted(listed(held.slots[running]), key=lambda rollout: rollout["number"]),
        "elsewhere": waiting(state.ring_training, state.ring_head),
    }


def _general_view(run: Run) -> dict[str, Any]:
    """What the manifest says about a general run; `elsewhere` are groups popped or waiting to run again."""
    state = run.state
    columns = {
        "number": "number",
        "tokens": "tokens",
        "behaviour_version": "version",
        "finished_members": "finished",
    }

    def groups(*states: int) -> Records:
        rows = run.held.groups[np.isin(run.held.groups["state"], states)]
        ordered = rows[np.argsort(rows["admission"], kind="stable")]
        return [{name: int(row[field]) for name, field in columns.items()} for row in ordered]

    return {
        "version": int(state.version),
        "published": int(state.published),
        "next_rollout": int(state.next_number),
        "next_prompt": int(state.next_group),
        "events": int(state.events),
        "record_rollouts": bool(run.parameters[0].record_rollouts),
        "queue": groups(records.GROUP_QUEUED),
        "in_flight": groups(records.GROUP_RUNNING),
        "elsewhere": groups(records.GROUP_POPPED, records.GROUP_REQUEUED),
    }
