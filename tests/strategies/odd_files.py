"""Every reader of a file of a user, each with a good file; and ways to damage the bytes of a file.

A mutation is drawn from a seeded stream: flipped bits, cuts, lines twice and away, numbers and texts of other
kinds, huge numbers, deep nesting, zero bytes, what is no UTF-8, marks, other line ends, other packings.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import resource
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from oracle.case_files import real_rollouts
from oracle.every_command import ENGINE, LLAMA, REQUESTS
from oracle.small_sweeps import small_base

import lagsweep as ls
from lagsweep.kernels.contract.line_shapes import line_shapes
from lagsweep.sweeps.checkpoint.checkpoint import (
    load_checkpoint,
    make_checkpoint,
    read_manifest,
    save_checkpoint,
)
from lagsweep.sweeps.engines.accelerators import load_accelerator
from lagsweep.sweeps.engines.requests import read_requests
from lagsweep.sweeps.engines.simulation import load_engine
from lagsweep.sweeps.engines.stages import read_stages
from lagsweep.sweeps.logs.engine_log import read_engine_log
from lagsweep.sweeps.logs.lengths import read_lengths
from lagsweep.sweeps.logs.step_log import read_step_log
from lagsweep.sweeps.memory.models import load_model
from lagsweep.sweeps.plan.measured import load_measured
from lagsweep.sweeps.plan.networks import load_network
from lagsweep.sweeps.records import streams
from lagsweep.sweeps.records.check import validate_records
from lagsweep.sweeps.records.files import read_records

from .odd_calls import Outcome, odd_call

DATA = Path(__file__).parents[1] / "data"
SPEC = """\
name = "fuzzed"
seeds = 2
constraints = ["max_lag * sync_cadence <= 8"]
[base]
rollout_workers = 64
batch_tokens = 120_000
duration_seconds = 3600
response_length = { law = "lognormal", median = 300, sigma = 0.6, minimum = 16, maximum = 2048 }
[axes]
max_lag = [0, 1, 2]
sync_cadence = { from = 1, to = 4 }
"""
NETWORK = {"name": "mine", "bytes_per_second": 5e10}
ODD_TEXTS = [
    b"1e999", b"-1e999", b"NaN", b"Infinity", b"-1", b"0", b"1.5", b"9" * 5000, b"1e308", b"1e-320",
    b'"x"', b"null", b"true", b"[]", b"{}", b"[[]]", b'""', b"-0.0", b"18446744073709551616",
    b"9223372036854775807", b"\xff\xfe", b"\x00", b"[" * 3000, b'{"a":' * 3000, b"'", b"=", b",", b"\n",
    b"inf", b"nan", b"\xe2\x80\xa8", b"\\ud800",
]  # fmt: skip
# No reader holds more than this for a small file: what polars, NumPy and the interpreter take by themselves.
LONGEST_ERROR = 10_000  # characters: a message is for people, whatever the file holds
MOST_BYTES = 512 * 2**20


class Reader(NamedTuple):
    """A reader, a good file for it, and the file's place in its folder."""

    name: str
    file: str
    content: bytes
    read: Callable[[Path], Any]


def _by_the_piece(path: Path) -> None:
    """Check records in pieces of some lines, as large files are."""
    before = streams.FIRST_PIECE_BYTES, streams.PIECE_BYTES
    streams.FIRST_PIECE_BYTES, streams.PIECE_BYTES = 512, 4096
    try:
        validate_records(path, statistics=True, group_size=4)
    finally:
        streams.FIRST_PIECE_BYTES, streams.PIECE_BYTES = before


def _head(path: Path, lines: int = 40) -> bytes:
    return b"".join(path.read_bytes().splitlines(keepends=True)[:lines])


def _packed(frame: pl.DataFrame) -> bytes:
    stream = io.BytesIO()
    frame.write_parquet(stream)
    return stream.getvalue()


