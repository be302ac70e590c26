"""The profile by line: how counts are read and given to lines, and that the published page adds up."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "speed"
PAGE = ROOT / "results" / "published" / "line-profile.md"
LEAN = ROOT / "kernels" / "pipeline" / "lean.py"


@pytest.fixture
def attributed(speed, tmp_path, monkeypatch):
    """One kernel of 16 bytes at 1,000; its first half comes from line 3 of a file, the rest from line 5."""
    profile = speed("line_profile")
    code = {"name": "a.kernel", "begin": 1000, "end": 1016, "origin": 1000, "object_file": "kernel-0.o"}
    (tmp_path / "code.json").write_text(json.dumps([code]))
    (tmp_path / "files.json").write_text(json.dumps(["entry", "source.py"]))
    stride = profile.STRIDE
    monkeypatch.setattr(profile, "read_line_table", lambda path: [(0, stride + 3), (8, stride + 5)])
    return profile.Attribution(tmp_path)


def test_every_instruction_goes_to_its_line(speed, attributed, tmp_path):
    profile = speed("line_profile")
    dump = tmp_path / "dump"
    dump.write_text(
        "ob=???\nfn=x\n0x3e8 4\n0x3ef 1\ncalls=9 0x3f0 \n0x3ef 700\n0x3f0 2\n0x3f8 3\n"
        "ob=/lib/libm.so.6\n0x3e8 7\nob=/lib/libpython.so\n0x3e8 11\n"
    )
    found = attributed.profile(dump)

    assert found.lines == Counter({profile.Line("source.py", 3): 5, profile.Line("source.py", 5): 2})
    assert found.kernels == Counter({"a.kernel": 7, profile.LIBM: 7})
    # Beyond the kernel's end, and in a library at an address that a kernel has too.
    assert found.outside == 3 + 11


def test_parts_of_a_long_loop_are_told_apart_by_their_headings(speed):
    profile = speed("line_profile")
    lines = LEAN.read_text().splitlines()
    number = 1 + next(place for place, text in enumerate(lines) if "# --- a rollout completes ---" in text)
    inside, before = (profile.function_of(profile.Line(str(LEAN), number + step)) for step in (1, -1))

    assert inside == "`_advance_lean_kernel` in kernels/pipeline/lean.py: a rollout completes"
    assert profile.part_of(inside) == "end of a rollout"
    assert profile.part_of(before) != "end of a rollout"
    assert profile.part_of("numba/cpython/builtins.py") == profile.ELSE


def test_a_table_of_parts_keeps_the_sum_and_tells_what_it_was(speed):
    profile = speed("line_profile")
    lines = Counter({profile.Line(str(LEAN), 1): 600, profile.Line("elsewhere.py", 1): 400})
    now = {"work": (10, profile.Profile(Counter({"a": 1000}), lines))}
    older = {"work": (10, profile.Profile(Counter({"a": 2500})))}
    rows = profile.parts_table(now, older, "abc").splitlines()

    assert "| in all | 100 |" in rows
    assert "| in all at commit abc | 250 |" in rows
    assert rows[-1] == "| that, over now | 2.50 |"


def test_a_mangled_name_is_read(speed):
    name = speed("line_tables").short_name

    assert name("_ZN8lagsweep7kernels8pipeline4lean20_advance_lean_kernelB2v1") == (
        "pipeline.lean._advance_lean_kernel"
    )
    assert (
        name("_ZN7cpython8lagsweep7kernels8pipeline4lean4stepB2") == "call from Python of pipeline.lean.step"
    )
    assert name("NRT_incref") == "NRT_incref"


def test_without_the_programs_nothing_is_measured(speed, monkeypatch, capsys, tmp_path):
    profile = speed("line_profile")
    output = tmp_path / "page.md"
    monkeypatch.setattr(profile, "missing", lambda: profile.NEEDED)
    monkeypatch.setattr(sys, "argv", ["line_profile.py", "--output", str(output)])

    assert profile.main() == 0
    assert capsys.readouterr().out.startswith("not measured: valgrind, readelf, nm")
    assert not output.exists()


def test_what_is_missing_is_named(speed):
    assert speed("line_profile").missing(lambda name: None if name == "readelf" else name) == ["readelf"]


def test_the_published_page_adds_up(speed):
    """Kernels and source functions are two ways to cut one sum."""
    works = PAGE.read_text(encoding="utf-8").split("\n## ")[2:]

    assert len(works) == 6
    for work in works:
        total = float(re.search(r"([\d,]+) instructions a rollout", work)[1].replace(",", ""))
        for head in ("kernel", "source function"):
            (table,) = re.findall(rf"^\| {head} \|.*\n\|.*\n((?:\|.*\n)+)", work, re.M)
            shown = [float(row.split(" | ")[-2].replace(",", "")) for row in table.splitlines()]
            assert sum(shown) == pytest.approx(total, abs=1.6)


def test_the_page_of_two_commits_tells_ratios_of_rounds(speed):
    page = speed("beside_commit")
    before = [{page.BASE: 40.0, "areal": 200.0}, {page.BASE: 80.0, "areal": 400.0}]
    now = [{page.BASE: 40.0, "areal": 100.0, "new": 1.0}, {page.BASE: 40.0, "areal": 100.0, "new": 1.0}]
    rows = page.page("abc", before, now, "load").splitlines()

    assert (
        "| areal | 300.0 (200.0…400.0) | 100.0 (100.0…100.0) | 3.00 (2.00…4.00) | 2.50 (2.50…2.50) |" in rows
    )
    assert not any(row.startswith("| new") for row in rows)
