"""Instructions of a rollout by kernel, by source function and by line: the page ``line-profile.md``.

Valgrind's callgrind counts every instruction at its address; the line tables of the kernels' object code
(:mod:`line_tables`) say which line an address comes from, also where a helper was inlined. Counts are exact
and do not depend on what else the machine does. They are no time: an instruction that waits for memory counts
as much as one that does not.

Prints the page, or writes it (``--output``). Where valgrind or readelf is missing it says "not measured".
"""

from __future__ import annotations

import argparse
import ast
import bisect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numba

from lagsweep import kernels

sys.path.insert(0, str(Path(__file__).parent))

from guard import child_environment
from line_tables import STRIDE, Code, read_code_map, read_line_table
from measuring import Section, table
from profiled_runs import MARK

NEEDED = ("valgrind", "readelf", "nm")
SCRIPT = Path(__file__).parent / "profiled_runs.py"
OURS, NUMBAS = Path(kernels.__file__).parent, Path(numba.__file__).parent
NO_LIBRARY = "???"
LIBM = "libm: logarithm, cosine, exponential"
LEAST_SHARE = 0.01  # of a rollout: functions with less are summed up
LINES = 15


@dataclass(frozen=True)
class Line:
    """A line of source, in the kernel in which it runs."""

    file: str
    number: int


@dataclass
class Profile:
    """Instructions of one run.

    Attributes
    ----------
    kernels : Counter of str
        By compiled function, and the mathematical library.
    lines : Counter of Line
        By line of source, of compiled functions alone.
    outside : int
        In the interpreter and in NumPy: what begins a run and calls the kernels.
    """

    kernels: Counter[str] = field(default_factory=Counter)
    lines: Counter[Line] = field(default_factory=Counter)
    outside: int = 0


def missing(which: Callable[[str], str | None] = shutil.which) -> list[str]:
    """Name the programs that are needed and not there."""
    return [name for name in NEEDED if which(name) is None]


