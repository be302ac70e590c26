"""Laws as data: a mapping, as TOML and JSON hold it, to a law, by the names of the constructors' arguments.

``{"law": "lognormal", "median": 300}`` calls the constructor ``lognormal(median=300)``. A ``digest``,
where given, must be that of the law that comes out: so a changed file or table is noticed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lagsweep.errors import ConfigError, message, nearest


def law_from_mapping(
    mapping: Any, constructors: Mapping[str, Callable[..., Any]], field: str, folder: Any = None
) -> Any:
    """Build the law that a mapping describes.

    Parameters
    ----------
    mapping : Mapping
        ``law`` names the constructor, the other keys are its arguments; ``digest`` is checked if given.
    constructors : Mapping
        Constructors by name.
    field : str
        What the errors are about.
    folder : path_like, optional
        Where a relative ``path`` starts; the current folder if not given.

    Returns
    -------
    LengthLaw or SecondsLaw

    Raises
    ------
    ConfigError
        If the law or a key is unknown, a key is missing, or the digest differs.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(
            message(field, "must be a table of settings", mapping, 'Give {"law": "fixed", "n": 300}.')
        )
    arguments = {str(key): value for key, value in mapping.items()}
    kind = arguments.pop("law", None)
    digest = arguments.pop("digest", None)
    if kind is None:
        raise ConfigError(
            message(f"{field}.law", "must name a law", dict(mapping), f"Laws: {', '.join(constructors)}.")
        )
    if kind not in constructors:
        way_out = nearest(str(kind), constructors) or f"Laws: {', '.join(constructors)}."
        raise ConfigError(message(f"{field}.law", "must be a known law", kind, way_out))
    _check_arguments(kind, constructors[kind], arguments, field)
    if folder is not None and isinstance(arguments.get("path"), str):
        arguments["path"] = (Path(folder) / arguments["path"]).as_posix()
    try:
        law = constructors[kind](**arguments)
    except ConfigError as error:
        # A setting is named with its place; a row of a file already is.
        prefix = f"{field}." if str(error).partition(":")[0] in arguments else ""
        raise ConfigError(f"{prefix}{error}") from None
    if digest is not None and digest != law.content_digest:
        raise ConfigError(
            message(
                f"{field}.digest",
                f"must be {law.content_digest}, the law's own",
                digest,
                "The file or table has changed; remove the digest to accept it.",
            )
        )
    return law


def _check_arguments(
    kind: str, constructor: Callable[..., Any], arguments: Mapping[str, Any], field: str
) -> None:
    """Check the names of a constructor's arguments: none unknown, none missing."""
    parameters = inspect.signature(constructor).parameters.values()
    known = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in arguments:
        if name not in known and not open_ended:
            way_out = nearest(name, known) or f"Settings: {', '.join(known) or 'none'}."
            raise ConfigError(
                message(f"{field}.{name}", f"must be a setting of {kind}", arguments[name], way_out)
            )
    for p in parameters:
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in arguments:
            raise ConfigError(
                message(
                    f"{field}.{p.name}",
                    f"must be given for {kind}",
                    dict(arguments),
                    f"Settings: {', '.join(known)}.",
                )
            )


def law_text(class_name: str, spec: Mapping[str, Any]) -> str:
    """Write a law as the call that makes it; long rows of numbers only by their size.

    Examples
    --------
    >>> law_text("LengthLaw", {"law": "fixed", "n": 300})
    'LengthLaw.fixed(n=300)'
    """
    shown = [
        f"{key}=<{len(value)} values>" if isinstance(value, list) and len(value) > 8 else f"{key}={value!r}"
        for key, value in spec.items()
        if key != "law"
    ]
    return f"{class_name}.{spec['law']}({', '.join(shown)})"
