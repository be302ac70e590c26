"""The content digest of a stored sweep, by its folder."""

from __future__ import annotations

from pathlib import Path

from .content import store_content
from .proof import ZARR_NAME
from .store import SweepStore


def content_of_folder(path: Path) -> str:
    """Return the digest of the runs of a stored sweep, as far as they are done.

    Raises
    ------
    StoreError
        If there is no store, or a file that has to be read does not hold.
    """
    from .dataset import settle

    store = SweepStore(path.parent if path.name == ZARR_NAME else path, same_law=False)
    settle(store)
    return store_content(store)
