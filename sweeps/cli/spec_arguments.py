"""The spec of ``lagsweep run``: a file or a shipped example, with flags in the place of what it says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from ...kernels.errors import ConfigError, nearest

EXAMPLES = "examples"


def shipped_examples() -> dict[str, Any]:
    """Return the example specs that come with the package, by name."""
    folder = resources.files("lagsweep.sweeps") / EXAMPLES
    return {item.name.removesuffix(".toml"): item for item in folder.iterdir() if item.name.endswith(".toml")}


def spec_from_arguments(
    source: str | None,
    *,
    base_changes: Mapping[str, Any],
    axis_changes: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    """Build the spec that the arguments ask for.

    Parameters
    ----------
    source : str, optional
        A TOML file, or the name of a shipped example.
    base_changes, axis_changes : mapping
        From flags.
    options : mapping
        ``seeds``, ``where``, ``name``, ``baseline``, ``tables``, ``masks``, ``until``, ``windows``;
        None where not given.

    Raises
    ------
    ConfigError
        Naming file, section and key, or the flag.
    """
    from ..spec.changes import made_with
    from ..spec.reading import read_spec_file, spec_from_sections

    changes: dict[str, Any] = {"axis_changes": axis_changes, "top_changes": _top_changes(options)}
    if source is None:
        if not base_changes and not axis_changes:
            raise ConfigError(
                "SPEC", "must be given unless flags say what to run", None, "Try aime-cap-lag-cadence."
            )
        build = partial(spec_from_sections, {}, folder=Path.cwd(), **changes)
        return made_with(lambda base: build(base_changes=base), base_changes, _axes_of_spec, _flag)
    with _found(source) as path:
        build = partial(read_spec_file, path, **changes)
        return made_with(lambda base: build(base_changes=base), base_changes, _axes_of_spec, _flag)


def _axes_of_spec(spec: Any) -> Iterable[str]:
    return tuple(spec.design.columns)


def _flag(name: str) -> str:
    """Name the flag that changes a field of the base, or a knob of its preset."""
    from ..config.config import PipelineConfig
    from ..spec.axes import engine_field

    if name in PipelineConfig.model_fields or engine_field(name):
        return f"--{name.replace('_', '-').replace('.', '-')}"
    return f"--knob {name}"


@contextlib.contextmanager
def _found(source: str) -> Iterator[Path]:
    """Give the file that an argument names: a path, or a shipped example.

    Raises
    ------
    ConfigError
        If there is neither.
    """
    path = Path(source)
    if path.exists():
        yield path
        return
    name = path.name.removesuffix(".toml")
    examples = shipped_examples()
    if name not in examples or not (path.parent == Path() or path.parent.name == "examples"):
        raise ConfigError("SPEC", *_not_there(path, name, examples))
    with resources.as_file(examples[name]) as file:
        yield file


def _not_there(path: Path, name: str, examples: Mapping[str, Any]) -> tuple[str, str, str]:
    """Say what is wrong with a spec that is no file and no example: rule, value, way out."""
    shipped = f"Shipped examples: {', '.join(sorted(examples))}."
    folder = path.parent
    missing = "must be a file that is there"
    if path.suffix != ".toml" and path.with_name(f"{path.name}.toml").is_file():
        return missing, str(path), f"Did you mean '{path}.toml'?"
    if path.suffix != ".toml" and folder == Path():
        way_out = nearest(name, examples) or shipped
        return "must be a TOML file or a shipped example", str(path), way_out
    if not folder.is_dir():
        return missing, str(path), f"There is no folder {folder}."
    others = {one.stem: one.name for one in sorted(folder.glob("*.toml"))}
    close = get_close_matches(name, others, n=1)
    if close:
        return missing, str(path), f"Did you mean {others[close[0]]!r}?"
    names = ", ".join(list(others.values())[:5])
    way_out = f"TOML files there: {names}{', …' if len(others) > 5 else ''}." if others else ""
    return (
        missing,
        str(path),
        way_out or nearest(name, examples) or f"Write it, or name an example. {shipped}",
    )


class Ranges(NamedTuple):
    """What ``search`` and ``sensitivity`` look at.

    Parameters
    ----------
    base : PipelineConfig
    axes : dict
        Axis -> values or a range.
    constraints : list of str
    name : str
    """

    base: Any
    axes: dict[str, Any]
    constraints: list[str]
    name: str


def ranges_from_argument(
    source: str | None, *, base_changes: Mapping[str, Any], axis_changes: Mapping[str, Any]
) -> Ranges:
    """Read base and axes of a spec file, a shipped example or flags alone, ranges as they are.

    Raises
    ------
    ConfigError
        Naming file, section and key, or the flag; and for sections that lay out points of their own.
    """
    from ..spec.changes import made_with
    from ..spec.reading import read_sections

    if source is None:
        return made_with(
            lambda base: _ranges({}, Path.cwd(), base, axis_changes), base_changes, _axes_of_ranges, _flag
        )
    with _found(source) as path:
        content = read_sections(path)

        def build(base: Mapping[str, Any]) -> Ranges:
            try:
                return _ranges(content, path.parent, base, axis_changes)
            except ConfigError as error:
                raise error.within(f"{path}: ") from None

        return made_with(build, base_changes, _axes_of_ranges, _flag)


def _axes_of_ranges(found: Ranges) -> Iterable[str]:
    return tuple(found.axes)


def _ranges(
    content: Mapping[str, Any], folder: Path, base_changes: Mapping[str, Any], axis_changes: Mapping[str, Any]
) -> Ranges:
    from ..spec.reading import checked_keys, read_axes, read_base, section_of, strings_of

    checked_keys(content)
    for key in ("zip", "points"):
        if content.get(key):
            way_out = "Put what varies under [axes]."
            raise ConfigError(key, "lays out points of its own, which has no meaning here", key, way_out)
    axes = read_axes(content, folder, axis_changes)
    base = read_base(section_of(content, "base"), folder, base_changes, swept=bool(axes))
    name = content.get("name") or (base.preset[0] if base.preset else "sweep")
    return Ranges(base, axes, strings_of(content, "constraints"), str(name))


def _top_changes(options: Mapping[str, Any]) -> dict[str, Any]:
    from ..spec.seeds import seeds_from_text

    changes: dict[str, Any] = {}
    if options["seeds"] is not None:
        changes["seeds"] = seeds_from_text(options["seeds"])
    if options["where"]:
        changes["constraints"] = list(options["where"])
    if options["tables"] is not None:
        changes["tables"] = [part.strip() for part in options["tables"].split(",") if part.strip()]
    for key in ("name", "baseline", "masks", "until", "windows"):
        if options[key] is not None:
            changes[key] = options[key]
    return changes
