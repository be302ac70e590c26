"""Give every reader of a user's file many thousand damaged files, made from good ones.

Prints by reader how many were answered, refused with one of our errors, ended in another exception, hung, or
took more memory than a file of that size may; the longest read; and the peak of memory. With ``--keep`` the
files of faults are written to a folder.
"""

from __future__ import annotations

import argparse
import collections
import os
import platform
import resource
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from strategies.odd_calls import Outcome
from strategies.odd_files import MOST_BYTES, make_readers, read_many

MENDED = """\
## Mended since the readers are tried this way

- Records: beside a null response, a mask of another length than the log-probabilities raised an `IndexError`.
  The null response is reported.
- Records by the piece: millions of blank or tiny lines took memory and seconds. Blank lines are told by their
  bytes, findings are counted as they come, values are held for at most 65,536 lines.
- Records in zstandard: a file that was cut at the end of a block read as if it were whole. It is refused.

- A stored sweep: a journal's line or metadata nested thousands deep raised a `RecursionError`. The line
  counts as damaged, the metadata are refused.
- Messages that name a file's columns: a heading of megabytes was shown whole. Names are cut, and at most
  twelve are listed; a message of over 10,000 characters counts as another exception here.
- Step logs in JSON lines: a lone surrogate in a text raised a `UnicodeEncodeError`. It is spelt out.

## Memory of packed files

Records are unpacked as they are read: what is held is a piece of 8 MiB and one line of at most
`--max-line-bytes`, whatever a file unpacks to; time is that of what is inside. Logs, laws and specs are read
whole: at most 256 MiB, packed or unpacked, and more is refused.
"""


def report(outcomes: list[Outcome], seconds: float, seed: int, faults: dict[str, bytes]) -> str:
    """Write what came of the files as a page."""
    kinds = collections.Counter((outcome.name, outcome.kind) for outcome in outcomes)
    names = list(dict.fromkeys(outcome.name for outcome in outcomes))
    longest = max(outcomes, key=lambda outcome: outcome.seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    columns = ("answer", "refused", "raw", "hang", "memory")
    lines = [
        "# Damaged files for every reader",
        "",
        f"`make fuzz-readers`: {len(outcomes):,} files for {len(names)} readers, seed {seed}, "
        f"{seconds:.0f} s, Python {platform.python_version()}. Each file is a good one (most are parts of "
        "real files) with one to three mutations: flipped bits, cuts, lines twice or away, odd numbers and "
        "kinds, deep nesting, zero bytes, no UTF-8, marks, other line ends and packings, columns of other "
        "types.",
        "",
        "| reader | read | one of our errors | another exception | nothing for 10 s | too much memory |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        cells = " | ".join(f"{kinds[name, kind]:,}" for kind in columns)
        lines.append(f"| {name} | {cells} |")
    totals = " | ".join(f"{sum(kinds[name, kind] for name in names):,}" for kind in columns)
    lines += [
        f"| all | {totals} |",
        "",
        f"Longest read: {longest.seconds:.1f} s ({longest.name}). Peak memory of the run: {peak:.2f} GiB. "
        f"Too much is {MOST_BYTES // 2**20} MiB and a hundred times the file more than before.",
        "",
        MENDED,
    ]
    lines += ["## Faults", ""] if faults else []
    lines += [f"- {fault}" for fault in list(faults)[:100]]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    output = options.output.resolve() if options.output else None
    keep = options.keep.resolve() if options.keep else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        readers = make_readers(Path(folder))
        work = Path(folder) / "work"
        work.mkdir()
        outcomes, faults, seconds = read_many(readers, work, options.cases, options.seed)
        os.chdir("/")
    text = report(outcomes, seconds, options.seed, faults)
    print(text)
    for number, content in enumerate(faults.values() if keep else ()):
        keep.mkdir(parents=True, exist_ok=True)  # type: ignore[union-attr]
        (keep / f"{number}").write_bytes(content)  # type: ignore[operator]
    if output is not None:
        output.write_text(text, encoding="utf-8")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
