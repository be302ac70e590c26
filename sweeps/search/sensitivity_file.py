"""A sensitivity read back from what ``lagsweep sensitivity --json`` prints, and held against a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from ...kernels.errors import ConfigError, Finding
from ..checks import WholeNumber, findings_of
from ..config.config import AXIS_FIELDS
from ..json_text import plain_data, schema_name
from ..user_files import decoded, parse_json, read_bytes
from .indices import COLUMNS
from .sensitivity import Sensitivity

if TYPE_CHECKING:
    from ..spec.spec import SweepSpec

KIND = "sensitivity"
WAY_OUT = "Write it by `lagsweep sensitivity ... --json > FILE`."
_MOST_SHOWN = 60  # characters of a setting


class _Document(BaseModel):
    """What the document has, by docs/json.md; what older ones lack is empty."""

    model_config = ConfigDict(strict=False, extra="ignore")

    method: Literal["sobol", "morris"]
    indices: list[dict[str, str | float | None]]
    means: dict[str, float | None]
    spreads: dict[str, float | None]
    noise: dict[str, float | None]
    units: dict[str, str]
    points: WholeNumber
    base_points: WholeNumber
    seeds: WholeNumber
    runs: WholeNumber
    confidence: float
    ranges: dict[str, Any]
    folder: str | None = None
    base: dict[str, Any] | None = None
    constraints: list[str] = []


def read_sensitivity(path: str | Path) -> Sensitivity:
    """Read a sensitivity from the JSON document of its command.

    Raises
    ------
    ConfigError
        If the file cannot be read, or holds anything else.
    """
    text = decoded(read_bytes(path, KIND), KIND, str(path))
    plain = parse_json(text, KIND, str(path), WAY_OUT)
    schema = plain.get("schema") if isinstance(plain, Mapping) else None
    if schema != schema_name(KIND):
        raise ConfigError(KIND, f"must be a document of {schema_name(KIND)}", schema, WAY_OUT)
    try:
        found = _Document.model_validate(plain)
    except ValidationError as error:
        findings = findings_of(error, _Document.model_fields)
        raise ConfigError(*(one.within(f"{KIND}.")._replace(way_out=WAY_OUT) for one in findings)) from None
    return Sensitivity(
        method=found.method,
        frame=_frame(found),
        means=_numbers(found.means),
        spreads=_numbers(found.spreads),
        noise=_numbers(found.noise),
        units=found.units,
        points=found.points,
        base_points=found.base_points,
        seeds=found.seeds,
        runs=found.runs,
        confidence=found.confidence,
        ranges=found.ranges,
        folder=None if found.folder is None else Path(found.folder),
        base=found.base,
        constraints=tuple(found.constraints),
    )


def _frame(found: _Document) -> pl.DataFrame:
    """Return the indices as a frame, once each metric has each setting's."""
    texts, numbers = ("metric", "axis"), COLUMNS[found.method]
    metrics = set(found.means)
    for mapping in (found.spreads, found.noise, found.units):
        if set(mapping) != metrics:
            raise ConfigError(
                f"{KIND}.means", "must name the metrics of the others", sorted(metrics), WAY_OUT
            )
    pairs = sorted((str(row.get("metric")), str(row.get("axis"))) for row in found.indices)
    if not metrics or pairs != sorted((metric, axis) for metric in metrics for axis in found.ranges):
        rule = "must have one row for each metric and range"
        raise ConfigError(f"{KIND}.indices", rule, f"{len(pairs)} rows", WAY_OUT)
    rows = []
    for place, row in enumerate(found.indices):
        wrong = [name for name in numbers if not isinstance(row.get(name), float | int | None)]
        if wrong or not set(numbers) <= set(row):
            rule = f"must have {', '.join(numbers)}"
            raise ConfigError(f"{KIND}.indices[{place}]", rule, row.get(wrong[0]) if wrong else None, WAY_OUT)
        own = {name: float("nan") if row[name] is None else float(row[name] or 0.0) for name in numbers}
        rows.append({**{name: str(row[name]) for name in texts}, **own})
    return pl.DataFrame(rows)


def _numbers(given: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float("nan") if value is None else value for name, value in given.items()}


def differing_settings(found: Sensitivity, spec: SweepSpec) -> list[Finding] | None:
    """List the settings in which the runs of a sensitivity differ from a sweep's, axes and ranges apart.

    Returns
    -------
    list of Finding or None
        None where the document does not say its settings.
    """
    if found.base is None:
        return None
    varied = {AXIS_FIELDS.get(name, name) for name in found.ranges} | set(spec.design.fields.values())
    here, there = (dict(plain_data(base)) for base in (spec.to_plain()["base"], found.base))
    return [
        Finding(name, f"is {_shown(there.get(name))} there, and {_shown(here.get(name))} here")
        for name in {**here, **there}
        if name not in varied and here.get(name) != there.get(name)
    ]


def _shown(value: Any) -> str:
    if value is None:
        return "at its default"
    if isinstance(value, Mapping):
        value = value.get("name") or ":".join(
            str(part) for part in value.values() if not isinstance(part, list)
        )
    return (f"{value:g}" if isinstance(value, float) else str(value))[:_MOST_SHOWN]
