"""Rules of compiled code that no result shows until it is too late: no fastmath, threads or random stream.

``fastmath`` compiles NaN checks away (numba/numba#2919), ``prange`` seeds one thread only (numba/numba#4452)
and does not survive a fork (numba/numba#7872). Parallelism is outside the kernels, over runs; random numbers
are arguments.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILED = sorted((ROOT / "kernels").rglob("*.py"))
FORBIDDEN = {"fastmath", "prange", "parallel"}


def broken_rules(source: str) -> list[str]:
    """Name the forbidden words that a source uses as name, attribute or keyword, and random streams."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            words = {node.id}
        elif isinstance(node, ast.Attribute):
            words = {node.attr}
            if node.attr == "random" and isinstance(node.value, ast.Name) and node.value.id == "np":
                found.append("np.random")
        elif isinstance(node, ast.keyword):
            words = {node.arg}
        elif isinstance(node, ast.alias):
            words = {node.name.rsplit(".", 1)[-1]}
        else:
            continue
        found.extend(sorted(words & FORBIDDEN))
    return found


def test_kernels_use_no_fastmath_no_threads_and_no_random_stream():
    assert len(COMPILED) > 40
    found = {path.relative_to(ROOT).as_posix(): broken_rules(path.read_text("utf-8")) for path in COMPILED}

    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("@jit(fastmath=True)\ndef f(x):\n    return x\n", ["fastmath"]),
        ("from numba import prange\n", ["prange"]),
        ("for i in numba.prange(3):\n    pass\n", ["prange"]),
        ("njit(parallel=True)(f)\n", ["parallel"]),
        ("np.random.seed(1)\n", ["np.random"]),
        ('"""No fastmath, no prange, no np.random."""\n', []),
    ],
)
def test_the_rules_see_what_they_forbid(source, words):
    assert broken_rules(source) == words
