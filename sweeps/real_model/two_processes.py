"""The two loops of this machine, in turn and one group ahead, each update timed.

They alternate in short rounds. One whole loop after the other would hold the first minutes of the machine
against the last ones: what else it did then would look like a difference between the loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars

from ...kernels.intervals import mean_interval
from .channel import Channel
from .handover import WeightFolder
from .loop import generate, train
from .pair import Job, run_pair
from .workloads import LEFT_OUT, Workload

IN_TURN, AHEAD = "in turn", "one ahead"
LOOPS = (IN_TURN, AHEAD)
_MOST_SECONDS = 3600.0  # far above what it takes on a busy machine: this only ends what hangs


def timed_loops(model_folder: Path, folder: Path, workload: Workload) -> list[dict[str, Any]]:
    """Run both loops in two processes and return a row for each update that counts.

    Parameters
    ----------
    model_folder : Path
        As :func:`~.models.prepare` wrote it.
    folder : Path
        Where the two work; exists.
    workload : Workload

    Returns
    -------
    list of dict
        As :func:`~.loop.train` writes them, with ``loop``.

    Raises
    ------
    StoreError
        If a process ends early.
    """
    weights = folder / "weights"
    weights.mkdir()
    settings = {
        "model": str(model_folder),
        "weights": str(weights),
        "workload": asdict(workload),
        "phases": [
            {"ahead": ahead, "updates": workload.loop_updates}
            for _ in range(workload.rounds)
            for ahead in (0, workload.ahead)
        ],
    }
    bodies = {"generator": f"{__name__}:generator_side", "trainer": f"{__name__}:trainer_side"}
    return counted(run_pair(Job(bodies, settings, folder, _MOST_SECONDS)))


def generator_side(settings: Mapping[str, Any], channel: Channel) -> None:
    """Be the generator: what its process calls."""
    from .models import one_thread
    from .policies import ModelSampler

    with one_thread():
        sampler = ModelSampler(Path(settings["model"]), settings["workload"])
        generate(channel, WeightFolder(Path(settings["weights"])), sampler)


def trainer_side(settings: Mapping[str, Any], channel: Channel) -> list[dict[str, Any]]:
    """Be the trainer: what its process calls."""
    from .models import one_thread
    from .policies import ModelLearner

    with one_thread():
        learner = ModelLearner(Path(settings["model"]), settings["workload"])
        return train(channel, WeightFolder(Path(settings["weights"])), learner, settings["phases"])


def counted(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the first updates of each loop in each round, and name the loops.

    Examples
    --------
    >>> rows = [{"phase": 0, "ahead": 0}] * 2 + [{"phase": 1, "ahead": 1}] * 2
    >>> [row["loop"] for row in counted(rows)]
    ['in turn', 'one ahead']
    """
    kept = []
    for place in sorted({row["phase"] for row in rows}):
        own = [row for row in rows if row["phase"] == place]
        kept += [{"loop": AHEAD if row["ahead"] else IN_TURN, **row} for row in own[LEFT_OUT:]]
    return kept


def step_log(rows: Sequence[Mapping[str, Any]]) -> polars.DataFrame:
    """Return the loop in turn as a step log, under the names of :func:`lagsweep.read_step_log`.

    Its wait is the generation of the step: weights are loaded and a group is sampled while the trainer does
    nothing else. The publication is the writing of the file. A group is one rollout here: its rows are
    decoded together, step by step, and the trainer fills them up to the longest, which decides how long it
    all takes.

    Parameters
    ----------
    rows : sequence of mapping
        Of both loops.

    Returns
    -------
    polars.DataFrame
    """
    own = [row for row in rows if row["loop"] == IN_TURN]

    def each(name: str) -> np.ndarray:
        return np.array([row[name] for row in own], dtype=np.float64)

    longest, prompt, one = each("longest_tokens"), each("prompt_tokens"), np.ones(len(own))
    return polars.DataFrame(
        {
            "step": np.arange(1, len(own) + 1),
            "step_seconds": each("step_seconds"),
            "generation_seconds": each("wait_seconds"),
            "training_seconds": each("training_seconds"),
            "publication_seconds": each("publication_seconds"),
            "rollouts": one,
            "trained_tokens": longest + prompt,
            "response_tokens_mean": longest,
            "response_tokens_max": longest,
            "prompt_tokens_mean": prompt,
            "lag_mean": each("lag"),
            "lag_max": each("lag"),
            "clipped_fraction": np.minimum(each("cut"), 1.0),
        }
    )


def loop_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what a step of each loop is made of: means over its updates, the step's with its half width.

    Parameters
    ----------
    rows : sequence of mapping
        Of both loops.

    Returns
    -------
    list of dict
        ``loop``, ``updates``, ``step_seconds`` and its half width, seconds of the parts, by the clock and of
        CPU, ``lag``, ``token_ess``, response tokens trained a second.
    """
    found = []
    for name in LOOPS:
        own = [row for row in rows if row["loop"] == name]
        steps = np.array([row["step_seconds"] for row in own])
        mean, half = mean_interval(steps)
        parts = (
            "sampling_seconds",
            "load_seconds",
            "training_seconds",
            "publication_seconds",
            "wait_seconds",
            "sampling_cpu_seconds",
            "load_cpu_seconds",
            "training_cpu_seconds",
            "publication_cpu_seconds",
        )
        found.append(
            {
                "loop": name,
                "updates": len(own),
                "step_seconds": float(mean),
                "step_half": float(half),
                **{part: float(np.mean([row[part] for row in own])) for part in (*parts, "lag", "token_ess")},
                "tokens_per_second": float(sum(row["response_tokens"] for row in own) / steps.sum()),
            }
        )
    return found
