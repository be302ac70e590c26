"""A unit as one file while a sweep runs whose units are merged at the end: a pack.

Thousands of small units would be a hundred thousand files. In a pack the chunks of a unit's arrays lie in a
row, in one of two forms. Those of a small unit are compressed together, as one block, whose digest is in the
unit's line in the journal: a few runs cost one call of the codec and not one for each variable. Those of a
larger unit are the bytes that Zarr would have, and the line has the size and the digest of each, so that one
variable is read without the others. Which form a unit has follows from the size of its arrays alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .arrays import compressed, decompressed, digest_of

PACKS_NAME = "packs"
PACK, SIZES = "pack", "sizes"  # in a unit's line: the file's digest, and the sizes of its chunks
BLOCK = "block"  # in a unit's line in place of the sizes: bytes of the chunks, which are one block
PACK_DIGEST_BYTES = 8
BLOCK_BYTES = 2**16  # of a unit's chunks, at most, that are compressed together

_SMALL = 2**16  # bytes of a pack, at most, that is kept
_KEPT = 512  # packs, which are less than the units of a merged one


class Slice(NamedTuple):
    """Where a chunk lies in a pack; of a block, once it is decompressed.

    Attributes
    ----------
    file : str
        Inside the store.
    start, size : int
        In bytes.
    digest : str
        Of the file, where it is a block.
    """

    file: str
    start: int
    size: int
    digest: str = ""


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


def as_block(values: list[bytes]) -> tuple[bytes, dict[str, Any]]:
    """Compress a unit's values together; gives the file's content, and what its line says of it.

    Examples
    --------
    >>> content, about = as_block([b"abc", b"de"])
    >>> decompressed(content), about["block"]
    (b'abcde', 5)
    """
    raw = b"".join(values)
    whole = compressed(raw)
    return whole, {PACK: digest_of(whole, PACK_DIGEST_BYTES), BLOCK: len(raw)}


def slice_of(record: Mapping[str, Any], work_name: str, place: int, sizes: Sequence[int]) -> Slice | None:
    """Tell where a unit's pack has the chunk of its variable number `place`; None if it has no pack.

    Parameters
    ----------
    record : mapping
        The unit's line in the journal.
    work_name : str
    place : int
    sizes : sequence of int
        Bytes of each variable's chunk before it is compressed.
    """
    if BLOCK in record:
        return Slice(pack_name(work_name), sum(sizes[:place]), sizes[place], str(record.get(PACK)))
    told = record.get(SIZES)
    if not isinstance(told, list) or place >= len(told):
        return None
    return Slice(pack_name(work_name), sum(told[:place]), told[place])


def read_slice(root: Path, where: Slice) -> bytes:
    """Read a chunk out of a pack of chunks.

    A small pack is kept for the next chunk of it. It is known by the file's identity, size and time, and its
    chunks are held against their digests.
    """
    path = os.path.join(root, where.file)
    found = os.stat(path)
    if found.st_size > _SMALL:
        with open(path, "rb") as file:
            return os.pread(file.fileno(), where.size, where.start)
    content = _whole(path, found.st_ino, found.st_size, found.st_mtime_ns)
    return content[where.start : where.start + where.size]


@lru_cache(maxsize=_KEPT)
def _whole(path: str, inode: int, size: int, time: int) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def read_block(root: Path, where: Slice) -> bytes | None:
    """Read the values of one chunk out of a block; None if the file is not the one of the digest.

    What was read and held is kept for the next chunk of it, as in :func:`read_slice`.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    path = os.path.join(root, where.file)
    found = os.stat(path)
    values = _block(path, found.st_ino, found.st_size, found.st_mtime_ns, where.digest)
    return None if values is None else values[where.start : where.start + where.size]


@lru_cache(maxsize=_KEPT)
def _block(path: str, inode: int, size: int, time: int, digest: str) -> bytes | None:
    with open(path, "rb") as file:
        content = file.read(2 * BLOCK_BYTES)
    return decompressed(content) if digest_of(content, PACK_DIGEST_BYTES) == digest else None
