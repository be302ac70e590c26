"""The spec of ``lagsweep run``: a file or a shipped example, with flags in the place of what it says."""

from __future__ import annotations

from collections.abc import Mapping
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
    if path.suffix == ".toml":
        raise ConfigError(
            "SPEC", "must be a file that is there", source, "Relative paths start at this folder."
        )
    hint = nearest(name, examples) or f"Shipped examples: {', '.join(sorted(examples))}."
    raise ConfigError("SPEC", "must be a TOML file or a shipped example", source, hint)


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
