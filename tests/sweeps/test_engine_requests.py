"""Request logs: columns by name, units that are said and never guessed, every finding at once."""

from __future__ import annotations

import gzip
import json

import numpy as np
import polars as pl
import pytest

from lagsweep import ConfigError
from lagsweep.sweeps.engines.columns import unit_of
from lagsweep.sweeps.engines.requests import read_requests
from lagsweep.sweeps.engines.stages import read_stages

ROWS = {
    "arrival_s": [0.0, 0.5, 1.0],
    "prompt_tokens": [100, 200, 300],
    "output_tokens": [11, 21, 1],
    "e2e_s": [1.2, 2.2, 0.4],
    "ttft_s": [0.2, 0.2, 0.4],
}


def write(folder, rows, name="log.csv"):
    frame = pl.DataFrame(rows)
    path = folder / name
    if name.endswith(".parquet"):
        frame.write_parquet(path)
        return path
    text = (
        "\n".join(json.dumps(row) for row in frame.to_dicts()).encode()
        if ".jsonl" in name
        else frame.write_csv().encode()
    )
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def findings(path, **options):
    with pytest.raises(ConfigError) as caught:
        read_requests(path, **options)
    return [str(finding) for finding in caught.value.findings]


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl", "log.parquet", "log.csv.gz", "log.jsonl.gz"])
def test_every_kind_of_file_reads_the_same(tmp_path, name):
    log = read_requests(write(tmp_path, ROWS, name))

    assert log.prompt_tokens.tolist() == [100, 200, 300]
    assert log.arrival_seconds.tolist() == [0.0, 0.5, 1.0]
    assert log.measured["end_to_end"].tolist() == [1.2, 2.2, 0.4]


def test_the_time_per_token_follows_from_the_ends_and_is_none_for_one_token(tmp_path):
    each = read_requests(write(tmp_path, ROWS)).measured["per_token"]

    assert each[:2] == pytest.approx([0.1, 0.1])
    assert np.isnan(each[2])


def test_the_first_token_follows_from_end_and_decode(tmp_path):
    rows = {**ROWS, "decode_ms": [1000.0, 2000.0, 0.0]}
    del rows["ttft_s"]
    measured = read_requests(write(tmp_path, rows)).measured

    assert measured["first_token"] == pytest.approx([0.2, 0.2, 0.4])
    assert measured["per_token"][:2] == pytest.approx([0.1, 0.1])


def test_arrivals_count_from_the_first(tmp_path):
    rows = {**ROWS, "arrival_s": [1.7e9 + 2, 1.7e9, 1.7e9 + 1]}

    assert read_requests(write(tmp_path, rows)).arrival_seconds.tolist() == [2.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ttft_ms", ("ttft", "milliseconds")),
        ("TTFT (ms)", ("ttft", "milliseconds")),
        ("arrival_time", ("arrival_time", "")),
        ("seconds_per_token", ("per_token", "seconds")),
        ("e2e_latency_us", ("e2e_latency", "microseconds")),
        ("s", ("s", "")),
    ],
)
def test_a_columns_name_says_its_unit_or_none(name, found):
    assert unit_of(name) == found


def test_a_unit_in_the_name_is_followed(tmp_path):
    rows = {name.replace("_s", "_ms"): values for name, values in ROWS.items()}
    rows |= {name: [1e3 * value for value in rows[name]] for name in ("arrival_ms", "e2e_ms", "ttft_ms")}
    log = read_requests(write(tmp_path, rows))

    assert log.arrival_seconds == pytest.approx([0.0, 0.5, 1.0])
    assert log.measured["end_to_end"] == pytest.approx([1.2, 2.2, 0.4])
    assert str(log.columns["arrival"]) == "'arrival_ms', milliseconds by its name"


def test_a_time_without_a_unit_is_asked_for(tmp_path):
    rows = {name.removesuffix("_s"): values for name, values in ROWS.items()}
    path = write(tmp_path, rows)

    assert findings(path) == [
        f"unit of {role}: column {column!r} must have a unit, and its name says none. Say it: --unit "
        f"{role}=seconds, or milliseconds, or --unit for all at once."
        for role, column in (("arrival", "arrival"), ("end_to_end", "e2e"), ("first_token", "ttft"))
    ]
    assert read_requests(path, unit="s").arrival_seconds.tolist() == [0.0, 0.5, 1.0]
    mixed = read_requests(path, unit={"all": "seconds", "arrival": "ms"})
    assert mixed.arrival_seconds == pytest.approx([0.0, 0.0005, 0.001])


def test_milliseconds_where_the_name_says_seconds_are_refused(tmp_path):
    rows = {**ROWS, "e2e_s": [1200.0, 2200.0, 400.0], "ttft_s": [200.0, 200.0, 400.0]}
    path = write(tmp_path, rows)

    (finding,) = findings(path)
    assert finding == (
        "unit of end_to_end: column 'e2e_s' would be 109 s a token, as no engine takes: it looks like "
        "another unit. If so, say --unit end_to_end=milliseconds; if it is right, --unit end_to_end=seconds."
    )
    told = read_requests(path, unit={"end_to_end": "milliseconds", "first_token": "milliseconds"})
    assert told.measured["end_to_end"] == pytest.approx([1.2, 2.2, 0.4])
    assert read_requests(path, unit="seconds").measured["end_to_end"][0] == 1200.0


