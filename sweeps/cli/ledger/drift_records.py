"""What rollout records say of the drift, lag by lag: ``lagsweep ledger drift --records``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...json_text import json_document

if TYPE_CHECKING:
    from ...records.log_ratios import LagRow, Level

CONFIDENCE = 0.95


def print_measured_drift(path: Path, *, as_json: bool) -> None:
    """Print the drift that records measure, at both levels.

    Raises
    ------
    ConfigError
        As :func:`lagsweep.DriftLaw.from_records`.
    """
    from ...laws.drift import DriftLaw
    from ...records.log_ratios import LEVELS, read_log_ratios

    measured = {level: read_log_ratios(path, level) for level in LEVELS}
    rows = {level: read.rows(CONFIDENCE) for level, read in measured.items()}
    if as_json:
        facts = {
            "file": str(path),
            "confidence": CONFIDENCE,
            "levels": {
                level: {
                    "digest": DriftLaw.from_records(path, level).digest,
                    "lags": [row._asdict() for row in rows[level]],
                }
                for level in LEVELS
            },
        }
        click.echo(json_document("drift-law", facts, indent=1))
        return
    _print(path, rows)


def _print(path: Path, rows: Mapping[Level, list[LagRow]]) -> None:
    from .print import print_table, say

    for level, of_level in rows.items():
        say(f"{path.name}, weights of {_OF[level]}:")
        print_table(_HEADINGS, [_cells(row) for row in of_level])
        say("")
    say(
        f"ESS: normalized, of the measured weights; ± is the half width of its {CONFIDENCE:.0%} interval, by "
        "leaving out one record at a time. A lag whose interval reaches 0 or 1 is hardly known.",
        "The largest log ratio that was met ends the law of a lag: few records know too little of the tail, "
        "so an ESS is rather too high than too low.",
        f"Take the level at which your trainer weighs: --drift from_records:{path}:token, or :sequence.",
    )


_OF = {"token": "single tokens", "sequence": "whole sequences"}
_HEADINGS = ("Lag", "ESS", "Records", "Log ratios", "Tokens", "Mean log ratio")


def _cells(row: LagRow) -> tuple[Any, ...]:
    from ...results.numbers import with_half_width

    return (
        str(row.lag),
        with_half_width(row.normalized_ess, row.half_width, 3),
        f"{row.records:,}",
        f"{row.log_ratios:,}",
        f"{row.tokens:,}",
        f"{row.mean_log_ratio:.4f}",
    )
