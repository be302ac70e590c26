"""A sweep's result as one xarray Dataset: the same names and attributes in memory and on disk."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.pipeline.metrics import LAG_BINS
from ...kernels.pipeline.ticks import ticks
from ..execute.plan import CELLS, Part
from ..execute.unit_arrays import UnitArrays, all_lag_bins
from ..runs.status import STATUS_NAMES
from ..spec.axes import axis_description, numbers_beside_none
from ..spec.spec import SweepSpec
from ..spec.windows import windows_of

if TYPE_CHECKING:
    import xarray

SCHEMA_VERSION = 2  # of a stored sweep's form, the newest; which one a store has, :func:`schema_of` says
OLDEST_WRITTEN = 1  # the oldest form in which this version goes on with a store
FAST_TABLE_DIGESTS = 2  # from this form on, parts of tables have CRC-32C digests; older ones BLAKE2
MODEL_REVISION = 2  # of the results; raised when a run of some configuration gives other numbers on purpose
NONE_MARK = "none"  # attribute of an axis: the number that stands for none there
_STATUS_ATTRIBUTES: dict[str, Any] = {
    "units": "1",
    "long_name": "what became of the run",
    "flag_values": [0, 1, 2, 3],
    "flag_meanings": " ".join(name.replace(" ", "_") for name in STATUS_NAMES),
}
_LAG_ATTRIBUTES = {"units": "rollouts", "long_name": "trained rollouts by lag (the last bin: 64 or more)"}


def result_attributes(spec: SweepSpec, *, complete: bool) -> dict[str, Any]:
    """Return the attributes of a result: everything that :func:`~lagsweep.config_at` needs, and versions."""
    return {
        "spec": spec.to_json(),
        "fingerprint": spec.fingerprint,
        "schema_version": schema_of(spec),
        **({"model_revision": revision} if (revision := revision_of(spec)) > 1 else {}),
        **({"custom": spec.custom.describe()} if spec.custom else {}),
        "law_digest": spec.law_digest,
        **library_versions(),
        "complete": complete,
    }


def schema_of(spec: SweepSpec) -> int:
    """Return the form that a new store of a sweep has: the oldest that holds what the sweep keeps.

    A sweep that keeps long tables has form 2, which differs from form 1 in the digests of the tables' parts.
    A version that knows form 1 alone would take each such part for changed, and refuses the store instead.
    """
    return FAST_TABLE_DIGESTS if spec.tables or spec.masks else 1


def _counts_first_admissions(spec: SweepSpec) -> bool:
    """Say whether revision 2 changes a sweep: beyond level 1, and one of these in any of its cells.

    Without a warm-up, ``admitted_groups`` takes what is admitted at time 0. In ``sequential`` with a
    publication other than ``background``, idle slots wait for the publication while it is under way.
    """
    if spec.is_level_1:
        return False

    def values(field: str) -> list[Any]:
        columns = [name for name, swept in spec.design.fields.items() if swept == field]
        return list(spec.design.columns[columns[0]][1]) if columns else [getattr(spec.base, field)]

    waits = "sequential" in values("mode") and set(values("publication")) != {"background"}
    return waits or any(ticks(seconds) == 0 for seconds in values("warmup_seconds"))


# Revision -> whether it changes the results of a sweep's configurations; all of them where it has no entry.
REVISION_CHANGES: dict[int, Callable[[SweepSpec], bool]] = {2: _counts_first_admissions}


def revision_of(spec: SweepSpec) -> int:
    """Return the newest revision that changed results of a sweep: what its store must be of, or newer."""
    return max(revisions_between(1, spec), default=1)


def revisions_between(revision: int, spec: SweepSpec) -> list[int]:
    """List the revisions after one, up to this version's, that change the results of a sweep.

    Examples
    --------
    >>> revisions_between(MODEL_REVISION, None)
    []
    """
    later = range(revision + 1, MODEL_REVISION + 1)
    return [number for number in later if REVISION_CHANGES.get(number, lambda spec: True)(spec)]


def library_versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    return {
        "lagsweep_version": version("lagsweep"),
        "numpy_version": np.__version__,
        "numba_version": version("numba"),
        "python_version": platform.python_version(),
    }


def variable_table(part: Part) -> dict[str, tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Name a part's variables: name -> (dtype, dimensions, attributes)."""
    what = "sequential baseline: " if part.prefix else ""
    table = {
        part.prefix + metric.name: (
            metric.dtype,
            (*part.dims, *(("window",) if part.tail_of(metric.name) else ())),
            {"units": metric.units, "long_name": what + metric.long_name},
        )
        for metric in part.variables
    }
    if part.keep_lag_counts:
        table[part.prefix + "lag_counts"] = ("int64", (*part.dims, "lag"), dict(_LAG_ATTRIBUTES))
    # The last to be written: a reader who finds a run done finds all of it.
    table[part.prefix + "status"] = ("uint8", part.dims, dict(_STATUS_ATTRIBUTES))
    return table


