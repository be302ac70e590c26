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

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from big_results import package_of
from guard import child_environment
from line_tables import STRIDE, Code, read_code_map, read_line_table
from measuring import Section, table
from profiled_runs import MARK

NEEDED = ("valgrind", "readelf", "nm")
SCRIPT = Path(__file__).parent / "profiled_runs.py"
OURS, NUMBAS = Path(kernels.__file__).parent, Path(numba.__file__).parent
NO_LIBRARY = "???"
LIBM = "libm, exponentials and logarithms"
LEAST_SHARE = 0.01  # of a rollout: what has less is summed up
LINES = 15
HEADING = re.compile(r"\s*# --- (.+?) -+$")  # of a part of a long loop
# Parts of a rollout's way, each with what finds it among the names that `function_of` gives: the first holds.
PARTS = (
    (
        "event tree: next event, keys of events",
        r"`set_key|`event_key|`shifted_key|`rebuild_tree|`_note_keys|: the next (moment|event|end)",
    ),
    ("histograms of lags and lengths", r"`_count|`decile_of"),
    ("draws: Philox, lengths, normals", r"kernels/draws/|pipeline/draws|`_draw"),
    ("ESS of batches, with exp", r"pipeline/ess|^libm"),
    ("rules of admission", r"pipeline/(admission|stops)"),
    (
        "publications, moved ends",
        r"pipeline/(publication|moving|shifting)|: a publication|: the publication channel",
    ),
    ("groups: their records and lists", r"pipeline/(groups|holding)"),
    ("start of a rollout: its record", r": settle, second half|: slots may start|`start_rollout|`timed_end"),
    ("end of a rollout", r": (a|the) rollout completes|`end_rollout"),
    ("batches: taken, trained, booked", r"pipeline/(trainer|batches)|: settle, first half|: a training step"),
    ("time of slots, queue and trainer booked", r"`book_time|: time integrals|: what holds until"),
)
ELSE = "all else: minima, rounding, room for rows"


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


Profiles = dict[str, tuple[int, Profile]]


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


def profiles(folder: Path, package: Path | None = None) -> Profiles:
    """Compile, count and sum up: rollouts and instructions by the name of the work.

    Parameters
    ----------
    folder : Path
        For all that is written; kept by the caller.
    package : Path, optional
        Folder with another ``lagsweep`` to be imported.

    Raises
    ------
    RuntimeError
        If a process fails, or does not stop at its marks.
    """
    environment = child_environment(folder / "cache")
    if package is not None:
        environment["PYTHONPATH"] = str(package)
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
    """Name the source function in which a line stands, and the part of it, if a heading names parts."""
    lines, functions = _functions(line.file)
    inside = max((one for one in functions if one[0] <= line.number <= one[1]), default=None)
    if inside is None:
        return place(line.file)
    told = f"`{inside[2]}` in {place(line.file)}"
    headings = [found[1] for text in lines[inside[0] : line.number] if (found := HEADING.match(text))]
    return f"{told}: {headings[-1]}" if headings else told


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


def by_function(found: Profile) -> Counter[str]:
    """Sum up the instructions of each source function, or each part of one."""
    summed: Counter[str] = Counter()
    for line, count in found.lines.items():
        summed[function_of(line)] += count
    summed[LIBM] += found.kernels[LIBM]
    return +summed


def part_of(function: str) -> str:
    """Name the part of a rollout's way to which a source function belongs."""
    return next((part for part, pattern in PARTS if re.search(pattern, function)), ELSE)


def totals(found: Profiles) -> list[float]:
    """Return the instructions of a rollout of each run."""
    return [sum(profile.kernels.values()) / rollouts for rollouts, profile in found.values()]


def parts_table(found: Profiles, before: Profiles | None, commit: str | None) -> str:
    """Write the instructions of a rollout by part, all runs side by side, and what they were."""
    names = [*(part for part, _ in PARTS), ELSE]
    columns = []
    for rollouts, profile in found.values():
        summed: Counter[str] = Counter()
        for function, count in by_function(profile).items():
            summed[part_of(function)] += count
        columns.append([summed[name] / rollouts for name in names])
    rows = [[name, *(f"{value:,.0f}" for value in values)] for name, *values in zip(names, *columns)]
    now = totals(found)
    rows.append(["in all", *(f"{value:,.0f}" for value in now)])
    if before is not None:
        older = totals(before)
        rows.append([f"in all at commit {commit}", *(f"{value:,.0f}" for value in older)])
        rows.append(["that, over now", *(f"{a / b:.2f}" for a, b in zip(older, now))])
    return table(["part", *found], rows)


def section(name: str, rollouts: int, found: Profile) -> Section:
    """Write what one run showed."""
    total = sum(found.kernels.values())
    head = ["instructions a rollout", "share"]
    dearest = [
        [f"{place(line.file)}:{line.number}", source_of(line), f"{count / rollouts:,.1f}"]
        for line, count in found.lines.most_common(LINES)
    ]
    text = [
        f"{total / rollouts:,.0f} instructions a rollout, {rollouts:,} rollouts. Beside them "
        f"{found.outside / 1e6:,.1f} million in Python and NumPy, which begin the run and call the kernels.",
        table(["kernel", *head], _rows(+found.kernels, rollouts, total)),
        table(["source function", *head], _rows(by_function(found), rollouts, total)),
        table(["dearest lines", "source", "instructions a rollout"], dearest, words=2),
    ]
    return Section(name, text)


def page(found: Profiles, before: Profiles | None = None, commit: str | None = None) -> str:
    """Write the whole page.

    Parameters
    ----------
    found : dict
        What :func:`profiles` gave.
    before, commit : optional
        The same of an older commit's package.
    """
    versions = ", ".join(f"{name} {version(name)}" for name in ("lagsweep", "numba", "llvmlite"))
    head = [
        "# Where the instructions go",
        "",
        f"Made by `make line-profile{f' BEFORE={commit}' if commit else ''}`. "
        "Valgrind counts every instruction of one run; line tables of the "
        "kernels' machine code, compiled for a generic processor, say from which line it comes, inlined "
        "helpers too. Rollouts were drawn before, as in a sweep, where it is not said otherwise. A rollout "
        "is one that completed. Counts are exact, but they are no time. `docs/performance.md` says what "
        "they mean.",
        "",
        f"Counted with {versions}.",
        "",
        "## Instructions of a rollout by part",
        "",
        parts_table(found, before, commit),
        "",
    ]
    return "\n".join([*head, *(section(name, *one).markdown() for name, one in found.items())])


def main() -> int:
    """Count, and print or write the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--before", metavar="COMMIT", help="count the package of that commit too")
    options = parser.parse_args()
    if absent := missing():
        print(f"not measured: {', '.join(absent)} not found on this machine")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / side for side in ("now", "before", "package")]
        for folder in folders:
            folder.mkdir()
        found, before = profiles(folders[0]), None
        if options.before:
            before = profiles(folders[1], package_of(options.before, folders[2]))
        text = page(found, before, options.before)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