def make_readers(folder: Path) -> list[Reader]:
    """Return every reader with a good file; a stored sweep and a checkpoint are made in the folder."""
    line_shapes(b"{}\n")  # what is compiled once is no part of a read
    rows = real_rollouts()[:12]
    records = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    steps = _head(DATA / "calibrate" / "verl_fully_async.csv")
    samples = _head(DATA / "engines" / "vllm_samples.csv")
    lengths = _head(DATA / "lengths" / "aime_baseline_step_1000.csv")
    step_rows = pl.read_csv(io.BytesIO(steps))
    store = folder / "store"
    ls.run_sweep(small_base(), axes={"max_lag": [0, 1]}, seeds=2, store=store, tables=("batches",))
    counters = {"optimizer_step": 3, "current_version": 3, "published_version": 3, "dataset_cursor": 8}
    manifest = save_checkpoint(
        make_checkpoint(**counters, rng=np.random.default_rng(1)), folder / "step-3.json"
    )
    law = partial(ls.LengthLaw.from_file, column="output_tokens")
    stages = partial(read_stages, columns={"running": "concurrency"}, unit="milliseconds")

    def of_store(name: str) -> Reader:
        return Reader(f"store: {name}", name, (store / name).read_bytes(), partial(_open_with, store, name))

    return [
        Reader("records", "r.jsonl", records, validate_records),
        Reader("records by the piece", "r.jsonl", records, _by_the_piece),
        Reader("records, gzip", "r.jsonl.gz", gzip.compress(records, mtime=0), _by_the_piece),
        Reader("records, parquet", "r.parquet", _packed(pl.DataFrame(rows)), validate_records),
        Reader("records, one by one", "r.jsonl", records, lambda path: list(read_records(path))),
        Reader("lengths law, CSV", "l.csv", lengths, law),
        Reader("lengths law, JSON lines", "l.jsonl", b'{"output_tokens": 5}\n' * 5, law),
        Reader("lengths law, parquet", "l.parquet", _packed(pl.read_csv(io.BytesIO(lengths))), law),
        Reader(
            "grouped law", "l.csv", lengths,
            lambda path: ls.LengthLaw.grouped_from_file(path, "output_tokens", "item"),
        ),
        Reader("step log, CSV", "s.csv", steps, read_step_log),
        Reader("step log, JSON lines", "s.jsonl", step_rows.write_ndjson().encode(), read_step_log),
        Reader("step log, parquet", "s.parquet", _packed(step_rows), read_step_log),
        Reader("step log, gzip", "s.csv.gz", gzip.compress(steps, mtime=0), read_step_log),
        Reader("engine samples", "e.csv", samples, read_engine_log),
        Reader("response lengths", "n.csv", _head(DATA / "lengths" / "nemo_gym_browser.csv"), read_lengths),
        Reader("request log", "q.csv", REQUESTS.encode(), read_requests),
        Reader("load stages", "d.csv", _head(DATA / "engines" / "decode_stages.csv"), stages),
        Reader("spec", "spec.toml", SPEC.encode(), ls.load_spec),
        Reader("engine", "engine.toml", ENGINE.encode(), load_engine),
        Reader("measured engine", "engine.toml", ENGINE.encode(), load_measured),
        Reader("model config", "config.json", json.dumps(LLAMA).encode(), load_model),
        Reader("accelerator", "card.json", json.dumps(_card()).encode(), load_accelerator),
        Reader("network", "net.json", json.dumps(NETWORK).encode(), load_network),
        Reader("checkpoint", "step-3.json", Path(manifest).read_bytes(), load_checkpoint),
        Reader("manifest", "step-3.json", Path(manifest).read_bytes(), read_manifest),
        of_store("journal.jsonl"),
        of_store("spec.toml"),
        of_store("cells.zarr/zarr.json"),
    ]  # fmt: skip


def _card() -> dict[str, Any]:
    root = Path(ls.sweeps.__path__[0]) / "engines" / "accelerator_data" / "accelerators.json"
    rows = json.loads(root.read_text(encoding="utf-8"))
    row = (rows["accelerators"] if isinstance(rows, dict) else rows)[0]
    return {name: value for name, value in row.items() if value is not None}


def _open_with(store: Path, name: str, path: Path) -> None:
    """Open a stored sweep, one file of which is another."""
    good = (store / name).read_bytes()
    try:
        shutil.copyfile(path, store / name)
        ls.open_sweep(store)
    finally:
        (store / name).write_bytes(good)


def mutated(content: bytes, stream: random.Random) -> bytes:
    """Damage some bytes in one to three ways."""
    for _ in range(stream.choice((1, 1, 2, 3))):
        content = stream.choice(MUTATIONS)(content, stream)
    return content


