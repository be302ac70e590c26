"""Time and memory of big results: 100,000 cells, a million runs in one cell, a unit with millions of rows.

Each command runs in a process of its own, whose largest resident memory the kernel tells when it ends; beside
it plain xarray reads the same arrays (``xarray.open_zarr``, a process of its own too). With
``--before COMMIT`` the package of that commit (of this repository) reads the same store as well.
Prints a page in Markdown, or writes it (``--output``); ends with 1 if a command takes more than is promised.
``--cells`` and ``--runs`` set the sizes, ``--only`` leaves sections out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_MIB = 1024  # what is promised of every command
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
CELLS = """
name = "cells"
seeds = {seeds}
baseline = false
[base]
rollout_workers = 4
duration_seconds = 40
response_length = {{ law = "uniform", minimum = 20, maximum = 80 }}
batch_tokens = 400
train_tokens_per_second = 100
sync_seconds = 0.5
warmup_seconds = 5
[axes]
queue_cap = {caps}
max_lag = {lags}
sync_every_updates = [1, 2, 3, 4, 5]
decode_tokens_per_second = [20, 22, 24, 26, 28, 30, 32, 34, 36, 38]
train_overhead_seconds = {overheads}
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
PLAIN = """
import sys, xarray
ds = xarray.open_zarr(sys.argv[1] + "/cells.zarr", chunks=None)
names = sys.argv[2:] or [name for name in ds.data_vars]
for name in names if names != ["-"] else []:
    if name in ds:
        ds[name].load()
"""
# What each command reads, whole: plain xarray is given the same.
SHOWN = (
    "status", "updates", "stalled", "trained_rollouts", "trained_tokens_per_second", "seconds_per_update",
    "effective_tokens_per_second", "mean_expected_normalized_ess", "mean_lag", "max_lag_observed",
    "trainer_utilization", "rollout_utilization", "backpressure_seconds",
)  # fmt: skip
CHOSEN = (
    "status", "updates", "stalled", "trained_tokens_per_second", "mean_expected_normalized_ess", "mean_lag",
)  # fmt: skip
REPORTED = (*SHOWN, "trained_tokens", "generated_tokens", "discarded_tokens", "lag_counts")
HALF_OF_UNITS = 500  # lines of the journal at which a run is stopped
LOADED = "everything loaded in Python"
LARGEST_SURPLUS = 0.1  # of what is loaded, beyond it and beyond what opening takes
COMMAND = ("-m", "lagsweep.sweeps.cli")


@dataclass
class Row:
    """One thing done: MiB and seconds, of ours, of plain xarray, and of another commit's package."""

    title: str
    now: tuple[float, float]
    plain: tuple[float, float] | None = None
    before: tuple[float, float] | None = None


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


def reading(
    title: str, arguments: Sequence[str], old: Path | None, plain: Sequence[str] | None = None
) -> Row:
    """Read a store with each package in turn, and what it holds under `plain` names with plain xarray."""
    before = None if old is None else measure(arguments, old)
    now = measure(arguments)
    return Row(title, now, None if plain is None else measure(["-c", PLAIN, *plain]), before)


def reading_rows(store: Path, folder: Path, old: Path | None) -> list[Row]:
    """Read a store in every way."""
    name, page = str(store), folder / "report.html"
    metrics = stored_metrics(store)
    rows = [
        reading("opened in Python", ["-c", OPEN_ONLY, name], old, [name, "-"]),
        reading("`lagsweep show`", [*COMMAND, "show", name], old, [name, *SHOWN]),
        reading("`lagsweep show --json`", [*COMMAND, "show", name, "--json"], old, [name, *SHOWN]),
        reading("`lagsweep show --csv`", [*COMMAND, "show", name, "--csv"], old, [name, *metrics]),
        reading(
            "`lagsweep recommend`", [*COMMAND, "recommend", name, "--min-ess", "0.9"], old, [name, *CHOSEN]
        ),
        reading("`lagsweep verify`", [*COMMAND, "verify", name, "-q"], old, [name]),
    ]
    report = [*COMMAND, "report", name, "--output", str(page), "-q"]
    rows.append(reading("`lagsweep report`, with images", report, old, [name, *REPORTED]))
    size = page.stat().st_size / 1e6
    rows[-1].title += f" (a page of {size:.1f} MB)"
    rows.append(reading("all metrics loaded in Python", ["-c", LOAD_METRICS, name], old, [name, *metrics]))
    rows.append(reading("the mean of every variable in turn", ["-c", ONE_BY_ONE, name], old))
    rows.append(reading(LOADED, ["-c", LOAD_ALL, name], old, [name]))
    return rows


