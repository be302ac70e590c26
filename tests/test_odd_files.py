"""Every reader of a user's file over damaged files: right, or one of our errors; no hang, bounded memory."""

from __future__ import annotations

import collections
import gzip
import json
import random
import resource

import pytest
from oracle.every_command import run
from strategies import odd_files
from strategies.odd_calls import odd_call

from lagsweep.testing import good_record

CASES = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("odd")


@pytest.fixture(scope="module")
def readers(folder):
    return odd_files.make_readers(folder)


def test_every_reader_answers_its_good_file(readers, folder):
    work = folder / "good"
    work.mkdir()
    for reader in readers:
        path = work / reader.file.rsplit("/", 1)[-1]
        path.write_bytes(reader.content)
        outcome = odd_call(reader.name, reader.read, odd_files.Case(path), {})
        assert outcome.kind == "answer", (reader.name, outcome.text, outcome.where)


def test_damaged_files_are_read_or_refused_and_nothing_else(readers, folder):
    work = folder / "damaged"
    work.mkdir()

    outcomes, faults, _ = odd_files.read_many(readers, work, CASES * len(readers), seed=0)

    assert not faults
    kinds = collections.Counter((outcome.name, outcome.kind) for outcome in outcomes)
    for reader in readers:  # what is never refused is not damaged
        assert kinds[reader.name, "refused"] + kinds[reader.name, "answer"] == CASES
    refused = {outcome.name for outcome in outcomes if outcome.kind == "refused"}
    assert len(refused) > len(readers) - 4


def test_a_damaged_file_ends_a_command_with_a_documented_code_and_no_traceback(readers, folder):
    work = folder / "commands"
    work.mkdir()
    calls = {
        "records": ["validate"], "records, gzip": ["validate", "--statistics"],
        "records, parquet": ["validate"], "spec": ["run", "--dry-run"], "engine": ["engine", "show"],
        "step log, CSV": ["calibrate", "--seeds", "1"], "model config": ["ledger", "--model"],
    }  # fmt: skip
    tried = collections.Counter()
    for reader in readers:
        for number in range(6 if reader.name in calls else 0):
            stream = random.Random(f"command {number}")
            path = work / reader.file
            # A log that still is one would be fitted, which takes seconds: it is cut to nothing but its head.
            content = odd_files.mutated(reader.content, stream)
            path.write_bytes(content[:300] if reader.name == "step log, CSV" else content)
            answer = run([*calls[reader.name], str(path)])
            assert answer.code in (0, 1, 2, 3), (reader.name, number)
            assert b"Traceback" not in answer.err
            tried[answer.code] += 1
    assert tried[0] + tried[1] > 0
    assert tried[2] > 0


@pytest.mark.parametrize("filling", [b"\x00", b"[", b"\n"])
def test_a_file_that_unpacks_to_much_more_is_checked_in_the_memory_of_a_piece(filling, tmp_path):
    """Many MiB in some KiB: a line that is too long is passed over, blank lines come by the piece."""
    size = 4 * 2**20 if filling == b"\n" else 40 * 2**20
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(good_record()).encode() + b"\n" + filling * size))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    answer = run(["validate", str(path), "--max-line-bytes", str(2**20), "--json", "--no-batch-rules"])

    (report,) = json.loads(answer.out)["files"]
    assert answer.code == (0 if filling == b"\n" else 1)
    assert report["blank_lines"] == (size if filling == b"\n" else 0)
    assert list(report["rules"]) == ([] if filling == b"\n" else ["line_too_long"])
    # ru_maxrss counts kibibytes on Linux; pieces, their lines and what is imported fit well below this.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 2**10


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("store: journal.jsonl", DEEP + b"\n"),
        ("store: cells.zarr/zarr.json", DEEP),
        ("step log, JSON lines", b'{"step": 1, "step_seconds": 2.0, "\\ud800": "\\ud800"}\n' * 3),
    ],
)
def test_what_was_found_stays_mended(name, content, readers, folder):
    reader = next(each for each in readers if each.name == name)
    path = folder / reader.file.rsplit("/", 1)[-1]
    path.write_bytes(content)

    outcome = odd_call(name, reader.read, odd_files.Case(path), {})

    assert outcome.kind in ("answer", "refused"), (outcome.text, outcome.where)