def _flip(content: bytes, stream: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(stream.choice((1, 1, 3, 8))):
        if changed:
            changed[stream.randrange(len(changed))] ^= 1 << stream.randrange(8)
    return bytes(changed)


def _cut(content: bytes, stream: random.Random) -> bytes:
    return content[: stream.randrange(len(content) + 1)]


def _away(content: bytes, stream: random.Random) -> bytes:
    start = stream.randrange(len(content) + 1)
    return content[:start] + content[start + stream.choice((1, 4, 40, 400)) :]


def _lines(content: bytes, stream: random.Random) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    one, other = stream.randrange(len(lines)), stream.randrange(len(lines))
    kind = stream.randrange(4)
    if kind == 0:
        lines.insert(one, lines[other])
    elif kind == 1:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 2:
        lines.insert(one, b"\n" * stream.choice((1, 100)))
    else:
        lines[one:one] = [lines[other]] * 200
    return b"".join(lines)


def _value(content: bytes, stream: random.Random) -> bytes:
    """Put something odd in the place of a number or a text."""
    places = list(re.finditer(rb'-?\d[\d.eE+-]*|"[^"\n]*"|true|false|null', content))
    if not places:
        return content + stream.choice(ODD_TEXTS)
    place = stream.choice(places)
    return content[: place.start()] + stream.choice(ODD_TEXTS) + content[place.end() :]


def _insert(content: bytes, stream: random.Random) -> bytes:
    place = stream.randrange(len(content) + 1)
    return content[:place] + stream.choice(ODD_TEXTS) + content[place:]


def _whole(content: bytes, stream: random.Random) -> bytes:
    """Turn a whole file into another one: marks, line ends, encodings, packings, nothing, junk."""
    kind = stream.randrange(9)
    if kind == 0:
        return b"\xef\xbb\xbf" + content
    if kind == 1:
        return content.replace(b"\n", b"\r\n")
    if kind == 2:
        return content.decode("utf-8", "replace").encode("utf-16")
    if kind == 3:
        return gzip.compress(content)
    if kind == 4:
        return b""
    if kind == 5:
        return content.replace(b"\n", b"\r")
    if kind == 6:
        return stream.randbytes(stream.choice((1, 16, 1000)))
    if kind == 7:
        return gzip.compress(bytes(4 * 2**20))
    return content + content


MUTATIONS = (_flip, _cut, _away, _lines, _value, _value, _value, _insert, _whole)


def odd_frame(content: bytes, stream: random.Random) -> bytes:
    """Return a table with a column of another kind, with nulls, another name, or gone."""
    frame = pl.read_parquet(io.BytesIO(content))
    name = stream.choice(frame.columns)
    height = frame.height
    other = stream.choice(
        [
            pl.Series(name, [None] * height),
            pl.Series(name, ["x", None] * height)[:height],
            pl.Series(name, [True, None] * height)[:height],
            pl.Series(name, [[1, None], [], None] * height)[:height],
            pl.Series(name, [[[1.5]], None] * height)[:height],
            pl.Series(name, [{"a": 1, "b": None}, None] * height)[:height],
            pl.Series(name, [b"\xff", None] * height)[:height],
            pl.Series(name, [float("nan"), float("inf"), -1e308, 1.5] * height)[:height],
            pl.Series(name, [2**64 - 1, 0] * height, dtype=pl.UInt64)[:height],
            pl.Series(name, [-(2**63), 5] * height)[:height],
            pl.Series(name, ["a", "b"] * height, dtype=pl.Categorical)[:height],
            pl.Series(name, [10**9] * height).cast(pl.Datetime),
            pl.Series(name, ["1.5"] * height).cast(pl.Decimal(10, 2)),
        ]
    )
    kind = stream.randrange(4)
    if kind == 0:
        return _packed(frame.drop(name))
    if kind == 1:
        return _packed(
            frame.rename({name: stream.choice(["", "step", "running", "x" * 999, "a.b"])}, strict=False)
        )
    return _packed(frame.with_columns(other.alias(name)))


class Case:
    """A file in the place of a function's arguments."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self, function: Callable[..., Any], _: Mapping[int | str, Any]) -> Any:
        """Read the file; warnings of ours are no faults."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(self.path)


def read_odd(reader: Reader, folder: Path, stream: random.Random) -> tuple[Outcome, bytes]:
    """Read one damaged file; what came of it, and the file."""
    if reader.file.endswith(".parquet") and stream.random() < 0.6:
        content = odd_frame(reader.content, stream)
    else:
        content = mutated(reader.content, stream)
        if reader.file.endswith(".gz") and stream.random() < 0.6:
            content = gzip.compress(mutated(gzip.decompress(reader.content), stream))
    path = folder / Path(reader.file).name
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = odd_call(reader.name, reader.read, Case(path), {})  # type: ignore[arg-type]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if len(outcome.text) > LONGEST_ERROR:
        text = f"an error of {len(outcome.text)} characters"
        outcome = Outcome(reader.name, "", "raw", outcome.seconds, text)
    if grown > MOST_BYTES + 100 * len(content):
        text = f"{grown / 2**20:.0f} MiB for a file of {len(content)} bytes"
        outcome = Outcome(reader.name, "", "memory", outcome.seconds, text)
    return outcome, content


def read_many(
    readers: list[Reader], folder: Path, cases: int, seed: int
) -> tuple[list[Outcome], dict[str, bytes], float]:
    """Read so many damaged files, an equal share by each reader; faults come with their files."""
    start = time.monotonic()
    outcomes, kept = [], {}
    for number in range(cases):
        reader = readers[number % len(readers)]
        outcome, content = read_odd(reader, folder, random.Random(f"{seed} {number}"))
        outcomes.append(outcome)
        if outcome.kind in ("raw", "hang", "memory"):
            kept.setdefault(f"{reader.name}: {outcome.text[:60]} [{outcome.where}]", content)
    return outcomes, kept, time.monotonic() - start
