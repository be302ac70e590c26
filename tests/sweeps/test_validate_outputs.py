"""What ``lagsweep validate`` reads and writes beside its report: patterns, findings, statistics."""

from __future__ import annotations

import gzip
import json
import os
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from oracle import every_command

from lagsweep import DriftLaw, LengthLaw, read_engine_log, read_step_log
from lagsweep.errors import ConfigError
from lagsweep.sweeps.logs.lengths import read_lengths
from lagsweep.sweeps.records.findings_file import checked_findings_path
from lagsweep.testing import good_record

TRL = {"prompt_ids": [5], "completion_ids": [6, 2], "sampling_per_token_logps": [-0.5, -0.5]}


def run(arguments):
    """Run the command; its streams are texts."""
    answer = every_command.run(arguments)
    return answer._replace(out=answer.out.decode(), err=answer.err.decode())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three files of records in two folders, three records of which are bad."""
    monkeypatch.chdir(tmp_path)
    rows = [
        good_record(sample_id=f"s{i}", prompt_id=f"p{i // 3}", policy_version=i // 4, reward=float(i % 3 > 0))
        for i in range(12)
    ]
    rows[4]["reward"] = None
    rows[5]["behavior_logprobs"] = [-0.5]
    lines = [json.dumps(row).encode() for row in rows]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n\n".join(lines[:6]))
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(gzip.compress(b"\r\n".join([*lines[6:], lines[6]])))
    (tmp_path / "in" / "note.txt").write_text("no records")
    return tmp_path


def names_of(*arguments):
    answer = run(["validate", "--json", *arguments])
    return [Path(each["file"]).name for each in json.loads(answer.out)["files"]]


@pytest.mark.usefixtures("folder")
def test_a_folder_and_a_pattern_stand_for_their_files_each_once():
    assert names_of("in") == ["a.jsonl", "b.jsonl.gz"]
    assert names_of("in/*.jsonl*", "in/a.jsonl") == ["a.jsonl", "b.jsonl.gz"]
    assert names_of("**/a.jsonl") == ["a.jsonl"]


def test_a_file_that_is_called_like_a_pattern_is_that_file(folder):
    (folder / "in" / "[a].jsonl").write_bytes((folder / "in" / "a.jsonl").read_bytes())

    assert names_of("in/[a].jsonl") == ["[a].jsonl"]


def test_a_folder_without_records_is_refused(folder):
    (folder / "empty").mkdir()

    answer = run(["validate", "empty"])

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: file: must hold files that end in .jsonl, ")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_every_finding_is_a_row(folder, kind):
    answer = run(["validate", "in", "--show", "0", "--findings", f"found.{kind}", "--json"])

    path = folder / f"found.{kind}"
    rows = pl.read_parquet(path) if kind == "parquet" else pl.read_ndjson(path)
    assert rows.select("file", "line", "record_id", "code", "severity").rows() == [
        ("in/a.jsonl", 9, "s4", "reward_null", "error"),
        ("in/a.jsonl", 11, "s5", "logprob_length", "error"),
        ("in/b.jsonl.gz", 7, None, "duplicate_sample_id", "error"),
    ]
    assert all(rows["message"].str.contains("must"))
    assert [each["hidden_findings"] for each in json.loads(answer.out)["files"]] == [2, 1]


def test_findings_of_good_records_are_an_empty_table(folder):
    (folder / "good.jsonl").write_text(json.dumps(good_record()))

    assert run(["validate", "good.jsonl", "--findings", "f.parquet"]).code == 0
    assert pl.read_parquet(folder / "f.parquet").shape == (0, 8)


def test_statistics_by_version_and_by_group(folder):
    answer = run(["validate", "in/a.jsonl", "--statistics", "--json"])
    text = run(["validate", "in/a.jsonl", "--statistics"]).out

    statistics = json.loads(answer.out)["files"][0]["statistics"]
    assert statistics["versions"] == 2
    assert statistics["by_version"] == [
        {
            "version": 0, "records": 4, "bad_records": 0, "mean_reward": 0.5, "min_reward": 0.0,
            "max_reward": 1.0, "mean_response_tokens": 3.0, "max_response_tokens": 3,
        },
        {
            "version": 1, "records": 2, "bad_records": 2, "mean_reward": 1.0, "min_reward": 1.0,
            "max_reward": 1.0, "mean_response_tokens": 3.0, "max_response_tokens": 3,
        },
    ]  # fmt: skip
    assert statistics["groups"] == {"groups": 2, "sizes": {"3": 2}, "equal_rewards": 0, "with_rewards": 1}
    assert "2 groups: 2 with 3 rollouts" in text
    assert "0 of 1 group (of several rollouts, each with a reward) have equal rewards only" in text


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_the_good_records_are_written_as_they_are(folder, suffix):
    answer = run(["validate", "in", "--clean", f"good.{suffix}"])

    content = (folder / f"good.{suffix}").read_bytes()
    content = gzip.decompress(content) if suffix.endswith("gz") else content
    ids = [json.loads(line)["sample_id"] for line in content.splitlines()]
    assert answer.code == 1
    assert ids == [f"s{i}" for i in range(12) if i not in (4, 5)]
    assert content.splitlines()[0] == (folder / "in" / "a.jsonl").read_bytes().splitlines()[0][3:]
    last, joined = answer.out.splitlines()[-2:]
    assert joined == f"good.{suffix}: as one batch: no error, 1 with warnings"
    assert last.startswith(
        f"good.{suffix}: 10 good records written, 3 left out (records by rule: reward_null 1"
    )
    assert run(["validate", f"good.{suffix}"]).code == 0


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_id_in_two_of_the_files_that_are_cleaned_is_a_finding(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    for name, ids in (("one", "ab"), ("two", "bc")):
        rows = [good_record(sample_id=f"{each}{k}", prompt_id=each) for each in ids for k in range(2)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        Path(f"{name}.jsonl").write_text(text)
        pl.DataFrame(rows).write_parquet(f"{name}.parquet")
    call = ["validate", f"one.{suffix}", f"two.{suffix}", "--clean", f"both.{suffix}", "--overwrite"]
    answer = run(call)
    document = json.loads(run([*call, "--json", "--findings", "found.jsonl"]).out)
    found = [json.loads(line) for line in Path("found.jsonl").read_text().splitlines()]

    assert answer.code == 1
    assert [(row["file"], row["line"], row["code"]) for row in found if row["severity"] == "error"] == [
        (f"both.{suffix}", line, "duplicate_sample_id") for line in (5, 6)
    ]
    assert (
        "As one batch the good records of all files break rules:\nline 5: duplicate_sample_id:" in answer.out
    )
    assert "Clean the files one by one, or give their records ids of their own" in answer.out
    assert not document["ok"]
    assert [each["errors"] for each in document["files"]] == [0, 0]
    assert document["clean"]["records"] == 8
    assert document["clean"]["as_one_batch"]["bad_lines"] == [5, 6]
    alone = run([*call, "--no-batch-rules", "--json"])
    assert (alone.code, "as_one_batch" in json.loads(alone.out)["clean"]) == (0, False)
    single = run(["validate", f"one.{suffix}", "--clean", f"one-good.{suffix}", "--json"])
    assert (single.code, "as_one_batch" in json.loads(single.out)["clean"]) == (0, False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_with_a_name_is_refused_with_the_way_out(tmp_path):
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    (tmp_path / "good.jsonl").write_text(json.dumps(good_record()) + "\n")

    answer = run(["validate", str(tmp_path / "good.jsonl"), str(pipe)])

    assert (answer.code, answer.out) == (2, "")
    assert f"file: must be a file, not a pipe (got '{pipe}'). Give - and pipe into it" in answer.err
    assert "lagsweep validate -" in answer.err
    readers = [read_step_log, read_engine_log, partial(LengthLaw.from_file, column="n"), read_lengths,
               partial(DriftLaw.from_records, level="token")]  # fmt: skip
    for read in readers:
        with pytest.raises(ConfigError, match=r"path: must be a file, not a pipe .* Save it to a file"):
            read(pipe)


def test_the_good_rows_of_a_table_keep_their_columns(folder):
    rows = [good_record(sample_id=f"s{i}", note=i) for i in range(6)]
    rows[2]["stop_reason"] = "abort"
    pl.DataFrame(rows).write_parquet(folder / "r.parquet")

    run(["validate", "r.parquet", "--clean", "good.parquet"])

    found = pl.read_parquet(folder / "good.parquet")
    assert found.equals(pl.DataFrame(rows).filter(pl.col("note") != 2))


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["in", "--clean", "in/a.jsonl"], "--clean: must not be a file that is read"),
        (["in", "--clean", "old.jsonl"], "--clean: must not be there already"),
        (["in", "--clean", "good.parquet"], "--clean: must be of the kind of what is read"),
        (["in", "--clean", "good.csv"], "--clean: must end in one of .jsonl"),
        (["in", "--clean", "none/good.jsonl"], "--clean: must lie in a folder that exists"),
        (["-", "--clean", "good.jsonl"], "--clean: needs files, which are read twice"),
        (["in", "--findings", "f.csv"], "--findings: must end in .parquet or .jsonl"),
        (["in", "--findings", ""], "--findings: must end in .parquet or .jsonl"),
        (["in", "--findings", "in/a.jsonl", "--overwrite"], "--findings: must not be a file that is read"),
        (["in", "--findings", "in/../in/a.jsonl"], "--findings: must not be a file that is read"),
        (["in", "--findings", "old.jsonl"], "--findings: must not be there already (got 'old.jsonl')"),
        (["-", "--findings", "old.jsonl"], "--findings: must not be there already"),
        (["none.jsonl", "--findings", "old.jsonl"], "--findings: must not be there already"),
        (["in", "--findings", "none/f.jsonl"], "--findings: must lie in a folder that exists"),
        (
            ["in", "--clean", "f.jsonl", "--findings", "f.jsonl"],
            "--findings: must not be the file of --clean",
        ),
        (
            ["in", "--clean", "f.jsonl", "--findings", "in/../f.jsonl"],
            "--findings: must not be the file of --clean",
        ),
        (
            ["in", "--clean", "old.jsonl", "--findings", "./old.jsonl", "--overwrite"],
            "--findings: must not be the file of --clean",
        ),
        (["in", "--columns", "sample_id"], "--columns: must be OURS=THEIRS"),
        (["-", "--shape", "auto"], "--shape: must be named for the standard input"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(folder, arguments, rule):
    (folder / "old.jsonl").write_text("old")

    answer = run(["validate", *arguments])

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {rule}")
    assert (folder / "old.jsonl").read_text() == "old"
    assert sorted(path.name for path in folder.iterdir()) == ["in", "old.jsonl"]


def test_a_file_is_replaced_only_when_asked_and_only_by_a_whole_one(folder, monkeypatch):
    (folder / "old.jsonl").write_text("old")
    from lagsweep.sweeps.records import cleaning

    def broken(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "unpacked_stream", broken)
        assert run(["validate", "in", "--clean", "old.jsonl", "--overwrite"]).code == 2
    assert (folder / "old.jsonl").read_text() == "old"
    assert sorted(path.name for path in folder.iterdir()) == ["in", "old.jsonl"]

    run(["validate", "in", "--clean", "old.jsonl", "--overwrite"])
    assert len((folder / "old.jsonl").read_text().splitlines()) == 10
    run(["validate", "in", "--findings", "old.jsonl", "--overwrite"])
    assert len((folder / "old.jsonl").read_text().splitlines()) == 3


def test_a_link_to_a_file_that_is_read_or_cleaned_is_that_file(folder):
    before = (folder / "in" / "a.jsonl").read_bytes()
    (folder / "read.jsonl").symlink_to("in/a.jsonl")
    os.link(folder / "in" / "a.jsonl", folder / "hard.jsonl")
    (folder / "here").symlink_to(".")

    for option in ("--clean", "--findings"):
        for name in ("read.jsonl", "hard.jsonl"):
            answer = run(["validate", "in/a.jsonl", option, name, "--overwrite"])
            assert answer.code == 2
            assert answer.err.startswith(f"error: {option}: must not be a file that is read (got '{name}')")
    answer = run(["validate", "in/a.jsonl", "--clean", "new.jsonl", "--findings", "here/new.jsonl"])

    assert answer.code == 2
    assert answer.err.startswith("error: --findings: must not be the file of --clean (got 'here/new.jsonl')")
    assert (folder / "in" / "a.jsonl").read_bytes() == before
    assert not (folder / "new.jsonl").exists()


def test_a_file_that_the_shell_opened_as_the_standard_input_is_read_too(folder, monkeypatch):
    (folder / "old.jsonl").write_text("old")
    with (folder / "old.jsonl").open() as opened:
        monkeypatch.setattr("sys.stdin", opened)
        with pytest.raises(ConfigError, match=r"^--findings: must not be a file that is read"):
            checked_findings_path(Path("old.jsonl"), "--findings", ["-"], overwrite=True)


def test_a_shape_is_told_by_the_first_record_and_columns_are_mapped(folder):
    (folder / "trl.jsonl").write_text(json.dumps(TRL))
    (folder / "own.jsonl").write_text('{"id": 1, "meta": {"v": 3}}\n{"id": 2, "meta": {"v": -3}}\n')

    told = run(["validate", "trl.jsonl", "--shape", "auto"])
    named = run(["validate", "trl.jsonl", "--shape", "trl"])
    own = run(["validate", "own.jsonl", "--columns", "sample_id=id,policy_version=meta.v"])

    assert (told.code, told.out) == (named.code, named.out)
    assert told.err == "trl.jsonl: records of shape trl\n"
    assert "line 2 (2): version_type: meta.v: must be a whole number of 0 or more (got -3)." in own.out
