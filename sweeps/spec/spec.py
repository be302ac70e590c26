"""A sweep as data: base settings, a design of cells, seeds, constraints, and what to keep.

A spec comes from Python arguments (:func:`make_spec`), from a TOML file (:func:`load_spec`) or from flags
of the command line; all three give the same :class:`SweepSpec`. Its plain form is JSON or TOML and holds
everything needed to run any cell of it again, so a stored result needs nothing beside itself
(:func:`config_at`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError, message, nearest
from ..config.config import AXIS_FIELDS, PipelineConfig
from .axes import PRESET_PREFIX, checked_value, identity, plain
from .constraints import kept_cells
from .design import Design, design_from_groups
from .identity import cell_ids, fingerprint_of, non_default
from .seeds import read_seeds, seeds_to_plain

if TYPE_CHECKING:
    import xarray

TABLES = ("batches", "timeline", "rollouts")
SPEC_VERSION = 1
DEFAULT_NAME = "sweep"


@dataclass(frozen=True)
class SweepSpec:
    """What a sweep is: cells × seeds, and what is kept of each run.

    Parameters
    ----------
    base : PipelineConfig
        The settings that no axis changes.
    design : Design
        The cells.
    seeds : tuple of int
    constraints : tuple of str
        A cell that breaks one is excluded.
    name : str
        Of the result's folder; not part of the identity.
    baseline : bool
        Run the sequential pipeline beside the cells, at the same seeds.
    masks : bool
        Keep which rollouts completed, were trained, were truncated.
    tables : tuple of str
        Long tables to keep: batches, timeline, rollouts.
    until : str, optional
        A rule that stops adding seeds to a cell.
    """

    base: PipelineConfig
    design: Design
    seeds: tuple[int, ...]
    constraints: tuple[str, ...] = ()
    name: str = DEFAULT_NAME
    baseline: bool = False
    masks: bool = False
    tables: tuple[str, ...] = ()
    until: str | None = None

    @cached_property
    def excluded(self) -> np.ndarray:
        """Which cells break a constraint (bool, in the design's shape)."""
        kept = np.ones(self.design.shape, bool)
        columns: dict[str, Any] = {}
        for name, (dim, along) in self.design.coordinates().items():
            position = self.design.dims.index(dim)
            columns[name] = columns[AXIS_FIELDS.get(name, name)] = self.design.broadcast(position, along)
        known = {name: getattr(self.base, name) for name in PipelineConfig.model_fields}
        known |= {name: known[setting] for name, setting in AXIS_FIELDS.items()}
        known = {name: value for name, value in known.items() if name not in columns}
        for constraint in self.constraints:
            kept = kept & kept_cells(constraint, columns, known)
        return ~kept

    @cached_property
    def cell_ids(self) -> np.ndarray:
        """The id of every cell (int64, in the design's shape)."""
        return cell_ids(self.base, self.design)

    @cached_property
    def fingerprint(self) -> str:
        """What tells this sweep from others: 32 hexadecimal digits.

        Blind to defaults, to the name, and to the order of values and seeds: an extended sweep has the
        fingerprint of a fresh one with the same values.
        """
        swept = set(self.design.fields.values())
        fields = list(self.design.fields.values())
        values = [[identity(value) for value in column] for _, column in self.design.columns.values()]
        if self.design.is_grid:
            cells: Any = [[field, sorted(column)] for field, column in zip(fields, values)]
        else:
            cells = {"points": fields, "rows": sorted(zip(*values))}
        content = {
            "base": {name: text for name, text in non_default(self.base).items() if name not in swept},
            "cells": cells,
            "seeds": seeds_to_plain(sorted(self.seeds)),
            "constraints": list(self.constraints),
            "keep": [*(name for name in ("baseline", "masks") if getattr(self, name)), *self.tables],
        }
        if self.base.preset is not None:
            content["preset"] = self.base.preset[0]
        return fingerprint_of(content if self.until is None else {**content, "until": self.until})

    @property
    def law_digest(self) -> str:
        """The digest of the response lengths' table; with several laws theirs, sorted, joined by commas."""
        laws = [self.base.response_length]
        if "response_length" in self.design.columns:
            laws = list(self.design.columns["response_length"][1])
        return ",".join(sorted({law.digest for law in laws}))

    def config(self, cell: int, seed: int | None = None) -> PipelineConfig:
        """Give the configuration of a cell, counted along the design.

        Raises
        ------
        ConfigError
            If the cell's settings contradict each other.
        """
        settings = self.design.settings(cell)
        changes: dict[str, Any] = {
            name.removeprefix(PRESET_PREFIX): value for name, value in settings.items()
        }
        if seed is not None:
            changes["seed"] = seed
        return self.base.replace(**changes)

    def replace(self, **changes: Any) -> SweepSpec:
        """Give a copy with some parts changed."""
        return replace(self, **changes)

    def to_plain(self) -> dict[str, Any]:
        """Give the spec as plain data for JSON or TOML."""
        base = self._plain_preset() or {
            name: plain(getattr(self.base, name)) for name in non_default(self.base)
        }
        axes = {name: [plain(value) for value in values] for name, (_, values) in self.design.columns.items()}
        content: dict[str, Any] = {
            "version": SPEC_VERSION,
            "name": self.name,
            "seeds": seeds_to_plain(self.seeds),
        }
        if self.constraints:
            content["constraints"] = list(self.constraints)
        if self.until is not None:
            content["until"] = self.until
        content["baseline"] = self.baseline
        if self.masks:
            content["masks"] = True
        if self.tables:
            content["tables"] = list(self.tables)
        content["base"] = base
        if self.design.is_grid:
            content["axes"] = axes
        else:
            content["zip"] = [axes]
        return content

    def _plain_preset(self) -> dict[str, Any] | None:
        """Give the base as its preset's name and what was given with it; None without a preset."""
        if self.base.preset is None:
            return None
        name, fields = self.base.preset
        return {"preset": name, **{field: plain(value) for field, value in fields.items()}}

    def to_json(self) -> str:
        """Give the spec as one line of JSON."""
        return json.dumps(self.to_plain(), separators=(",", ":"))

    def run(self, **options: Any) -> xarray.Dataset:
        """Run the sweep; the options are those of :func:`lagsweep.run_sweep` from ``store`` on."""
        from ..execute.sweep import run_spec

        return run_spec(self, **options)


def make_spec(
    base: PipelineConfig,
    axes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    seeds: int | Iterable[int],
    *,
    constraints: Sequence[str] = (),
    name: str = DEFAULT_NAME,
    baseline: bool = False,
    masks: bool = False,
    tables: Sequence[str] = (),
    until: str | None = None,
    where: str = "axes",
) -> SweepSpec:
    """Build and check a spec; nothing is left to be found out later.

    Parameters
    ----------
    base : PipelineConfig
    axes : mapping, or sequence of mappings
        Axis -> values or a range; several mappings are groups, zipped inside and crossed with each other.
    seeds : int or iterable of int
        A number n means ``base.seed`` … ``base.seed + n - 1``.

    Raises
    ------
    ConfigError
        For anything wrong in it, cells with contradicting settings included.

    Examples
    --------
    >>> spec = make_spec(PipelineConfig(), {"max_lag": [0, 2], "sync_cadence": [1, 2, 3]}, seeds=10)
    >>> spec.design.shape, len(spec.seeds)
    ((2, 3), 10)
    """
    if not isinstance(base, PipelineConfig):
        raise ConfigError(
            message("base", "must be a PipelineConfig", base, "Build one, as PipelineConfig().")
        )
    if isinstance(axes, Mapping):
        groups: list[Mapping[str, Any]] = [{axis: values} for axis, values in axes.items()]
    elif isinstance(axes, Sequence) and all(isinstance(group, Mapping) for group in axes):
        groups = list(axes)
    else:
        raise ConfigError(message("axes", "must map axes to values", axes, "Write {'max_lag': [0, 1, 2]}."))
    spec = SweepSpec(
        base=base,
        design=design_from_groups(groups, where),
        seeds=read_seeds(seeds, base.seed),
        constraints=tuple(constraints),
        name=_checked_name(name),
        baseline=baseline,
        masks=masks,
        tables=_checked_tables(tables),
        until=until,
    )
    _check_cells(spec)
    if until is not None:
        from .stopping import check_metric, parse_rule

        check_metric(parse_rule(until), spec)
    return spec


def _checked_name(name: Any) -> str:
    if (
        not isinstance(name, str)
        or not name
        or any(letter in name for letter in "/\\\0")
        or name.startswith(".")
    ):
        raise ConfigError(
            message("name", "must be usable as a folder's name", name, "Use letters, digits and -.")
        )
    return name


def _checked_tables(tables: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tables, str):
        tables = [tables]
    for table in tables:
        if table not in TABLES:
            hint = nearest(str(table), TABLES) or f"Known tables: {', '.join(TABLES)}."
            raise ConfigError(message("tables", f"must be among {', '.join(TABLES)}", table, hint))
    return tuple(name for name in TABLES if name in tables)


def _check_cells(spec: SweepSpec) -> None:
    """Build every cell's configuration once, so that contradictions come up before anything runs."""
    from .cells import contradicting_cells

    if spec.design.size and spec.excluded.all():
        raise ConfigError(
            message("constraints", "must leave at least one cell", list(spec.constraints), "Loosen them.")
        )
    found = contradicting_cells(spec)
    if found:
        lines = [f"{text} (cell {where})" for where, text in found[:5]]
        if len(found) > 5:
            lines.append(f"and {len(found) - 5} more cells")
        lines.append(
            "axes: no cell may contradict itself. Change the values, or exclude such cells by a constraint."
        )
        raise ConfigError("\n".join(lines))


def spec_from_plain(content: Mapping[str, Any]) -> SweepSpec:
    """Read a spec back from :meth:`SweepSpec.to_plain`.

    Raises
    ------
    ConfigError
        As for a new spec.
    """
    from .reading import spec_from_sections

    return spec_from_sections(content)


def load_spec(path: str | Path, **overrides: Any) -> SweepSpec:
    """Read a sweep from a TOML file.

    Parameters
    ----------
    path : path
        The file.
    **overrides
        Settings of the base that take the place of the file's.

    Raises
    ------
    ConfigError
        Naming file, section and key of whatever is wrong.
    """
    from .reading import read_spec_file

    return read_spec_file(Path(path), base_changes=overrides)


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
            message(
                "dataset",
                "must be the result of a sweep",
                type(dataset).__name__,
                "Use run_sweep or open_sweep.",
            )
        ) from None
    return spec_from_plain(json.loads(text))