def counted(lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """Read a dump of callgrind: (object file, address, instructions), callees left out.

    Examples
    --------
    >>> list(counted(["ob=a.so", "0x10 3", "calls=1 0x80", "0x13 500", "ob=???", "0x14 2"]))
    [('a.so', 16, 3), ('???', 20, 2)]
    """
    holder, of_callee = "", False
    for line in lines:
        if line.startswith("0x"):
            address, _, instructions = line.partition(" ")
            if not of_callee:
                yield holder, int(address, 16), int(instructions)
            of_callee = False
        elif line.startswith("calls="):
            of_callee = True  # the next line is what the callee needed in all
        elif line.startswith("ob="):
            holder = line[3:].strip()


class Attribution:
    """From addresses to functions and lines.

    Parameters
    ----------
    folder : Path
        With the code map, the object files and the list of files that the child wrote.
    """

    def __init__(self, folder: Path) -> None:
        self._codes = read_code_map(folder)
        self._begins = [code.begin for code in self._codes]
        self._files: list[str] = json.loads((folder / "files.json").read_text(encoding="utf-8"))
        self._tables = {
            name: read_line_table(folder / name) for name in {code.object_file for code in self._codes}
        }

    def code(self, address: int) -> Code | None:
        """Return the compiled function at an address."""
        place = bisect.bisect_right(self._begins, address) - 1
        return self._codes[place] if place >= 0 and address < self._codes[place].end else None

    def line(self, code: Code, address: int) -> Line:
        """Return the line from which an instruction comes."""
        rows = self._tables[code.object_file]
        place = bisect.bisect_right(rows, (address - code.origin, sys.maxsize)) - 1
        numbered = rows[place][1] if place >= 0 else 0
        return Line(self._files[numbered // STRIDE], numbered % STRIDE)

    def profile(self, dump: Path) -> Profile:
        """Sum up one dump."""
        found = Profile()
        with dump.open(encoding="utf-8", errors="replace") as lines:
            for holder, address, instructions in counted(lines):
                # Addresses in a library count from its beginning; compiled code belongs to none.
                code = self.code(address) if holder == NO_LIBRARY else None
                if code is not None:
                    found.kernels[code.name] += instructions
                    found.lines[self.line(code, address)] += instructions
                elif Path(holder).name.startswith("libm"):
                    found.kernels[LIBM] += instructions
                else:
                    found.outside += instructions
        return found


def profiles(folder: Path) -> dict[str, tuple[int, Profile]]:
    """Compile, count and sum up: rollouts and instructions by the name of the work.

    Raises
    ------
    RuntimeError
        If a process fails, or does not stop at its marks.
    """
    environment = child_environment(folder / "cache")
    command = [sys.executable, str(SCRIPT)]
    dumps = f"--callgrind-out-file={folder / 'dump'}"
    counter = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--dump-line=no", "--compress-pos=no"]
    counter += ["--compress-strings=no", f"--dump-before={MARK}", dumps]
    for step in ([*command, "compile"], [*counter, *command, "count"]):
        done = subprocess.run([*step, str(folder)], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
    rollouts: dict[str, int] = json.loads((folder / "rollouts.json").read_text(encoding="utf-8"))
    attribution = Attribution(folder)
    found = {}
    # The first dump ends at the first mark; each work has two marks, so every second dump is one work.
    for number, (name, count) in enumerate(rollouts.items()):
        dump = folder / f"dump.{2 * number + 2}"
        if not dump.exists():
            raise RuntimeError(f"callgrind wrote no {dump.name}: it did not stop at {MARK}")
        found[name] = count, attribution.profile(dump)
    return found


@cache
def _functions(file: str) -> tuple[list[str], list[tuple[int, int, str]]]:
    """Return a file's lines, and its functions as (first line, last line, name)."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError:
        return [], []
    places = [
        (node.lineno, node.end_lineno or node.lineno, node.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]
    return text.splitlines(), places


def place(file: str) -> str:
    """Name a file as the reader finds it: of our kernels, of Numba, or a remark."""
    for root, told in ((OURS, "kernels"), (NUMBAS, "numba")):
        if Path(file).is_relative_to(root):
            return f"{told}/{Path(file).relative_to(root).as_posix()}"
    return file


def function_of(line: Line) -> str:
    """Name the source function in which a line stands."""
    around = [one for one in _functions(line.file)[1] if one[0] <= line.number <= one[1]]
    inside = max(around, default=None)
    return f"`{inside[2]}` in {place(line.file)}" if inside else place(line.file)


def source_of(line: Line) -> str:
    """Return the text of a line, fit for a table."""
    lines, _ = _functions(line.file)
    text = lines[line.number - 1].strip() if 0 < line.number <= len(lines) else ""
    return f"`{re.sub(r'[|`]', ' ', text)[:90]}`" if text else "–"


def _rows(counts: Counter[str], rollouts: int, total: int) -> list[list[str]]:
    shown = [(name, count) for name, count in counts.most_common() if count >= LEAST_SHARE * total]
    rest = sum(counts.values()) - sum(count for _, count in shown)
    named = [*shown, ("all others", rest)] if rest else shown
    return [[name, f"{count / rollouts:,.1f}", f"{count / total:.1%}"] for name, count in named]


def section(name: str, rollouts: int, found: Profile) -> Section:
    """Write what one run showed."""
    total = sum(found.kernels.values())
    by_function: Counter[str] = Counter()
    for line, count in found.lines.items():
        by_function[function_of(line)] += count
    by_function[LIBM] += found.kernels[LIBM]
    head = ["instructions a rollout", "share"]
    dearest = [
        [f"{place(line.file)}:{line.number}", source_of(line), f"{count / rollouts:,.1f}"]
        for line, count in found.lines.most_common(LINES)
    ]
    text = [
        f"{total / rollouts:,.0f} instructions a rollout, {rollouts:,} rollouts. Beside them "
        f"{found.outside / 1e6:,.1f} million in Python and NumPy, which begin the run and call the kernels.",
        table(["kernel", *head], _rows(+found.kernels, rollouts, total)),
        table(["source function", *head], _rows(+by_function, rollouts, total)),
        table(["dearest lines", "source", "instructions a rollout"], dearest, words=2),
    ]
    return Section(name[0].upper() + name[1:], text)


def page(found: dict[str, tuple[int, Profile]]) -> str:
    """Write the whole page."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("lagsweep", "numba", "llvmlite"))
    head = [
        "# Where the instructions go",
        "",
        "Made by `make line-profile`. Valgrind counts every instruction of one run; line tables of the "
        "kernels' machine code, compiled for a generic processor, say from which line it comes, inlined "
        "helpers too. Rollouts were drawn before, as in a sweep, where it is not said otherwise. A rollout "
        "is one that completed. Counts are exact, but they are no time. `docs/performance.md` says what "
        "they mean.",
        "",
        f"Counted with {versions}.",
        "",
    ]
    return "\n".join([*head, *(section(name, *one).markdown() for name, one in found.items())])


def main() -> int:
    """Count, and print or write the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if absent := missing():
        print(f"not measured: {', '.join(absent)} not found on this machine")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        text = page(profiles(Path(folder)))
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
