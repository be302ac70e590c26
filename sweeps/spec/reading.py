"""Sweep specs in TOML: read with every error naming file, section and key.

Sections: the top (``name``, ``seeds``, ``constraints``, ``until``, ``windows``, ``baseline``, ``masks``,
``tables``),
``[base]`` (fields of the configuration, or ``preset``), ``[axes]``, ``[[zip]]`` (axes that go together),
``[[points]]`` (one table a point), ``[sample]`` (``method``, ``points``, ``seed``: the axes then are ranges
to draw from). TOML has no null: the text ``none`` stands for it where a field may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ...kernels.errors import ConfigError, Finding, nearest
from ..checks import NOT_A_FIELD, Flag, checked
from ..config.config import AXIS_FIELDS, PipelineConfig
from ..config.rules import NoEffect
from ..custom.custom import CustomIdentity
from ..laws.drift import DriftLaw
from ..laws.lengths import LengthLaw, SecondsLaw
from ..presets.registry import find_preset, preset_config, preset_name
from ..presets.systems import SYSTEM, WORKLOAD, workload_config
from ..user_files import decoded, parse_toml, read_bytes
from .axes import ENGINE_PREFIX, PRESET_PREFIX, checked_value, read_none
from .design import sampled_group
from .engine_files import engine_fields, with_engine_fields
from .make import make_spec
from .spec import DEFAULT_NAME, SPEC_VERSION, SweepSpec

TOP_KEYS = (
    "version", "name", "seeds", "constraints", "until", "windows", "baseline", "masks", "tables",
    "base", "axes", "zip", "points", "sample",
)  # fmt: skip
CUSTOM = "custom"  # which rules of Python a sweep was run with: written by it, never by hand
SAMPLE_KEYS = ("method", "points", "seed")
_LAWS: dict[str, Any] = {
    "response_length": LengthLaw,
    "environment_seconds": SecondsLaw,
    "drift": DriftLaw,
}


def read_spec_file(path: Path, **changes: Any) -> SweepSpec:
    """Read a TOML file; `changes` are those of :func:`spec_from_sections`.

    Raises
    ------
    ConfigError
        Each line begins with the file's name.
    """
    content = read_sections(path)
    try:
        return spec_from_sections(content, folder=path.parent, **changes)
    except ConfigError as error:
        raise error.within(f"{path}: ") from None


def read_sections(path: Path) -> dict[str, Any]:
    """Read a TOML file into plain data.

    Raises
    ------
    ConfigError
        If it cannot be read or is not TOML.
    """
    text = decoded(read_bytes(path, "spec"), "spec", str(path))
    return parse_toml(text, str(path))


def spec_from_sections(
    content: Mapping[str, Any],
    *,
    folder: Path | None = None,
    base_changes: Mapping[str, Any] | None = None,
    axis_changes: Mapping[str, Any] | None = None,
    top_changes: Mapping[str, Any] | None = None,
    carried: bool = False,
) -> SweepSpec:
    """Build a spec from the sections of a file.

    Parameters
    ----------
    content : mapping
        The file's content.
    folder : path, optional
        Where relative paths of length files start.
    base_changes, axis_changes, top_changes : mapping, optional
        What the command line puts in the place of the file's base fields, axes and top keys.
    carried : bool
        As for :func:`.make.make_spec`.

    Raises
    ------
    ConfigError
        Naming section and key.
    """
    top = {**content, **(top_changes or {})}
    checked_keys(top)
    axes = read_axes(content, folder, axis_changes or {})
    groups = _groups(top, axes, folder)
    section = section_of(content, "base")
    if any(SYSTEM in group for group in groups):
        section.setdefault("preset", WORKLOAD)
    base = read_base(section, folder, base_changes or {}, swept=bool(groups))
    return make_spec(
        base,
        groups,
        top.get("seeds", 1),
        constraints=strings_of(top, "constraints"),
        name=top.get("name", DEFAULT_NAME),
        baseline=_flag(top, "baseline", True),
        masks=_flag(top, "masks", False),
        tables=strings_of(top, "tables"),
        until=top.get("until"),
        windows=top.get("windows"),
        custom=CustomIdentity.from_plain(top[CUSTOM]) if CUSTOM in top else None,
        carried=carried,
    )


def checked_keys(top: Mapping[str, Any]) -> None:
    """Refuse keys of the top level that are none, each with where it belongs.

    Raises
    ------
    ConfigError
    """
    findings = []
    for key in top:
        if key in TOP_KEYS or key == CUSTOM:
            continue
        if key in PipelineConfig.model_fields:
            way_out = "Move it under [base]."
        elif key in AXIS_FIELDS:
            way_out = "Move it under [axes]."
        else:
            way_out = nearest(str(key), TOP_KEYS) or f"Known sections and keys: {', '.join(TOP_KEYS)}."
        findings.append(Finding(str(key), "is not a key of the top level", top[key], way_out))
    version = top.get("version", SPEC_VERSION)
    if version != SPEC_VERSION:
        findings.append(Finding("version", f"must be {SPEC_VERSION}", version, "Use a newer lagsweep."))
    if findings:
        raise ConfigError(*findings)


def section_of(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a spec, empty where it has none.

    Raises
    ------
    ConfigError
        If it is no section.
    """
    section = content.get(name, {})
    if not isinstance(section, Mapping):
        raise ConfigError(name, "must be a section", section, f"Write [{name}] and its keys below it.")
    for key in section:
        if not isinstance(key, str):
            raise ConfigError(name, "must have names as keys", key, f"Write [{name}] and its keys below it.")
    return dict(section)


