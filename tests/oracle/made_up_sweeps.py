"""Sweeps whose figures a test chooses: a real small sweep with some of its variables replaced."""

from __future__ import annotations

import functools

import numpy as np
from oracle.small_sweeps import small_base

from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec

THROUGHPUT = "trained_tokens_per_second"
ESS = "mean_expected_normalized_ess"


@functools.cache
def _run(axes, seeds, **options):
    spec = make_spec(small_base(), {name: list(values) for name, values in axes}, seeds, **dict(options))
    return run_spec(spec)


def made_up(axes, seeds, **figures):
    """Return a sweep over axes at so many seeds; each figure is an array over (cells…, seeds), broadcast."""
    ds = _run(tuple((name, tuple(values)) for name, values in axes.items()), seeds).copy(deep=True)
    for name, values in figures.items():
        variable = ds[name]
        values = np.broadcast_to(np.asarray(values), variable.shape).astype(variable.dtype)
        ds[name] = (variable.dims, values.copy(), variable.attrs)
    return ds


def noise(shape, seed=0, size=1.0):
    """Return noise with mean exactly 0 along the seeds."""
    values = np.random.default_rng(seed).normal(size=shape) * size
    return values - values.mean(axis=-1, keepdims=True)