def variable_values(
    part: Part,
    arrays: UnitArrays,
    shape: Sequence[int],
    lag_values: Callable[[np.ndarray], Any] = all_lag_bins,
) -> dict[str, Any]:
    """Return the values of a part's variables over a box of this shape, in the order of the table.

    `lag_values` makes the values of the counts by lag from what is held of them.
    """
    values: dict[str, Any] = {
        part.prefix + name: array.reshape(*shape, *part.tail_of(name))
        for name, array in arrays.metrics.items()
    }
    if arrays.lag_counts is not None:
        held = arrays.lag_counts.reshape(*shape, arrays.lag_counts.shape[-1])
        values[part.prefix + "lag_counts"] = lag_values(held)
    values[part.prefix + "status"] = arrays.status.reshape(shape)
    return values


def coordinate_table(spec: SweepSpec) -> dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]:
    """Return every coordinate: name -> (dimensions, values, attributes)."""
    design = spec.design
    table: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]] = {}
    for name, (dim, values) in design.coordinates().items():
        field = design.fields[name]
        table[name] = ((dim,), values, {"long_name": axis_description(field), "field": field})
    table["seed"] = (("seed",), np.array(spec.seeds, dtype=np.uint64), {"long_name": "seed of all draws"})
    table["lag"] = (
        ("lag",),
        np.arange(LAG_BINS, dtype=np.int64),
        {"units": "versions", "long_name": "policy lag"},
    )
    windows = windows_of(spec)
    if windows.count:
        firsts = windows.updates * np.arange(windows.count, dtype=np.int64) + 1
        about = {"units": "updates", "long_name": f"first update of {windows.updates}"}
        table["window"] = (("window",), firsts, about)
    table["cell"] = (
        design.dims,
        spec.cell_ids,
        {"long_name": "id of the configuration, the same in every sweep"},
    )
    return table


def build_dataset(
    spec: SweepSpec,
    parts: Sequence[tuple[Part, UnitArrays]],
    masks: Mapping[str, np.ndarray] | None = None,
    *,
    complete: bool = True,
) -> xarray.Dataset:
    """Build the dataset of a sweep that was run in memory."""
    import xarray

    from .lag_array import lag_array

    variables: dict[str, Any] = {}
    for part, arrays in parts:
        values = variable_values(part, arrays, part.layout.shape, lag_array)
        for name, (_, dims, attributes) in variable_table(part).items():
            variables[name] = (dims, values[name], attributes)
    cells_dims = next(part.dims for part, _ in parts if part.name == CELLS)
    for name, mask in (masks or {}).items():
        variables[name] = ((*cells_dims, "rollout"), mask, {"units": "1", "long_name": f"rollout was {name}"})
    dataset = xarray.Dataset(variables, coordinate_table(spec), result_attributes(spec, complete=complete))
    failures = next(arrays.failures for part, arrays in parts if part.name == CELLS)
    return with_reasons(dataset, {place: failure.reason for place, failure in failures.items()})


def with_reasons(dataset: xarray.Dataset, reasons: Mapping[tuple[int, int], str]) -> xarray.Dataset:
    """Finish a dataset: numeric axes, and the variable ``reason`` (text per run) where any run failed.

    The attribute ``complete`` becomes 0 or 1, since netCDF has no booleans.

    Parameters
    ----------
    dataset : xarray.Dataset
    reasons : mapping
        (cell, seed index) -> why the run failed.
    """
    dataset = _with_numeric_axes(dataset)
    dataset.attrs["complete"] = int(dataset.attrs["complete"])
    if not reasons:
        return dataset
    shape = dataset["status"].shape
    # Not a text of fixed width, which would take the longest reason's room for every run that did not fail.
    texts = np.full((int(np.prod(shape[:-1])), shape[-1]), "", dtype=object)
    for place, reason in reasons.items():
        texts[place] = reason
    dims = dataset["status"].dims
    attributes = {"long_name": "why the run failed"}
    return dataset.assign(reason=(dims, texts.reshape(shape), attributes))


def _with_numeric_axes(dataset: xarray.Dataset) -> xarray.Dataset:
    """Make an axis of numbers and none numeric: infinity stands for none, which is said beside it.

    A store keeps such an axis as labels; selection by number and order need numbers.
    """
    for name, axis in dataset.coords.items():
        numbers = numbers_beside_none(axis.values) if axis.dtype.kind == "U" else None
        if numbers is not None:
            dataset = dataset.assign_coords({name: (axis.dims, numbers, {**axis.attrs, NONE_MARK: "inf"})})
    return dataset
