"""docs/planning.md: its commands and its Python print what stands there, its tables are the code's."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from lagsweep import load_accelerator, load_network
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.memory.models import load_model
from lagsweep.sweeps.plan.inputs import colocated_inputs, engine_inputs, trainer_inputs
from lagsweep.sweeps.plan.text import value

PAGE = (Path(__file__).parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
LEFT_OUT = "…"
COMMANDS = re.findall(r"^```console\n\$ (.*?[^\\])\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TOML = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=["first", "measured", "no"])
def test_a_command_of_the_page_prints_what_stands_there(command, shown, capsys):
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command.replace("\\\n", " "))[1:])
    printed = capsys.readouterr().out.splitlines()

    assert ended.value.code == ("No: none of the" in shown)
    position, gap = 0, False
    for line in shown.splitlines():
        if line == LEFT_OUT:
            gap = True
            continue
        if gap:
            assert line in printed[position:], f"gone from the output: {line}"
            position = printed.index(line, position)
        assert printed[position] == line
        position, gap = position + 1, False
    assert gap or not "".join(printed[position:]).strip()


def test_the_python_of_the_page_prints_what_stands_there():
    source, shown = re.search(r"^```python\n(.*?)^```$\n\n```text\n(.*?)^```$", PAGE, re.S | re.M).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "planning.md", "exec"), {})

    assert printed.getvalue() == shown


def test_the_table_of_inputs_is_the_codes():
    shape, network = load_model("Qwen3-32B").shape, load_network("across-nodes")
    inputs = [*engine_inputs(shape), *trainer_inputs(shape, load_accelerator("H100"), network)]
    for one in [*inputs, *colocated_inputs()]:
        row = f"| `{one.name}` | {value(one, one.value)} | {value(one, one.low)} to {value(one, one.high)} |"
        assert row in PAGE


def test_the_files_of_the_page_are_read(tmp_path):
    (tmp_path / "mine.toml").write_text(TOML[0])
    (tmp_path / "ours.toml").write_text(TOML[1])

    assert load_accelerator("mine.toml").has_fast_links
    assert load_network("ours.toml").high == 20e9
