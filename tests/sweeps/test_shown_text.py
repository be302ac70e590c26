"""The rule for texts that are shown: nothing in a label moves a cursor, ends a string or grows a page."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.sweeps.results.numbers import number
from lagsweep.sweeps.results.shown import MOST_LETTERS, shown_everywhere, shown_text
from lagsweep.sweeps.results.text import grid


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain-1.2", "plain-1.2"),
        ("a\u2028b", "a<U+2028>b"),
        ("a\u2029b", "a<U+2029>b"),
        ("a\x1b[31mb", "a<U+001B>[31mb"),
        ("a\x00b\x7fc\x85d", "a<U+0000>b<U+007F>c<U+0085>d"),
        ("a\u202eb\u2066c\ufeff", "a<U+202E>b<U+2066>c<U+FEFF>"),
        ("\ud800", "<U+D800>"),
        ("a\tb\nc\rd", "a b c d"),
        ("שלום مرحبا 漢字 é 👩\u200d💻", "שלום مرحبا 漢字 é 👩\u200d💻"),
        ("", ""),
    ],
)
def test_letters_of_every_script_stay_and_what_is_no_letter_is_named(text, shown):
    assert shown_text(text) == shown


@given(st.text(max_size=300))
def test_what_is_shown_is_short_and_of_one_line(text):
    shown = shown_text(text)

    assert len(shown) <= MOST_LETTERS
    unseen = {letter for letter in shown if unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"}}
    assert unseen == set()
    assert shown_text(shown) == shown


def test_long_texts_of_one_beginning_stay_two():
    longest, longer, other = "x" * MOST_LETTERS, "x" * (MOST_LETTERS + 1), "x" * 5000

    assert shown_text(longest) == longest
    assert len({shown_text(longest), shown_text(longer), shown_text(other)}) == 3
    assert shown_text(other, None) == other


def test_expressions_and_descriptions_of_a_chart_are_not_cut_and_its_labels_are():
    long = "y" * 200
    shown = shown_everywhere({"labelExpr": long, "description": long + "\u2028", "sort": [long, 3, None]})

    assert shown["labelExpr"] == long
    assert shown["description"] == long + "<U+2028>"
    assert [len(shown["sort"][0]), *shown["sort"][1:]] == [MOST_LETTERS, 3, None]


def test_tables_of_text_go_by_the_rule():
    table = grid(["axis"], [[number("a\x1b[2Jb")], [number("z" * 5000)], ["two\nlines"]], left=[0])

    assert "\x1b" not in table
    assert "two\nlines" in table
    assert max(map(len, table.split("\n"))) == MOST_LETTERS