def stored_metrics(store: Path) -> list[str]:
    """Name the variables of a store that have a value a run."""
    import lagsweep

    ds = lagsweep.open_sweep(store)
    return [str(name) for name in ds.data_vars if name != "lag_counts"]


def extended(title: str, text: str, store: Path) -> Row:
    """Extend a copy of a store, which is then removed."""
    copy = store.with_name(f"{store.name}-extended")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store, copy)
    row = Row(title, make_store(text, copy))
    shutil.rmtree(copy)
    return row


def cells_spec(cells: int, *, seeds: int = 2, lags: int = 10) -> str:
    """Write a grid of about so many cells: queue caps × lags × cadences × speeds × overheads."""
    caps = max(1, round(cells / (10 * 5 * 10 * 10))) if cells >= 5000 else 1
    overheads = 10 if cells >= 5000 else 1
    return CELLS.format(
        seeds=seeds,
        caps=[400 + 40 * place for place in range(caps)],
        lags=list(range(lags)),
        overheads=[round(0.5 + 0.1 * place, 1) for place in range(overheads)],
    )


def made(text: str, store: Path) -> list[Row]:
    """Run a sweep into a store; one that was kept and is only gone on with gives no row."""
    kept = store.exists()
    row = Row("`lagsweep run`", make_store(text, store))
    return [] if kept else [row]


def cells_rows(folder: Path, cells: int, old: Path | None) -> list[Row]:
    """Make a store of many cells, go on with it, read it and extend it."""
    store = folder / "cells"
    rows = made(cells_spec(cells), store)
    rows.append(Row("`lagsweep run` again, with nothing to do", make_store(cells_spec(cells), store)))
    rows += reading_rows(store, folder, old)
    rows.append(extended("one more `max_lag`", cells_spec(cells, lags=11), store))
    rows.append(extended("one more seed", cells_spec(cells, seeds=3), store))
    return rows + stopped_rows(folder, cells)


