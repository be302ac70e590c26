"""The rooms: no import points up, and no circle exists, between rooms or inside one.

Imports inside functions count: a circle that is put off until a call is a circle. Imports for type checkers
alone (``if TYPE_CHECKING:``) do not run, and may name what lies above.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# From the ground up; what stands on one line may not import each other. Files between the rooms have lines
# of their own.
FLOORS = (
    ("kernels.errors", "kernels._jit", "kernels._lazy"),
    ("kernels._arguments",),
    ("kernels.draws", "kernels.memory"),
    ("kernels.pipeline", "kernels.staleness", "kernels.overlap", "kernels.sync", "kernels.recovery"),
    ("kernels.contract", "kernels.masks", "kernels.admission_rules"),
    ("kernels",),
    ("sweeps.files",),
    ("sweeps.frame_files",),
    ("sweeps.laws", "sweeps.memory", "sweeps.records"),
    ("sweeps.config",),
    ("sweeps.presets", "sweeps.runs"),
    ("sweeps.trace", "sweeps.checkpoint", "sweeps.spec"),
    ("sweeps.execute",),
    ("sweeps.results",),
    ("sweeps.store", "sweeps.charts", "sweeps.recommend"),
    ("sweeps.sweep",),
    ("sweeps.compare",),
    ("sweeps.pages",),
    ("sweeps.lab",),
    ("sweeps",),
    ("public",),
    ("sweeps.cli",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def modules() -> dict[str, Path]:
    """Return every module of the package by its place on disk, the facade as ``public``."""
    found = {}
    for top in ("kernels", "sweeps"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            if parts[:2] == ["sweeps", "public"]:
                parts = parts[1:]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def room_of(module: str) -> str:
    """Return the room that a module lies in."""
    parts = module.split(".")
    return parts[0] if parts[0] == "public" else ".".join(parts[:2])


def _runs(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what can run: everything but the blocks for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _runs(node)


def imports_of(module: str, path: Path) -> set[str]:
    """Return the modules of the package that a module imports, anywhere in it."""
    if module.startswith("public"):  # installed as the package itself
        package: list[str] = []
    else:
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found = set()
    for node in _runs(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = package[: len(package) - node.level + 1]
        elif (node.module or "").split(".")[0] == "lagsweep":
            base = []
        else:
            continue
        named = (node.module or "").split(".") if node.module else []
        base = [*base, *(named if node.level else named[1:])]
        for alias in node.names:
            names = [".".join([*base, alias.name]), ".".join(base)]
            names += [f"public.{name}" for name in names if module.startswith("public")]
            found.add(next((name for name in names if name in MODULES), f"nothing:{names[1]}"))
    return found - {module}


IMPORTS = {module: imports_of(module, path) for module, path in MODULES.items()}


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return every set of two or more that reach each other (Tarjan, SIAM J. Comput. 1, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            place = stack.index(node)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for node in arrows:
        if node not in index:
            visit(node)
    return found


def test_every_module_lies_in_a_room_with_a_floor():
    assert {room_of(module) for module in MODULES} - set(FLOOR_OF) == set()
    assert len(MODULES) > 150


def test_every_import_inside_the_package_leads_somewhere():
    """Also the ones in functions, which nothing else may have called."""
    lost = [f"{module} -> {other}" for module in IMPORTS for other in IMPORTS[module] if ":" in other]

    assert lost == []


def test_no_import_points_up():
    up = [
        f"{module} -> {other}"
        for module, others in IMPORTS.items()
        for other in others
        if room_of(module) != room_of(other) and FLOOR_OF[room_of(other)] >= FLOOR_OF[room_of(module)]
    ]

    assert up == []


def test_no_circle_of_modules_exists():
    assert circles(IMPORTS) == []


def test_imports_inside_the_package_are_relative():
    absolute = [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("lagsweep")
    ]

    assert absolute == []


@pytest.mark.parametrize(
    ("arrows", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, [["a", "b", "c"]]),
        ({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c", "a"}}, [["a", "b"], ["c", "d"]]),
    ],
)
def test_the_search_finds_circles(arrows, found):
    assert sorted(circles(arrows)) == found
