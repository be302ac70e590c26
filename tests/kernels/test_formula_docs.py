"""The examples in the documentation of the closed formulas are run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "overlap-sync-checkpoints.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_pages_examples_give_what_they_show(number):
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    parser = doctest.DocTestParser()
    # A block may use what the blocks before it imported.
    for block in BLOCKS[: number + 1]:
        test = parser.get_doctest(block, names, PAGE.name, str(PAGE), 0)
        outcome = runner.run(test, clear_globs=False)
        names = test.globs

    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_the_page_has_examples():
    assert len(BLOCKS) == 4
