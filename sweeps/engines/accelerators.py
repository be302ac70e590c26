"""Accelerators by name, shipped with their sources, or a user's own row as a JSON or TOML file.

Peaks and bandwidths are the vendors' figures of one card, dense; memory is what a process sees of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...kernels.errors import ConfigError, Finding, nearest
from ..checks import RealNumber, checked, text_of
from ..user_files import decoded, parse_json, parse_toml, read_bytes

_FILE = files("lagsweep.sweeps.engines") / "accelerator_data" / "accelerators.json"
_POSITIVE = "must be above 0"


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One card.

    Attributes
    ----------
    name : str
    memory_bytes : float
        What a process sees.
    memory_bytes_per_second, bf16_flops_per_second : float
        The vendor's figures, without sparsity.
    fp8_flops_per_second, link_bytes_per_second, network_bytes_per_second : float, optional
        Links in one direction; None where no source states them.
    link : str
        What joins the cards of a node.
    aliases : tuple of str
    memory_vendor, memory_evidence, source, note : str
        What the sheet prints, how the visible memory is known, where the figures are from, what to mind.
    """

    name: str
    memory_bytes: float
    memory_bytes_per_second: float
    bf16_flops_per_second: float
    fp8_flops_per_second: float | None = None
    link: str = ""
    link_bytes_per_second: float | None = None
    network_bytes_per_second: float | None = None
    aliases: tuple[str, ...] = ()
    memory_vendor: str = ""
    memory_evidence: str = ""
    source: str = ""
    note: str = ""

    @property
    def has_fast_links(self) -> bool:
        """Tell whether the cards of a node are joined by something faster than PCIe."""
        return bool(self.link) and not self.link.startswith("PCIe")


_NUMBERS = tuple(one.name for one in fields(Accelerator) if "float" in str(one.type))
_REQUIRED = ("name", "memory_bytes", "memory_bytes_per_second", "bf16_flops_per_second")


@cache
def shipped_accelerators() -> dict[str, Accelerator]:
    """Load the shipped accelerators, by name.

    Examples
    --------
    >>> shipped_accelerators()["H100-SXM"].memory_bytes_per_second
    3350000000000
    """
    rows = json.loads(_FILE.read_text(encoding="utf-8"))
    return {row["name"]: Accelerator(**{**row, "aliases": tuple(row["aliases"])}) for row in rows}


def load_accelerator(name_or_path: str | Path) -> Accelerator:
    """Find an accelerator by name, or read a user's own row.

    Parameters
    ----------
    name_or_path : str or Path
        A shipped name or alias in any case, or a path to a JSON or TOML file with one row.

    Raises
    ------
    ConfigError
        No such card; a file that cannot be read, or a row that is not complete.

    Examples
    --------
    >>> load_accelerator("h100").name
    'H100-SXM'
    """
    way_out = "Name a shipped card, or a JSON or TOML file with your own row."
    text = str(
        name_or_path if isinstance(name_or_path, Path) else text_of("accelerator", name_or_path, way_out)
    )
    known = {
        name.lower(): card for card in shipped_accelerators().values() for name in (card.name, *card.aliases)
    }
    if text.lower() in known:
        return known[text.lower()]
    if Path(text).suffix in (".json", ".toml"):
        return accelerator_from(read_row(text, "accelerator"), text)
    names = {name.lower(): name for name in shipped_accelerators()}
    hint = nearest(text.lower(), known)
    close = next((f"Did you mean {card.name!r}?" for low, card in known.items() if repr(low) in hint), "")
    way_out = f"{close} Known are {', '.join(names.values())}; or give a JSON file with your own row.".strip()
    raise ConfigError("accelerator", "must be a known name or a JSON file", text, way_out)


def read_row(path: str, field: str) -> Any:
    """Read a user's own row: a JSON object, or the top of a TOML file.

    Raises
    ------
    ConfigError
        For a file that cannot be read or is neither.
    """
    text = decoded(read_bytes(path, field, rule="must be readable ({reason})"), field, path)
    return parse_toml(text, field, path) if Path(path).suffix == ".toml" else parse_json(text, field, path)


def accelerator_from(row: Any, place: str) -> Accelerator:
    """Check a user's row: every finding at once.

    Raises
    ------
    ConfigError
        For names that are not known, required ones that are missing, and numbers that are none.

    Examples
    --------
    >>> accelerator_from({"name": "mine", "memory_bytes": 24e9, "memory_bytes_per_second": 1e12,
    ...                   "bf16_flops_per_second": 1e14}, "mine.json").link
    ''
    """
    if not isinstance(row, Mapping):
        raise ConfigError(place, "must hold one object", row, 'Write {"name": "...", ...}.')
    known = [one.name for one in fields(Accelerator)]
    findings = [
        Finding(f"{place}: {name}", "is not a known field", way_out=nearest(name, known) or "Leave it out.")
        for name in row
        if name not in known
    ]
    findings += [
        Finding(f"{place}: {name}", "is required", way_out="Give it a value.")
        for name in _REQUIRED
        if row.get(name) is None
    ]
    values: dict[str, Any] = {}
    for name in known:
        value = row.get(name)
        if value is None:
            continue
        try:
            values[name] = _value(f"{place}: {name}", name, value)
        except ConfigError as error:
            findings += error.findings
    if findings:
        raise ConfigError(*findings)
    return Accelerator(**values)


def _value(field: str, name: str, value: Any) -> Any:
    if name in _NUMBERS:
        number: float = checked(RealNumber, field, value)
        if number <= 0:
            raise ConfigError(field, _POSITIVE, value, "Give the card's own figure, in plain units.")
        return number
    if name == "aliases":
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ConfigError(field, "must be a list of names", value, "Leave it out.")
        return tuple(value)
    if not isinstance(value, str):
        raise ConfigError(field, "must be text", value, "Give it as text.")
    return value
