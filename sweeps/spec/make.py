"""A spec from Python arguments: built and checked whole, so that nothing is left to be found out later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...kernels.errors import ConfigError, Finding, nearest
from ..checks import texts_of
from ..config.config import PipelineConfig
from ..custom.custom import CustomIdentity
from ..presets.systems import SYSTEM, WORKLOAD, workload_config
from .cells import contradicting_cells
from .design import design_from_groups
from .seeds import read_seeds
from .spec import DEFAULT_NAME, TABLES, SweepSpec
from .stopping import check_metric, parse_rule
from .windows import checked_windows


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
    windows: int | None = None,
    custom: CustomIdentity | None = None,
    where: str = "axes",
    carried: bool = False,
) -> SweepSpec:
    """Build and check a spec; nothing is left to be found out later.

    Parameters
    ----------
    base : PipelineConfig
    axes : mapping, or sequence of mappings
        Axis -> values or a range; several mappings are groups, zipped inside and crossed with each other.
    seeds : int or iterable of int
        A number n means ``base.seed`` … ``base.seed + n - 1``.
    carried : bool
        It is the spec of a result, whose cells were checked before they ran: they are not built again, which
        would take longer than the reading of a large store.

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
        raise ConfigError("base", "must be a PipelineConfig", base, "Build one, as PipelineConfig().")
    if isinstance(axes, Mapping):
        groups: list[Mapping[str, Any]] = [{axis: values} for axis, values in axes.items()]
    elif isinstance(axes, Sequence) and all(isinstance(group, Mapping) for group in axes):
        groups = list(axes)
    else:
        raise ConfigError("axes", "must map axes to values", axes, "Write {'max_lag': [0, 1, 2]}.")
    if any(SYSTEM in group for group in groups):
        base = _as_workload(base)
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
        windows=windows,
        custom=custom,
    )
    _check_custom(spec)
    _check_excluded(spec)
    if not carried:
        _check_cells(spec)
    if windows is not None:
        spec = spec.replace(windows=checked_windows(spec))
    if until is not None:
        check_metric(parse_rule(until), spec)
    return spec


def _as_workload(base: PipelineConfig) -> PipelineConfig:
    """Take a base as what all systems of a sweep have in common: the fields that were set in it."""
    if base.preset is not None:
        if base.preset[0] == WORKLOAD:
            return base
        way_out = "Leave it out; name it among the systems."
        raise ConfigError("base.preset", "excludes the axis system", base.preset[0], way_out)
    return workload_config(**{name: getattr(base, name) for name in base.model_fields_set})


def _checked_name(name: Any) -> str:
    if (
        not isinstance(name, str)
        or not name
        or any(letter in name for letter in "/\\\0")
        or name.startswith(".")
    ):
        raise ConfigError("name", "must be usable as a folder's name", name, "Use letters, digits and -.")
    return name


def _checked_tables(tables: Sequence[str]) -> tuple[str, ...]:
    tables = texts_of("tables", tables, f"Known tables: {', '.join(TABLES)}.")
    for table in tables:
        if table not in TABLES:
            hint = nearest(str(table), TABLES) or f"Known tables: {', '.join(TABLES)}."
            raise ConfigError("tables", f"must be among {', '.join(TABLES)}", table, hint)
    return tuple(name for name in TABLES if name in tables)


def _check_custom(spec: SweepSpec) -> None:
    """Refuse a metric of the user's that is called like an axis."""
    names = [metric.name for metric in spec.custom.metrics] if spec.custom else []
    taken = {*spec.design.columns, *spec.design.dims} & set(names)
    if taken:
        raise ConfigError("metrics.name", "must not be the name of an axis", min(taken), "Rename it.")


def _check_excluded(spec: SweepSpec) -> None:
    """Refuse a spec of which the constraints leave nothing."""
    if spec.design.size and spec.excluded.all():
        raise ConfigError(
            "constraints", "must leave at least one cell", list(spec.constraints), "Loosen them."
        )


def _check_cells(spec: SweepSpec) -> None:
    """Build every cell's configuration once, so that contradictions come up before anything runs."""
    found = contradicting_cells(spec)
    if found:
        findings = [
            finding._replace(way_out=f"{finding.way_out} (cell {where})") if where else finding
            for where, finding in found[:5]
        ]
        if len(found) > 5:
            findings.append(Finding("", f"and {len(found) - 5} more cells"))
        if not found[0][0]:
            raise ConfigError(*findings)
        way_out = "Change the values, or exclude such cells by a constraint."
        raise ConfigError(*findings, Finding("axes", "no cell may contradict itself", way_out=way_out))
