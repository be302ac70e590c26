"""What a checkpoint manifest holds, its digest, and the checks before any of it is believed.

A manifest is one JSON object. ``digest`` is the SHA-256 of all the rest in canonical form (keys sorted, no
spaces), so a changed, missing or added value is noticed whatever the file's layout; it guards against damage
and careless edits, not against somebody who computes the digest again.

Checked in this order, since each step relies on the one before: JSON, name of the format, version of the
schema, digest, fields, files beside the manifest. Versions of components are compared last, by
:func:`refuse_changed_components`, because a manifest is sound also where it may not be resumed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.errors import CheckpointError, ConfigError, Words, nearest
from ..checks import Counted, checked, mapping_of, texts_of
from ..files import open_regular
from .codec import decode

FORMAT = "lagsweep.checkpoint"
SCHEMA_VERSION = 1
MANIFEST_NAME = "manifest.json"
COUNTERS = ("optimizer_step", "current_version", "published_version", "dataset_cursor")
FIELDS = (
    "format",
    "schema_version",
    *COUNTERS,
    "components",
    "component_changes",
    "counters",
    "rng_state",
    "queue",
    "in_flight",
    "state",
    "files",
    "previous_digest",
    "digest",
)


# A manifest is read into memory as a whole; big arrays belong into files beside it.
MOST_MANIFEST_BYTES = 2**31
_SHA_256 = re.compile("[0-9a-f]{64}")


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is cut short, altered or incomplete; an older one may still be good."""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint: counters, generators, versions of components, and the state of the pipeline.

    Made by ``make_checkpoint`` or ``load_checkpoint``; cannot be changed. Everything is held as the JSON
    that lies on the disk, and is decoded anew at each access, so no caller can alter it by accident.

    Attributes
    ----------
    payload : dict
        The JSON object itself; use ``checkpoint_as_dict`` for a copy.
    accepted_changes : tuple of dict
        Components that differed at this load and were let through by name.
    """

    payload: dict[str, Any] = field(repr=False)
    accepted_changes: tuple[dict[str, Any], ...] = ()

    @property
    def optimizer_step(self) -> int:
        """Optimizer steps done."""
        return self.payload["optimizer_step"]

    @property
    def current_version(self) -> int:
        """The trainer's version."""
        return self.payload["current_version"]

    @property
    def published_version(self) -> int:
        """The version that new rollouts use."""
        return self.payload["published_version"]

    @property
    def dataset_cursor(self) -> int:
        """Absolute number of the first unsettled prompt."""
        return self.payload["dataset_cursor"]

    @property
    def digest(self) -> str:
        """SHA-256 of everything else."""
        return self.payload["digest"]

    @property
    def queue(self) -> Any:
        """Finished rollouts, or None."""
        return decode(self.payload["queue"], "queue")

    @property
    def in_flight(self) -> Any:
        """Running rollouts, or None."""
        return decode(self.payload["in_flight"], "in_flight")

    @property
    def state(self) -> Any:
        """Whatever else was saved."""
        return decode(self.payload["state"], "state")

    @property
    def counters(self) -> dict[str, int]:
        """Further counters by name."""
        return dict(self.payload["counters"])

    @property
    def components(self) -> dict[str, Any]:
        """Versions at the save."""
        return dict(self.payload["components"])

    def __repr__(self) -> str:
        """Show the counters and the digest's head, not the state."""
        shown = ", ".join(f"{name}={self.payload[name]}" for name in COUNTERS)
        return f"Manifest({shown}, digest='{self.digest[:12]}…')"


