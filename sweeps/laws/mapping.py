"""Laws as data: a mapping, as TOML and JSON hold it, to a law, by the names of the constructors' arguments.

``{"law": "lognormal", "median": 300}`` calls the constructor ``lognormal(median=300)``. A ``digest``,
where given, must be that of the law that comes out: so a changed file or table is noticed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...kernels.errors import ConfigError, nearest
from .checks import one_real


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
        raise ConfigError(field, "must be a table of settings", mapping, 'Give {"law": "fixed", "n": 300}.')
    arguments = {str(key): value for key, value in mapping.items()}
    kind = arguments.pop("law", None)
    digest = arguments.pop("digest", None)
    if kind is None:
        raise ConfigError(
            f"{field}.law", "must name a law", dict(mapping), f"Laws: {', '.join(constructors)}."
        )
    if not isinstance(kind, str) or kind not in constructors:
        way_out = nearest(str(kind), constructors) or f"Laws: {', '.join(constructors)}."
        raise ConfigError(f"{field}.law", "must be a known law", kind, way_out)
    _check_arguments(kind, constructors[kind], arguments, field)
    if folder is not None and isinstance(arguments.get("path"), str):
        arguments["path"] = (Path(folder) / arguments["path"]).as_posix()
    try:
        law = constructors[kind](**arguments)
    except ConfigError as error:
        # A setting is named with its place; a row of a file already is.
        inside = any(finding.field in arguments for finding in error.findings)
        raise (error.within(f"{field}.") if inside else error) from None
    if digest is not None and digest != law.content_digest:
        raise ConfigError(
            f"{field}.digest",
            f"must be {law.content_digest}, the law's own",
            digest,
            "The file or table has changed; remove the digest to accept it.",
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
            raise ConfigError(f"{field}.{name}", f"must be a setting of {kind}", arguments[name], way_out)
    for p in parameters:
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in arguments:
            raise ConfigError(
                f"{field}.{p.name}",
                f"must be given for {kind}",
                dict(arguments),
                f"Settings: {', '.join(known)}.",
            )


def law_data(
    spec: Mapping[str, Any], embedded: Mapping[str, Any] | None, digest: str, embed: bool
) -> dict[str, Any]:
    """Return a law as data: its spec, with its digest if from a file, or, to embed, what the file held."""
    chosen = spec if embedded is None or not embed else embedded
    data = {key: list(value) if isinstance(value, list) else value for key, value in chosen.items()}
    return data if embedded is None or embed else {**data, "digest": digest}


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


def checked_parts(law_class: Any, parts: Any) -> tuple[tuple[float, Any], ...]:
    """Check the parts of a mixture: pairs of a weight above 0 and a law without rows.

    Raises
    ------
    ConfigError
        If there is no part, or one is something else.
    """
    way_out = "Give pairs, as [(0.7, LengthLaw.fixed(100)), (0.3, LengthLaw.fixed(200))]."
    if isinstance(parts, str | bytes | Mapping) or not isinstance(parts, Sequence) or len(parts) == 0:
        raise ConfigError("parts", "must be a list of pairs of weight and law", parts, way_out)
    checked = []
    for i, part in enumerate(parts):
        place = f"parts, position {i}"
        if not isinstance(part, Sequence) or len(part) != 2 or not isinstance(part[1], law_class):
            raise ConfigError(place, "must be a pair of weight and law", part, way_out)
        weight, law = one_real(f"{place}, weight", part[0], above=0), part[1]
        if law.rows is not None or law.segments:
            lengths_alone = "Take its lengths alone: LengthLaw.empirical(law.rows.tokens)."
            raise ConfigError(
                place, "must be a law without pairs, groups or segments", law.name, lengths_alone
            )
        checked.append((weight, law))
    return tuple(checked)


def parts_from_data(law_class: Any, parts: Any, folder: Any) -> list[tuple[Any, Any]]:
    """Turn the parts of a mixture as data, laws with a weight each, into pairs of weight and law."""
    return keyed_laws(law_class, parts, folder, "parts", ("weight", "weight", 0.5))


def keyed_laws(
    law_class: Any, laws: Any, folder: Any, name: str, key: tuple[str, str, float]
) -> list[tuple[Any, Any]]:
    """Turn laws as data into pairs of a key's value and the law; the key with its word and an example."""
    field, (own, word, example) = f"response_length.{name}", key
    if not isinstance(laws, Sequence) or isinstance(laws, str | bytes):
        raise ConfigError(field, f"must be a list of laws with {word}s", laws, "Give a list of tables.")
    pairs = []
    for one in laws:
        if not isinstance(one, Mapping) or own not in one:
            raise ConfigError(field, f"must each have a {word}", one, f"Add {own} = {example}, for example.")
        law = {key: value for key, value in one.items() if key != own}
        pairs.append((one[own], law_class.from_dict(law, folder)))
    return pairs
