"""A function of the user's over every run of a sweep: each is run again in full detail and looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels._arguments import is_number
from ...kernels.errors import ConfigError
from ..checks import flag_of, sweep_dataset
from ..runs.status import DONE
from .replay import run_of

if TYPE_CHECKING:
    import xarray

    from ..runs.result import PipelineResult


def map_runs(
    ds: xarray.Dataset, function: Callable[[PipelineResult], float], *, rollouts: bool = False
) -> xarray.DataArray:
    """Run every done run of a sweep again, and compute one number from each.

    The result fits into the dataset, ``ds.assign(mine=map_runs(ds, function))``, and then works wherever a
    metric does. Select first what is to be run again, ``map_runs(ds.isel(seed=slice(4)), function)``.

    Parameters
    ----------
    ds : xarray.Dataset
        The result of a sweep, or any selection of it that keeps its dimensions.
    function : callable
        Given the run as :func:`lagsweep.simulate_pipeline` returns it; gives a number.
    rollouts : bool
        Also record a row per rollout.

    Returns
    -------
    xarray.DataArray
        NaN where a run is not done.

    Raises
    ------
    ConfigError
        If the function gives no number, or the sweep's own rules were not given in this process.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> ds = run_sweep(PipelineConfig(duration_seconds=60), {"max_lag": [0, 2]}, seeds=2)
    >>> steps = map_runs(ds, lambda run: len(run.batches))
    >>> bool((steps == ds.updates).all()), steps.dims
    (True, ('max_lag', 'seed'))
    """
    sweep_dataset(ds)
    rollouts = flag_of("rollouts", rollouts)
    if not callable(function):
        raise ConfigError(
            "function", "must be a function of a run", function, "Write lambda run: run.updates."
        )
    status = ds["status"]
    cells = np.broadcast_to(ds["cell"].values[..., None], status.shape)
    found = np.full(status.shape, np.nan)
    for place in np.argwhere(status.values == DONE):
        at = tuple(place)
        run = run_of(ds, int(cells[at]), int(ds["seed"].values[at[-1]]), rollouts=rollouts)
        found[at] = _number(function(run))
    return status.astype(np.float64).copy(data=found).drop_attrs().rename(None)


def _number(value: Any) -> float:
    if is_number(value):
        return float(value)
    raise ConfigError("function", "must return a number", value, "Return a float; NaN for none.")
