"""Small sweeps for tests, digests of stored ones, and a sweep done one simulated run at a time."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np

from lagsweep.kernels.pipeline.metrics import METRICS
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw

AXIS_FIELDS = {
    "queue_cap": "max_queue_tokens",
    "max_lag": "max_policy_lag",
    "sync_cadence": "sync_every_updates",
}


def small_base(**changes):
    """Return settings whose runs take some ten microseconds and do something."""
    settings = {
        "rollout_workers": 3,
        "duration_seconds": 30.0,
        "response_length": LengthLaw.uniform(20, 80),
        "batch_tokens": 150,
        "max_queue_tokens": 400,
        "train_tokens_per_second": 100.0,
        "train_overhead_seconds": 0.5,
        "sync_seconds": 0.5,
    }
    return PipelineConfig(**(settings | changes))


def tree(folder):
    """Return name -> digest of every file that must end byte for byte the same."""
    folder = Path(folder)
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for name in ("cells.zarr", "tables")
        for file in (folder / name).rglob("*")
        if file.is_file()
    }


def array_by_array(real, before):
    """Return a ``ZarrFiles.write`` that does something ahead of each array: given its name and its box."""

    def write(files, values, box):
        digests = []
        for name, array in values.items():
            before(name, box)
            digests.append(real(files, {name: array}, box))
        return "".join(digests)

    return write


def one_by_one(base, axes, seeds):
    """Return metric -> array over (axes…, seed), from one call of ``simulate_pipeline`` a run."""
    from lagsweep.sweeps.runs.simulate import simulate_pipeline

    names, values = list(axes), list(axes.values())
    shape = (*map(len, values), len(seeds))
    out = {metric.name: np.zeros(shape, metric.dtype) for metric in METRICS}
    out["lag_counts"] = np.zeros((*shape, 65), np.int64)
    for place in itertools.product(*map(range, shape)):
        settings = {AXIS_FIELDS.get(name, name): column[k] for name, column, k in zip(names, values, place)}
        result = simulate_pipeline(base.replace(**settings, seed=seeds[place[-1]]))
        for metric in METRICS:
            out[metric.name][place] = getattr(result, metric.name)
        out["lag_counts"][place] = result.lag_counts
    return out


def sorted_along_axes(dataset):
    """Return a dataset in memory, sorted along every dimension with labels, without the order in its spec."""
    dataset = dataset.load()
    for dim in dataset.dims:
        if dim in dataset.coords:
            dataset = dataset.sortby(dim)
    dataset.attrs = {name: value for name, value in dataset.attrs.items() if name != "spec"}
    return dataset
