"""Memory of big results: a million runs in one cell, read by every command, and a unit with millions of rows.

Each command runs in a process of its own, whose largest resident memory the kernel tells when it ends. With
``--before COMMIT`` the package of that commit (of this repository) reads the same store beside this one's.
Prints a page in Markdown, or writes it (``--output``); ends with 1 if a command takes more than is promised.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_MIB = 1024  # what is promised of reading a million runs
CELL = """
name = "million"
seeds = {seeds}
baseline = false
[base]
rollout_workers = 8
batch_tokens = 8_000
max_queue_tokens = 40_000
duration_seconds = 900
[axes]
max_lag = [2]
"""
GENERAL = """
name = "general"
seeds = {seeds}
baseline = false
[base]
rollout_workers = 4
duration_seconds = 40
response_length = {{ law = "uniform", minimum = 20, maximum = 80 }}
batch_tokens = "none"
batch_groups = 2
group_size = 2
train_overhead_seconds = 0.5
train_tokens_per_second = 100
sync_seconds = 0.5
warmup_seconds = 5
publication = "pause"
[axes]
max_lag = [2]
queue_cap = [400]
"""
TABLES = """
name = "tables"
seeds = 28
baseline = false
tables = ["batches", "timeline", "rollouts"]
[base]
rollout_workers = 64
batch_tokens = 20_000
max_queue_tokens = 160_000
duration_seconds = 36_000
rollout_overhead_seconds = 2
[axes]
max_lag = [2]
"""
LOAD_METRICS = """
import sys, lagsweep
ds = lagsweep.open_sweep(sys.argv[1])
ds[[name for name in ds.data_vars if name != "lag_counts"]].load()
"""
ONE_BY_ONE = """
import sys, lagsweep
ds = lagsweep.open_sweep(sys.argv[1])
for name in ds.data_vars:
    ds[name].isel(seed=slice(None)).mean().values  # of a selection, so that ds does not keep it
