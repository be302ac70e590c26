"""Read and write checkpoint manifests, and find the newest whole one of a folder.

The manifest is written last and in one step, so its presence proves that the save was finished; the files
that it names are flushed before it. A load reads everything again and believes nothing that does not agree.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...kernels._arguments import instance
from ...kernels.errors import CheckpointError, Finding
from ..checks import path_of
from ..files import TEMPORARY_SUFFIX, open_regular, sync_file, sync_folder, write_atomically
from .manifest import (
    MANIFEST_NAME,
    MOST_MANIFEST_BYTES,
    DamagedCheckpointError,
    Manifest,
    file_record,
    manifest_from_dict,
    refuse_changed_components,
)


class CheckpointWarning(UserWarning):
    """A checkpoint was passed over, or components were allowed to differ."""


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that could not be used, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class LatestCheckpoint:
    """The newest usable checkpoint of a folder, and the newer ones that were passed over."""

    manifest: Manifest
    path: Path
    skipped: tuple[Skipped, ...]


def save_checkpoint(manifest: Manifest, path: str | os.PathLike[str]) -> Path:
    """Write a manifest in one step and flush it, and the files that it names, to the disk.

    Parameters
    ----------
    manifest : Manifest
        The snapshot.
    path : path
        A file ``NAME.json`` or a folder, in a folder that exists. A folder is made if it is not there, and
        the manifest in it is called ``manifest.json``. How it is called does not matter to
        :func:`latest_checkpoint`, which goes by the manifest's step.

    Returns
    -------
    Path
        The manifest's file.

    Raises
    ------
    CheckpointError
        If it cannot be written, or a file that it names is missing or differs; an older file is untouched.
    """
    instance("manifest", manifest, Manifest, "Give what make_checkpoint returned.")
    target = _target(path_of("path", path))
    _check_folder(target, path_of("path", path))
    _check_files(manifest, target.parent)
    text = json.dumps(manifest.payload, indent=1, allow_nan=False) + "\n"
    if len(text) > MOST_MANIFEST_BYTES:
        raise CheckpointError(str(target), _TOO_LARGE, len(text), "Put big arrays into files beside it.")
    try:
        if not target.parent.is_dir() and target.parent == Path(path):
            target.parent.mkdir()
            sync_folder(target.parent.parent)
        for name in manifest.payload["files"]:
            sync_file(target.parent / name)
        write_atomically(target, text.encode("ascii"))
    except OSError as error:
        raise CheckpointError(
            str(target), "must be writable", error.strerror or str(error), "Free space, or name another path."
        ) from error
    return target


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    components: Mapping[str, Any] | None = None,
    allow_changed: Iterable[str] = (),
) -> Manifest:
    """Read a checkpoint and believe it only if everything about it is right.

    Parameters
    ----------
    path : path
        The manifest's file, or its folder.
    components : mapping, optional
        The present components, as given to :func:`make_checkpoint`; every recorded one is compared.
    allow_changed : iterable of str
        Components that may differ. The change is kept in ``accepted_changes``, and
        ``make_checkpoint(previous=...)`` writes it into the next checkpoint.

    Returns
    -------
    Manifest
        The snapshot.

    Raises
    ------
    CheckpointError
        If it was altered, cut short, is of another schema, or a component differs that was not named.
    """
    target = _manifest_file(path_of("path", path))
    manifest = read_manifest(target)
    _check_files(manifest, target.parent)
    checked = refuse_changed_components(manifest, components, allow_changed, str(target))
    for change in checked.accepted_changes:
        warnings.warn(
            f"{target}: {change['component']} was {change['saved']!r} at the save and is now "
            f"{change['current']!r}; allowed by name, and recorded.",
            CheckpointWarning,
            stacklevel=2,
        )
    return checked


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Read a manifest and check its schema, digest and fields, but neither components nor files.

    Parameters
    ----------
    path : path
        The manifest's file, or its folder.

    Returns
    -------
    Manifest
        For looking at; resume with :func:`load_checkpoint`.
    """
    target = _manifest_file(path_of("path", path))
    text = _content(target)
    try:
        data = json.loads(
            text,
            object_pairs_hook=_no_repeated_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
        )
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError(
            str(target),
            "must be whole JSON",
            f"{len(text)} bytes, {error}",
            "The file was cut short or altered; resume from an older checkpoint.",
        ) from error
    return manifest_from_dict(data, str(target))


def latest_checkpoint(
    folder: str | os.PathLike[str],
    *,
    components: Mapping[str, Any] | None = None,
    allow_changed: Iterable[str] = (),
) -> LatestCheckpoint | None:
    """Find the newest whole checkpoint of a folder, and name every newer one that is not.

    The newest is the one with the largest ``optimizer_step`` in its manifest, whatever it is called; of equal
    ones, the one whose file was written last. An entry is a ``.json`` file or a sub-folder with a
    ``manifest.json``; others are left alone. Damage is passed over with a :class:`CheckpointWarning`, as if
    it were newer than any whole one if it was written later. Another schema or other components are not: an
    older checkpoint would hide that the environment changed.

    Parameters
    ----------
    folder : path
        Where the run saves.
    components, allow_changed
        As in :func:`load_checkpoint`.

    Returns
    -------
    LatestCheckpoint or None
        None if no save was ever finished there: a fresh start, with a warning that names what was begun. A
        folder that does not exist is a fresh start too, since the first save makes it: a loop that resumes
        if it can needs no case for its first start. Look at the folder yourself where it must be there.

    Raises
    ------
    CheckpointError
        If finished checkpoints are there and none is whole any more (starting again from nothing would be
        silent data loss), or the newest whole one may not be resumed.
    """
    skipped: list[Skipped] = []
    damaged = False
    for path in _entries(path_of("folder", folder)):
        unfinished = _unfinished(path)
        if unfinished:
            skipped.append(Skipped(path, unfinished))
            continue
        try:
            manifest = load_checkpoint(path, components=components, allow_changed=allow_changed)
        except DamagedCheckpointError as error:
            damaged = True
            skipped.append(Skipped(path, str(error)))
            continue
        _warn_of_skipped(f"resuming from {path}", skipped)
        return LatestCheckpoint(manifest, path, tuple(skipped))
    if damaged:
        raise CheckpointError(
            f"{folder}: must hold at least one whole checkpoint (got {_reasons(skipped)}). "
            "Restore one from a backup, or name an empty folder to start again from nothing."
        )
    _warn_of_skipped(f"{folder} holds no finished checkpoint", skipped)
    return None


