"""Digests of a store's files, each in the form in which the journal tells of it.

Chunks and packs have a BLAKE2 digest of as many bytes as their hexadecimal digits say. Parts of tables can be
large, and a BLAKE2 digest would take most of the time of reading one; in stores of form 2 they have a CRC-32C
which processors compute by themselves, and their length (``crc32c:1a2b3c4d:1024``). A store of form 1 is gone
on with in its own form, with BLAKE2: versions that know no other can go on with it too.
Both find what a disk, a copy or a slip does to a file; neither keeps out a forger, who would write the
journal as well.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import google_crc32c

FAST = "crc32c:"
_SLOW_BYTES = 8  # of the BLAKE2 digest of a part of a table
_MOST_BYTES = 64  # of a BLAKE2 digest
_PIECE = 1 << 20


def fast_digest(content: bytes) -> str:
    """Digest a large file's content.

    Examples
    --------
    >>> fast_digest(b"123456789")
    'crc32c:e3069283:9'
    """
    return _fast(google_crc32c.value(content), len(content))


def slow_digest(content: bytes) -> str:
    """Digest a file's content as stores of form 1 do.

    Examples
    --------
    >>> slow_digest(b"123456789")
    '7e73edbfe1aa9531'
    """
    return hashlib.blake2b(content, digest_size=_SLOW_BYTES).hexdigest()


def _fast(crc: int, size: int) -> str:
    return f"{FAST}{crc:08x}:{size}"


def holds(content: bytes, told: str) -> bool:
    """Tell whether a file's content is the one that a digest tells of, whatever the digest's form.

    Examples
    --------
    >>> holds(b"123456789", "crc32c:e3069283:9"), holds(b"12345678", "crc32c:e3069283:9"), holds(b"", "")
    (True, False, False)
    """
    if told.startswith(FAST):
        return fast_digest(content) == told
    size = _size_of(told)
    return size > 0 and hashlib.blake2b(content, digest_size=size).hexdigest() == told


def file_holds(path: Path, told: str) -> bool:
    """Tell whether a file is the one that a digest tells of, read a piece at a time; no file is not.

    Raises
    ------
    OSError
        If the file is there and cannot be read.
    """
    size = _size_of(told)
    if not (told.startswith(FAST) or size):
        return False
    try:
        with open(path, "rb") as file:
            if not told.startswith(FAST):
                return (
                    hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=size)).hexdigest() == told
                )
            crc = length = 0
            while piece := file.read(_PIECE):
                crc, length = google_crc32c.extend(crc, piece), length + len(piece)
            return _fast(crc, length) == told
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _size_of(told: str) -> int:
    """Return how many bytes a BLAKE2 digest has, 0 for what is none."""
    size = len(told) // 2
    return size if size <= _MOST_BYTES else 0
