"""Kernels compiled with line tables, and where their machine code lies once it is loaded.

Numba writes into a function's line table only lines of the file in which that function stands, and our
helpers come from other files: they are inlined before lowering. So a line's number carries the number of its
file (``file * STRIDE + line``). Only line tables are made, nothing that a debugger would need of variables:
that keeps every optimization, so the code is the code that runs without tables.

These are patches of Numba's inside, for a process that does nothing else.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numba.core import codegen, compiler, debuginfo, lowering

STRIDE = 100_000
ENTRY = "entry of a function"  # file 0: what comes before the first line, as the unpacking of arguments


@dataclass(frozen=True)
class Code:
    """The machine code of one function.

    Attributes
    ----------
    name : str
        As ``pipeline.general._advance_general_kernel``.
    begin, end : int
        Addresses in the process.
    origin : int
        Address of the first byte of the object file's code.
    object_file : str
    """

    name: str
    begin: int
    end: int
    origin: int
    object_file: str


def write_line_tables() -> list[str]:
    """Make Numba write line tables from now on; gives the files that lines come from, as they are met."""
    files = [ENTRY]
    start, mark, lower = (
        compiler.CompilerBase.__init__,
        debuginfo.DIBuilder.mark_location,
        lowering.Lower.lower_inst,
    )

    def started(self: Any, context: Any, target: Any, library: Any, args: Any, *rest: Any) -> None:
        flags = rest[1]
        flags.debuginfo = flags.dbg_directives_only = True
        start(self, context, target, library, args, *rest)

    def marked(self: Any, builder: Any, line: int | None) -> None:
        mark(self, builder, (line or 0) + STRIDE * getattr(self, "file_number", 0))

    def lowered(self: Any, instruction: Any) -> None:
        if self.loc.filename not in files:
            files.append(self.loc.filename)
        self.debuginfo.file_number = files.index(self.loc.filename)
        lower(self, instruction)

    compiler.CompilerBase.__init__ = started
    debuginfo.DIBuilder.mark_location = marked
    lowering.Lower.lower_inst = lowered
    return files


def keep_loaded_code() -> list[tuple[Any, bytes]]:
    """Keep the object code of kernels that are loaded from the cache from now on."""
    kept: list[tuple[Any, bytes]] = []
    load = codegen.CPUCodeLibrary._unserialize.__func__

    def loaded(cls: Any, engine: Any, state: Any) -> Any:
        library = load(cls, engine, state)
        if state[1] == "object":
            kept.append((library, state[2][0]))
        return library

    codegen.CPUCodeLibrary._unserialize = classmethod(loaded)
    return kept


def short_name(symbol: str) -> str:
    """Read a mangled symbol of ours.

    Examples
    --------
    >>> short_name("_ZN8lagsweep7kernels8pipeline5clock17_pass_time_kernelB4v106B66c8tJTC")
    'pipeline.clock._pass_time_kernel'
    """
    rest, parts = re.sub(r"^_ZN(?:7cpython)?", "", symbol), []
    while found := re.match(r"(\d+)", rest):
        size, rest = int(found[1]), rest[found.end() :]
        parts.append(rest[:size])
        rest = rest[size:]
    name = ".".join(parts).removeprefix("lagsweep.kernels.") or symbol
    return f"call from Python of {name}" if symbol.startswith("_ZN7cpython") else name


def write_code_map(kept: list[tuple[Any, bytes]], folder: Path) -> None:
    """Write each object file, and ``code.json`` with the place of every function."""
    found: list[Code] = []
    for number, (library, content) in enumerate(kept):
        path = folder / f"kernel-{number}.o"
        path.write_bytes(content)
        listed = subprocess.run(["nm", "-S", str(path)], capture_output=True, text=True, check=True).stdout
        rows = [row.split() for row in listed.splitlines()]
        functions = [row for row in rows if len(row) == 4 and row[2] in "TtWw"]
        # A function that two object files hold is loaded from one of them: its own lie in one piece.
        places = {row[3]: library._codegen._engine.get_function_address(row[3]) for row in functions}
        origins = {places[row[3]] - int(row[0], 16) for row in functions if row[2] == "T" and places[row[3]]}
        for offset, size, _, symbol in functions:
            begin = places[symbol]
            origin = begin - int(offset, 16)
            if begin and origin in origins:
                found.append(Code(short_name(symbol), begin, begin + int(size, 16), origin, path.name))
    found.sort(key=lambda code: code.begin)
    (folder / "code.json").write_text(json.dumps([vars(code) for code in found]), encoding="utf-8")


def read_code_map(folder: Path) -> list[Code]:
    """Read what :func:`write_code_map` wrote, sorted by address."""
    return [Code(**one) for one in json.loads((folder / "code.json").read_text(encoding="utf-8"))]


def read_line_table(path: Path) -> list[tuple[int, int]]:
    """Read (offset, numbered line) of an object file, sorted; a row holds up to the next one's offset."""
    command = ["readelf", "--debug-dump=decodedline", str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^\S+ +(\d+) +(0x[0-9a-f]+|0)(?: |$)", printed, re.M)
    # An offset may have several rows: the last says where the code at it comes from.
    return sorted({int(offset, 16): int(line) for line, offset in rows if line != "0"}.items())
