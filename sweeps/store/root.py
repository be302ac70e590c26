"""The group's own metadata made anew, when the file that says what a store is was lost or damaged.

Everything in ``cells.zarr/zarr.json`` is said elsewhere too: the sweep by ``spec.toml``, whose fingerprint is
in the journal's first line; the versions and the revision by that line; whether it is complete by the last.
Where these do not agree nothing is made up: the store stays refused.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ...kernels.errors import LagsweepError, StoreError
from ..execute.plan import plan_parts
from ..results import dataset as results
from ..spec.carried import check_law
from ..spec.reading import read_spec_file
from ..spec.spec import SweepSpec
from .arrays import METADATA_NAME, create_group
from .journal import CREATED, JOURNAL_NAME, MADE, SCHEMA, Journal
from .place import Place, refusal
from .proof import ZARR_NAME
from .store import SPEC_NAME, SweepStore

ROOT = f"{ZARR_NAME}/{METADATA_NAME}"


def problem_of_root(folder: Path) -> LagsweepError | None:
    """Tell why a store cannot be opened, if its own metadata are the reason and can be made anew.

    Raises
    ------
    LagsweepError
        If it cannot be opened, and they cannot be made anew.
    """
    try:
        foreign = SweepStore(folder).journal.foreign
    except LagsweepError as error:
        try:
            spec, _, made = _said_elsewhere(folder)
            del made[SCHEMA]
            # A law that gives another table here than where the store was made is no damage of the file.
            check_law(spec, str(made.get("law_digest", spec.law_digest)))
        except StoreError:
            raise error from None
        if not made and any(found.field == "law_digest" for found in error.findings):
            raise
        return error
    if not foreign:
        return None
    try:
        _said_elsewhere(folder)
    except StoreError:
        return None  # it is the journal that is another sweep's
    return refusal(folder, ROOT, "is that of another sweep than spec.toml and the journal")


def _said_elsewhere(folder: Path) -> tuple[SweepSpec, Journal, dict[str, Any]]:
    """Read the sweep, the journal, and what its first line says of how the store was made.

    Raises
    ------
    StoreError
        If one of them is missing, or they are not of one store.
    """
    journal = Journal(folder / JOURNAL_NAME)
    created = next((record for record in journal.records if record.get("kind") == CREATED), None)
    try:
        spec = read_spec_file(folder / SPEC_NAME)
    except (LagsweepError, OSError, ValueError) as error:
        raise _refusal(folder, f"{SPEC_NAME} cannot be read: {error}") from error
    if created is None or created.get("fingerprint") != spec.fingerprint:
        raise _refusal(folder, f"{JOURNAL_NAME} and {SPEC_NAME} are not of one sweep")
    form = created.get(SCHEMA)
    known = isinstance(form, int) and results.OLDEST_WRITTEN <= form <= results.SCHEMA_VERSION
    if not known or not (folder / ZARR_NAME).is_dir():
        raise _refusal(folder, f"there is no {ZARR_NAME} of this version's form")
    made = created.get(MADE)
    return spec, journal, {SCHEMA: form, **(made if isinstance(made, dict) else {})}


def _refusal(folder: Path, why: str) -> StoreError:
    return StoreError(ROOT, f"cannot be written anew: {why}", str(folder), "Restore it, or run anew.")


def rebuild_root(folder: Path) -> str:
    """Write the group's metadata anew; says what was done.

    Where the journal is of an older version, which does not tell how the store was made, the store counts as
    of the first revision, and the versions stay unsaid.

    Parameters
    ----------
    folder : Path
        Its lock is held.

    Raises
    ------
    StoreError
        If what they must say is not said elsewhere.
    """
    spec, journal, made = _said_elsewhere(folder)
    fresh = results.result_attributes(spec, complete=False)
    first = {name: fresh[name] for name in ("spec", "fingerprint")} | {"schema_version": made.pop(SCHEMA)}
    attributes = first | (made or {"law_digest": spec.law_digest})
    with tempfile.TemporaryDirectory() as aside:
        create_group(Path(aside) / ZARR_NAME, spec, plan_parts(spec, 1))
        root = json.loads((Path(aside) / ROOT).read_bytes())
    root["attributes"] = {**attributes, "complete": False, "coordinates": root["attributes"]["coordinates"]}
    place = Place(folder)
    try:
        place.write(ROOT, json.dumps(root, indent=2).encode())
    finally:
        place.close()
    store = SweepStore(folder)
    try:
        if journal.finished and all(store.is_done(part, unit) for part, unit in store.units()):
            store.files.set_complete(True)
    finally:
        store.close()
    return f"wrote {ROOT} anew" + ("" if made else "; which versions made the store is not known")
