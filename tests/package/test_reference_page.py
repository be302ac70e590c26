"""The reference page is what the code says, README.md what was published, and links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lagsweep

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("script", ["make_reference.py", "fill_readme.py"])
def test_what_is_made_from_the_code_and_the_published_tables_is_current(script):
    outcome = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [
        target
        for target in targets
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]

    assert missing == []


def _public_paths() -> set[str]:
    """Every dotted name that a user may write: rooms, names of the front door, names of kernels by topic."""
    paths = {"lagsweep", "lagsweep.sweeps", "lagsweep.kernels"}
    paths |= {f"lagsweep.{name}" for name in lagsweep.__all__}
    paths |= {f"lagsweep.errors.{name}" for name in lagsweep.errors.__all__}
    paths |= {f"lagsweep.custom.{name}" for name in lagsweep.custom.__all__}
    paths |= {f"lagsweep.testing.{name}" for name in lagsweep.testing.__all__}
    for name in lagsweep.kernels.__all__:
        paths.add(f"lagsweep.kernels.{name}")
        for inner in getattr(getattr(lagsweep.kernels, name), "__all__", ()):
            paths.add(f"lagsweep.kernels.{name}.{inner}")
    return paths


def _paths_on(text: str) -> set[str]:
    imports = {
        f"{module}.{name}"
        for module, names in re.findall(r"from (lagsweep[\w.]*) import (\([^)]*\)|.*)", text)
        for name in re.findall(r"\w+", re.sub(r" as \w+", "", names))
    }
    named = {found.rstrip(".") for found in re.findall(r"(?<![\w/.-])lagsweep(?:\.[A-Za-z_]\w*)+", text)}
    short = {f"lagsweep.{name}" for name in re.findall(r"\bls\.([A-Za-z_]\w*)", text)}
    return imports | named | short


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_nothing_but_the_front_door(page):
    assert _paths_on(page.read_text(encoding="utf-8")) - _public_paths() == set()


def test_an_internal_path_on_a_page_is_seen():
    text = "from lagsweep.sweeps.store.store import read_table\n`lagsweep.sweeps.spec` and `ls.nonsense`"

    assert _paths_on(text) - _public_paths() == {
        "lagsweep.sweeps.store.store.read_table",
        "lagsweep.sweeps.store.store",
        "lagsweep.sweeps.spec",
        "lagsweep.nonsense",
    }