def test_one_time_in_another_unit_than_the_others_is_refused(tmp_path):
    rows = {**ROWS, "ttft_s": [200.0, 200.0, 400.0]}

    assert findings(write(tmp_path, rows)) == [
        "unit of first_token: must not be after the last token, as in row 1: 'ttft_s', seconds by its name: "
        "it looks like another unit. If so, say --unit first_token=milliseconds; if it is right, --unit "
        "first_token=seconds."
    ]


def test_arrivals_in_milliseconds_leave_requests_alone_that_yet_wait(tmp_path):
    count = 20
    rows = {
        "arrival_s": [100.0 * k for k in range(count)],
        "prompt_tokens": [100] * count,
        "output_tokens": [100] * count,
        "e2e_s": [9.0] * count,
        "ttft_s": [5.0] * count,
    }
    path = write(tmp_path, rows)

    (finding,) = findings(path)
    assert finding.startswith(
        "unit of arrival: column 'arrival_s' would leave 0.095 requests at once, and yet they wait 5 s"
    )
    assert read_requests(path, unit={"arrival": "milliseconds"}).arrival_seconds[-1] == pytest.approx(1.9)


def test_all_that_is_missing_or_ambiguous_is_said_at_once(tmp_path):
    rows = {"arrival_s": [0.0], "ttft_s": [1.0], "first_token_s": [1.0], "length": [3]}

    assert findings(write(tmp_path, rows)) == [
        "column of first_token: several columns can be it (from its arrival to its first token): 'ttft_s', "
        "'first_token_s'. Say which: --column first_token=ttft_s.",
        "column of prompt: is required (tokens of its prompt); the file has 'arrival_s', 'ttft_s', "
        "'first_token_s', 'length'. Name it: --column prompt=NAME.",
        "column of output: is required (tokens of its answer); the file has 'arrival_s', 'ttft_s', "
        "'first_token_s', 'length'. Name it: --column output=NAME.",
    ]


def test_bad_cells_of_several_columns_are_said_at_once(tmp_path):
    rows = {**ROWS, "prompt_tokens": ["100", "many", "300"], "e2e_s": [1.2, -2.2, 0.4]}

    assert findings(write(tmp_path, rows)) == [
        "log.csv, column 'prompt_tokens', row 2: must be a whole number of at least 1 (got 'many'). Rows "
        "count from 1, without a header.",
        "log.csv, column 'e2e_s', row 2: must be a finite number of at least 0 (got -2.2). Rows count from "
        "1, without a header.",
    ]


def test_a_column_can_be_named_and_rows_picked_by_what_they_hold(tmp_path):
    rows = {**ROWS, "run": ["a", "b", "b"], "n_in": [1, 2, 3]}
    log = read_requests(write(tmp_path, rows), columns={"prompt": "n_in"}, where={"run": "b"})

    assert log.prompt_tokens.tolist() == [2, 3]
    assert log.arrival_seconds.tolist() == [0.0, 0.5]


def test_rows_that_were_picked_keep_their_numbers_in_messages(tmp_path):
    rows = {**ROWS, "run": ["a", "b", "b"], "output_tokens": [1, 2, 0]}

    (finding,) = findings(write(tmp_path, rows), where={"run": "b"})
    assert finding.startswith("log.csv, column 'output_tokens', row 3: must be a whole number")


def test_a_text_that_no_row_holds_is_refused(tmp_path):
    (finding,) = findings(write(tmp_path, {**ROWS, "run": ["one", "two", "two"]}), where={"run": "tow"})

    assert finding == "log.csv, column 'run': must hold it (got 'tow'). Did you mean 'two'?"


def test_without_arrivals_one_says_that_all_came_at_once(tmp_path):
    rows = {name: values for name, values in ROWS.items() if name != "arrival_s"}
    path = write(tmp_path, rows)

    assert findings(path)[0].startswith("column of arrival: is required (when a request came)")
    assert read_requests(path, all_at_once=True).arrival_seconds is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": {"promt": "x"}}, "column: must be one of arrival, prompt, output"),
        ({"columns": {"prompt": "prompt_token"}}, "--column prompt: must be a column of the file"),
        ({"unit": "minutes"}, "unit all: must be one of seconds, milliseconds, microseconds, nanoseconds"),
        ({"unit": {"prompt": "s"}}, "unit: must be one of arrival, end_to_end"),
        ({"where": {"no": "x"}}, "column: must be a column of log.csv"),
        ({"all_at_once": "yes"}, "all_at_once: must be true or false"),
    ],
)
def test_what_is_asked_of_the_file_is_checked(tmp_path, options, text):
    assert findings(write(tmp_path, ROWS), **options)[0].startswith(text)


def test_several_runs_in_one_file_are_remarked_on(tmp_path):
    rows = {name: values * 2 for name, values in ROWS.items()}
    (note,) = read_requests(write(tmp_path, rows)).notes

    assert note.startswith("arrivals go back to the beginning 1 times")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"nothing packed", "must be a gzip file that is whole"),
        (gzip.compress(b"x" * 99, mtime=0)[:-9], "is whole"),
    ],
    ids=["not packed", "cut"],
)
def test_a_damaged_gzip_file_is_refused(tmp_path, content, text):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(content)

    assert text in findings(path)[0]


def test_load_stages_are_read_by_the_same_rules(tmp_path):
    rows = {"running": [1.5, 8.0], "prompt_len": [10, 20], "osl": [4, 6], "ms_per_token": [7.0, 9.0]}
    stages = read_stages(write(tmp_path, rows))

    assert stages.running.tolist() == [1.5, 8.0]
    assert stages.context_tokens.tolist() == [12.0, 23.0]
    assert stages.seconds_per_token == pytest.approx([0.007, 0.009])
