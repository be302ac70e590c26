"""The one rule for texts of users that are shown: in charts, pages and tables of text.

A name or a label may hold anything. A line separator ends a string in Vega's expressions and empties the
charts of a page; a control letter moves a terminal's cursor; a sign of direction turns the text after it
around; a text of thousands of letters makes a page as wide. Letters of any script, right to left too, stay
as they are. A trace is data and no text: its JSON has every letter outside ASCII escaped.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Any

MOST_LETTERS = 80
# Control letters, signs of format and direction, halves of pairs, and separators of lines and paragraphs.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT = "\u200c\u200d"  # joiners, which scripts and emoji are written with


def shown_text(text: str, most: int | None = MOST_LETTERS, *, lines: bool = False) -> str:
    r"""Write a text as it can be shown anywhere.

    Parameters
    ----------
    text : str
    most : int, optional
        Longer ones are cut, and end with four digits of a digest, so that two of one beginning stay two.
    lines : bool
        Keep line feeds.

    Examples
    --------
    >>> shown_text("a\u2028b\tc\u202ed"), shown_text("שלום")
    ('a<U+2028>b c<U+202E>d', 'שלום')
    >>> shown_text("x" * 5000, 16), len(shown_text("x" * 5000))
    ('xxxxxxxxxx…#c59d', 80)
    """
    if text.isascii() and text.isprintable():
        found = text
    else:
        found = "".join(
            letter if (lines and letter == "\n") or letter in _KEPT else _seen(letter) for letter in text
        )
    if most is None or len(found) <= most:
        return found
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{found[: most - 6]}…#{digest[:4]}"


def _seen(letter: str) -> str:
    if letter in "\t\n\r":
        return " "
    return f"<U+{ord(letter):04X}>" if unicodedata.category(letter) in _UNSEEN else letter


def shown_everywhere(value: Any, most: int | None = MOST_LETTERS) -> Any:
    """Apply the rule to every text of plain data; keys are ours.

    Examples
    --------
    >>> shown_everywhere({"label": ["a\u2028", 3]})
    {'label': ['a<U+2028>', 3]}
    """
    if isinstance(value, str):
        return shown_text(value, most)
    if isinstance(value, dict):
        return {
            name: shown_everywhere(part, None if name in _EXPRESSIONS else most)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [shown_everywhere(part, most) for part in value]
    return value


# Of a chart's specification: what is no text but an expression, which cannot be cut.
_EXPRESSIONS = frozenset(
    {"expr", "labelExpr", "calculate", "test", "filter", "update", "description", "$schema"}
)
