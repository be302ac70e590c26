"""The cache of compiled kernels: right, outside site-packages, and nobody else's business."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lagsweep
import lagsweep.kernels

CALLER = """
from lagsweep.kernels._jit import jit
from lagsweep.kernels.callee import leaf


@jit
def call(x):
    return leaf(x) + 1
"""
CALLEE = """
from lagsweep.kernels._jit import jit


@jit
def leaf(x):
    return x * {factor}
"""


@pytest.fixture
def copied_package(tmp_path):
    """Copy the facade and an almost empty ``kernels`` into a folder of their own, as ``lagsweep``."""
    root = tmp_path / "site"
    shutil.copytree(Path(lagsweep.__file__).parent, root / "lagsweep")
    kernels = root / "lagsweep" / "kernels"
    kernels.mkdir()
    for name in ("__init__.py", "__init__.pyi", "_lazy.py", "_jit.py", "errors.py"):
        shutil.copy(Path(lagsweep.kernels.__file__).parent / name, kernels / name)
    (kernels / "caller.py").write_text(CALLER)
    (kernels / "callee.py").write_text(CALLEE.format(factor=10))
    return root


def _run(root: Path, cache: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(root), "LAGSWEEP_CACHE_DIR": str(cache)} | environment
    env.pop("NUMBA_DISABLE_JIT", None)
    return subprocess.run(
        [sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True, cwd=root
    )


CALL = "from lagsweep.kernels.caller import call; print(call(4))"
HITS = CALL + "; print(sum(call.stats.cache_hits.values()))"


def test_a_second_process_finds_the_code_of_the_first(copied_package, tmp_path):
    first = _run(copied_package, tmp_path / "cache", HITS)
    second = _run(copied_package, tmp_path / "cache", HITS)

    assert first.stdout.split() == ["41", "0"]
    assert second.stdout.split() == ["41", "1"]


def test_code_is_kept_from_the_first_call_on_and_in_other_processes(copied_package, tmp_path):
    code = (
        "from lagsweep.kernels._jit import code_is_kept\nfrom lagsweep.kernels.caller import call\n"
        "before = code_is_kept(call); call(4); print(before, code_is_kept(call))"
    )
    first = _run(copied_package, tmp_path / "cache", code)
    second = _run(copied_package, tmp_path / "cache", code)
    flagged = _run(copied_package, tmp_path / "cache", code, NUMBA_OPT="1")

    assert first.stdout.split() == ["False", "True"]
    assert second.stdout.split() == ["True", "True"]
    assert flagged.stdout.split() == ["False", "True"]


def test_code_is_never_kept_without_a_cache(copied_package, tmp_path):
    blocker = tmp_path / "a-file"
    blocker.write_text("")
    code = (
        "from lagsweep.kernels._jit import code_is_kept\nfrom lagsweep.kernels.caller import call\n"
        "call(4); print(code_is_kept(call))"
    )

    assert _run(copied_package, blocker / "cache", code).stdout.split() == ["False"]


@pytest.mark.slow
def test_what_a_run_compiles_is_kept_and_found_by_the_next_process(tmp_path):
    code = """
import numpy as np
from lagsweep import PipelineConfig
from lagsweep.kernels.pipeline.general_cells import run_general_cells_kernel
from lagsweep.kernels.pipeline.lean_cells import run_cells_kernel
from lagsweep.sweeps.execute.compiling import kernels_are_kept
from lagsweep.sweeps.runs.many import simulate_batch

for config in (PipelineConfig(duration_seconds=5), PipelineConfig(duration_seconds=5, group_size=2)):
    before = kernels_are_kept(config.is_level_1)
    simulate_batch([config], np.zeros(1, np.uint64))
    print(before, kernels_are_kept(config.is_level_1))