def stopped_rows(folder: Path, cells: int) -> list[Row]:
    """Run the cells in small units, stop by Ctrl-C when a half is done, and go on."""
    store = folder / "stopped"
    shutil.rmtree(store, ignore_errors=True)
    spec = store.with_suffix(".toml")
    spec.write_text(cells_spec(cells))
    small = ("--runs-per-unit", str(max(1, cells // 500)))  # a thousand units
    arguments = [*COMMAND, "run", str(spec), "--store", str(store), "-q", *small]
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    journal = store / "journal.jsonl"
    while process.poll() is None and (
        not journal.exists() or journal.read_bytes().count(b"\n") < HALF_OF_UNITS
    ):
        time.sleep(0.05)
    began = time.monotonic()
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    _, _, used = os.wait4(process.pid, 0)
    ended = (used.ru_maxrss / 1024, time.monotonic() - began)
    units = journal.read_bytes().count(b"\n") - 1
    return [
        Row(f"Ctrl-C when {units:,} of 1,000 small units are done, until the end", ended),
        Row("the same command, which does the rest and merges all units", measure(arguments)),
        Row("the same command again, with nothing to do", measure(arguments)),
    ]


def million_rows(folder: Path, name: str, text: str, runs: int, old: Path | None) -> list[Row]:
    """Make a store of one cell, read it and extend it."""
    store = folder / name
    rows = [*made(text.format(seeds=runs), store), *reading_rows(store, folder, old)]
    rows.append(extended("one more seed", text.format(seeds=runs + 1), store))
    return rows


def numbers_of(store: Path) -> tuple[int, float]:
    """Tell how many cells a store has, and how many MiB its values take in memory."""
    import lagsweep

    ds = lagsweep.open_sweep(store)
    return int(ds["cell"].size), float(ds.nbytes) / 2**20


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
    return Row("`lagsweep run` of the unit", now, None, before)


def grid(rows: Sequence[Row]) -> list[str]:
    """Set rows as a table in Markdown; what no row has makes no column."""
    named = {"": "now", "plain xarray": "plain", "before": "before"}
    kept = {words: field for words, field in named.items() if any(getattr(row, field) for row in rows)}
    heads = [f"{words}, {unit}".removeprefix(", ") for words in kept for unit in ("MiB", "s")]
    lines = [f"| what | {' | '.join(heads)} |", f"| --- | {' | '.join('---:' for _ in heads)} |"]
    for row in rows:
        figures = []
        for field in kept.values():
            pair = getattr(row, field)
            figures += [f"{pair[0]:,.0f}", f"{pair[1]:.1f}"] if pair else ["–", "–"]
        lines.append(f"| {row.title} | {' | '.join(figures)} |")
    return lines


def parquet_rows(folder: Path) -> dict[str, int]:
    """Count the rows of each table of a store."""
    import polars

    return {
        table.name: polars.scan_parquet(table / "*.parquet").select(polars.len()).collect().item()
        for table in sorted((folder / "tables").iterdir())
        if any(table.iterdir())
    }


SECTIONS = ("cells", "million", "general", "tables")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the stores, measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs in one cell")
    parser.add_argument("--cells", type=int, default=100_000, help="cells of the grid, 500 at least")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="a section; several times for more")
    parser.add_argument("--before", metavar="COMMIT", help="measure that commit's package beside this one's")
    parser.add_argument("--work", type=Path, help="folder in which the runs are kept, and gone on with")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    only = options.only or SECTIONS
    parts: list[str] = []
    over: list[str] = []

    compared = f" Before: commit {options.before}." if options.before else ""
    parts += [
        "# Time and memory of big results",
        "",
        f"Made by `python benchmarks/big_results.py`; every command takes at most {MOST_MIB:,} MiB. Peak of "
        "resident memory and seconds of a process of its own, start and imports (about a second) counted; "
        f"beside it plain xarray, which reads the same arrays of the store and does no more.{compared}",
        "",
    ]

    def tell(*lines: str) -> None:  # after each section, so that a stop loses one section at most
        parts.extend((*lines, ""))
        if options.output is not None:
            options.output.write_text("\n".join(parts), encoding="utf-8")

    with contextlib.ExitStack() as stack:
        folder = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="big-results-")))
        folder.mkdir(exist_ok=True)
        old = package_of(options.before, folder) if options.before else None
        if "cells" in only:
            rows = cells_rows(folder, options.cells, old)
            count = numbers_of(folder / "cells")[0]
            tell(f"{count:,} cells (five axes) at two seeds:", "", *grid(rows))
            over += too_large(rows)
        if "million" in only:
            rows = million_rows(folder, "million", CELL, options.runs, old)
            said, _ = of_all_values(rows, numbers_of(folder / "million")[1])
            tell(f"{options.runs:,} runs in one cell:", "", *grid(rows), "", said)
            over += too_large(rows)
        if "general" in only:
            rows = million_rows(folder, "general", GENERAL, options.runs, old)
            said, surplus = of_all_values(rows, numbers_of(folder / "general")[1])
            tell(f"{options.runs:,} runs in one cell by the general loop:", "", *grid(rows), "", said)
            # All its values are more than fits below the limit: of these only the surplus is promised.
            over += too_large([row for row in rows if row.title != LOADED])
            over += [LOADED] if surplus > LARGEST_SURPLUS and too_large(rows) else []
        if "tables" in only:
            row = table_row(folder, old)
            counts = parquet_rows(folder / "tables")
            long = [f"{count:,} rows of {table}" for table, count in counts.items() if table != "batches"]
            tell(f"One unit with {' and '.join(long)}:", "", *grid([row]))
            over += too_large([row])

    if options.output is None:
        print("\n".join(parts))
    for title in over:
        print(f"more than {MOST_MIB:,} MiB: {title}", file=sys.stderr)
    return 1 if over else 0


def too_large(rows: Sequence[Row]) -> list[str]:
    """Name what took more memory than is promised."""
    return [row.title for row in rows if row.now[0] > MOST_MIB]


def of_all_values(rows: Sequence[Row], numbers: float) -> tuple[str, float]:
    """Say what all values take in memory beyond their own size and what opening takes."""
    taken = {row.title: row.now[0] for row in rows}
    surplus = (taken[LOADED] - taken["opened in Python"] - numbers) / numbers
    sentence = (
        f"Its values alone are {numbers:,.0f} MiB. Loaded all at once, they take {surplus:.0%} beyond that "
        f"and what opening takes (wanted: at most {LARGEST_SURPLUS:.0%})."
    )
    return sentence, surplus


if __name__ == "__main__":
    raise SystemExit(main())
