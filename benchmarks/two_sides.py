"""One measurement by this package and by that of an older commit, in processes that alternate.

A script that measures prints JSON when it is run with ``--measure``; each side runs it in processes of its
own, so that what else the machine does falls on both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "speed"))

Found = dict[str, Any]
Page = Callable[[str, Sequence[Found], Sequence[Found], str], str]


def run_sides(script: str, about: str, measure: Callable[[], Found], page: Page, rounds: int) -> None:
    """Be the command of a script: measure this package, or both sides, and print the page or write it.

    Parameters
    ----------
    script : str
        The file to run for one side.
    about : str
    measure : callable
        Gives what the package that is imported here takes, by name.
    page : callable
        Makes a page of the commit, its rounds, ours, and a line on the machine.
    rounds : int
        How many, if the user does not say.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--before", metavar="COMMIT", help="the commit beside which this one is measured")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--measure", action="store_true", help="measure this package alone and print JSON")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return
    if not options.before:
        parser.error("--before: name the commit beside which this one is measured")
    from big_results import package_of
    from page import facts

    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old = package_of(options.before, folder)
        before: list[Found] = []
        now: list[Found] = []
        for number in range(options.rounds + 1):
            for side in (before, now) if number % 2 else (now, before):
                package = old if side is before else None
                cache = folder / ("cache-before" if side is before else "cache-now")
                side.append(_of(script, package, cache))
    told = f"Measured on {facts()}. Load of the machine before {load:.1f}, after {os.getloadavg()[0]:.1f}."
    text = page(options.before, before[1:], now[1:], told)  # the first round compiles
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)


def _of(script: str, package: Path | None, cache: Path) -> Found:
    environment = dict(os.environ) | {"LAGSWEEP_CACHE_DIR": str(cache)}
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    command = [sys.executable, script, "--measure"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: Found = json.loads(done.stdout)
    return found
