"""The rooms: no import points up, and no circle exists, between rooms or inside one."""

from __future__ import annotations

import ast

import pytest
from package.import_graph import FLOOR_OF, HERE, circles, floors, graph, modules, pointing_up, room_of

MODULES = modules(HERE)
IMPORTS = graph()


def test_every_module_lies_in_a_room_with_a_floor():
    assert {room_of(module) for module in MODULES} - set(FLOOR_OF) == set()
    assert len(MODULES) > 150


def test_every_import_inside_the_package_leads_somewhere():
    """Also the ones in functions, which nothing else may have called."""
    lost = [f"{module} -> {other}" for module in IMPORTS for other in IMPORTS[module] if ":" in other]

    assert lost == []


def test_no_import_points_up():
    assert pointing_up(IMPORTS) == []


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


def test_a_circle_has_one_floor_and_its_users_the_next():
    assert floors({"a": {"b"}, "b": {"a", "c"}, "c": set(), "d": {"a"}}) == {"a": 1, "b": 1, "c": 0, "d": 2}
