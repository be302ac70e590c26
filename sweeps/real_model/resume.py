"""A checkpoint of model, optimizer, generator and queue, and what a resume without some of them does.

The loop here is the asynchronous one in a single process: the queue always holds a group of an older policy,
so a resume that loses the queue trains on other samples.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint.checkpoint import make_checkpoint
from ..checkpoint.files import load_checkpoint, save_checkpoint
from ..checkpoint.manifest import Manifest
from .models import THREADS, load_weights, save_weights
from .policies import TRAINED_IN, ModelLearner, ModelSampler
from .workloads import Workload

WEIGHTS, OPTIMIZER = "weights.safetensors", "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True)
class ResumeDrill:
    """Losses after a checkpoint, by how the run went on.

    Attributes
    ----------
    rows : list of dict
        ``resume``, ``losses``, ``equal_losses``, ``equal_weights``.
    checkpoint_bytes : int
    save_seconds, load_seconds : float
    """

    rows: list[dict[str, Any]]
    checkpoint_bytes: int
    save_seconds: float
    load_seconds: float


class Run:
    """A sampler, a learner and the queue between them, in one process."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.sampler = ModelSampler(folder, asdict(workload))
        self.learner = ModelLearner(folder, asdict(workload))
        self.queue: list[list[dict[str, Any]]] = []
        self.started = 0

    def updates(self, count: int, ahead: int) -> list[float]:
        """Take optimizer steps, each on the oldest group of the queue, and return their losses."""
        losses = []
        for _ in range(count):
            while len(self.queue) < 1 + ahead:
                self.queue.append(self.sampler.sample(self.started, self.learner.version))
                self.started += 1
            losses.append(self.learner.train(self.queue.pop(0))["loss"])
            self.sampler.follow(self.learner)
        return losses


def resume_drill(model_folder: Path, folder: Path, workload: Workload) -> ResumeDrill:
    """Save a run in the middle, go on, and resume it: from everything, and from the weights alone.

    Parameters
    ----------
    model_folder : Path
        As :func:`~.models.prepare` wrote it.
    folder : Path
        For the checkpoint; exists and is empty.
    workload : Workload

    Returns
    -------
    ResumeDrill
    """
    run = Run(model_folder, workload)
    run.updates(workload.resumed_updates, workload.ahead)
    started = time.monotonic()
    save(run, folder)
    saved = time.monotonic() - started
    losses = run.updates(workload.resumed_updates, workload.ahead)
    wanted = run.learner.digest()
    rows = [_row("uninterrupted", losses, wanted, losses, wanted)]
    del run
    loaded = 0.0
    for name, all_of_it in (("from everything", True), ("from the weights alone", False)):
        again = Run(model_folder, workload)
        started = time.monotonic()
        restore(again, folder, all_of_it=all_of_it)
        loaded = loaded or time.monotonic() - started
        told = again.updates(workload.resumed_updates, workload.ahead)
        rows.append(_row(name, told, again.learner.digest(), losses, wanted))
    size = sum(path.stat().st_size for path in folder.iterdir())
    return ResumeDrill(rows, size, saved, loaded)


def _row(name: str, losses: list[float], weights: str, own: list[float], wanted: str) -> dict[str, Any]:
    return {
        "resume": name,
        "losses": losses,
        "equal_losses": [one.hex() for one in losses] == [one.hex() for one in own],
        "equal_weights": weights == wanted,
        "weights": weights,
    }


def save(run: Run, folder: Path) -> Manifest:
    """Write a checkpoint: big arrays beside the manifest, the manifest last."""
    from safetensors.torch import save_file

    save_weights(run.learner.model, folder / WEIGHTS, TRAINED_IN)
    save_file(_moments(run.learner), folder / OPTIMIZER)
    version = run.learner.version
    oldest = run.queue[0][0]["sample_id"] if run.queue else f"g{run.started:05}"
    manifest = make_checkpoint(
        optimizer_step=version,
        current_version=version,
        published_version=version,
        dataset_cursor=int(oldest[1:6]),
        rng=np.random.default_rng(0),
        python_random=False,
        components=_components(),
        counters={"started_groups": run.started},
        queue=run.queue,
        in_flight=[],
        state={"torch_generator": run.sampler.random.get_state().numpy()},
        files={name: folder / name for name in (WEIGHTS, OPTIMIZER)},
    )
    save_checkpoint(manifest, folder)
    return manifest


def restore(run: Run, folder: Path, *, all_of_it: bool = True) -> None:
    """Set a new run to where a checkpoint was taken, or its weights alone, as a careless resume does."""
    import torch
    from safetensors.torch import load_file

    manifest = load_checkpoint(folder, components=_components())
    load_weights(run.learner.model, folder / WEIGHTS)
    load_weights(run.sampler.model, folder / WEIGHTS)
    run.learner.version = manifest.current_version
    if not all_of_it:
        return
    told = load_file(folder / OPTIMIZER)
    for name, parameter in run.learner.model.named_parameters():
        found = {one: told[f"{name}.{one}"] for one in _MOMENTS if f"{name}.{one}" in told}
        if found:
            run.learner.optimizer.state[parameter] = found
    run.sampler.random.set_state(torch.from_numpy(np.asarray(manifest.state["torch_generator"])))
    run.queue = [[dict(record) for record in group] for group in manifest.queue or []]
    run.started = manifest.counters["started_groups"]


def _moments(learner: ModelLearner) -> dict[str, Any]:
    """Return the optimizer's arrays under the names of the parameters that they belong to."""
    found: dict[str, Any] = {}
    for name, parameter in learner.model.named_parameters():
        state: Mapping[str, Any] = learner.optimizer.state.get(parameter, {})
        found |= {f"{name}.{one}": state[one].detach() for one in _MOMENTS if one in state}
    return found


def _components() -> dict[str, Any]:
    """Return what must be the same at a resume for equal bits."""
    import torch

    return {"torch": str(torch.__version__), "threads": THREADS}
