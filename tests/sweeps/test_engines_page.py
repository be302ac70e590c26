"""docs/engines.md: its Python and its commands print what stands there; its table is the published one."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from lagsweep.sweeps.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.S | re.M)
LEFT_OUT = "…"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("engines")
    (found / "tests").symlink_to(ROOT / "tests")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        yield found


def test_the_python_of_the_page_prints_what_stands_below_it(folder):
    names: dict = {}
    checked = 0
    for (kind, block), (after, shown) in zip(BLOCKS, [*BLOCKS[1:], ("", "")]):
        if kind != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "engines.md", "exec"), names)
        if after == "text":
            checked += 1
            assert printed.getvalue().splitlines() == shown.splitlines()

    assert checked >= 3


def test_the_commands_of_the_page_print_what_stands_below_them(folder, capsys):
    calls = [block.replace("\\\n", " ").partition("\n") for kind, block in BLOCKS if kind == "console"]
    for command, _, shown in calls:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command[2:])[1:])
        printed = capsys.readouterr().out.splitlines()
        assert ended.value.code == 0
        place = 0
        for line in shown.splitlines():
            if line != LEFT_OUT:
                assert line in printed[place:], line
                place = printed.index(line, place) + 1

    assert len(calls) == 2
    assert (folder / "engine.html").stat().st_size > 100_000


def test_the_table_of_the_page_is_the_published_one():
    published = (ROOT / "results" / "published" / "engine-fit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:\*\*|without|simulator).*$", PAGE, re.M)

    assert len(rows) == 12
    assert all(row in published for row in rows)


def test_what_the_page_says_of_the_case_is_so(folder):
    """Five times as long with context; no faster, and more prefilled again, from 64 at once on."""
    texts = [text for kind, text in BLOCKS if kind == "text"]
    seconds = [float(line.split(" s ")[0].split()[-1].replace(",", "")) for line in texts[0].splitlines()]
    speeds = [float(part) for part in re.findall(r"(\d+) tokens/s", texts[1])]
    preempted = [int(part.replace(",", "")) for part in re.findall(r"([\d,]+) preempted", texts[1])]

    assert 5 < seconds[1] / seconds[0] < 6
    assert preempted[:3] == [0, 0, 0]
    assert all(count > 0 for count in preempted[3:])
    assert max(speeds[3:]) / min(speeds[3:]) < 1.05
    under_way = [float(part) for part in re.findall(r"([\d,]+) s under way", texts[1])]
    assert 1.5 < (under_way[-1] - under_way[2]) / 300 < 1.7
    assert round(speeds[-1] / speeds[2], 2) == 1.06
