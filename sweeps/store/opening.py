"""What a store says of itself when it is opened: metadata, spec, units, journal; or why it is none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ...kernels.errors import StoreError
from ..execute.plan import Part
from ..results import dataset as results
from ..results.dataset import variable_table
from ..spec.carried import spec_from_text
from ..spec.spec import SweepSpec
from .arrays import METADATA_NAME, ZarrFiles
from .journal import CREATED, JOURNAL_NAME, Journal
from .nearby import way_to_a_store
from .proof import ZARR_NAME

_ANEW = "`lagsweep verify STORE --repair` writes them anew."


def open_files(folder: Path) -> ZarrFiles:
    """Open the group of a store.

    Raises
    ------
    StoreError
        If there is none, or its own metadata cannot be read.
    """
    if not (folder / ZARR_NAME / METADATA_NAME).exists():
        if (folder / ZARR_NAME).is_dir() and (folder / JOURNAL_NAME).is_file():
            raise StoreError(
                "store", f"its metadata {ZARR_NAME}/{METADATA_NAME} are missing", str(folder), _ANEW
            )
        rule = "must be the folder of a stored sweep"
        raise StoreError("store", rule, str(folder), way_to_a_store(folder))
    try:
        return ZarrFiles(folder / ZARR_NAME)
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(
            "store",
            f"its metadata {ZARR_NAME}/{METADATA_NAME} cannot be read: {error}",
            str(folder),
            _ANEW,
        ) from error


def stored_chunks(files: ZarrFiles, part: Part) -> tuple[int, ...]:
    """Tell how a part is cut into units: as most of its arrays say, lest one damaged file mislead."""
    copies = files.root.get("consolidated_metadata")
    consolidated = copies.get("metadata", {}) if isinstance(copies, dict) else {}
    found: Counter[tuple[int, ...]] = Counter()
    count = len(part.layout.shape)
    for name in variable_table(part):
        for read in (lambda: files.metadata(name), lambda: consolidated[name]):  # noqa: B023  (called here)
            try:
                chunks = tuple(read()["chunk_grid"]["configuration"]["chunk_shape"][:count])
                if len(chunks) == count and all(type(size) is int and size > 0 for size in chunks):
                    found[chunks] += 1
            except (OSError, ValueError, KeyError, TypeError):
                continue
    if not found:
        raise StoreError(
            f"{ZARR_NAME}/{part.prefix}status/{METADATA_NAME}",
            "cannot be read, nor can those of the other arrays",
            str(files.path.parent),
            "Restore them, or run anew.",
        )
    return found.most_common(1)[0][0]


def open_journal(folder: Path, spec: SweepSpec) -> Journal:
    """Read the journal of a store, and tell whether it is that of another sweep.

    Raises
    ------
    StoreError
        If it is there and cannot be read.
    """
    try:
        journal = Journal(folder / JOURNAL_NAME)
    except OSError as error:
        raise StoreError(
            JOURNAL_NAME, f"cannot be read: {error.strerror}", str(folder), "Restore it, or run anew."
        ) from error
    for record in journal.records:
        if record.get("kind") == CREATED and record.get("fingerprint") != spec.fingerprint:
            journal.foreign = True
    return journal


def check_schema(attributes: dict[str, Any], folder: Path) -> None:
    """Refuse a store that a newer version of Lagsweep wrote, or that is not one.

    Raises
    ------
    StoreError
    """
    found = attributes.get("schema_version")
    if not isinstance(found, int) or "spec" not in attributes:
        raise StoreError(
            "store",
            "must be the result of a sweep",
            str(folder),
            f"Its attributes lack spec and schema_version. If it was one: {_ANEW}",
        )
    if found > results.SCHEMA_VERSION:
        rule = f"must be at most {results.SCHEMA_VERSION}"
        raise StoreError("schema_version", rule, found, "Use a newer lagsweep to read it.")


def stored_spec(attributes: dict[str, Any], folder: Path) -> SweepSpec:
    """Read the spec of a store.

    Raises
    ------
    StoreError
        If it cannot be read, or is not the one that the store was made with.
    """
    try:
        spec = spec_from_text(attributes["spec"])
    except Exception as error:  # the text may be anything
        raise StoreError(
            "spec",
            f"the stored spec cannot be read: {error}",
            str(folder),
            f"Use the version that made it. If {ZARR_NAME}/{METADATA_NAME} was damaged: {_ANEW}",
        ) from error
    if spec.fingerprint != attributes.get("fingerprint"):
        raise StoreError(
            "fingerprint",
            f"must be {spec.fingerprint[:8]}, that of the stored spec",
            str(attributes.get("fingerprint"))[:8],
            f"The store's metadata were changed. {_ANEW}",
        )
    return spec