def strings_of(top: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of texts of a spec, empty where it has none.

    Raises
    ------
    ConfigError
        If it is anything else.
    """
    value = top.get(key, [])
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ConfigError(key, "must be a list of texts", value, f'Write {key} = ["..."].')
    return list(value)


def _flag(top: Mapping[str, Any], key: str, default: bool) -> bool:
    return checked(Flag, key, top.get(key, default), way_out=f"Write {key} = true.")


def read_base(
    section: Mapping[str, Any], folder: Path | None, changes: Mapping[str, Any], *, swept: bool = False
) -> PipelineConfig:
    """Build the base configuration from a section, starting from its preset if it names one.

    Of a sweep (`swept`) it may have values without an effect beside the others: they are for cells in which
    they have one.

    Raises
    ------
    ConfigError
        Each line names the section and the key.
    """
    settings = dict(section)
    if "engine" in settings:
        settings["engine"] = _read_field("engine", settings["engine"], folder)
    wanted = with_engine_fields(settings, changes)
    preset = wanted.pop("preset", None)
    preset = preset_name(preset) if isinstance(preset, str) else preset
    knobs = _knob_names(preset)
    fields: dict[str, Any] = {}
    findings: list[Finding] = []
    for name, value in wanted.items():
        if name in AXIS_FIELDS and name not in knobs:
            way_out = f"In [base] it is {AXIS_FIELDS[name]}."
            findings.append(Finding(f"base.{name}", "is the name of an axis", value, way_out))
            continue
        try:
            fields[name] = _read_field(name, value, folder)
        except ConfigError as error:
            findings += error.findings
    if findings:
        raise ConfigError(*findings)
    try:
        if preset is None:
            return _with_idle(fields) if swept else PipelineConfig(**fields)
        return workload_config(**fields) if preset == WORKLOAD else preset_config(preset, **fields)
    except ConfigError as error:
        raise ConfigError(*(_in_base(finding) for finding in error.findings)) from None


def _with_idle(fields: dict[str, Any]) -> PipelineConfig:
    """Build a configuration that keeps values without an effect, each checked by itself."""
    kept = dict(fields)
    idle: dict[str, Any] = {}
    while True:
        try:
            made = PipelineConfig(**kept)
        except ConfigError as error:
            names = {finding.field for finding in error.findings if isinstance(finding, NoEffect)}
            if not names or len(error.findings) > len(names):
                raise
            idle |= {name: checked_value(name, kept.pop(name), name) for name in names}
        else:
            return made.model_copy(update=idle) if idle else made


def _knob_names(preset: Any) -> tuple[str, ...]:
    if preset in (None, WORKLOAD):
        return ()
    return tuple(knob.name for knob in find_preset(preset).knobs)


def _in_base(finding: Finding) -> Finding:
    """Put the section before the field, and say where a name that is an axis belongs."""
    axis = get_close_matches(finding.field, AXIS_FIELDS, n=1)
    if finding.rule == NOT_A_FIELD and axis:
        belongs = f"The axis {axis[0]} is {AXIS_FIELDS[axis[0]]} here, or belongs under [axes]."
        finding = finding._replace(way_out=f"{finding.way_out} {belongs}")
    return finding.within("base.")


def _read_field(name: str, value: Any, folder: Path | None) -> Any:
    if name in _LAWS and isinstance(value, Mapping):
        law = _LAWS[name]
        try:
            return law.from_dict(value, folder=folder) if folder is not None else law.from_dict(value)
        except ConfigError as error:
            raise error.within(f"base.{name}: ") from None
    if name == "engine":
        return read_none(name, engine_fields(value, folder))
    return read_none(name, value) if name in PipelineConfig.model_fields else value


def _with_knobs(axes: dict[str, Any]) -> dict[str, Any]:
    """Write ``preset.window = [1, 2]``, which TOML reads as a table, as an axis; ``engine.count`` alike."""
    flat: dict[str, Any] = {}
    prefixes = {"preset": PRESET_PREFIX, "engine": ENGINE_PREFIX}
    for name, values in axes.items():
        if name in prefixes and isinstance(values, Mapping):
            flat |= {f"{prefixes[name]}{knob}": inner for knob, inner in values.items()}
        else:
            flat[name] = values
    return flat


def read_axes(content: Mapping[str, Any], folder: Path | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Read the section ``[axes]``: lists of values in their fields' types, ranges as they are.

    Raises
    ------
    ConfigError
        Naming section and key.
    """
    axes = _axes_with_changes(_with_knobs(section_of(content, "axes")), changes)
    return {name: _read_values(name, values, folder) for name, values in axes.items()}


def _axes_with_changes(axes: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Put axes from the command line in the place of the file's, under either name of the same field."""
    for name, values in changes.items():
        other = [old for old in axes if AXIS_FIELDS.get(old, old) == AXIS_FIELDS.get(name, name)]
        axes[other[0] if other else name] = values
    return axes


def _groups(top: Mapping[str, Any], axes: dict[str, Any], folder: Path | None) -> list[Mapping[str, Any]]:
    groups: list[Mapping[str, Any]] = []
    if "sample" in top:
        sample = section_of(top, "sample")
        for key in sample:
            if key not in SAMPLE_KEYS:
                hint = nearest(str(key), SAMPLE_KEYS) or f"Known keys: {', '.join(SAMPLE_KEYS)}."
                raise ConfigError(f"sample.{key}", "is not a known key", sample[key], hint)
        groups.append(
            sampled_group(
                axes,
                method=sample.get("method", "latin_hypercube"),
                points=sample.get("points", 64),
                seed=sample.get("seed", 0),
            )
        )
    else:
        groups += [{name: values} for name, values in axes.items()]
    groups += [
        {name: _read_values(name, values, folder) for name, values in group.items()}
        for group in _tables(top, "zip")
    ]
    points = _tables(top, "points")
    if points:
        groups.append(_columns_of_points(points, folder))
    return groups


def _tables(top: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = top.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ConfigError(key, "must be a list of tables", value, f"Write [[{key}]] before each.")
    return [dict(item) for item in value]


def _read_values(name: str, values: Any, folder: Path | None) -> Any:
    field = AXIS_FIELDS.get(name, name)
    if isinstance(values, Sequence) and not isinstance(values, str) and field in PipelineConfig.model_fields:
        return [_read_field(field, value, folder) for value in values]
    return values


def _columns_of_points(points: Sequence[Mapping[str, Any]], folder: Path | None) -> dict[str, list[Any]]:
    names = list(points[0])
    for number, point in enumerate(points):
        if set(point) != set(names):
            odd = sorted(set(point) ^ set(names))
            raise ConfigError(
                "points", f"must all set {', '.join(names)} (point {number})", odd, "Even them out."
            )
    return {name: _read_values(name, [point[name] for point in points], folder) for name in names}
