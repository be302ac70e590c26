"""Every command on the pages about presets and about users' questions still prints what stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.presets.registry import preset_config, preset_lag_bound

DOCS = Path(__file__).parents[2] / "docs"
LEFT_OUT = "…"


def blocks(page):
    """Return each command of a page with the lines shown below it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        command, _, shown = block.replace("\\\n", " ").partition("\n")
        assert command.startswith("$ lagsweep ")
        yield shlex.split(command[2:])[1:], shown.splitlines()


QUESTIONS = list(blocks("questions.md"))
PRESETS = list(blocks("presets.md"))


@pytest.mark.parametrize(
    ("arguments", "shown"), [*QUESTIONS, *PRESETS], ids=lambda value: " ".join(map(str, value))[:50]
)
def test_a_command_of_the_page_prints_what_stands_there(arguments, shown, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr().out.splitlines()

    assert ended.value.code == 0
    position, gap = 0, False
    for line in shown:
        if line == LEFT_OUT:
            gap = True
            continue
        if gap:
            assert line in printed[position:], f"gone from the output: {line}"
            position = printed.index(line, position)
        assert printed[position] == line
        position, gap = position + 1, False
    assert gap or not "".join(printed[position:]).strip()


def test_each_of_the_eight_questions_has_one_command():
    text = (DOCS / "questions.md").read_text(encoding="utf-8")

    assert text.count("\n## ") == len(QUESTIONS) == 8
    # The last answer is shown whole.
    assert [LEFT_OUT in shown for _, shown in QUESTIONS] == [True] * 7 + [False]


def test_the_answers_say_what_the_tables_show():
    """The sentences that name numbers, against the shown lines."""
    lines = {" ".join(arguments): shown for arguments, shown in QUESTIONS}
    everything = "\n".join(line for shown in lines.values() for line in shown)

    # On-policy settings have every rollout at lag 0.
    on_policy = QUESTIONS[0][1]
    assert sum(" 100%    0%" in line for line in on_policy) == 5
    # Twelve batches are as fast as six, and twice as old.
    assert re.search(r"open_instruct 4 +86\.6 .*\n.*open_instruct 5 +87\.9", everything)
    # Half a publication is 0.5, 1.5, 3.5, 7.5 versions.
    cadence = [
        line.split() for line in QUESTIONS[6][1] if re.match(r"verl_fully_async \d +\d\.\d\d +0\.5", line)
    ]
    assert [round(float(cells[2]), 1) for cells in cadence] == [0.5, 1.5, 3.5, 7.5]


def test_the_python_of_the_page_gives_what_its_comment_says():
    config = preset_config("verl_fully_async", staleness_threshold=0.5, batch_groups=32, rollout_workers=512)

    assert config.limits[0].groups == 192
    assert preset_lag_bound("verl_fully_async", {"staleness_threshold": 0.5}) == 5
