"""A real model measured on this machine: lags, resumes, two processes, and a prediction of their loop.

Prints the lab's tenth section in Markdown, or writes it (``--output``). Needs the extra ``model``. Seconds
depend on the machine and on what else it does; of CPU they do much less.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from lagsweep.sweeps.lab.model import Section, Table
from lagsweep.sweeps.lab.real_model import real_model_section
from lagsweep.sweeps.real_model.needs import require_packages
from lagsweep.sweeps.real_model.workloads import MODELS, SMOLLM2, model_choice


def markdown_table(table: Table) -> list[str]:
    """Return a table of the lab as lines of Markdown."""
    sides = ["---:" if column.is_number(table.rows) else "---" for column in table.columns]
    rows = [[column.heading for column in table.columns], sides, *table.texts()]
    return ["", f"**{table.title}**", "", *(f"| {' | '.join(row)} |" for row in rows)]


def page(section: Section, command: str, load: tuple[float, float], seconds: float) -> str:
    """Return the published page."""
    lines = [
        "# A real model, measured",
        "",
        f"`{command}` on {os.cpu_count()} x86-64 cores without a GPU: {seconds:.0f} s in all. Load of the "
        f"machine: {load[0]:.1f} before and {load[1]:.1f} after; this takes 1 to 2 of it, the rest is other "
        "work that makes seconds longer. What the parts mean: [the lab](../../docs/lab.md#a-real-model).",
    ]
    for paragraph in section.paragraphs:
        lines += ["", paragraph]
    for table in section.tables:
        lines += markdown_table(table)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=SMOLLM2, help=f"{', '.join(MODELS)}, or OWNER/NAME@COMMIT")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    choice = model_choice(options.model)
    require_packages(choice)
    before, started = os.getloadavg()[0], time.monotonic()
    section = real_model_section(choice, lambda part: print(f"{part} ...", file=sys.stderr))
    command = (
        "make real-model"
        if choice.name == SMOLLM2
        else f"python benchmarks/real_model.py --model {options.model}"
    )
    text = page(section, command, (before, os.getloadavg()[0]), time.monotonic() - started)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
