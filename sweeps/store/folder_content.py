"""The content digest of a stored sweep, by its folder."""

from __future__ import annotations

from pathlib import Path

from .content import CONTENT, store_content
from .dataset import settle
from .proof import ZARR_NAME
from .store import SweepStore


def content_of_folder(path: Path) -> str:
    """Return the digest of the runs of a stored sweep, as far as they are done, by its journal.

    Empty where the journal of an older version tells of none: `verify` makes it from the values, and
    `lagsweep compact` notes it.

    Raises
    ------
    StoreError
        If there is no store, or a file that has to be read does not hold.
    """
    store = SweepStore(path.parent if path.name == ZARR_NAME else path, same_law=False)
    settle(store)
    told = all(CONTENT in record for part in store.parts for _, record in store.done_units(part))
    return store_content(store) if told else ""
