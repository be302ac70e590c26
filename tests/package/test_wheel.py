"""The wheel, installed in another environment outside the checkout, has everything and runs the main job."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE_FOLDERS = {"kernels": "lagsweep/kernels", "sweeps": "lagsweep/sweeps"}
SPEC = """
name = "small"
seeds = 4
[base]
duration_seconds = 60
rollout_workers = 4
[axes]
queue_cap = [3000, 7000]
max_lag = [1, 2]
sync_cadence = [1, 2]
"""


def test_every_module_and_data_file_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = set()
    for folder, target in PACKAGE_FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            relative = path.relative_to(ROOT / folder)
            if path.is_file() and "__pycache__" not in path.parts and relative.parts[0] != "public":
                expected.add(f"{target}/{relative.as_posix()}")
    expected |= {f"lagsweep/{path.name}" for path in (ROOT / "sweeps" / "public").iterdir() if path.is_file()}

    assert sorted(expected - names) == []


def test_the_wheel_says_where_its_data_come_from(wheel):
    names = zipfile.ZipFile(wheel).namelist()

    assert "lagsweep/sweeps/laws/shipped_laws/SOURCES.md" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_no_top_level_name_is_taken_but_our_own(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"lagsweep"}


def test_the_main_job_runs_from_the_wheel(elsewhere, tmp_path):
    (tmp_path / "small.toml").write_text(SPEC)
    where = subprocess.run(
        [elsewhere / "bin" / "python", "-c", "import lagsweep.kernels; print(lagsweep.kernels.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(elsewhere) in where.stdout

    outcome = subprocess.run(
        [elsewhere / "bin" / "lagsweep", "run", "small.toml", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout)
    assert list((tmp_path / "results").glob("small-*/cells.zarr"))
    assert not [path for path in elsewhere.rglob("*.nbi") if "lagsweep" in path.parts]