hits = [sum(kernel.stats.cache_hits.values()) for kernel in (run_cells_kernel, run_general_cells_kernel)]
print(*hits)
"""
    first, second = (_run(tmp_path, tmp_path / "cache", code).stdout.split() for _ in range(2))

    assert first == ["False", "True", "False", "True", "0", "0"]
    assert second == ["True", "True", "True", "True", "1", "1"]


def test_an_edit_in_another_file_of_kernels_is_seen(copied_package, tmp_path):
    _run(copied_package, tmp_path / "cache", CALL)
    callee = copied_package / "lagsweep" / "kernels" / "callee.py"
    stamp = callee.stat()
    callee.write_text(CALLEE.format(factor=20))
    os.utime(callee, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    after = _run(copied_package, tmp_path / "cache", CALL)

    assert after.stdout.split() == ["81"]


@pytest.mark.parametrize(("flag", "value"), [("NUMBA_BOUNDSCHECK", "1"), ("NUMBA_OPT", "1")])
def test_compile_flags_are_part_of_the_key(copied_package, tmp_path, flag, value):
    _run(copied_package, tmp_path / "cache", HITS)

    flagged = _run(copied_package, tmp_path / "cache", HITS, **{flag: value})

    assert flagged.stdout.split() == ["41", "0"]
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_warm_unchecked_cache_does_not_hide_an_out_of_bounds_read(tmp_path, copied_package):
    kernels = copied_package / "lagsweep" / "kernels"
    (kernels / "reader.py").write_text(
        "from lagsweep.kernels._jit import jit\n\n\n@jit\ndef read(a, i):\n    return a[i]\n"
    )
    warm = "import numpy as np; from lagsweep.kernels.reader import read; print(read(np.arange(4), 3))"
    canary = (
        "import numpy as np; from lagsweep.kernels.reader import read\n"
        "try:\n    read(np.arange(4), 7); print('read')\nexcept IndexError:\n    print('refused')"
    )
    _run(copied_package, tmp_path / "cache", warm, NUMBA_BOUNDSCHECK="0")

    checked = _run(copied_package, tmp_path / "cache", canary, NUMBA_BOUNDSCHECK="1")

    assert checked.stdout.split() == ["refused"]


def test_nothing_is_written_beside_the_package(copied_package, tmp_path):
    _run(copied_package, tmp_path / "cache", CALL)

    assert not [path for path in copied_package.rglob("*") if path.suffix in {".nbi", ".nbc"}]
    assert list((tmp_path / "cache").rglob("*.nbi"))


def test_the_users_own_numba_caches_stay_where_they_are(copied_package, tmp_path):
    user = tmp_path / "user"
    user.mkdir()
    (user / "mine.py").write_text(
        "import numba\n\n\n@numba.njit(cache=True)\ndef mine(x):\n    return x + 1\n"
    )
    code = f"import sys; sys.path.insert(0, {str(user)!r}); {CALL}; from mine import mine; print(mine(1))"

    _run(copied_package, tmp_path / "cache", code)

    assert list((user / "__pycache__").glob("mine.mine-*.nbi"))
    assert not list((tmp_path / "cache").rglob("mine*"))


def test_an_unwritable_folder_means_no_cache_and_one_warning(copied_package, tmp_path):
    blocker = tmp_path / "a-file"
    blocker.write_text("")

    outcome = _run(copied_package, blocker / "cache", CALL)

    assert outcome.stdout.split() == ["41"]
    assert outcome.stderr.count("RuntimeWarning") == 1
    assert "LAGSWEEP_CACHE_DIR: compiled kernels cannot be kept" in outcome.stderr


def _damage(cache: Path, suffix: str, change) -> None:
    for path in cache.rglob(f"*{suffix}"):
        path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("suffix", [".nbc", ".nbi"])
@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[:40],
    ],
)
def test_a_file_that_was_cut_or_altered_is_compiled_again_with_one_note(
    copied_package, tmp_path, suffix, change
):
    cache = tmp_path / "cache"
    _run(copied_package, cache, CALL)
    _damage(cache, suffix, change)

    outcome = _run(copied_package, cache, HITS)
    again = _run(copied_package, cache, HITS)

    assert outcome.stdout.split() == ["41", "0"]
    assert outcome.stderr.count("RuntimeWarning") == 1
    assert "were cut or altered and are compiled again" in outcome.stderr
    assert (again.stdout.split(), again.stderr) == (["41", "1"], "")


def test_a_file_that_is_gone_is_compiled_again(copied_package, tmp_path):
    _run(copied_package, tmp_path / "cache", CALL)
    for path in (tmp_path / "cache").rglob("*.nbc"):
        path.unlink()

    outcome = _run(copied_package, tmp_path / "cache", HITS)

    assert (outcome.stdout.split(), outcome.stderr) == (["41", "0"], "")


def test_a_full_cache_folder_means_no_cache_and_one_note(copied_package, tmp_path):
    full = (
        "import errno\nfrom numba.core import caching\n"
        "def dump(self, data):\n    raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "caching.IndexDataCacheFile._dump = dump\n"
    )

    outcome = _run(copied_package, tmp_path / "cache", full + CALL)

    assert outcome.stdout.split() == ["41"]
    assert outcome.stderr.count("RuntimeWarning") == 1
    assert "cannot be kept" in outcome.stderr
    assert "No space left on device" in outcome.stderr


def test_two_rooms_may_hold_files_and_functions_of_one_name(copied_package, tmp_path):
    kernels = copied_package / "lagsweep" / "kernels"
    for room, factor in (("left", 2), ("right", 3)):
        (kernels / room).mkdir()
        (kernels / room / "__init__.py").write_text("")
        (kernels / room / "callee.py").write_text(CALLEE.format(factor=factor))
    code = (
        "from lagsweep.kernels.left.callee import leaf as left\n"
        "from lagsweep.kernels.right.callee import leaf as right\n"
        "print(left(1), right(1), sum(left.stats.cache_hits.values()) + sum(right.stats.cache_hits.values()))"
    )
    _run(copied_package, tmp_path / "cache", code)

    again = _run(copied_package, tmp_path / "cache", code)

    assert again.stdout.split() == ["2", "3", "2"]
