"""What a store's metadata and coordinates must be, by its spec; found where they are not, and mended."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..results.dataset import coordinate_table, variable_table
from .arrays import METADATA_NAME, array_metadata, create_group
from .journal import MADE, SCHEMA
from .place import files_inside
from .proof import ZARR_NAME

if TYPE_CHECKING:
    from .store import SweepStore

Problem = tuple[str, str, str]  # kind, name in the group, what
_COPIES = "consolidated_metadata"
_SHAPE_AND_TYPE = ("shape", "data_type", "chunk_grid", "dimension_names")


def metadata_problems(store: SweepStore) -> list[Problem]:
    """List what of the metadata and coordinates is not what the spec says, arrays first."""
    found = [*_wrong_arrays(store)] or [*_wrong_coordinates(store), *_wrong_copies(store)]
    return found or [*_wrong_group(store)]


def _wrong_arrays(store: SweepStore) -> Iterator[Problem]:
    for part in store.parts:
        for name, (dtype, dims, about) in variable_table(part).items():
            if not store.files.has(name):
                yield "metadata", name, "the array is missing"
                continue
            try:
                meta = store.files.metadata(name)
            except (OSError, ValueError) as error:
                yield "metadata", name, f"cannot be read: {error}"
                continue
            array = store.files.array(name)
            wanted = array_metadata(name, dtype, array.shape, array.chunks)
            wanted["dimension_names"] = list(dims)
            what = _difference(meta, wanted) or _wrong_attributes(meta, about)
            if what:
                yield "metadata", name, what


def _difference(meta: dict[str, Any], wanted: dict[str, Any]) -> str:
    facts, right = ([found.get(key) for key in _SHAPE_AND_TYPE] for found in (meta, wanted))
    if facts != right:
        return f"shape, type, chunks, dimensions are {facts}, must be {right}"
    for codec in meta.get("codecs", ()) if isinstance(meta.get("codecs"), list) else ():
        if isinstance(codec, dict) and codec.get("name") == "zstd":
            if not isinstance(codec.get("configuration"), dict) or not codec["configuration"].get("checksum"):
                return "chunks have no checksum"
    for key, value in wanted.items():
        if meta.get(key) != value or type(meta.get(key)) is not type(value):
            return f"{key} is {meta.get(key)!r}, must be {value!r}"
    return "storage_transformers must be none" if meta.get("storage_transformers") else ""


def _wrong_attributes(meta: dict[str, Any], about: dict[str, Any]) -> str:
    """Tell which attribute would make readers see other numbers; wording may change between versions."""
    stored = meta.get("attributes", {})
    for name in ("units", "flag_values", "flag_meanings"):
        if stored.get(name) != about.get(name):
            return f"attribute {name} is {stored.get(name)!r}, must be {about.get(name)!r}"
    unknown = sorted(set(stored) - set(about))
    return f"has attributes that are not its own: {', '.join(unknown)}" if unknown else ""


def _wrong_coordinates(store: SweepStore) -> Iterator[Problem]:
    for name, (_, values, _) in coordinate_table(store.spec).items():
        try:
            stored = store.files.coordinate(name)
            same = stored.shape == values.shape and stored.tolist() == values.tolist()
        except Exception as error:  # whatever Zarr and its codecs raise on damaged files
            text = str(error).splitlines()
            yield "coordinate", name, f"cannot be read: {text[0] if text else type(error).__name__}"
            continue
        if not same:
            yield "coordinate", name, "is not what the spec says"


def _group(store: SweepStore) -> dict[str, Any]:
    """Return what the group must say of itself, where its journal tells how it was made."""
    said = {name: store.attributes.get(name) for name in ("spec", "fingerprint", "schema_version")}
    first = next((record for record in store.journal.records if MADE in record), {})
    made = first.get(MADE)
    if not isinstance(made, dict):
        return store.files.root
    beside = " ".join(name for name, (dims, _, _) in coordinate_table(store.spec).items() if dims != (name,))
    complete = bool(store.files.attributes.get("complete"))
    said["schema_version"] = first.get(SCHEMA, said["schema_version"])
    attributes = {**said, **made, "complete": complete, "coordinates": beside}
    copies = {name: store.files.root[name] for name in (_COPIES,) if name in store.files.root}
    return {"attributes": attributes, "zarr_format": 3, "node_type": "group", **copies}


def _wrong_group(store: SweepStore) -> Iterator[Problem]:
    if store.files.root != _group(store):
        yield "metadata", METADATA_NAME, "its attributes are not those that the journal tells of"


def _wrong_copies(store: SweepStore) -> Iterator[Problem]:
    """Hold the consolidated metadata, a copy for plain readers, against the arrays' own."""
    copies, complete = (
        store.files.root.get("consolidated_metadata"),
        bool(store.files.attributes.get("complete")),
    )
    if not complete and copies is None:
        return
    try:
        same = complete and copies == store.files.consolidated()
    except (OSError, ValueError):
        same = False
    if not same:
        yield (
            "metadata",
            METADATA_NAME,
            "its consolidated metadata are not those of the arrays"
            if complete
            else "has consolidated metadata, but says incomplete",
        )


def _differing_copies(store: SweepStore) -> set[str]:
    """Name the arrays of whose metadata there are two versions: one is damaged, perhaps in its words only."""
    copies = store.files.root.get("consolidated_metadata")
    copied = copies.get("metadata") if isinstance(copies, dict) else None
    try:
        own = store.files.consolidated()["metadata"]
    except (OSError, ValueError):
        return set()
    if not isinstance(copied, dict):
        return set()
    return {name for name in own if name in copied and own[name] != copied[name]}


def problem_file(problem: Problem) -> str:
    """Name the file that a problem is about, inside the store."""
    kind, name, _ = problem
    if name == METADATA_NAME:
        return f"{ZARR_NAME}/{METADATA_NAME}"
    return f"{ZARR_NAME}/{name}" if kind == "coordinate" else f"{ZARR_NAME}/{name}/{METADATA_NAME}"


def mend_metadata(store: SweepStore) -> None:
    """Write metadata and coordinates anew, as a new store of this spec and these units has them."""
    complete = bool(store.files.attributes.get("complete"))
    wrong = {name for _, name, _ in metadata_problems(store)} | _differing_copies(store)
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / ZARR_NAME
        create_group(template, store.spec, store.parts)
        for file in files_inside(template):
            name = file.relative_to(template).parts[0]
            if name in wrong:
                target = f"{ZARR_NAME}/{file.relative_to(template)}"
                store.place.write(target, file.read_bytes())
    store.files.root = _group(store)
    store.attributes = store.files.attributes
    store.files.set_complete(complete)
