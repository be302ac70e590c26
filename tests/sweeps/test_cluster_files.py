"""docs/clusters.md and examples/clusters: as far as a machine without a cluster can try them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from oracle.small_sweeps import tree

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "examples" / "clusters"
PAGE = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
SPEC = "seeds = 4\n[base]\nduration_seconds = 60\n[axes]\nmax_lag = [0, 1, 2]\n"
SBATCH = """#!/bin/bash
echo "$*" >> "$CALLS"
case "$*" in
*--array=*)
    last=${!#}
    for task in 1 2 3;
        do SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=3 bash "$last" > log || exit 1; done
    echo "77;main" ;;
*) bash -c "${!#}" > log ;;
esac
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    Path("my.toml").write_text(SPEC)
    return tmp_path


def shell(*words):
    done = subprocess.run(["bash", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(name):
    """The shell text in the files that are no scripts of their own."""
    return (FILES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("file", sorted(FILES.glob("*.sh")), ids=lambda file: file.name)
def test_a_script_has_the_syntax_of_the_shell(file):
    shell("-n", str(file))


def test_the_page_names_every_file():
    assert all(f"`{file.name}`" in PAGE for file in FILES.iterdir())


@pytest.mark.slow
@pytest.mark.jit_only
def test_the_array_as_local_processes_as_slurm_would_and_as_pods_would_gives_one_store(here):
    shell("-euc", "lagsweep run my.toml --store alone --quiet")
    shell(str(FILES / "local-array.sh"), "my.toml", "local", "3")
    assert tree("local") == tree("alone")
    Path("sbatch").write_text(SBATCH)
    Path("sbatch").chmod(0o755)
    shell(str(FILES / "submit-slurm.sh"), "my.toml", "slurm", "3")
    assert tree("slurm") == tree("alone")
    assert "--dependency=afterok:77 " in Path("calls").read_text()
    line = " ".join(re.search(r">-\n(.*?)\n +resources", commands("kubernetes-job.yaml"), re.S)[1].split())
    line = line.replace("/shared/", "").replace("results/mine", "pods").replace("/16", "/2")
    for index in (0, 1):
        shell("-euc", f"JOB_COMPLETION_INDEX={index}; {line}")
    words = re.search(r"command: \[(.*)\]", commands("kubernetes-merge.yaml"))[1].replace('"', "").split(", ")
    shell("-euc", " ".join(words).replace("/shared/results/mine", "pods"))
    assert tree("pods") == tree("alone")
