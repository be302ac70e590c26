"""Checkpoints of an asynchronous run: what must be saved together, written so that it survives anything.

Weights and counters alone do not resume an asynchronous run. A manifest therefore holds, as one snapshot:
counters (the optimizer's step, the trainer's and the published version, the data cursor), the complete state
of the generators of random numbers, the finished rollouts that wait, the rollouts in flight, versions of the
components, and whatever else the caller gives (optimizer moments, a simulator's arrays). Big files such as
weights lie beside it and are recorded by size and SHA-256.

The file is JSON, never pickle. :mod:`.checkpoint.files` writes it last and in one step, so its
presence proves that the save was finished. A load is refused, saying why, where the content was altered or
cut, belongs to another schema, or was saved by other components.

The data cursor is absolute: the number, over all epochs, of the first prompt that is not settled yet. It
never restarts at a resume and never falls (:class:`.checkpoint.prompts.PromptCursor` keeps it).
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Mapping
from typing import Any

from ...kernels._arguments import instance
from ...kernels.errors import CheckpointError, ConfigError
from ..checks import mapping_of, path_of
from .codec import encode
from .files import (
    CheckpointWarning,
    LatestCheckpoint,
    Skipped,
    latest_checkpoint,
    load_checkpoint,
    read_manifest,
    save_checkpoint,
)
from .generators import (
    AnyGenerator,
    decode_generator,
    encode_generator,
    encode_python_random,
)
from .manifest import (
    COUNTERS,
    FORMAT,
    SCHEMA_VERSION,
    Manifest,
    content_digest,
    file_record,
    is_plain_name,
    merged_components,
    whole_number,
)

__all__ = [
    "CheckpointWarning",
    "LatestCheckpoint",
    "Manifest",
    "Skipped",
    "checkpoint_as_dict",
    "latest_checkpoint",
    "load_checkpoint",
    "make_checkpoint",
    "read_manifest",
    "restore_python_random",
    "restore_rng",
    "save_checkpoint",
]


def make_checkpoint(
    *,
    optimizer_step: int,
    current_version: int,
    published_version: int,
    dataset_cursor: int,
    rng: AnyGenerator | Mapping[str, AnyGenerator],
    python_random: random.Random | bool = True,
    components: Mapping[str, Any] | None = None,
    counters: Mapping[str, int] | None = None,
    queue: list[Any] | None = None,
    in_flight: list[Any] | None = None,
    state: Mapping[str, Any] | None = None,
    files: Mapping[str, str | os.PathLike[str]] | None = None,
    previous: Manifest | None = None,
) -> Manifest:
    """Take one consistent snapshot of a run.

    Parameters
    ----------
    optimizer_step : int
        Optimizer steps done, over all resumes.
    current_version : int
        The trainer's version.
    published_version : int
        The version that rollouts starting now use; never above `current_version`.
    dataset_cursor : int
        Absolute number of the first prompt that is neither trained nor dropped, over all epochs and resumes.
    rng : generator or mapping of name to generator
        NumPy's ``Generator`` or ``RandomState``, or ``random.Random``. A single one is named ``numpy``
        (or ``python``). Generators are not advanced.
    python_random : bool or random.Random
        Save Python's global ``random`` under the name ``python`` (the default), another one, or none (False).
    components : mapping, optional
        Versions and layout that must be the same at a resume, e.g. ``{"workers": 2}``; those of lagsweep,
        NumPy and Python are added.
    counters : mapping, optional
        Further whole counters, e.g. the admission rule's accepted rollouts.
    queue, in_flight : list, optional
        Finished rollouts that wait, and running ones. None says "not given", ``[]`` says "none".
    state : mapping, optional
        Anything else: arrays, numbers, text, nested at will. Never pickled.
    files : mapping of name to path, optional
        Big files, recorded by size and SHA-256; they must lie beside the manifest under these names.
    previous : Manifest, optional
        The checkpoint that this run resumed from or saved last. No counter may fall below its own.

    Returns
    -------
    Manifest
        The snapshot; nothing is written.

    Raises
    ------
    ConfigError
        If a counter is not a whole number of at least 0, falls, or something cannot be written exactly.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(7)
    >>> saved = make_checkpoint(
    ...     optimizer_step=3, current_version=3, published_version=2, dataset_cursor=8, rng=rng
    ... )
    >>> saved.published_version
    2
    >>> expected = rng.random(4).tolist()
    >>> restore_rng(saved).random(4).tolist() == expected
    True
    """
    numbers = {
        "optimizer_step": whole_number("optimizer_step", optimizer_step),
        "current_version": whole_number("current_version", current_version),
        "published_version": whole_number("published_version", published_version),
        "dataset_cursor": whole_number("dataset_cursor", dataset_cursor),
    }
    if numbers["published_version"] > numbers["current_version"]:
        raise ConfigError(
            "published_version",
            f"must be at most the trainer's version, {numbers['current_version']}",
            numbers["published_version"],
            "A version is published after it was trained.",
        )
    if previous is not None:
        instance("previous", previous, Manifest, "Give what load_checkpoint or make_checkpoint returned.")
    counters = mapping_of("counters", counters, "Give {'accepted': 12}.")
    state = mapping_of("state", state, "Give {'name': value}.")
    files = mapping_of("files", files, "Give {'weights.safetensors': path}.")
    for name, kept in (("queue", queue), ("in_flight", in_flight)):
        if kept is not None and not isinstance(kept, list | tuple):
            raise ConfigError(name, "must be a list", kept, "Give [] for none, None for not kept.")
    _refuse_falling(numbers, previous)
    payload: dict[str, Any] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        **numbers,
        "components": merged_components(components),
        "component_changes": _all_changes(previous),
        "counters": {str(name): whole_number(f"counters.{name}", value) for name, value in counters.items()},
        "rng_state": _encode_generators(rng, python_random),
        "queue": encode(queue, "queue"),
        "in_flight": encode(in_flight, "in_flight"),
        "state": encode(state, "state"),
        "files": _file_records(files),
        "previous_digest": previous.digest if previous is not None else None,
    }
    payload["digest"] = content_digest(payload)
    return Manifest(payload)


def checkpoint_as_dict(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as plain JSON values: one row of a table, or ``json.dumps``.

    Parameters
    ----------
    manifest : Manifest
        From :func:`make_checkpoint` or :func:`load_checkpoint`.

    Returns
    -------
    dict
        A copy; ``rng_state`` holds the generators. ``json.loads(json.dumps(d)) == d`` exactly.

    Examples
    --------
    >>> import numpy as np
    >>> row = checkpoint_as_dict(make_checkpoint(
    ...     optimizer_step=1, current_version=1, published_version=1, dataset_cursor=4,
    ...     rng=np.random.default_rng(0)))
    >>> row["dataset_cursor"], row["schema_version"], sorted(row["rng_state"])
    (4, 1, ['numpy', 'python'])
    """
    way_out = "Give what load_checkpoint or make_checkpoint returned."
    return copy.deepcopy(instance("manifest", manifest, Manifest, way_out).payload)


