"""Predict published experiments and print prediction, measurement and error of every row.

Prints Markdown, or one JSON document with ``--json``. A row's prediction uses the stated inputs, and physical
inputs (speeds, phase times) from other rows only; each calibrated number is listed with the rows that it came
from, and each row that cannot be predicted with the reason. The measurements are in ``published.json`` beside
this file. ``results/published/fidelity.md`` is this program's output word for word.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import applied_compute  # noqa: E402
import areal  # noqa: E402
import marin  # noqa: E402
import nemo_rl  # noqa: E402
import verl_fully_async  # noqa: E402
import verl_one_step_off  # noqa: E402
from fidelity_parts import Family, Row  # noqa: E402

from lagsweep import __version__  # noqa: E402

COMMAND = "python benchmarks/fidelity/run.py"
FAMILIES = (applied_compute, verl_fully_async, verl_one_step_off, nemo_rl, marin, areal)


def load() -> dict[str, Any]:
    return json.loads((FOLDER / "published.json").read_text())


def families(data: dict[str, Any]) -> list[Family]:
    return [module.family(data) for module in FAMILIES]


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def table(header: list[str], lines: list[list[str]], numbers: range) -> list[str]:
    rule = ["---:" if column in numbers else "---" for column in range(len(header))]
    return ["| " + " | ".join(line) + " |" for line in [header, rule, *lines]]


def row_line(row: Row) -> list[str]:
    if row.is_share:
        numbers = [f"{row.predicted:.0%}", f"{row.measured:.0%}", f"{100 * row.error:+.0f} points"]
        return [row.name, f"{row.quantity}, of the step", *numbers, row.note]
    predicted = f"{'≥ ' if row.bound else ''}{number(row.predicted)}"
    numbers = [predicted, number(row.measured), f"{row.error:+.0%}"]
    return [row.name, f"{row.quantity}, {row.unit}", *numbers, row.note]


def family_text(family: Family) -> list[str]:
    text = [
        f"## {family.title}",
        "",
        f"{family.setting}. Model: {family.model}. Source: {family.source}.",
        "",
    ]
    if family.rows:
        header, lines = ["row", "quantity", "predicted", "measured", "error", ""], map(row_line, family.rows)
        if not any(row.note for row in family.rows):
            header, lines = header[:-1], (line[:-1] for line in lines)
        text += [*table(header, list(lines), range(2, 5)), ""]
    if family.calibrated:
        lines = [[item.name, f"{number(item.value)} {item.unit}", item.source] for item in family.calibrated]
        text += ["Calibrated:", "", *table(["number", "value", "from"], lines, range(1, 2)), ""]
    elif family.rows:
        text += ["Calibrated: nothing.", ""]
    text += bullets("Assumed:", family.assumed)
    off = [*family.off, *(f"{row.name}: {row.why}" for row in family.rows if row.why)]
    text += bullets("Where it is off:", off)
    text += bullets("Not predicted:", [f"{name}: {reason}" for name, reason in family.left_out])
    return text


def bullets(title: str, lines: list[str]) -> list[str]:
    return [title, "", *(f"- {line}." for line in lines), ""] if lines else []


def summary(found: list[Family]) -> list[dict[str, Any]]:
    """One line per experiment: rows, median and largest error (of shares, see the experiment's own table)."""
    lines = []
    for family in found:
        errors = [row.error for row in family.rows if not row.is_share]
        lines.append(
            {
                "experiment": family.title,
                "predicted": len(family.rows),
                "not_predicted": len(family.left_out),
                "calibrated": len(family.calibrated),
                "median_absolute_error": statistics.median(map(abs, errors)) if errors else None,
                "largest_error": max(errors, key=abs) if errors else None,
            }
        )
    return lines


def text(found: list[Family]) -> str:
    lines = [
        [
            item["experiment"],
            str(item["predicted"]),
            str(item["calibrated"]),
            "-" if item["median_absolute_error"] is None else f"{item['median_absolute_error']:.0%}",
            "-" if item["largest_error"] is None else f"{item['largest_error']:+.0%}",
            str(item["not_predicted"]),
        ]
        for item in summary(found)
    ]
    header = [
        "experiment",
        "predicted",
        "calibrated numbers",
        "median error",
        "largest error",
        "not predicted",
    ]
    return (
        "\n".join(
            [
                "# Predictions against published figures",
                "",
                f"Made by `{COMMAND}` from `benchmarks/fidelity/published.json`. No row is predicted from "
                "itself. ≥ marks the least that the model allows, where no split of GPUs or time is stated.",
                "",
                *table(header, lines, range(1, 6)),
                "",
                *(line for family in found for line in family_text(family)),
            ]
        ).rstrip()
        + "\n"
    )


def document(found: list[Family]) -> dict[str, Any]:
    return {
        "command": f"{COMMAND} --json",
        "versions": {"lagsweep": __version__, "python": platform.python_version()},
        "summary": summary(found),
        "families": [
            {
                "title": family.title,
                "source": family.source,
                "setting": family.setting,
                "model": family.model,
                "assumed": family.assumed,
                "rows": [{**vars(row), "error": row.error} for row in family.rows],
                "calibrated": [vars(item) for item in family.calibrated],
                "not_predicted": [{"row": name, "reason": reason} for name, reason in family.left_out],
            }
            for family in found
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    found = families(load())
    print(
        json.dumps(document(found), indent=1, ensure_ascii=False) if arguments.json else text(found), end=""
    )


if __name__ == "__main__":
    main()
