"""What may import what, and what a light import must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lagsweep

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("kernels", "sweeps", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
)
HEAVY = ("numba", "xarray", "polars", "scipy", "hypothesis", "pytest")


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


def test_the_sources_are_found():
    assert ROOT / "kernels" / "pipeline" / "lean.py" in SOURCES


def test_no_file_imports_the_rooms_as_top_level_packages():
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in _imported(path)
        if name.split(".")[0] in {"kernels", "sweeps"}
    ]

    assert wrong == []


def test_kernels_never_import_sweeps():
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "kernels").rglob("*.py")
        for name in _imported(path)
        if name.startswith("lagsweep.sweeps")
    ]

    assert wrong == []


# Machine code is kept in a folder that the environment may name; masks are made by ranges of rows on a few
# threads, with the same result on any number of them.
ALLOWED = {
    *(("_jit.py", name) for name in ("os", "sys", "pathlib", "tempfile")),
    ("completion.py", "concurrent.futures"),
}


def test_kernels_touch_no_world_and_start_no_threads():
    world = {
        "os",
        "sys",
        "pathlib",
        "io",
        "time",
        "datetime",
        "random",
        "subprocess",
        "threading",
        "concurrent",
        "tempfile",
    }
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "kernels").rglob("*.py")
        for name in _imported(path)
        if name.split(".")[0] in world and (path.name, name) not in ALLOWED
    ]

    assert wrong == []


_CLI = "from lagsweep.sweeps.cli import main\ntry:\n    main({arguments!r})\nexcept SystemExit:\n    pass"


@pytest.mark.parametrize(
    "code",
    [
        "import lagsweep",
        "import lagsweep.kernels, lagsweep.sweeps",
        _CLI.format(arguments=["--help"]),
        _CLI.format(arguments=["run", "--help"]),
        _CLI.format(arguments=["simulate", "--help"]),
    ],
)
def test_a_light_import_loads_nothing_heavy(code):
    check = f"{code}\nimport sys\nprint('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"

    outcome = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)

    assert outcome.stdout.splitlines()[-1] == "LOADED []"


def test_every_public_name_can_be_had():
    for name in lagsweep.__all__:
        assert getattr(lagsweep, name) is not None


def test_an_unknown_name_says_so():
    with pytest.raises(AttributeError, match="module 'lagsweep' has no attribute 'nonsense'"):
        _ = lagsweep.nonsense


def test_a_command_never_imports_a_command():
    commands = [
        path
        for path in (ROOT / "sweeps" / "cli").rglob("*.py")
        if path.stem.endswith("_command") or path.parent.name == "ledger"
    ]
    wrong = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in commands
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("command")
    ]

    assert len(commands) > 10
    assert wrong == []
