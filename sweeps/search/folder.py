"""The folder of a search: one file that says what is asked, beside the stores of its stages."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from ...kernels.errors import StoreError
from ..files import write_atomically
from ..json_text import json_text, plain_data
from ..spec.design import design_from_groups
from ..spec.identity import fingerprint_of
from ..spec.spec import SweepSpec
from ..user_files import decoded, parse_json, read_bytes
from .question import Question
from .space import Space

FILE = "search.json"
VERSION = 1


def identity_of(
    space: Space,
    question: Question,
    asked: dict[str, Any],
    runs: int,
    seconds: float | None,
    sampler: str,
) -> dict[str, Any]:
    """Return what makes this search and no other."""
    return {
        **space_facts(space),
        "objectives": [list(one) for one in question.objectives],
        "bounds": [[bound.name, bound.limit] for bound in question.bounds],
        **asked,
        "budget": {"runs": runs} if seconds is None else {"seconds": seconds},
        "sampler": sampler,
    }


def space_facts(space: Space) -> dict[str, Any]:
    """Return what makes a space and no other."""
    return {
        "base": SweepSpec(base=space.base, design=design_from_groups([]), seeds=(0,)).to_plain()["base"],
        "seed": space.base.seed,
        "axes": {axis.name: axis.described for axis in space.axes},
        "constraints": list(space.constraints),
    }


def folder_of(facts: dict[str, Any], name: str, results: Path, kind: str = "search") -> Path:
    """Name the folder of a search: its name and the first 8 digits of what it asks."""
    return results / f"{kind}-{name}-{fingerprint_of(plain_data(facts))[:8]}"


def begun(
    folder: Path, facts: dict[str, Any], *, file: str = FILE, kind: str = "search", **found: Any
) -> dict[str, Any]:
    """Begin a search in a folder, or go on with the one that is there.

    Parameters
    ----------
    folder : Path
        Made if missing.
    facts : dict
        What is asked.
    file, kind : str
        The file that says so, and what it is of.
    found : keywords
        What the search itself found out and must keep, as the runs that take a minute.

    Returns
    -------
    dict
        What an earlier call found out.

    Raises
    ------
    StoreError
        If the folder holds another search or something else, or cannot be written.
    """
    facts = plain_data({"version": VERSION, **facts})
    path = folder / file
    try:
        if path.exists():
            known = parse_json(decoded(read_bytes(path, kind), kind, str(path)), kind, str(path))
            if known.get("asked") != facts:
                way_out = "Name another --store, or give the same command."
                raise StoreError("store", f"holds another {kind}", str(folder), way_out)
            if not found:
                return dict(known["found"])
        elif folder.exists() and any(folder.iterdir()):
            rule = f"must be the folder of a {kind} or not exist"
            raise StoreError("store", rule, str(folder), "Name another path.")
        folder.mkdir(parents=True, exist_ok=True)
        content = json_text({"asked": facts, "found": found}, indent=1)
        write_atomically(path, (content + "\n").encode())
    except OSError as error:
        what = (
            "has no room left"
            if error.errno == errno.ENOSPC
            else f"cannot be written: {os.strerror(error.errno or 0)}"
        )
        raise StoreError("store", what, str(folder), "Free some space, or name another path.") from error
    return dict(found)
