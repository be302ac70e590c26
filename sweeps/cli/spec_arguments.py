"""The spec of ``lagsweep run``: a file or a shipped example, with flags in the place of what it says."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

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
    from ..spec.reading import read_spec_file, spec_from_sections

    changes = {
        "base_changes": base_changes,
        "axis_changes": axis_changes,
        "top_changes": _top_changes(options),
    }
    if source is None:
        if not base_changes and not axis_changes:
            raise ConfigError(
                "SPEC", "must be given unless flags say what to run", None, "Try aime-cap-lag-cadence."
            )
        return spec_from_sections({}, folder=Path.cwd(), **changes)
    path = Path(source)
    if path.exists():
        return read_spec_file(path, **changes)
    name = path.name.removesuffix(".toml")
    examples = shipped_examples()
    if name in examples and (path.parent == Path() or path.parent.name == "examples"):
        with resources.as_file(examples[name]) as file:
            return read_spec_file(file, **changes)
    raise ConfigError("SPEC", *_not_there(path, name, examples))


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