def restore_rng(manifest: Manifest | Mapping[str, Any], name: str | None = None) -> AnyGenerator:
    """Make a generator that goes on exactly where the saved one stood.

    Parameters
    ----------
    manifest : Manifest or dict
        The checkpoint, or :func:`checkpoint_as_dict` of it.
    name : str, optional
        Which one; needed when several were saved beside Python's own.

    Returns
    -------
    numpy.random.Generator, numpy.random.RandomState or random.Random
        A new object. Do not seed anything after this call: that would undo it.
    """
    encoded = _rng_state(manifest)
    others = [key for key in encoded if key != "python"]
    if name is None and len(others or encoded) == 1:
        name = next(iter(others or encoded))
    if not isinstance(name, str) or name not in encoded:
        raise CheckpointError(
            "name", f"must be one of the saved generators: {', '.join(encoded)}", name, "Name one."
        )
    return decode_generator(encoded[name], f"rng_state.{name}")


def restore_python_random(manifest: Manifest | Mapping[str, Any]) -> None:
    """Set Python's global ``random`` to where it stood at the save.

    Parameters
    ----------
    manifest : Manifest or dict
        A checkpoint made with ``python_random`` left on.
    """
    encoded = _rng_state(manifest)
    if "python" not in encoded:
        raise CheckpointError(
            "rng_state.python", "must have been saved", list(encoded), "Save it with python_random=True."
        )
    generator = decode_generator(encoded["python"], "rng_state.python")
    if not isinstance(generator, random.Random):
        raise CheckpointError(
            "rng_state.python",
            "must be the state of Python's random",
            type(generator).__name__,
            "Save it with python_random=True.",
        )
    random.setstate(generator.getstate())


def _rng_state(manifest: Manifest | Mapping[str, Any]) -> dict[str, Any]:
    payload = manifest.payload if isinstance(manifest, Manifest) else manifest
    if not isinstance(payload, Mapping) or not isinstance(payload.get("rng_state"), Mapping):
        way_out = "Give what load_checkpoint or checkpoint_as_dict returned."
        raise ConfigError("manifest", "must be a checkpoint with its generators", manifest, way_out)
    return dict(payload["rng_state"])


def _encode_generators(
    rng: AnyGenerator | Mapping[str, AnyGenerator], python_random: random.Random | bool
) -> dict[str, Any]:
    if isinstance(rng, Mapping):
        named = dict(rng)
    else:
        named = {"python" if isinstance(rng, random.Random) else "numpy": rng}
    encoded = {str(name): encode_generator(one, f"rng.{name}") for name, one in named.items()}
    if python_random is True:
        encoded.setdefault("python", encode_python_random())
    elif python_random is not False:
        encoded["python"] = encode_generator(python_random, "python_random")
    return encoded


def _refuse_falling(numbers: Mapping[str, int], previous: Manifest | None) -> None:
    if previous is None:
        return
    for name in COUNTERS:
        if numbers[name] < previous.payload[name]:
            raise ConfigError(
                name,
                f"must be absolute and never fall: the checkpoint before has {previous.payload[name]}",
                numbers[name],
                "Count over all resumes, not since the last one.",
            )


def _all_changes(previous: Manifest | None) -> list[dict[str, Any]]:
    if previous is None:
        return []
    return [*copy.deepcopy(previous.payload["component_changes"]), *map(dict, previous.accepted_changes)]


def _file_records(files: Mapping[str, str | os.PathLike[str]]) -> dict[str, Any]:
    records = {}
    for name, path in files.items():
        if not is_plain_name(name):
            raise ConfigError(
                "files", "must have plain file names as keys", name, "Leave folders out of the name."
            )
        try:
            records[name] = file_record(path_of(f"files.{name}", path))
        except OSError as error:
            raise ConfigError(
                f"files.{name}", "must be a readable file", str(path), f"{error.strerror}."
            ) from error
    return records