def _warn_of_skipped(beginning: str, skipped: list[Skipped]) -> None:
    if skipped:
        text = f"{beginning}; passed over: {_reasons(skipped)}"
        warnings.warn(text, CheckpointWarning, stacklevel=3)


def _reasons(skipped: list[Skipped]) -> str:
    return "; ".join(item.reason for item in skipped)


def _check_files(manifest: Manifest, folder: Path) -> None:
    for name, recorded in manifest.payload["files"].items():
        path = folder / name
        try:
            found = file_record(path, recorded["bytes"])
        except OSError as error:
            found = None
            reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        if found != recorded:
            shown = reason if found is None else f"{found['bytes']} bytes, {found['sha256'][:12]}…"
            raise DamagedCheckpointError(
                str(path),
                f"must be the saved file of {recorded['bytes']} bytes, {recorded['sha256'][:12]}…",
                shown,
                "Restore it, or resume from an older checkpoint.",
            )


_TOO_LARGE = f"must be at most {MOST_MANIFEST_BYTES} bytes"


def _content(target: Path) -> bytes:
    """Read a manifest's file, if it is one and not larger than a save writes."""
    try:
        with open_regular(target) as file:
            content = file.read(MOST_MANIFEST_BYTES + 1)
    except OSError as error:
        # What is no file at all was never a finished save; an older checkpoint may still be good.
        kind = DamagedCheckpointError if error.errno == errno.EINVAL else CheckpointError
        reason = error.strerror or str(error)
        raise kind(str(target), "must be a readable file", reason, "Check the path.") from error
    if len(content) > MOST_MANIFEST_BYTES:
        raise DamagedCheckpointError(
            str(target), _TOO_LARGE, len(content), "Resume from an older checkpoint."
        )
    return content


def _target(path: Path) -> Path:
    """Name the file to write: one that :func:`latest_checkpoint` finds again.

    Raises
    ------
    CheckpointError
        If the path is neither a folder nor ``NAME.json``, and cannot become a folder.
    """
    if path.name.endswith(TEMPORARY_SUFFIX) or (path.suffix != ".json" and path.is_file()):
        rule = "must be a folder, or end in .json"
        raise CheckpointError(str(path), rule, path.name, "Name it step-000010, or step-000010.json.")
    return path if path.suffix == ".json" and not path.is_dir() else path / MANIFEST_NAME


def _check_folder(target: Path, path: Path) -> None:
    """Refuse a manifest whose folder is not there, or cannot be made in the folder above it."""
    folder = target.parent.parent if target.parent == path else target.parent
    if target.parent.is_dir() or folder.is_dir():
        return
    there = next(each for each in (folder, *folder.parents) if each.exists())
    way_out = f"Make {folder} first." if there.is_dir() else f"{there} is a file: name another path."
    raise CheckpointError(str(target), "must lie in a folder that exists", str(folder), way_out)


def _manifest_file(path: Path) -> Path:
    return path / MANIFEST_NAME if path.is_dir() else path


def _entries(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, whole or not, newest first: by step, then by the name's number."""
    if not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        stem = path.name.removesuffix(TEMPORARY_SUFFIX).split(".json")[0]
        numbers = [int(digits) for digits in re.findall(r"\d{1,18}", stem)]
        number = numbers[-1] if numbers else -1
        temporary = bool(re.search(r"\.json\..*\.tmp$", path.name))
        if not (path.is_dir() or path.suffix == ".json" or temporary):
            continue
        step = _step(_manifest_file(path))
        # What is cut short before its step can only be placed by its name; without a number it is not ours.
        if step is not None or numbers or path.name == MANIFEST_NAME:
            found.append((number if step is None else step, number, path.name, path))
    return [path for *_, path in sorted(found, reverse=True)]


# The step stands near the beginning of a manifest that save_checkpoint wrote, before anything nested.
_HEAD = re.compile(rb'\s*\{(?:\s*"\w+":\s*(?:"[^"]*"|\d+),)*?\s*"optimizer_step":\s*(\d{1,18})\s*[,}]')


def _step(manifest: Path) -> int | None:
    """Return the step that a manifest's beginning tells; None where it tells none."""
    if not manifest.is_file():
        return None
    try:
        with manifest.open("rb") as file:
            head = _HEAD.match(file.read(4096))
        return int(head[1]) if head else read_manifest(manifest).optimizer_step
    except (OSError, CheckpointError):
        return None


def _unfinished(path: Path) -> str:
    """Say if this is what an interrupted save leaves: a temporary file, or a folder without its manifest."""
    if path.name.endswith(TEMPORARY_SUFFIX):
        rule = "must be a finished checkpoint"
    elif path.is_dir() and not (path / MANIFEST_NAME).exists():
        rule = f"must have a {MANIFEST_NAME}, which is written last"
    else:
        return ""
    way_out = "Delete it once the run has resumed."
    return str(Finding(str(path), rule, "what an interrupted save left", way_out))


def _no_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
