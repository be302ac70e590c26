"""A unit as one file while a sweep runs whose units are merged at the end: the chunks of its arrays in a row.

Thousands of small units would be a hundred thousand files. The chunks' bytes are those that Zarr would have;
the unit's line in the journal has the size and the digest of each, and the digest of the whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from .arrays import digest_of

PACKS_NAME = "packs"
PACK, SIZES = "pack", "sizes"  # in a unit's line: the file's digest, and the sizes of its chunks
PACK_DIGEST_BYTES = 8

_SMALL = 2**16  # bytes of a pack, at most, that is kept

Slice = tuple[str, int, int]  # file inside the store, where a chunk begins, how long it is


def pack_name(work_name: str) -> str:
    """Name the file of a unit, inside the store."""
    return f"{PACKS_NAME}/unit-{work_name}.pack"


def packed(contents: list[bytes]) -> tuple[bytes, dict[str, Any]]:
    """Put a unit's chunks in a row; gives the file's content, and what its line in the journal says of it.

    Examples
    --------
    >>> content, about = packed([b"abc", b"de"])
    >>> content, about["sizes"]
    (b'abcde', [3, 2])
    """
    whole = b"".join(contents)
    return whole, {PACK: digest_of(whole, PACK_DIGEST_BYTES), SIZES: [len(content) for content in contents]}


def slice_of(record: Mapping[str, Any], work_name: str, place: int) -> Slice | None:
    """Tell where a unit's pack has the chunk of its variable number `place`; None if it has no pack."""
    sizes = record.get(SIZES)
    if not isinstance(sizes, list) or place >= len(sizes):
        return None
    return pack_name(work_name), sum(sizes[:place]), sizes[place]


def read_slice(root: Path, where: Slice) -> bytes:
    """Read a chunk out of a pack.

    A small pack is kept for the next chunk of it, since merging wants all chunks of a unit. It is known by
    the file's identity, size and time, and its chunks are held against their digests.
    """
    name, start, size = where
    path = os.path.join(root, name)
    found = os.stat(path)
    if found.st_size > _SMALL:
        with open(path, "rb") as file:
            return os.pread(file.fileno(), size, start)
    return _whole(path, found.st_ino, found.st_size, found.st_mtime_ns)[start : start + size]


@lru_cache(maxsize=512)
def _whole(path: str, inode: int, size: int, time: int) -> bytes:
    with open(path, "rb") as file:
        return file.read()
