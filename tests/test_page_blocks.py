"""Every fenced block of the README and of every page in docs/ runs, or says why it does not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from oracle.page_blocks import blocks_of, run_code, run_commands, run_toml, run_transcript
from oracle.page_inputs import INPUTS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Pages whose blocks another test runs, and holds to more than that they run.
ELSEWHERE = {
    "custom.md": "tests/test_custom_page.py",
    "engines.md": "tests/sweeps/test_engines_page.py",
    "planning.md": "tests/sweeps/test_planning_page.py",
    "overlap-sync-checkpoints.md": "tests/kernels/test_formula_docs.py",
    "questions.md": "tests/sweeps/test_questions.py",
    "reading-results-in-python.md": "tests/test_reading_results.py",
}
COMMANDS_ELSEWHERE = {"presets.md": "tests/sweeps/test_questions.py"}
NOT_RUN = 9  # blocks in all: one more is a decision
SLOW = {"README.md", "choosing-settings.md", "lab.md", "report-and-recommend.md", "sweeps.md"}


def to_run(page):
    return [block for block in blocks_of(page) if block.role not in ("not run", "output")]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.name in SLOW))
        for page in PAGES
        if page.name not in ELSEWHERE and to_run(page)
    ],
    ids=lambda page: page.name,
)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    names: dict = {"__name__": "page"}
    if page.name in INPUTS:
        INPUTS[page.name](names)
    capfd.readouterr()
    blocks = blocks_of(page)
    for block, after in zip(blocks, [*blocks[1:], None]):
        if block.role in ("not run", "output"):
            continue
        if block.role == "code":
            run_code(block, names, after)
        elif block.role == "transcript":
            run_transcript(block, names)
        elif block.role == "commands" and page.name in COMMANDS_ELSEWHERE:
            continue
        elif block.role == "commands":
            assert run_commands(block, capfd.readouterr) > 0
        elif block.role == "toml":
            assert run_toml(block, tmp_path) > 0
        else:
            raise AssertionError(
                f"{block.page}:{block.line}: of no kind; name it python, console, toml or text"
            )


def test_what_is_not_run_says_why_and_is_counted():
    left_out = [block for page in PAGES for block in blocks_of(page) if block.role == "not run"]

    assert all(len(block.words.split()) >= 3 for block in left_out)
    assert len(left_out) == NOT_RUN


def test_no_fence_is_missed():
    for page in PAGES:
        fences = [
            line for line in page.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith("```")
        ]
        assert len(fences) == 2 * len(blocks_of(page)), page.name


@pytest.mark.parametrize(("page", "test"), [*ELSEWHERE.items(), *COMMANDS_ELSEWHERE.items()])
def test_a_page_that_is_run_elsewhere_is(page, test):
    assert f'"{page}"' in (ROOT / test).read_text(encoding="utf-8")


class TestTheRunnerItself:
    """That a false block does not pass."""

    def block(self, tmp_path, text):
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        return blocks_of(page)[0]

    def test_a_line_that_is_not_printed(self, tmp_path, capfd):
        block = self.block(tmp_path, "```console\n$ lagsweep presets areal\nareal: something else\n```\n")

        with pytest.raises(AssertionError, match=r"page.md:1: not printed: 'areal: something else'"):
            run_commands(block, capfd.readouterr)

    def test_a_command_that_fails(self, tmp_path, capfd):
        block = self.block(tmp_path, "\n```console\n$ lagsweep presets nothing\n```\n")

        with pytest.raises(AssertionError, match=r"page.md:2: exit code 2"):
            run_commands(block, capfd.readouterr)

    def test_a_transcript_with_another_answer(self, tmp_path):
        block = self.block(tmp_path, "```text\n>>> 1 + 1\n3\n```\n")

        with pytest.raises(AssertionError, match="Expected"):
            run_transcript(block, {})

    def test_printed_lines_that_are_not_those_shown(self, tmp_path):
        page = tmp_path / "page.md"
        page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n", encoding="utf-8")

        with pytest.raises(AssertionError, match=r"page.md:5: not printed: '2'"):
            run_code(blocks_of(page)[0], {}, blocks_of(page)[1])

    def test_a_table_that_trains_nothing(self, tmp_path):
        block = self.block(tmp_path, "```toml\n[base]\nduration_seconds = 10\n```\n")

        with pytest.raises(AssertionError, match="some cells train nothing"):
            run_toml(block, tmp_path)

    def test_a_fence_without_a_kind(self, tmp_path):
        assert self.block(tmp_path, "```\nwhat is this\n```\n").role == "unknown"


class TestTheIndex:
    INDEX = ROOT / "docs" / "README.md"

    def lines(self):
        return re.findall(
            r"^- \[[^\]]+\]\(([\w-]+\.md)\): (.+)$", self.INDEX.read_text(encoding="utf-8"), re.M
        )

    def test_every_page_is_there_once(self):
        listed = [page for page, _ in self.lines()]

        assert sorted(listed) == sorted(
            page.name for page in PAGES if page.parent.name == "docs" and page != self.INDEX
        )

    def test_each_has_one_line_that_says_what_it_is(self):
        text = self.INDEX.read_text(encoding="utf-8")

        assert all(20 < len(words) < 130 for _, words in self.lines())
        assert text.count("\n- ") == len(self.lines())
        assert "(docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_notebook_opens_with_the_extra_that_the_page_names():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    page = (ROOT / "docs" / "students.md").read_text(encoding="utf-8")

    assert any(need.startswith("jupyterlab") for need in extras["jupyter"])
    assert "'.[jupyter]'" in page
    assert (ROOT / "examples" / "lab.ipynb").is_file()
    # One question for each section of the course.
    assert re.findall(r"^## (\d+)\. .+", page, re.M) == [str(number) for number in range(1, 11)]
