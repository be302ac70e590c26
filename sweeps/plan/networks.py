"""How fast new weights reach engines: rates of published weight syncs, or a user's own row."""

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
from ..engines.accelerators import read_row

_FILE = files("lagsweep.sweeps.plan") / "network_data" / "networks.json"
_NUMBERS = ("bytes_per_second", "low", "high")


@dataclass(frozen=True, kw_only=True)
class Network:
    """A way from the trainer to the engines, as bytes of all weights over seconds of a publication.

    Attributes
    ----------
    name : str
    bytes_per_second, low, high : float
        The default and its range; both ends are the default where a row names no range.
    source, note : str
    """

    name: str
    bytes_per_second: float
    low: float
    high: float
    source: str = ""
    note: str = ""


@cache
def shipped_networks() -> dict[str, Network]:
    """Load the shipped networks, by name.

    Examples
    --------
    >>> sorted(shipped_networks())
    ['across-nodes', 'one-node']
    """
    return {row["name"]: Network(**row) for row in json.loads(_FILE.read_text(encoding="utf-8"))}


def load_network(name_or_path: str | Path) -> Network:
    """Find a network by name, or read a user's own row.

    Parameters
    ----------
    name_or_path : str or Path
        A shipped name, or a path to a JSON or TOML file with one row.

    Raises
    ------
    ConfigError
        No such network, or a row that does not hold.

    Examples
    --------
    >>> load_network("one-node").bytes_per_second
    50000000000
    """
    way_out = f"Known are {', '.join(shipped_networks())}; or give a TOML file with your own row."
    text = str(name_or_path if isinstance(name_or_path, Path) else text_of("network", name_or_path, way_out))
    if text in shipped_networks():
        return shipped_networks()[text]
    if Path(text).suffix in (".json", ".toml"):
        return network_from(read_row(text, "network"), text)
    hint = nearest(text, shipped_networks())
    raise ConfigError("network", "must be a known name or a file", text, f"{hint} {way_out}".strip())


def network_from(row: Any, place: str) -> Network:
    """Check a user's row: every finding at once.

    Raises
    ------
    ConfigError
        For names that are not known, a missing rate, numbers that are none, ends in the wrong order.

    Examples
    --------
    >>> network_from({"name": "ours", "bytes_per_second": 12e9}, "net.toml").high
    12000000000.0
    """
    if not isinstance(row, Mapping):
        raise ConfigError(place, "must hold one object", row, 'Write {"name": "...", ...}.')
    known = [one.name for one in fields(Network)]
    findings = [
        Finding(f"{place}: {name}", "is not a known field", way_out=nearest(str(name), known) or "Drop it.")
        for name in row
        if name not in known
    ]
    values: dict[str, Any] = {"name": place, "source": place}
    for name, value in row.items():
        try:
            if name in _NUMBERS:
                values[name] = _rate(f"{place}: {name}", value)
            elif name in known:
                values[name] = text_of(f"{place}: {name}", value, "Give it as text.")
        except ConfigError as error:
            findings += error.findings
    rate = values.get("bytes_per_second")
    if "bytes_per_second" not in row:
        findings.append(Finding(f"{place}: bytes_per_second", "is required", way_out="Give 12e9, for one."))
    elif rate is not None:
        values = {"low": rate, "high": rate, **values}
        if not values["low"] <= rate <= values["high"]:
            rule = f"must lie between low and high, {values['low']:g} and {values['high']:g}"
            findings.append(Finding(f"{place}: bytes_per_second", rule, rate, "Mend the ends."))
    if findings:
        raise ConfigError(*findings)
    return Network(**values)


def _rate(field: str, value: Any) -> float:
    number: float = checked(RealNumber, field, value)
    if number <= 0:
        raise ConfigError(field, "must be above 0", value, "Give bytes per second, as 12e9.")
    return number
