"""docs/logs.md: its Python and its command print what stands there; its table is that of the shipped maps."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
from pathlib import Path

import pytest

from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.logs.canonical import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.S | re.M)
LEFT_OUT = "…"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("logs")
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
            exec(compile(block, "logs.md", "exec"), names)
        if after == "text":
            checked += 1
            assert printed.getvalue().splitlines() == shown.splitlines()

    assert checked == 2


def test_the_command_of_the_page_prints_what_stands_below_it(folder, capsys):
    ((command, _, shown),) = [
        block.replace("\\\n", " ").partition("\n") for kind, block in BLOCKS if kind == "console"
    ]
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command[2:])[1:])
    printed = capsys.readouterr().out.splitlines()
    place = 0
    for line in shown.splitlines():
        if line != LEFT_OUT:
            assert line in printed[place:], line
            place = printed.index(line, place) + 1

    assert ended.value.code == 0
    assert (folder / "engine.html").stat().st_size > 100_000
    assert "step_seconds = 0.0137" in (folder / "engine.toml").read_text()


def test_the_table_of_columns_is_that_of_the_shipped_maps():
    place = ROOT / "docs" / "make_log_columns.py"
    spec = importlib.util.spec_from_file_location("make_log_columns", place)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)

    assert made.written(PAGE) == PAGE
    assert made.table().count("### ") == 14
    assert "| `wait_seconds` | `timing_s/gen`" in made.table()
    assert all(f"| `{name}` |" in made.table() for name in COLUMNS)


def test_every_kind_of_finding_has_its_words_on_the_page():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sweeps" / "logs").glob("*.py"))
    kinds = set(re.findall(r'LogFinding\(\s*"(\w+)"', sources)) - {
        "not_used",
        "ranks",
        "cut",
        "missing",
        "gap",
    }
    table = PAGE.partition("| kind |")[2].partition("\n\n")[0]

    assert len(kinds) > 20
    assert {kind for kind in kinds if f"`{kind}`" not in table} == set()