def base_config(dataset: xarray.Dataset) -> PipelineConfig:
    """Give the base configuration of a sweep's result.

    Raises
    ------
    ConfigError
        If the dataset is not a sweep's result.
    """
    return spec_of(dataset).base


def baseline_of(dataset: xarray.Dataset) -> xarray.Dataset | None:
    """Give the sequential baseline of a sweep's result as a sweep of its own; None if it was not run.

    Its cells lie along the axes that matter to a sequential pipeline; often it is one cell, at every seed.

    Raises
    ------
    ConfigError
        If the dataset is not a sweep's result.
    """
    import xarray

    from ..execute.plan import BASELINE_PREFIX, baseline_design

    variables = [str(name) for name in dataset.data_vars]
    names = {name: name[len(BASELINE_PREFIX) :] for name in variables if name.startswith(BASELINE_PREFIX)}
    if not names:
        return None
    spec = spec_of(dataset)
    sequential = baseline_design(spec)
    if sequential is None:
        return None
    base, design = sequential
    own = spec.replace(base=base, design=design, constraints=(), baseline=False)
    result = dataset[list(names)].rename(names).drop_vars("cell", errors="ignore")
    # The ids by the values of the axes, so that a selection of the sweep gives a selection of its baseline.
    along = {
        dim: own.design.coordinates().get(dim, (dim, np.arange(own.design.size)))[1] for dim in design.dims
    }
    ids = xarray.DataArray(own.cell_ids, dims=design.dims, coords=along)
    cell = ids.sel({dim: dataset[dim] for dim in design.dims})
    result = result.assign_coords(cell=(cell.dims, cell.values))
    result.attrs = {**dataset.attrs, "spec": own.to_json(), "fingerprint": own.fingerprint}
    return result


def config_at(
    dataset: xarray.Dataset, cell: int | Mapping[str, Any], seed: int | None = None
) -> PipelineConfig:
    """Give the configuration of one cell of a sweep, to run it again in full detail.

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
    from .cells import find_cell

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
        from ...kernels.errors import StoreError

        raise StoreError(
            message(
                "law_digest",
                f"must be {stored_digest[:16]}, as when the sweep was made",
                spec.law_digest[:16],
                "The law's file changed, or this platform's log and exp differ: run the sweep anew.",
            )
        )
