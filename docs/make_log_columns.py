"""Write the table of docs/logs.md from the shipped maps: which column of which framework is read as what.

Run ``python docs/make_log_columns.py``; ``--check`` only tells whether it is current (exit code 1 if not).
"""

from __future__ import annotations

import sys
from pathlib import Path

from lagsweep.sweeps.logs.canonical import COLUMNS
from lagsweep.sweeps.logs.frameworks import Framework, shipped_frameworks

PAGE = Path(__file__).with_name("logs.md")
BEGIN, END = "<!-- columns -->\n", "<!-- end -->\n"


def _rows(one: Framework) -> list[str]:
    rows = [f"### {one.title}", "", f"From {one.origin}. `framework={one.name!r}`.", ""]
    rows += ["| column | read from | what to know |", "| --- | --- | --- |"]
    for name in COLUMNS:
        if name not in one.columns:
            continue
        ways = ", else ".join(f"`{way}`" for way in one.columns[name])
        rows.append(f"| `{name}` | {ways} | {one.notes.get(name, '')} |")
    for name, words in one.unused.items():
        rows.append(f"| not read | `{name}` | {words} |")
    return [*rows, ""]


def table() -> str:
    """Return the part of the page between its marks."""
    known = [one for one in shipped_frameworks().values() if one.name != "lagsweep"]
    return "\n" + "\n".join(line for one in known for line in _rows(one))


def written(page: str) -> str:
    """Return the page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


def main() -> int:
    """Write the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return 0 if written(page) == page else 1
    PAGE.write_text(written(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
