"""Copy the published tables into README.md, between ``<!-- from FILE -->`` and ``<!-- end -->``.

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


def filled(text: str) -> str:
    """Return the README's text with every block as its file is now."""

    def block(match: re.Match[str]) -> str:
        content = (ROOT / match[2]).read_text(encoding="utf-8").rstrip()
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
