"""docs/calibrate.md: its commands and its Python print what stands there."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from lagsweep.sweeps.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "calibrate.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.S | re.M)
LEFT_OUT = "…"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", COMMANDS, ids=["calibrate", "whatif"])
def test_a_command_of_the_page_prints_what_stands_below_it(block, folder, capsys):
    command, _, shown = block.replace("\\\n", " ").partition("\n")
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command[2:])[1:])
    printed, place = capsys.readouterr().out.splitlines(), 0

    assert ended.value.code == 0
    assert len(shown.splitlines()) > 10
    for line in shown.splitlines():
        if line != LEFT_OUT:
            assert line in printed[place:], line
            place = printed.index(line, place) + 1


def test_the_python_of_the_page_runs(folder):
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "calibrate.md", "exec"), {})

    assert re.match(r"step: measured 42\.1 s, predicted 4[12]\.\d s\n", printed.getvalue())
    assert "as_it_is" in printed.getvalue()
