"""Two processes, a generator and a trainer, that live and end together.

Each is a Python of its own that calls one function with a job and its end of the channel. They are told apart
from whoever starts them: Ctrl-C reaches the starter alone, which ends both. If the starter itself is killed,
both see the end of a pipe that only it holds, and end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ...kernels.errors import StoreError
from .channel import Channel, PeerGoneError

SIDES = ("generator", "trainer")
PEER_GONE = 75  # exit code of a side that ended since the other one had
STARTER_GONE = 76
_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.02
_SHOWN = 600  # characters of what a side wrote before it ended


@dataclass(frozen=True)
class Job:
    """What the two sides do.

    Attributes
    ----------
    bodies : mapping of side to text
        ``module:function`` of each side; called with the settings and a channel. What the trainer's returns
        is the result.
    settings : mapping
        Plain data for both.
    folder : Path
        Where they work; of this job alone.
    seconds : float
        After so long both are ended.
    """

    bodies: Mapping[str, str]
    settings: Mapping[str, Any]
    folder: Path
    seconds: float


def run_pair(job: Job) -> Any:
    """Start both sides and wait for what the trainer returns.

    Parameters
    ----------
    job : Job

    Returns
    -------
    object
        Plain data, as the trainer's function returned it.

    Raises
    ------
    StoreError
        If a side ends early or both take too long; both are ended by then.
    """
    ends = socket.socketpair()
    lifeline, kept = os.pipe()
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for side, end in zip(SIDES, ends):
            running[side] = _start(side, job, end.fileno(), lifeline)
        # Ends that stay open here would hide from one side that the other is gone.
        for end in ends:
            end.close()
        os.close(lifeline)
        lifeline = -1
        _wait(job, running)
        return json.loads((job.folder / "result.json").read_text("utf-8"))
    finally:
        for end in ends:
            end.close()
        if lifeline >= 0:
            os.close(lifeline)
        _end(running)
        os.close(kept)


def _start(side: str, job: Job, end: int, lifeline: int) -> subprocess.Popen[bytes]:
    facts = {
        "body": job.bodies[side],
        "side": side,
        "settings": dict(job.settings),
        "folder": str(job.folder),
        "channel": end,
        "lifeline": lifeline,
    }
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with open(job.folder / f"{side}.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import side_main; side_main()", json.dumps(facts)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=job.folder,
            env=environment,
            pass_fds=(end, lifeline),
            start_new_session=True,
        )


def _wait(job: Job, running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Wait until both sides are done; raise as soon as one ends otherwise."""
    limit = time.monotonic() + job.seconds
    while True:
        codes = {side: process.poll() for side, process in running.items()}
        if all(code == 0 for code in codes.values()):
            return
        if any(codes.values()):
            # The one that ended since the other had is not to blame: give that one time to be seen.
            time.sleep(10 * _LOOK_SECONDS)
            codes = {side: process.poll() for side, process in running.items()}
            raise _failed(job, codes)
        if time.monotonic() > limit:
            way_out = "Run it on a machine that has two free cores, or with --model tiny-qwen3."
            raise StoreError("the two processes", f"must end within {job.seconds:g} s", "both run", way_out)
        time.sleep(_LOOK_SECONDS)


def _failed(job: Job, codes: Mapping[str, int | None]) -> StoreError:
    failed = {side: code for side, code in codes.items() if code}
    side = next((one for one, code in failed.items() if code != PEER_GONE), next(iter(failed)))
    code = failed[side]
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    with contextlib.suppress(OSError):
        told = (job.folder / f"{side}.log").read_bytes()[-_SHOWN:].decode("utf-8", "replace").strip()
        last = told.splitlines()[-1] if told else ""
        how += f": {last}" if last else ""
    way_out = "Look at what ended it (memory?) and run the command again; nothing is kept of it."
    return StoreError(f"the {side}", "must run until the trainer is done", how, way_out)


def _end(running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """End both sides for good: asked first, then killed."""
    for process in running.values():
        if process.poll() is None:
            process.terminate()
    limit = time.monotonic() + _GRACE_SECONDS
    for process in running.values():
        try:
            process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def side_main() -> None:
    """Be one side: what the command line of a started Python calls."""
    facts = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    threading.Thread(target=_watch, args=(facts["lifeline"],), daemon=True).start()
    channel = Channel(facts["channel"])
    module, name = facts["body"].split(":")
    try:
        result = getattr(import_module(module), name)(facts["settings"], channel)
    except PeerGoneError:
        os._exit(PEER_GONE)
    if facts["side"] == "trainer":
        target = Path(facts["folder"]) / "result.json"
        temporary = target.with_suffix(".tmp")
        temporary.write_text(json.dumps(result), "utf-8")
        os.replace(temporary, target)
    channel.close()


def _watch(lifeline: int) -> None:
    """End this side when the starter is gone: nobody else would."""
    while os.read(lifeline, 1):
        pass
    os._exit(STARTER_GONE)
