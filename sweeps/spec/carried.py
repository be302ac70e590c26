"""The spec that a sweep's result carries: read back, with any cell's configuration in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...kernels.errors import ConfigError, StoreError
from ..config.config import PipelineConfig
from .axes import checked_value
from .cells import find_cell
from .reading import spec_from_sections
from .spec import SweepSpec

if TYPE_CHECKING:
    import xarray


def spec_of(dataset: xarray.Dataset) -> SweepSpec:
    """Read the spec that a sweep's result carries.

    Raises
    ------
    ConfigError
        If the dataset is not a sweep's result.
    """
    try:
        text = dataset.attrs["spec"]
    except (AttributeError, KeyError):
        raise ConfigError(
            "dataset", "must be the result of a sweep", type(dataset).__name__, "Use run_sweep or open_sweep."
        ) from None
    return spec_from_text(text)


def config_at(
    dataset: xarray.Dataset, cell: int | Mapping[str, Any], seed: int | None = None
) -> PipelineConfig:
    """Return the configuration of one cell of a sweep, to run it again in full detail.

    Parameters
    ----------
    dataset : xarray.Dataset
        The result of a sweep, or any selection of it.
    cell : int or mapping
        The cell's id (the coordinate ``cell``), or its axis values, as ``{"max_lag": 2, "sync_cadence": 1}``.
    seed : int, optional
        The seed of the run; the base's when left out.

    Returns
    -------
    PipelineConfig

    Raises
    ------
    ConfigError
        If the sweep has no such cell.
    StoreError
        If the length law's table is not the one that the result was made with.

    Examples
    --------
    >>> from lagsweep import run_sweep
    >>> ds = run_sweep(PipelineConfig(duration_seconds=20), {"max_lag": [0, 3]}, seeds=1)
    >>> config_at(ds, int(ds.cell[1]), seed=0).max_policy_lag
    3
    """
    spec = spec_of(dataset)
    check_law(spec, str(dataset.attrs.get("law_digest", spec.law_digest)))
    checked_seed = None if seed is None else checked_value("seed", seed, "seed")
    return spec.config(find_cell(spec, cell), checked_seed)


def check_law(spec: SweepSpec, stored_digest: str) -> None:
    """Refuse to go on when the length law gives another table than the one a result was made with.

    Raises
    ------
    StoreError
    """
    if spec.law_digest != stored_digest:
        raise StoreError(
            "law_digest",
            f"must be {stored_digest[:16]}, as when the sweep was made",
            spec.law_digest[:16],
            "The law's file changed, or this platform's log and exp differ: run the sweep anew.",
        )


@lru_cache(maxsize=16)
def spec_from_text(text: str) -> SweepSpec:
    """Read a spec back from :meth:`SweepSpec.to_json`, once per text.

    Its cells were checked before they ran, and are not built again. A configuration is checked when one is
    asked for.

    Raises
    ------
    ConfigError
        As for a new spec, but for cells with contradicting settings.
    """
    return spec_from_sections(json.loads(text), carried=True)
