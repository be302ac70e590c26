"""docs/search.md: commands print what stands there, the Python runs, the figures are the published ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from oracle.every_command import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
PUBLISHED = (ROOT / "results" / "published" / "search-runs.md").read_text(encoding="utf-8")
LEFT_OUT = "…"


@pytest.mark.parametrize("block", re.findall(r"^```console\n(.*?)^```$", PAGE, re.S | re.M))
def test_a_command_of_the_page_prints_what_stands_below_it(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    command, _, shown = block.replace("\\\n", " ").partition("\n")
    answer = run([*shlex.split(command[2:])[1:], "-q"])
    printed = answer.out.decode().splitlines()

    assert answer.code == 0
    assert len(shown.splitlines()) >= 3
    place = 0
    for line in shown.splitlines():
        if line != LEFT_OUT:
            assert line in printed[place:], line
            place = printed.index(line, place) + 1


def test_the_python_of_the_page_runs():
    names: dict = {}
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(block, "search.md", "exec"), names)

    assert names["found"].decided
    assert names["found"].config.max_policy_lag == names["found"].settings["max_lag"]


def test_the_figures_of_the_page_are_the_published_ones():
    grid, search = (
        int(re.search(rf"\| {what}[^|]*\| ([\d,]+) \|", PUBLISHED).group(1).replace(",", ""))
        for what in ("full grid", "search")
    )
    runs = [int(number.replace(",", "")) for number in re.findall(r"= ([\d,]+) \(\d+ h\)", PUBLISHED)]
    spent = [int(number.replace(",", "")) for number in re.findall(r"\| ([\d,]+) \(\d+ s\) \|", PUBLISHED)]

    assert "about a seventieth" in PAGE
    assert 63 < grid / search < 77
    assert "4.7\nmillion" in PAGE
    assert runs == [4_687_500] * 2
    assert "about 5,000" in PAGE
    assert all(4_500 < number < 5_500 for number in spent)
