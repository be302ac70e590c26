"""``docs/guarantees.md`` names a test for every promise, and each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import lagsweep.sweeps

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "guarantees.md"


def _tests():
    found = set()
    for file in TESTS.rglob("test_*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return found


def test_every_test_named_in_the_guarantees_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))

    assert len(named) > 30
    assert named - _tests() == set()


def test_every_promise_names_its_test():
    text = PAGE.read_text(encoding="utf-8")
    lines = re.split(r"\n(?=- |\| \d|\n)", text.partition("## Exit codes")[2])
    promises = [line for line in lines if line.strip().startswith(("- ", "| 0", "| 1", "| 2", "| 3"))]

    assert len(promises) > 20
    assert [line for line in promises if "`test_" not in line] == []


def test_no_file_is_ever_unpickled():
    root = Path(lagsweep.sweeps.__path__[0])
    readers = set()
    for file in [*root.rglob("*.py"), *(root.parent / "kernels").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = (node.value.id, node.attr)
                if called in {("pickle", "load"), ("pickle", "loads"), ("np", "load"), ("numpy", "load")}:
                    readers.add(file.name)
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                readers.add(file.name)

    # Compiled kernels are kept as Numba keeps them, in a folder of the user's own, each file with a digest.
    # Rules of the user's own go to processes that this one has started.
    assert readers == {"_jit.py", "processes.py"}
