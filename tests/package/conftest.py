"""The wheel, built once, and an environment of its own outside the checkout that has it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IGNORED = shutil.ignore_patterns(
    ".git", ".venv*", ".types", ".mypy_cache", "*.egg-info", "__pycache__", ".hypothesis"
)


def _left_behind(folder, names):
    """Leave runs and builds behind; a room of the package may be called ``results``."""
    own = {"results", "build", "dist"} if Path(folder) == ROOT else set()
    return IGNORED(folder, names) | (own & set(names))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    source = tmp_path_factory.mktemp("source") / "lagsweep"
    shutil.copytree(ROOT, source, ignore=_left_behind)
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)],
        check=True,
        capture_output=True,
    )
    (built,) = out.glob("lagsweep-*.whl")
    return built


@pytest.fixture(scope="session")
def elsewhere(wheel, tmp_path_factory):
    """An environment of its own with the wheel; dependencies come from this one by a path line.

    A path line does not run the other environment's ``.pth`` files, so no editable install shines through.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True
    )
    (site,) = (folder / "lib").glob("python*/site-packages")
    places = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "dependencies.pth").write_text("\n".join(places) + "\n")
    return folder
