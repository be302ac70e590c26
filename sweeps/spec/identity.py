"""What tells sweeps and cells apart: fingerprints and cell ids, both from content.

A cell's id is a number below 2**53 made from the settings that differ from the defaults, so it does not
change when a sweep grows by values, by seeds or by a whole axis, nor when a later version adds a field, and
the same configuration has the same id in every sweep. Each (field, value) has a 64-bit hash; a cell's id
mixes their sum, so the ids of a grid come from its axes by broadcasting. The seed is not part of it.

A fingerprint tells a whole sweep: settings that differ from the defaults, axes in order, seeds, and what is
kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..config.config import PipelineConfig
from .axes import identity, is_field
from .design import Design

FINGERPRINT_VERSION = 1
CELL_ID_BITS = 53  # a float64, as pandas or JSON may make of it, still holds the id


def non_default(config: PipelineConfig) -> dict[str, str]:
    """Return the identity of every setting that differs from its default, the seed apart."""
    return {
        field: text
        for field in PipelineConfig.model_fields
        if field != "seed" and (text := identity(getattr(config, field))) != _default(field)
    }


_DEFAULTS: dict[str, str] = {}


def _default(field: str) -> str:
    if not is_field(field):
        return ""  # a knob's default is its preset's, and a system has none
    if field not in _DEFAULTS:
        default = PipelineConfig.model_fields[field].get_default(call_default_factory=True)
        _DEFAULTS[field] = identity(default)
    return _DEFAULTS[field]


def _hash(field: str, text: str) -> int:
    """Hash one setting; a default counts nothing."""
    if text == _default(field):
        return 0
    return int.from_bytes(hashlib.sha256(f"{field}={text}".encode()).digest()[:8], "big")


def cell_ids(base: PipelineConfig, design: Design) -> np.ndarray:
    """Return the id of every cell, in the design's shape.

    Returns
    -------
    ndarray of int64
    """
    fields = design.fields
    swept = set(fields.values())
    total = sum(_hash(field, text) for field, text in non_default(base).items() if field not in swept)
    sums = np.full(design.shape, total % 2**64, dtype=np.uint64)
    for name, (dim, values) in design.columns.items():
        hashes = np.array([_hash(fields[name], identity(value)) for value in values], dtype=np.uint64)
        sums = sums + design.broadcast(dim, hashes)  # modulo 2**64, as unsigned arrays do
    # One dimension at least: NumPy warns of the same wrap-around in scalars.
    return _mixed(sums.reshape(-1)).astype(np.int64).reshape(design.shape)


def cell_id(config: PipelineConfig) -> int:
    """Return the id that a configuration has as a cell of any sweep without an axis over a preset's knob.

    Examples
    --------
    >>> cell_id(PipelineConfig(seed=1)) == cell_id(PipelineConfig(seed=2))
    True
    >>> cell_id(PipelineConfig(sync_seconds=9)) == cell_id(PipelineConfig())
    False
    """
    total = sum(_hash(field, text) for field, text in non_default(config).items())
    return int(_mixed(np.array([total % 2**64], np.uint64))[0])


def _mixed(sums: np.ndarray) -> np.ndarray:
    """Spread 64-bit sums (the finalizer of splitmix64) and keep the upper 53 bits."""
    mixed = sums ^ (sums >> np.uint64(30))
    mixed = mixed * np.uint64(0xBF58476D1CE4E5B9)
    mixed = mixed ^ (mixed >> np.uint64(27))
    mixed = mixed * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed >> np.uint64(64 - CELL_ID_BITS)


def fingerprint_of(content: Mapping[str, Any]) -> str:
    """Hash the content of a sweep into 32 hexadecimal digits."""
    text = json.dumps({"version": FINGERPRINT_VERSION, **content}, separators=(",", ":"), sort_keys=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
