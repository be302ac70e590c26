"""A sweep as data: base settings, a design of cells, seeds, constraints, and what to keep.

A spec comes from Python arguments (:mod:`.spec.make`), from a TOML file (:mod:`.spec.reading`) or from flags
of the command line; all three give the same :class:`SweepSpec`. Its plain form is JSON or TOML and holds
everything needed to run any cell of it again, so a stored result needs nothing beside itself
(:mod:`.spec.carried`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked
from ..config.config import AXIS_FIELDS, OPTION_FIELDS, PipelineConfig, field_level
from ..custom.custom import CustomIdentity
from .axes import PRESET_PREFIX, identity, is_field, numbers_beside_none, plain
from .cells import checked_config
from .constraints import kept_cells
from .design import Design
from .exclusions import missing_tokens
from .identity import cell_ids, fingerprint_of, non_default
from .seeds import seeds_to_plain

if TYPE_CHECKING:
    import xarray

    from ..execute.options import RunOptions
    from ..laws.lengths import LengthLaw

TABLES = ("batches", "timeline", "rollouts")
SPEC_VERSION = 1
DEFAULT_NAME = "sweep"


class SpecParts(TypedDict, total=False):
    """The parts of a spec, for :meth:`SweepSpec.replace`."""

    base: PipelineConfig
    design: Design
    seeds: tuple[int, ...]
    constraints: tuple[str, ...]
    name: str
    baseline: bool
    masks: bool
    tables: tuple[str, ...]
    until: str | None
    windows: int | None
    custom: CustomIdentity | None
    runner: Callable[..., xarray.Dataset] | None


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
    windows : int, optional
        Report by windows of so many updates too.
    custom : CustomIdentity, optional
        Which rules and metrics of the user's own the runs have.
    runner : callable, optional
        What :meth:`run` calls; not part of the identity.
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
    windows: int | None = None
    custom: CustomIdentity | None = None
    runner: Callable[..., xarray.Dataset] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def excluded(self) -> np.ndarray:
        """Which cells break a constraint (bool, in the design's shape)."""
        kept = np.ones(self.design.shape, bool)
        columns: dict[str, Any] = {}
        texts: dict[str, Any] = {}
        for name, (dim, along) in self.design.coordinates().items():
            position = self.design.dims.index(dim)
            numbers = numbers_beside_none(along)
            for key in (name, AXIS_FIELDS.get(name, name)):
                texts[key] = self.design.broadcast(position, along)
                columns[key] = texts[key] if numbers is None else self.design.broadcast(position, numbers)
        known = {name: getattr(self.base, name) for name in PipelineConfig.model_fields}
        known |= {name: known[setting] for name, setting in AXIS_FIELDS.items()}
        known = {name: value for name, value in known.items() if name not in columns}
        for constraint in self.constraints:
            # Beside none a number can be compared with numbers, or with 'none' as a text.
            held = texts if set(constraint) & set("'\"") else columns
            kept = kept & kept_cells(constraint, held, known)
        return ~kept | (self.missing_cache_tokens > 0)

    @cached_property
    def missing_cache_tokens(self) -> np.ndarray:
        """By how many tokens each cell's engines cannot hold one rollout (int64): such a cell is excluded."""
        return missing_tokens(self)

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
            cells: Any = [[name, sorted(column)] for name, column in zip(fields, values)]
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
        if self.custom is not None:
            content["custom"] = self.custom.plain
        rest = {"until": self.until, "windows": self.windows}
        return fingerprint_of({**content, **{key: value for key, value in rest.items() if value is not None}})

    @property
    def is_level_1(self) -> bool:
        """Whether no cell uses an option of levels 2 and 3."""
        return self.base.is_level_1 and all(
            is_field(name) and field_level(name) == 1 for name in self.design.fields.values()
        )

    @property
    def length_laws(self) -> tuple[LengthLaw, ...]:
        """The length laws of the cells: an axis's values, or the base's."""
        if "response_length" in self.design.columns:
            return tuple(self.design.columns["response_length"][1])
        return (self.base.response_length,)

    @property
    def options_in_use(self) -> frozenset[str]:
        """The options that a cell uses and that bring metrics of their own."""
        found = self.base.options_in_use
        for name, (_, values) in self.design.columns.items():
            field = self.design.fields[name]
            if field in OPTION_FIELDS or not is_field(field):
                found = found.union(*(_options_with(self.base, field, value) for value in values))
        return found

    @property
    def law_digest(self) -> str:
        """The digest of the response lengths' table; with several laws theirs, sorted, joined by commas."""
        laws = [self.base.response_length]
        if "response_length" in self.design.columns:
            laws = list(self.design.columns["response_length"][1])
        return ",".join(sorted({law.digest for law in laws}))

    def config(self, cell: int, seed: int | None = None) -> PipelineConfig:
        """Return the configuration of a cell, counted along the design.

        Raises
        ------
        ConfigError
            If the cell's settings contradict each other.
        """
        cell = checked(WholeNumber, "cell", cell, low=0, high=self.design.size - 1)
        changes = dict(self.design.settings(cell))
        if seed is not None:
            changes["seed"] = seed
        return checked_config(self.base, changes)

    def replace(self, **changes: Unpack[SpecParts]) -> SweepSpec:
        """Return a copy with some parts changed."""
        return replace(self, **changes)

    def to_plain(self) -> dict[str, Any]:
        """Return the spec as plain data for JSON or TOML."""
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
        if self.windows is not None:
            content["windows"] = self.windows
        content["baseline"] = self.baseline
        if self.masks:
            content["masks"] = True
        if self.tables:
            content["tables"] = list(self.tables)
        if self.custom is not None:
            content["custom"] = self.custom.plain
        content["base"] = base
        if self.design.is_grid:
            content["axes"] = axes
        else:
            content["zip"] = [axes]
        return content

    def _plain_preset(self) -> dict[str, Any] | None:
        """Return the base as its preset's name and what was given with it; None without a preset."""
        if self.base.preset is None:
            return None
        name, fields = self.base.preset
        return {"preset": name, **{setting: plain(value) for setting, value in fields.items()}}

    def to_json(self) -> str:
        """Return the spec as one line of JSON."""
        return json.dumps(self.to_plain(), separators=(",", ":"))

    def run(self, **options: Unpack[RunOptions]) -> xarray.Dataset:
        """Run the sweep; the options are those of :func:`lagsweep.run_sweep` from ``store`` on.

        Raises
        ------
        ConfigError
            If the spec was not made by :func:`lagsweep.load_spec`, which gives it the function that runs it.
        """
        if self.runner is None:
            raise ConfigError("spec", "must come from load_spec", self.name, "Use lagsweep.run_spec(spec).")
        return self.runner(self, **options)


def _options_with(base: PipelineConfig, field: str, value: Any) -> frozenset[str]:
    """Name the options that a configuration uses with one value of an axis: a field, a knob or the system."""
    if is_field(field):
        return base.model_copy(update={field: value}).options_in_use
    try:
        return base.replace(**{field.removeprefix(PRESET_PREFIX): value}).options_in_use
    except ConfigError:  # it needs the values of further axes, which have their own turn
        return frozenset()
