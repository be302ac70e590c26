"""Read the stored cases of the closed formulas; a tolerance of 0 or 1 is absolute, others are relative."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from oracle.case_files import decoded

DATA = Path(__file__).parents[1] / "data"


def cases(topic: str, function: str | None = None) -> list[dict[str, Any]]:
    found = [decoded(case) for case in json.loads((DATA / f"{topic}_cases.json").read_text())]
    return [case for case in found if function is None or case["function"] == function]


def agrees(found: float, case: dict[str, Any], expected: float | None = None) -> bool:
    expected = case["expected"] if expected is None else expected
    tolerance = case["tolerance"]
    if expected == found:
        return True
    return abs(found - expected) <= (tolerance if tolerance in (0, 1) else tolerance * abs(expected))