"""
OPEN_ONLY = "import sys, lagsweep; lagsweep.open_sweep(sys.argv[1])"
LOAD_ALL = "import sys, lagsweep; lagsweep.open_sweep(sys.argv[1]).load()"
LOADED = "everything loaded in Python"
LARGEST_SURPLUS = 0.1  # of what is loaded, beyond it and beyond what opening takes
COMMAND = ("-m", "lagsweep.sweeps.cli")


@dataclass
class Row:
    """One thing done, with the package of each side: MiB and seconds."""

    title: str
    before: tuple[float, float] | None
    now: tuple[float, float]


def measure(arguments: Sequence[str], package: Path | None = None) -> tuple[float, float]:
    """Run Python with some arguments; give its peak of resident memory in MiB, and the seconds it took.

    Parameters
    ----------
    arguments : sequence of str
    package : Path, optional
        Folder with another ``lagsweep`` to be imported.
    """
    environment = dict(os.environ)
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    began = time.monotonic()
    with open(os.devnull, "w") as nothing:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=environment, stdout=nothing, stderr=nothing
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)}: ended with {process.returncode}")
    kilobytes = used.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return kilobytes / 1024, time.monotonic() - began


def package_of(commit: str, folder: Path) -> Path:
    """Unpack the package of a commit; gives the folder to import it from."""
    source, package = folder / "source", folder / "package" / "lagsweep"
    for there in (source, package.parent):
        shutil.rmtree(there, ignore_errors=True)
    source.mkdir()
    (package / "sweeps").mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", commit, "kernels", "sweeps"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    # The front door lies in sweeps/public, and is installed as the package itself.
    for item in (source / "kernels", *(source / "sweeps" / "public").iterdir()):
        (package / item.name).symlink_to(item)
    for item in (source / "sweeps").iterdir():
        if item.name != "public":
            (package / "sweeps" / item.name).symlink_to(item)
    return package.parent


def make_store(text: str, store: Path, *flags: str, package: Path | None = None) -> tuple[float, float]:
    """Run a sweep into a store, or go on with it; gives the memory and the seconds of that."""
    spec = store.with_suffix(".toml")
    spec.write_text(text)
    return measure([*COMMAND, "run", str(spec), "--store", str(store), "-q", *flags], package)


def reading(title: str, arguments: Sequence[str], old: Path | None) -> Row:
    """Read a store with each package in turn."""
    before = None if old is None else measure(arguments, old)
    return Row(title, before, measure(arguments))


def cell_rows(store: Path, folder: Path, old: Path | None) -> list[Row]:
    """Read a store of one cell in every way."""
    name, page = str(store), folder / "report.html"
    rows = [
        reading("`lagsweep show`", [*COMMAND, "show", name], old),
        reading("`lagsweep show --csv`", [*COMMAND, "show", name, "--csv"], old),
        reading("`lagsweep recommend`", [*COMMAND, "recommend", name, "--min-ess", "0.9"], old),
    ]
    pages = []
    report = [*COMMAND, "report", name, "--output", str(page)]
    before = None
    if old is not None:
        before = measure(report, old)
        pages.append(page.read_bytes())
    rows.append(Row("`lagsweep report`, with images", before, measure(report)))
    pages.append(page.read_bytes())
    if len(set(pages)) > 1:
        raise SystemExit("the two reports differ")
    return [
        *rows,
        reading("all metrics loaded in Python", ["-c", LOAD_METRICS, name], old),
        reading(LOADED, ["-c", LOAD_ALL, name], old),
    ]


def general_rows(store: Path, folder: Path) -> list[Row]:
    """Read a store of the general loop, which has more metrics than fit below the limit all at once."""
    name = str(store)
    return [
        Row("opened in Python", None, measure(["-c", OPEN_ONLY, name])),
        Row("`lagsweep show`", None, measure([*COMMAND, "show", name])),
        Row("`lagsweep recommend`", None, measure([*COMMAND, "recommend", name, "--min-ess", "0.9"])),
        Row(
            "`lagsweep report`",
            None,
            measure([*COMMAND, "report", name, "--no-images", "--output", str(folder / "general.html")]),
        ),
        Row("the mean of every variable in turn", None, measure(["-c", ONE_BY_ONE, name])),
        Row(LOADED, None, measure(["-c", LOAD_ALL, name])),
    ]


def numbers_mib(store: Path) -> float:
    """Tell how many MiB the values of a store take in memory."""
    import lagsweep

    return float(lagsweep.open_sweep(store).nbytes) / 2**20


def table_row(folder: Path, old: Path | None) -> Row:
    """Run a sweep of one unit with all tables."""
    flags = ("--runs-per-unit", "28", "--threads", "1")
    for name in ("warm", "warm-old", "tables", "tables-old"):
        shutil.rmtree(folder / name, ignore_errors=True)
    one_run = TABLES.replace("seeds = 28", "seeds = 1")
    make_store(one_run, folder / "warm", *flags)  # its kernels are compiled
    before = None
    if old is not None:
        make_store(one_run, folder / "warm-old", *flags, package=old)
        before = make_store(TABLES, folder / "tables-old", *flags, package=old)
    now = make_store(TABLES, folder / "tables", *flags)
    if old is not None:
        for part in sorted((folder / "tables" / "tables").rglob("*.parquet")):
            other = folder / "tables-old" / part.relative_to(folder / "tables")
            if part.read_bytes() != other.read_bytes():
                raise SystemExit(f"{part.name}: differs from the one of {other}")
    return Row("`lagsweep run` of the unit", before, now)


def grid(rows: Sequence[Row]) -> list[str]:
    """Set rows as a table in Markdown."""
    lines = [
        "| what | before, MiB | now, MiB | before, s | now, s |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        before = (f"{row.before[0]:,.0f}", f"{row.before[1]:.1f}") if row.before else ("–", "–")
        lines.append(f"| {row.title} | {before[0]} | {row.now[0]:,.0f} | {before[1]} | {row.now[1]:.1f} |")
    return lines


def parquet_rows(folder: Path) -> dict[str, int]:
    """Count the rows of each table of a store."""
    import polars

    return {
        table.name: polars.scan_parquet(table / "*.parquet").select(polars.len()).collect().item()
        for table in sorted((folder / "tables").iterdir())
        if any(table.iterdir())
    }


def main() -> int:
    """Make the stores, measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--before", metavar="COMMIT", help="measure that commit's package beside this one's")
    parser.add_argument("--work", type=Path, help="folder in which the runs are kept, and gone on with")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()

    with contextlib.ExitStack() as stack:
        folder = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="big-results-")))
        folder.mkdir(exist_ok=True)
        old = package_of(options.before, folder) if options.before else None
        make_store(CELL.format(seeds=options.runs), folder / "million")
        rows = cell_rows(folder / "million", folder, old)
        make_store(GENERAL.format(seeds=options.runs), folder / "general")
        general, numbers = general_rows(folder / "general", folder), numbers_mib(folder / "general")
        tables = table_row(folder, old)
        counts = parquet_rows(folder / "tables")

    opened, loaded = general[0].now[0], general[-1].now[0]
    surplus = (loaded - opened - numbers) / numbers
    said = " and ".join(f"{count:,} rows of {table}" for table, count in counts.items() if table != "batches")
    compared = f" Before: commit {options.before}." if options.before else ""
    lines = [
        "# Memory of big results",
        "",
        f"Made by `python benchmarks/big_results.py`; reading {options.runs:,} runs in one cell takes at "
        f"most {MOST_MIB:,} MiB. Peak of resident memory of a process of its own, and its seconds.{compared}",
        "",
        f"{options.runs:,} runs in one cell:",
        "",
        *grid(rows),
        "",
        f"{options.runs:,} runs in one cell by the general loop, whose values alone are {numbers:,.0f} MiB:",
        "",
        *grid(general),
        "",
        f"Loaded all at once, they take {surplus:.0%} beyond their own size and what opening takes "
        f"(wanted: at most {LARGEST_SURPLUS:.0%}).",
        "",
        f"One unit with {said}:",
        "",
        *grid([tables]),
        "",
        *(["Pages and tables are the same, byte for byte, before and now.", ""] if old is not None else []),
    ]
    text = "\n".join(lines)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text, encoding="utf-8")
    over = [row.title for row in (*rows, *general[:-1]) if row.now[0] > MOST_MIB]
    if loaded > MOST_MIB and surplus > LARGEST_SURPLUS:
        over.append(f"{general[-1].title}, of the general loop")
    for title in over:
        print(f"more than {MOST_MIB:,} MiB: {title}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
