"""A spec written as TOML, each value on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .spec import SweepSpec


def spec_to_toml(spec: SweepSpec) -> str:
    """Write a spec as TOML that :func:`read_spec_file` reads back to the same spec.

    Examples
    --------
    >>> from lagsweep.sweeps.config.config import PipelineConfig
    >>> from lagsweep.sweeps.spec.make import make_spec
    >>> spec = make_spec(PipelineConfig(max_policy_lag=4), {"sync_cadence": [1, 2]}, seeds=3)
    >>> print(spec_to_toml(spec))
    version = 1
    name = "sweep"
    seeds = { first = 0, count = 3 }
    baseline = false
    <BLANKLINE>
    [base]
    max_policy_lag = 4
    <BLANKLINE>
    [axes]
    sync_cadence = [1, 2]
    <BLANKLINE>
    """
    content = spec.to_plain()
    sections = {
        "base": content.pop("base"),
        "axes": content.pop("axes", None),
        "zip": content.pop("zip", None),
    }
    lines = [f"{key} = {toml_value(value)}" for key, value in content.items()]
    for name, section in sections.items():
        if not section:
            continue
        title = f"[[{name}]]" if isinstance(section, list) else f"[{name}]"
        keys = section[0] if isinstance(section, list) else section
        lines += ["", title, *(f"{key} = {toml_value(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """Write one value in TOML's own notation, on one line."""
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True)  # JSON's escapes are TOML's too
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_toml_key(str(key))} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}"
    return f"[{', '.join(toml_value(item) for item in value)}]"


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=True)
