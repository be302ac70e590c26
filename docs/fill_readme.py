"""Copy the published tables into README.md, between ``<!-- from FILE -->`` and ``<!-- end -->``.

``FILE#part-of-it`` takes what stands below that heading of second rank alone.

Run ``python docs/fill_readme.py`` after a table in ``results/published`` changed; ``--check`` only tells
whether README.md is current (exit code 1 if not).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"(<!-- from (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def below(text: str, part: str) -> str:
    """Return what stands below a heading of second rank, named as in a link to it."""
    for piece in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, content = piece.partition("\n")
        if re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-") == part:
            return content.strip()
    raise SystemExit(f"no heading {part!r} among the published tables")


def filled(text: str) -> str:
    """Return the README's text with every block as its file is now."""

    def block(match: re.Match[str]) -> str:
        name, _, part = match[2].partition("#")
        content = (ROOT / name).read_text(encoding="utf-8").rstrip()
        if part:
            content = below(content, part)
        if match[2].endswith(".txt"):
            content = f"```text\n{content}\n```"
        return f"{match[1]}\n{content}\n\n{match[3]}"

    return _BLOCK.sub(block, text)


def main() -> None:
    """Write or check."""
    text = README.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        current = filled(text) == text
        print("README.md is current" if current else "README.md is out of date")
        sys.exit(0 if current else 1)
    README.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
