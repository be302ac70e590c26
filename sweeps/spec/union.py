"""What a changed spec asks of a stored sweep: the union of both, or a readable refusal.

Values of axes, seeds and whole axes may be added; everything else must be as in the store. Values that the
store has come first, in its order, so nothing that is done changes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...kernels.errors import StoreError
from ..config.config import PipelineConfig
from .axes import field_of_axis, identity, is_field, label, nearly_all
from .design import Design, design_from_groups
from .seeds import seeds_to_plain
from .spec import SweepSpec
from .windows import windows_of

_MOST_NAMED = 12  # values in the line that says what is added
_KEEP = ("constraints", "baseline", "masks", "tables", "until", "windows")


def union_spec(stored: SweepSpec, asked: SweepSpec, folder: Path) -> SweepSpec:
    """Return the spec that holds what is stored and what is asked.

    Raises
    ------
    StoreError
        If they differ in anything but added values, seeds and axes, with every difference.
    """
    asked = asked.replace(design=_with_stored_values(stored, asked))
    differences = differences_of(stored, asked)
    if differences:
        lines = "\n".join(f"  {line}" for line in differences)
        raise StoreError(
            f"spec: must be the store's, or add values, seeds or axes to it (got another for {folder}).\n"
            f"{lines}\n"
            "Ways out: leave out --store, and the changed sweep gets a folder of its own; "
            "name a new folder with --store; or take the store's settings (spec.toml in it)."
        )
    known = set(stored.seeds)
    seeds = (*stored.seeds, *(seed for seed in asked.seeds if seed not in known))
    return stored.replace(design=_union_design(stored, asked), seeds=seeds)


def differences_of(stored: SweepSpec, asked: SweepSpec) -> list[str]:
    """Say in a line each what differs and cannot be added."""
    found = []
    was, now = _axes_by_field(stored), _axes_by_field(asked)
    presets = [spec.base.preset[0] if spec.base.preset else None for spec in (stored, asked)]
    if presets[0] != presets[1]:
        found.append(f"base.preset: {presets[0]} in the store, {presets[1]} asked")
    for field in PipelineConfig.model_fields:
        if field == "seed" or field in was or field in now:
            continue
        before, after = getattr(stored.base, field), getattr(asked.base, field)
        if identity(before) != identity(after):
            was_called, now_called = _told_apart(before, after)
            found.append(f"base.{field}: {was_called} in the store, {now_called} asked")
    for field, name in was.items():
        if field not in now:
            found.append(f"axes.{name}: an axis of the store, not asked; name all of its axes")
        elif now[field] != name:
            found.append(f"axes.{name}: called {now[field]} in what is asked; use the store's name")
    for field, name in now.items():
        if field not in was and not is_field(field):
            found.append(
                f"axes.{name}: not in the store, whose cells have no value of it to be told apart by"
            )
    if stored.design.is_grid != asked.design.is_grid:
        found.append(f"design: {_kind(stored)} in the store, {_kind(asked)} asked")
    if stored.until is not None and asked.fingerprint != stored.fingerprint:
        found.append(f"until: {stored.until}; a store with a stopping rule cannot grow")
    counts = [windows_of(spec).count for spec in (stored, asked)]
    if stored.windows == asked.windows and counts[1] > counts[0]:
        found.append(f"stop_after_updates: {counts[0]} windows in the store, {counts[1]} asked")
    for key in _KEEP:
        before, after = getattr(stored, key), getattr(asked, key)
        if before != after:
            found.append(f"{key}: {_shown(before)} in the store, {_shown(after)} asked")
    if stored.custom != asked.custom:
        before, after = (spec.custom.describe() if spec.custom else "none" for spec in (stored, asked))
        found.append(f"custom: {before} in the store, {after} asked")
    return found


def _told_apart(before: Any, after: Any) -> tuple[str, str]:
    """Name two values; two laws of one name, as of a file that has changed, with their digests."""
    names = label(before), label(after)
    if names[0] != names[1]:
        return names
    was, now = (getattr(value, "content_digest", "") for value in (before, after))
    if not (was and now):
        return names
    return f"{names[0]} (digest {was[:8]})", f"{names[1]} (digest {now[:8]}: its content changed)"


def _axes_by_field(spec: SweepSpec) -> dict[str, str]:
    return {field: name for name, field in spec.design.fields.items()}


def _kind(spec: SweepSpec) -> str:
    return "a grid" if spec.design.is_grid else "points"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return label(value)


def _with_stored_values(stored: SweepSpec, asked: SweepSpec) -> Design:
    """Take a number that is asked for the store's where the two differ by rounding alone."""
    columns = {
        name: nearly_all(values, _old_or_base(stored, name))
        for name, (_, values) in asked.design.columns.items()
    }
    if all(columns[name] == values for name, (_, values) in asked.design.columns.items()):
        return asked.design
    groups = [{name: columns[name] for name in group} for group in asked.design.groups()]
    return design_from_groups(groups)


def _union_design(stored: SweepSpec, asked: SweepSpec) -> Design:
    old = {name: values for name, (_, values) in stored.design.columns.items()}
    new = {name: values for name, (_, values) in asked.design.columns.items()}
    if stored.design.is_grid:
        groups = [{name: _merged(_old_or_base(stored, name), values)} for name, values in new.items()]
        return design_from_groups(groups)
    names = list(new)
    before = {name: old.get(name) or _old_or_base(stored, name) * stored.design.size for name in names}
    rows = {_key(row): row for row in zip(*(before[name] for name in names))}
    for row in zip(*(new[name] for name in names)):
        rows.setdefault(_key(row), row)
    return design_from_groups([{name: [row[k] for row in rows.values()] for k, name in enumerate(names)}])


def _old_or_base(stored: SweepSpec, name: str) -> tuple[Any, ...]:
    """Return the values that a store has on an axis; the base's where the axis is new."""
    if name in stored.design.columns:
        return tuple(stored.design.columns[name][1])
    field = field_of_axis(name)
    return (getattr(stored.base, field),) if is_field(field) else ()


def _key(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(identity(value) for value in row)


def _merged(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    known = {identity(value) for value in old}
    return (*old, *(value for value in new if identity(value) not in known))


def _listed(values: Sequence[Any]) -> str:
    """Name values in a line, the first of many."""
    more = f" and {len(values) - _MOST_NAMED:,} more" if len(values) > _MOST_NAMED else ""
    return ", ".join(label(value) for value in values[:_MOST_NAMED]) + more


def added(stored: SweepSpec, union: SweepSpec) -> str:
    """Say what a union adds to what is stored, in one line."""
    parts = []
    for name, (_, values) in union.design.columns.items():
        column = stored.design.columns.get(name)
        known = {identity(value) for value in column[1]} if column else set()
        if column is None:
            parts.append(f"axis {name}={_listed(values)}")
        elif union.design.is_grid and (fresh := [value for value in values if identity(value) not in known]):
            parts.append(f"{name}={_listed(fresh)}")
    if not union.design.is_grid and union.design.size > stored.design.size:
        parts.append(f"{union.design.size - stored.design.size} points")
    more = union.seeds[len(stored.seeds) :]
    if more:
        plain = seeds_to_plain(more)
        shown = f"{plain['first']}..{more[-1]}" if isinstance(plain, dict) else ", ".join(map(str, more[:10]))
        parts.append(f"{len(more)} seeds ({shown})")
    return "; ".join(parts)
