"""Read the stored cases: numbers that JSON cannot hold, tolerances, and a case by its id."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROLLOUTS = Path(__file__).parents[1] / "data" / "rollouts"


def decoded(value: Any) -> Any:
    """Turn the strings "nan", "inf" and "-inf" back into floats, everywhere inside."""
    if isinstance(value, dict):
        return {key: decoded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decoded(item) for item in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def cases(file_name: str, *, function: str | None = None) -> list[dict[str, Any]]:
    found = [decoded(case) for case in json.loads((ROLLOUTS / file_name).read_text())]
    return [case for case in found if function is None or case["function"] == function]


def bug(case_id: str) -> dict[str, Any]:
    return next(case for case in cases("bug_reports.json") if case["id"] == case_id)


def close(found: float, expected: float, tolerance: float) -> bool:
    """Compare absolutely at 0 and 1, relatively elsewhere; NaN and infinity must be themselves."""
    if math.isnan(expected) or math.isinf(expected):
        return found == expected or (math.isnan(found) and math.isnan(expected))
    return abs(found - expected) <= tolerance * (1 if expected in (0, 1) else abs(expected))


def real_rollouts() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROLLOUTS / "real_rollouts_smollm2.jsonl").read_text().splitlines()]
