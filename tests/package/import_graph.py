"""The imports between modules and rooms of a checkout: circles, floors, arrows that point up.

``python tests/package/import_graph.py [CHECKOUT]`` prints them. Imports inside functions count: a circle that
is put off until a call is a circle. Imports for type checkers alone (``if TYPE_CHECKING:``) do not run, and
may name what lies above.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]

# From the ground up; what stands on one line may not import each other. Files between the rooms have lines
# of their own.
FLOORS = (
    ("kernels.errors", "kernels._jit", "kernels._lazy"),
    ("kernels._arguments",),
    ("kernels.intervals",),
    ("kernels.draws", "kernels.engine", "kernels.memory", "kernels.selection"),
    ("kernels.pipeline", "kernels.staleness", "kernels.overlap", "kernels.sync", "kernels.recovery"),
    ("kernels.contract", "kernels.masks", "kernels.admission_rules"),
    ("kernels",),
    ("sweeps.files", "sweeps.json_text", "sweeps.user_files"),
    ("sweeps.frame_files", "sweeps.checks"),
    ("sweeps.memory", "sweeps.records"),
    ("sweeps.laws",),
    ("sweeps.config",),
    ("sweeps.presets", "sweeps.runs"),
    ("sweeps.custom", "sweeps.gate"),
    ("sweeps.testing",),
    ("sweeps.trace", "sweeps.checkpoint", "sweeps.spec"),
    ("sweeps.execute",),
    ("sweeps.results",),
    ("sweeps.store", "sweeps.charts", "sweeps.recommend"),
    ("sweeps.sweep",),
    ("sweeps.compare", "sweeps.lab", "sweeps.engines", "sweeps.search"),
    ("sweeps.logs", "sweeps.plan"),
    ("sweeps.calibrate",),
    ("sweeps.pages",),
    ("sweeps",),
    ("public",),
    ("sweeps.cli",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def modules(root: Path) -> dict[str, Path]:
    """Return every module of the package by its place on disk, the facade as ``public``."""
    found = {}
    for top in ("kernels", "sweeps"):
        for path in sorted((root / top).rglob("*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            if parts[:2] == ["sweeps", "public"]:
                parts = parts[1:]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


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


def _named(module: str, path: Path, node: ast.ImportFrom) -> list[list[str]] | None:
    """Return what an import names, as parts below the package, then where it looks; None if not ours."""
    if node.level:
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        package = [] if module.startswith("public") else package
        base = package[: len(package) - node.level + 1]
        base += node.module.split(".") if node.module else []
    elif (node.module or "").split(".")[0] == "lagsweep":
        base = node.module.split(".")[1:] if node.module else []
    else:
        return None
    return [[*base, alias.name] for alias in node.names] + [base]


def imports_of(module: str, known: dict[str, Path]) -> set[str]:
    """Return the modules of the package that a module imports; ``nothing:x`` where there is none such."""
    path, found = known[module], set()
    for node in _runs(ast.parse(path.read_text("utf-8"))):
        named = _named(module, path, node) if isinstance(node, ast.ImportFrom) else None
        if named is None:
            continue
        *inner, base = [".".join(parts) for parts in named]
        for name in inner:
            candidates = [name, base, f"public.{name}", f"public.{base}", *([] if base else ["public"])]
            found.add(next((one for one in candidates if one in known), f"nothing:{name}"))
    return found - {module}


@cache
def graph(root: Path = HERE) -> dict[str, set[str]]:
    """Return module -> modules that it imports."""
    known = modules(root)
    return {module: imports_of(module, known) for module in known}


def between_rooms(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return room -> rooms that it imports."""
    arrows: dict[str, set[str]] = {room_of(module): set() for module in imports}
    for module, others in imports.items():
        arrows[room_of(module)] |= {room_of(other) for other in others} - {room_of(module)}
    return arrows


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


def floors(arrows: dict[str, set[str]]) -> dict[str, int]:
    """Return the floor of each: one above the highest that it imports; a circle has one floor."""
    together = {name: tuple(circle) for circle in circles(arrows) for name in circle}

    @cache
    def floor(members: tuple[str, ...]) -> int:
        below = {together.get(other, (other,)) for name in members for other in arrows.get(name, ())}
        return 1 + max((floor(other) for other in below if other != members), default=-1)

    return {name: floor(together.get(name, (name,))) for name in arrows}


def pointing_up(imports: dict[str, set[str]]) -> list[str]:
    """Return the imports that point at their own floor or above it."""
    return [
        f"{module} -> {other}"
        for module, others in imports.items()
        for other in sorted(others)
        if room_of(module) != room_of(other) and FLOOR_OF[room_of(other)] >= FLOOR_OF[room_of(module)]
    ]


def main(root: Path) -> None:
    """Print what there is."""
    imports = graph(root)
    rooms = between_rooms(imports)
    for name, arrows in (("modules", imports), ("rooms", rooms)):
        found = circles(arrows)
        height = max(floors(arrows).values()) + 1
        count = sum(map(len, arrows.values()))
        print(f"{name}: {len(arrows)}, arrows {count}, floors {height}, circles {len(found)}")
        for circle in found:
            print(f"  circle: {', '.join(circle)}")
    known = all(room in FLOOR_OF for room in rooms)
    print(f"arrows up: {pointing_up(imports) if known else 'the rooms have no floors here'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE)