def default_components() -> dict[str, str]:
    """Name the versions that decide whether a resumed run draws and computes the same.

    Returns
    -------
    dict
        ``lagsweep``, ``numpy`` and ``python`` (major.minor: patch releases keep ``random`` as it is).
    """
    return {
        "lagsweep": version("lagsweep"),
        "numpy": np.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def merged_components(components: Mapping[str, Any] | None) -> dict[str, Any]:
    """Add the caller's components to the default ones, checked.

    Parameters
    ----------
    components : mapping or None
        Names to text, numbers or flags: ``{"workers": 2, "verifier": "arith-v4"}``.

    Returns
    -------
    dict
        Defaults first; the caller's value wins where a name is given twice.
    """
    merged: dict[str, Any] = dict(default_components())
    for name, value in mapping_of("components", components, "Give {'workers': 2}.").items():
        plain = isinstance(value, str) or (isinstance(value, int | float) and abs(value) < 2**53)
        if not isinstance(name, str) or not plain:
            raise ConfigError(
                f"components.{name}",
                "must be text, a flag or a number below 2**53, under a text name",
                value,
                "Give a version or a count, e.g. {'workers': 2}.",
            )
        merged[name] = value
    return merged


def whole_number(name: str, value: Any, bits: int = 53) -> int:
    """Check one counter: whole, not bool, 0 <= value < 2**53 (exact in any JSON reader), or another limit."""
    number = checked(Counted, name, value, way_out="Give a count.")
    if not 0 <= number < 2**bits:
        raise ConfigError(name, f"must be at least 0 and below 2**{bits}", number, "Give a count.")
    return number


def content_digest(payload: Mapping[str, Any]) -> str:
    """SHA-256 of a payload without its own digest, in canonical JSON."""
    rest = {key: value for key, value in payload.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def file_record(path: Path, expected_bytes: int | None = None) -> dict[str, Any]:
    """Size and SHA-256 of a regular file, read in pieces; not read if its size is not the expected one."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if expected_bytes is not None and size != expected_bytes:
            return {"bytes": size, "sha256": "not read"}
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": size, "sha256": digest}


def is_plain_name(name: Any) -> bool:
    """Tell whether a name can be that of a file beside the manifest: no folder in it, not the manifest's own.

    Examples
    --------
    >>> [is_plain_name(name) for name in ("weights.bin", "../weights.bin", "/dev/zero", "manifest.json")]
    [True, False, False, False]
    """
    if not isinstance(name, str) or name in ("", ".", "..", MANIFEST_NAME):
        return False
    return not any(letter in "/\\" or ord(letter) < 32 for letter in name) and len(name) <= 255


def manifest_from_dict(data: Mapping[str, Any], source: str = "checkpoint") -> Manifest:
    """Check a manifest given as a dict and wrap it.

    Parameters
    ----------
    data : mapping
        What ``checkpoint_as_dict`` gives, perhaps through a file.
    source : str
        What errors call it; the path, if there is one.

    Returns
    -------
    Manifest
        Sound by schema, digest and fields; components and files are not compared here.

    Raises
    ------
    CheckpointError
        If it is not a manifest, or of another schema version.
    DamagedCheckpointError
        If its content does not match its digest.
    """
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise DamagedCheckpointError(
            source,
            f"must be a checkpoint manifest (format {FORMAT!r})",
            data.get("format") if isinstance(data, Mapping) else type(data).__name__,
            "Give a file that save_checkpoint wrote.",
        )
    version = data.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise CheckpointError(
            f"{source}: schema_version",
            f"must be {SCHEMA_VERSION}, the one that this lagsweep reads",
            version,
            "Load it with the lagsweep named in its components.",
        )
    try:
        payload = copy.deepcopy(dict(data))
        expected, recorded = content_digest(payload), payload.get("digest")
    except (TypeError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(
            source,
            "must be plain JSON values, finite and not nested too deeply",
            Words(str(error)),
            "Give a file that save_checkpoint wrote.",
        ) from None
    if recorded != expected:
        raise DamagedCheckpointError(
            f"{source}: digest",
            f"must match the content, which has {expected[:12]}…",
            recorded,
            "The file was altered or damaged; resume from an older checkpoint.",
        )
    _check_fields(payload, source)
    return Manifest(payload)


def _check_fields(payload: dict[str, Any], source: str) -> None:
    """Refuse a payload whose digest is right but whose fields were not written by us."""
    missing = [name for name in FIELDS if name not in payload]
    unknown = [name for name in payload if name not in FIELDS]
    if missing or unknown:
        raise CheckpointError(
            source,
            "must have exactly the fields of its schema",
            f"missing {missing}, unknown {unknown}",
            "Give a file that save_checkpoint wrote.",
        )
    try:
        for name in COUNTERS:
            whole_number(name, payload[name])
        for name in ("components", "counters", "rng_state", "files"):
            if not isinstance(payload[name], dict):
                raise ConfigError(name, "must be a mapping", payload[name], _EDITED)
        for name, value in payload["counters"].items():
            whole_number(f"counters.{name}", value)
        for name, value in payload["components"].items():
            if not isinstance(value, str | int | float):
                raise ConfigError(f"components.{name}", "must be text, a flag or a number", value, _EDITED)
        for name, record in payload["files"].items():
            _check_file_record(name, record)
        changes = payload["component_changes"]
        if not isinstance(changes, list) or not all(isinstance(change, dict) for change in changes):
            raise ConfigError("component_changes", "must be a list of mappings", changes, _EDITED)
    except ConfigError as error:
        raise CheckpointError(*error.within(f"{source}: ").findings) from error


_EDITED = "It was edited."


def _check_file_record(name: str, record: Any) -> None:
    """Refuse a file that no save can have recorded: one outside the folder, or without size and digest."""
    if not is_plain_name(name):
        raise ConfigError("files", "must have plain file names as keys", name, _EDITED)
    if not isinstance(record, dict) or set(record) != {"bytes", "sha256"}:
        raise ConfigError(f"files.{name}", "must have bytes and sha256", record, _EDITED)
    whole_number(f"files.{name}.bytes", record["bytes"], bits=63)
    digest = record["sha256"]
    if not isinstance(digest, str) or not _SHA_256.fullmatch(digest):
        raise ConfigError(f"files.{name}.sha256", "must be 64 hexadecimal digits", digest, _EDITED)


def refuse_changed_components(
    manifest: Manifest, components: Mapping[str, Any] | None, allow_changed: Iterable[str], source: str
) -> Manifest:
    """Compare every recorded component with the present one.

    Parameters
    ----------
    manifest : Manifest
        What was saved.
    components : mapping or None
        The caller's present components; the default ones are added.
    allow_changed : iterable of str
        Names that may differ; each difference is then recorded.
    source : str
        What errors call the checkpoint.

    Returns
    -------
    Manifest
        The same, with ``accepted_changes`` filled in.

    Raises
    ------
    CheckpointError
        If a component differs that was not named; the text lists all of them, and the way to allow them.
    """
    saved, current = manifest.components, merged_components(components)
    allowed = _allowed_names(allow_changed, {*saved, *current})
    changed = [
        {"component": name, "saved": saved.get(name), "current": current.get(name)}
        for name in sorted({*saved, *current})
        if name not in saved or name not in current or not _same(saved[name], current[name])
    ]
    refused = [change for change in changed if change["component"] not in allowed]
    if refused:
        shown = "; ".join(
            f"{name}: {_shown(name, saved)} -> {_shown(name, current)}"
            for name in (str(change["component"]) for change in refused)
        )
        names = ", ".join(repr(change["component"]) for change in changed)
        raise CheckpointError(
            f"{source}: components must be those of the save (got {shown}). Resume with the saved ones, "
            f"or pass allow_changed=[{names}] to go on; the change is then recorded."
        )
    return Manifest(manifest.payload, tuple(changed))


def _same(saved: Any, current: Any) -> bool:
    # True == 1 in Python; a flag and a count are different components.
    return isinstance(saved, bool) == isinstance(current, bool) and saved == current


def _shown(name: str, components: Mapping[str, Any]) -> str:
    return repr(components[name]) if name in components else "not given"


def _allowed_names(allow_changed: Iterable[str], known: set[str]) -> set[str]:
    if isinstance(allow_changed, str):
        raise ConfigError(
            "allow_changed", "must be a list of names", allow_changed, f"Pass [{allow_changed!r}]."
        )
    names = set(texts_of("allow_changed", allow_changed, "Name components of the checkpoint."))
    for name in names - known:
        raise ConfigError(
            "allow_changed",
            f"must name components of the checkpoint: {', '.join(sorted(known))}",
            name,
            nearest(str(name), known) or "Leave it out.",
        )
    return names
