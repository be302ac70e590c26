"""Predict published experiments and print prediction, measurement and error of every row.

Prints Markdown, or one JSON document with ``--json``. A row's prediction uses the stated inputs, and physical
inputs (speeds, phase times) from other rows only; each calibrated number is listed with the rows that it came
from, and each row that cannot be predicted with the reason. A row that its inputs do not fix is a range or a
bound and has no error; medians are over predictions alone. The measurements are in ``published.json`` beside
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
import vime  # noqa: E402
from fidelity_parts import Family, Row  # noqa: E402

from lagsweep import __version__  # noqa: E402

COMMAND = "python benchmarks/fidelity/run.py"
KINDS = (
    "A **prediction** is fixed by its inputs: no input, moved alone to the ends of its interval, moves it by "
    "more than a tenth. A **range** is not, and has no error; its middle is in brackets. A **bound** is what "
    "nothing could be less than. A **split** has the row's own times of phases put in, and shows only how "
    "they overlap. Medians are over predictions, shares of time left out."
)
FAMILIES = (applied_compute, verl_fully_async, verl_one_step_off, nemo_rl, marin, vime, areal)


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


def left(row: Row) -> str:
    """What the inputs leave of a row: from - to, at least, or nothing to say."""
    if row.low is None:
        return ""
    return f"≥ {number(row.low)}" if row.high is None else f"{number(row.low)} - {number(row.high)}"


def judged(row: Row) -> str:
    """The error of a prediction or a split; of a range or a bound whether the measurement lies in it."""
    if row.error is None:
        return "inside" if row.holds else "outside"
    return f"{100 * row.error:+.0f} points" if row.is_share else f"{row.error:+.1%}"


def row_line(row: Row) -> list[str]:
    if row.is_share:
        quantity, show = f"{row.quantity}, of the step", "{:.0%}".format
    else:
        quantity, show = f"{row.quantity}, {row.unit}", number
    predicted = "" if row.predicted is None else show(row.predicted)
    if row.kind == "range" and predicted:
        predicted = f"({predicted})"
    return [
        row.name,
        row.kind,
        quantity,
        predicted,
        left(row),
        show(row.measured),
        judged(row),
        row.identified,
    ]


def verdicts_text(found: list[Family]) -> list[str]:
    """One line for each asynchronous row with a synchronous run beside it."""
    verdicts = [verdict for family in found for verdict in family.verdicts]
    lines = [
        [
            verdict.name,
            number(verdict.synchronous),
            f"{number(verdict.low)} - {number(verdict.high)}",
            number(verdict.measured),
            verdict.predicted,
            verdict.observed,
        ]
        for verdict in verdicts
    ]
    fixed = [verdict for verdict in verdicts if verdict.predicted != "open"]
    right = sum(verdict.predicted == verdict.observed for verdict in fixed)
    header = ["row", "synchronous", "inputs leave", "measured", "predicted", "observed"]
    return [
        "## Does asynchronous beat synchronous?",
        "",
        f"On as many GPUs, in seconds. The inputs fix the answer in {len(fixed)} of {len(verdicts)} rows, "
        f"and it is right in {right} of them.",
        "",
        *table(header, lines, range(1, 4)),
        "",
    ]


def family_text(family: Family) -> list[str]:
    text = [
        f"## {family.title}",
        "",
        f"{family.setting}. Model: {family.model}. Source: {family.source}.",
        "",
    ]
    if family.rows:
        header = [
            "row",
            "kind",
            "quantity",
            "predicted",
            "inputs leave",
            "measured",
            "error",
            "identified by",
        ]
        text += [*table(header, list(map(row_line, family.rows)), range(3, 7)), ""]
    if family.calibrated:
        lines = [
            [item.name, f"{number(item.value)} {item.unit}".rstrip(), item.source]
            for item in family.calibrated
        ]
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
    """One line per experiment; median and largest error are those of its predictions, shares left out."""
    lines = []
    for family in found:
        kinds = [row.kind for row in family.rows]
        predictions = [row for row in family.rows if row.kind == "prediction" and not row.is_share]
        errors = [row.error for row in predictions if row.error is not None]
        around = [row.holds for row in family.rows if row.holds is not None]
        lines.append(
            {
                "experiment": family.title,
                "predictions": len(predictions),
                "median_absolute_error": statistics.median(map(abs, errors)) if errors else None,
                "largest_error": max(errors, key=abs) if errors else None,
                "splits": kinds.count("split"),
                "ranges_and_bounds": len(around),
                "measured_inside": sum(around),
                "calibrated": len(family.calibrated),
                "not_predicted": len(family.left_out),
            }
        )
    return lines


def text(found: list[Family]) -> str:
    lines = [
        [
            item["experiment"],
            str(item["predictions"]),
            "-" if item["median_absolute_error"] is None else f"{item['median_absolute_error']:.1%}",
            "-" if item["largest_error"] is None else f"{item['largest_error']:+.1%}",
            str(item["splits"]),
            f"{item['measured_inside']} of {item['ranges_and_bounds']}" if item["ranges_and_bounds"] else "-",
            str(item["calibrated"]),
            str(item["not_predicted"]),
        ]
        for item in summary(found)
    ]
    header = [
        "experiment",
        "predictions",
        "median error",
        "largest error",
        "splits",
        "inside ranges and bounds",
        "calibrated numbers",
        "not predicted",
    ]
    return (
        "\n".join(
            [
                "# Predictions against published figures",
                "",
                f"Made by `{COMMAND}` from `benchmarks/fidelity/published.json`. No row is predicted from "
                "itself.",
                "",
                KINDS,
                "",
                *table(header, lines, range(1, 8)),
                "",
                *verdicts_text(found),
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
                "rows": [{**vars(row), "error": row.error, "inside": row.holds} for row in family.rows],
                "asynchronous_beats_synchronous": [
                    {**vars(verdict), "predicted": verdict.predicted, "observed": verdict.observed}
                    for verdict in family.verdicts
                ],
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
