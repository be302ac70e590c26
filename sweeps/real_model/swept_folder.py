"""A temporary folder that is removed however its maker ends, ``kill -9`` included.

A small process holds one end of a pipe whose other end only the maker has: when the maker is gone, by itself
or not, the pipe ends, and the folder is removed. It is tried again for a while, since processes that write
into the folder may take a moment to see the same.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_SWEEP = """
import shutil, signal, sys, time
from pathlib import Path
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
sys.stdin.buffer.read()
folder = Path(sys.argv[1])
for _ in range(250):
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        break
    time.sleep(0.02)
"""


@contextlib.contextmanager
def swept_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder that does not outlive this block or this process.

    Parameters
    ----------
    prefix : str
        Of its name.

    Yields
    ------
    Path

    Examples
    --------
    >>> with swept_folder("example-") as folder:
    ...     _ = (folder / "file").write_text("text")
    >>> folder.exists()
    False
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    sweeper = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SWEEP, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        assert sweeper.stdin is not None
        sweeper.stdin.close()
        sweeper.wait()
