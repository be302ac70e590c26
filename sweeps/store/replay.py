"""Run one stored run again in full detail, and hold every metric against what the store has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError, StoreError
from ..custom.simulate import simulate_known
from ..results import dataset as results
from ..spec.carried import spec_of

if TYPE_CHECKING:
    import xarray

    from ..runs.result import PipelineResult

DONE = 1
OTHER_PLATFORM = 1e-12  # what floats may differ by between processors and library versions


@dataclass(frozen=True)
class Replay:
    """A run again, and how it compares.

    Attributes
    ----------
    result : PipelineResult
    cell, seed : int
    stored : bool
        Whether the store has this run to compare with.
    compared : int
        How many numbers were held against the store's.
    different : dict
        Name -> (stored, again) where they are not bit for bit the same.
    """

    result: PipelineResult
    cell: int
    seed: int
    stored: bool
    compared: int
    different: dict[str, tuple[Any, Any]]

    @property
    def same(self) -> bool:
        """Whether it is the stored run: integers equal, floats to 1e-12."""
        return all(
            isinstance(a, float) and isinstance(b, float) and _close(a, b) for a, b in self.different.values()
        )

    def verdict(self) -> str:
        """Say it in a sentence."""
        if not self.stored:
            return "the store does not hold this run yet, so there is nothing to compare with"
        if not self.different:
            return f"replayed bit for bit: all {self.compared} numbers equal the stored ones"
        names = ", ".join(list(self.different)[:5])
        if self.same:
            return f"replayed to 1e-12, as on another platform: {len(self.different)} floats differ ({names})"
        return f"NOT the stored run: {len(self.different)} of {self.compared} numbers differ ({names})"


def replay(
    ds: xarray.Dataset, cell: int | Mapping[str, Any], seed: int | None = None, *, rollouts: bool = True
) -> Replay:
    """Run one run of a sweep again and compare it.

    Parameters
    ----------
    ds : xarray.Dataset
        A stored or fresh sweep.
    cell : int or mapping
        The cell's id, or its axis values.
    seed : int, optional
        The first of the sweep when left out.
    rollouts : bool
        Also record a row per rollout.

    Raises
    ------
    ConfigError
        If there is no such cell.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> ds = run_sweep(PipelineConfig(duration_seconds=60), {"max_lag": [0, 2]}, seeds=2)
    >>> replay(ds, {"max_lag": 2}, seed=1).different
    {}
    """
    from ..results.cells import cell_coordinates, find_cell
    from ..spec.carried import config_at

    seeds = ds["seed"].values
    if not len(seeds):
        raise ConfigError("seed", "must be one of the sweep's, which has none", seed, "Run it first.")
    chosen = int(seeds[0]) if seed is None else seed
    config = config_at(ds, cell, seed=chosen)
    row = find_cell(ds, cell)
    result = run_of(ds, cell, chosen, rollouts=rollouts)
    cell_id = int(cell_coordinates(ds)[0][row])
    place = np.flatnonzero(seeds == np.uint64(config.seed))
    if not len(place) or _at(ds["status"], row, int(place[0])) != DONE:
        return Replay(result, cell_id, config.seed, False, 0, {})
    compared, different = 0, {}
    for name, again in result.metrics.items():
        if name in ds.data_vars:
            stored = _at(ds[name], row, int(place[0])).item()
            compared += 1
            if not _identical(stored, again):
                different[name] = (stored, again)
    counts = _at(ds["lag_counts"], row, int(place[0]))
    compared += 1
    if not np.array_equal(counts, result.lag_counts):
        different["lag_counts"] = (counts.tolist(), result.lag_counts.tolist())
    return Replay(result, cell_id, config.seed, True, compared, different)


def refuse_older_model(ds: xarray.Dataset) -> None:
    """Refuse to draw a run of a store whose results this version would not give: it would be another run.

    Raises
    ------
    StoreError
    """
    revision = int(ds.attrs.get("model_revision", 1))
    if revision > results.MODEL_REVISION or results.revisions_between(revision, spec_of(ds)):
        raise StoreError(
            "model_revision",
            f"must be {results.MODEL_REVISION} to run a stored run again, whose results would differ",
            revision,
            "Use the version that made the store, or run it again with --rerun.",
        )


def run_of(ds: xarray.Dataset, cell: int | Mapping[str, Any], seed: int, *, rollouts: bool) -> PipelineResult:
    """Run one run of a sweep again, with the sweep's own rules if it has any."""
    from ..runs.simulate import simulate_pipeline
    from ..spec.carried import config_at

    config = config_at(ds, cell, seed=seed)
    custom = spec_of(ds).custom
    if custom is None:
        return simulate_pipeline(config, rollouts=rollouts)
    return simulate_known(custom, config, rollouts=rollouts)


def _at(variable: xarray.DataArray, row: int, seed: int) -> Any:
    """Read one run of a variable, and nothing else of it."""
    dims = [dim for dim in variable.dims if dim not in ("seed", "lag", "window")]
    index = np.unravel_index(row, [variable.sizes[dim] for dim in dims]) if dims else ()
    at = {dim: int(place) for dim, place in zip(dims, index)} | {"seed": seed}
    return variable.isel(at).values


def _identical(stored: Any, again: Any) -> bool:
    if isinstance(stored, float) and math.isnan(stored):
        return isinstance(again, float) and math.isnan(again)
    return bool(stored == again)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=OTHER_PLATFORM, abs_tol=OTHER_PLATFORM)
