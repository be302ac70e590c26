"""Checking files of records: physical lines, every kind of broken line, counts without a cap, exit codes."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import subprocess
import sys
import tracemalloc

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.case_files import ROLLOUTS, bug, real_rollouts

from lagsweep.errors import ConfigError, ContractError
from lagsweep.kernels.contract.contract import RolloutContract, batch_contract_errors
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.records import check as records_module
from lagsweep.sweeps.records.check import validate_records
from lagsweep.sweeps.records.files import LINE_RULES, read_jsonl, read_records
from lagsweep.testing import good_record

GOOD = json.dumps(good_record())
SHORT = json.dumps(good_record(behavior_logprobs=[-0.5]))
ONE_ALONE = [good_record(sample_id=name, prompt_id=name[0]) for name in ("a1", "a2", "b1")]


def good(i):
    return json.dumps(good_record(sample_id=f"s{i}"))


def check(text, **options):
    data = text if isinstance(text, bytes) else text.encode()
    return validate_records(io.BytesIO(data), **{"batch_rules": False, **options})


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run ``lagsweep validate`` on some content; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(content, *flags, name="records.jsonl"):
        if content is not None:
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(SystemExit) as ended:
            main(["validate", name, *flags])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return call


# -- lines -------------------------------------------------------------------------------------------------


def test_all_bad_lines_are_found_by_physical_number(run):
    case = bug("bug-cli-06")
    words = {"<good>": None, "<logprob length mismatch>": SHORT}
    lines = [
        good(i) if words.get(line, line) is None else words.get(line, line)
        for i, line in enumerate(case["input"]["lines"])
    ]

    code, out, _ = run("\n".join(lines), "--json")

    (report,) = json.loads(out)["files"]
    assert code == case["expected"]["exit_code"]
    assert {name: report[name] for name in ("bad_lines", "valid_records", "blank_lines")} == {
        name: case["expected"][name] for name in ("bad_lines", "valid_records", "blank_lines")
    }
    assert report["rules"]["json_syntax"]["first_line"] == 3
    assert report["rules"]["logprob_length"]["first_line"] == 5


@pytest.mark.parametrize(
    ("content", "bad", "code"),
    [
        (f"{GOOD}\r\n\r\n{SHORT}\r\n", [3], "logprob_length"),
        (f"\ufeff{GOOD}\n{SHORT}\n", [2], "logprob_length"),
        (f"\n  \n\t\n{SHORT}", [4], "logprob_length"),
        (f"{GOOD}\n{GOOD[:40]}", [2], "json_truncated"),
        (f"{GOOD[:40]}\n{GOOD}", [1], "json_syntax"),
        (f"{GOOD} {GOOD}\n", [1], "json_syntax"),
        (f"{GOOD}\n".encode() + b'{"a": "\xff"}\n', [2], "line_encoding"),
        ("[" * 100_000 + "\n" + GOOD, [1], "json_syntax"),
        ('{"policy_version": ' + "9" * 5000 + "}\n", [1], "json_syntax"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}\n', [1], "json_duplicate_key"),
        ("17\n", [1], "record_type"),
        ('null\n"text"\n[]\n', [1, 2, 3], "record_type"),
        (GOOD.replace("-1.25", "NaN"), [1], "logprob_finite"),
        (GOOD.replace("-1.25", "-Infinity"), [1], "logprob_finite"),
        (GOOD.replace("-1.25", "-1e999"), [1], "logprob_finite"),
        ("\x00\x00\x00\n" + GOOD, [1], "json_syntax"),
    ],
)
def test_each_kind_of_broken_line_is_counted_at_its_line(content, bad, code):
    report = check(content)

    assert report.bad_lines == bad
    assert report.rules[code].first_line == bad[0]
    assert report.valid_records == report.records - len(bad)


def test_the_reader_joins_no_lines_at_other_separators():
    record = good_record(response_text="a\u2028b\u0085c\x0bd")

    report = check(json.dumps(record, ensure_ascii=False) + "\n" + SHORT)

    assert (report.lines, report.bad_lines) == (2, [2])


def test_nan_literals_are_remarked_on_even_where_no_rule_looks():
    report = check(GOOD[:-1] + ', "note": [NaN, Infinity]}')

    assert report.valid_records == 1
    assert report.rules["json_constant"].severity == "warning"


@pytest.fixture
def loaded():
    """What checks by the piece need is imported and compiled, and not counted as memory of a call."""
    check(f"{GOOD}\n" * 4000)


@pytest.mark.usefixtures("loaded")
def test_a_line_beyond_the_limit_is_passed_over_without_being_held():
    data = b"[" + b"1," * 20_000_000 + b"1]\n" + SHORT.encode()
    stream = io.BytesIO(data)
    tracemalloc.start()

    report = validate_records(stream, max_line_bytes=2**20, batch_rules=False)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.bad_lines == [1, 2]
    assert report.rules["line_too_long"].first_line == 1
    assert len(str(report.findings[0])) < 300
    assert peak < 12 * 2**20  # a piece has 8 MiB


@pytest.mark.parametrize("ending", [b"\n", b""])
def test_a_line_of_exactly_the_limit_is_read(ending):
    data = GOOD.encode()

    assert check(data + ending, max_line_bytes=len(data)).valid_records == 1
    assert list(check(data + ending, max_line_bytes=len(data) - 1).rules) == ["line_too_long"]


@pytest.mark.usefixtures("loaded")
def test_memory_does_not_grow_with_the_number_of_records():
    def peak(count):
        lines = ((GOOD if i % 20 else SHORT).encode() + b"\n" for i in range(count))
        stream = io.BufferedReader(_Lines(lines))
        tracemalloc.start()
        report = validate_records(stream, keep=5)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(report.bad_lines) >= count // 20
        return used

    small, large = peak(30_000), peak(50_000)  # both of more than one piece

    # Digests, numbers of bad lines and the closing sort: below 250 bytes a record, whose own size is 330.
    assert large - small < 20_000 * 250


class _Lines(io.RawIOBase):
    """A stream that makes its lines as they are read."""

    def __init__(self, lines):
        self._lines, self._rest = lines, b""

    def readable(self):
        return True

    def readinto(self, buffer):
        buffer = buffer[: 2**16]
        while len(self._rest) < len(buffer):
            more = next(self._lines, None)
            if more is None:
                break
            self._rest += more
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


KINDS = {
    "good": (lambda i: good(i), "valid"),
    "short": (lambda i: json.dumps(good_record(sample_id=f"s{i}", behavior_logprobs=[-1.0])), "bad"),
    "warned": (lambda i: json.dumps(good_record(sample_id=f"s{i}", behavior_logprobs=[0.0] * 3)), "valid"),
    "blank": (lambda i: "  ", "blank"),
    "junk": (lambda i: "{bad json", "bad"),
    "number": (lambda i: "17", "bad"),
}


@given(
    st.lists(st.sampled_from(sorted(KINDS)), max_size=25), st.sampled_from(["\n", "\r\n"]), st.integers(0, 4)
)
def test_counts_are_exact_for_any_mixture_and_any_cap(kinds, newline, keep):
    lines = [KINDS[kind][0](i) for i, kind in enumerate(kinds)]
    fates = [KINDS[kind][1] for kind in kinds]

    report = check("".join(line + newline for line in lines), keep=keep)

    assert report.lines == len(lines)
    assert report.bad_lines == [i + 1 for i, fate in enumerate(fates) if fate == "bad"]
    assert (report.blank_lines, report.valid_records) == (fates.count("blank"), fates.count("valid"))
    assert report.warned_records == kinds.count("warned")
    assert report.records == len(lines) - fates.count("blank")
    counted = sum(count.records for count in report.rules.values())
    assert len(report.findings) + report.hidden_findings == counted
    assert len(report.findings) == min(keep, counted)


# -- batch rules over a file -------------------------------------------------------------------------------


def test_a_file_is_one_batch_with_line_numbers(run):
    lines = [good(0), "", good(1), good(0)]

    code, out, _ = run("\n".join(lines), "--group-size", "4")
    relaxed, _, _ = run("\n".join(lines), "--no-batch-rules")

    assert (code, relaxed) == (1, 0)
    assert (
        "line 4: duplicate_sample_id: sample_id: must occur once in a batch, and line 1 has it already" in out
    )
    assert "line 1: group_size: prompt_id: must have 4 rollouts in its group (got 3 from line 1 on)" in out


# -- parquet -----------------------------------------------------------------------------------------------


def test_parquet_gives_the_findings_of_the_same_jsonl(tmp_path):
    rows = [good_record(sample_id=f"s{i}") for i in range(1200)]
    rows[3]["behavior_logprobs"] = [-0.5]
    rows[700]["behavior_logprobs"] = [-0.5, None, -0.5]
    rows[1100]["reward"] = {"correctness": float("nan"), "format": 0.0}
    rows[1150]["policy_version"] = None
    path = tmp_path / "records.parquet"
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path, row_group_size=100)
    contract = RolloutContract(eos_token_ids=[2])

    report = validate_records(path, contract=contract)
    as_lines = check("\n".join(json.dumps(row) for row in rows), contract=contract, batch_rules=True)

    assert (report.records, report.valid_records) == (1200, 1196)
    assert report.bad_lines == as_lines.bad_lines == [4, 701, 1101, 1151]
    first = {code: count.first_line for code, count in report.rules.items()}
    # A column has a null where JSON has no key; in JSON a null version is a version of the wrong type.
    assert first == {"logprob_length": 4, "logprob_null": 701, "reward_finite": 1101, "missing_field": 1151}
    assert set(as_lines.rules) == {*first, "json_constant", "version_type"} - {"missing_field"}


def test_a_reward_that_another_row_has_is_not_a_null_reward(tmp_path):
    rows = [good_record(sample_id="a"), good_record(sample_id="b", reward={"other": 1.0})]
    path = tmp_path / "records.parquet"
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)

    assert validate_records(path).bad_lines == []


def test_a_broken_parquet_file_is_the_callers_error(run):
    code, out, err = run(b"PAR1 nothing more", name="records.parquet")

    assert (code, out) == (2, "")
    assert err.startswith("error: file: must be a readable parquet file (got ")


# -- reading -----------------------------------------------------------------------------------------------


def test_no_schema_is_guessed_from_the_first_lines(tmp_path):
    expected = bug("bug-sweep-10")["expected"]
    path = tmp_path / "records.jsonl"
    path.write_text('{"lp":[]}\n' * 150 + '{"lp":[-0.5]}\n')

    found = list(read_records(path))

    assert len(found) == expected["rows"]
    assert found[-1]["lp"] == expected["last_value"]
    lines = [good_record(sample_id=i, behavior_logprobs=[0, -1, -2]) for i in range(150)]
    mixed = check("\n".join(json.dumps(r) for r in [*lines, good_record()]))
    assert mixed.valid_records == 151


def test_reading_stops_at_a_line_that_is_no_record(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(f"{GOOD}\n\n{{bad\n")

    reader = read_records(path)

    assert next(reader)["sample_id"] == good_record()["sample_id"]
    with pytest.raises(ContractError, match=r"records\.jsonl, line 3: line: must be one JSON value"):
        next(reader)


@pytest.mark.parametrize(
    ("content", "format_name"),
    [
        (gzip.compress(gzip.compress(GOOD.encode())), "gzip in gzip"),
        (GOOD.encode("utf-16"), "UTF-16"),
        (gzip.compress(b"PAR1 .."), "parquet"),
    ],
    ids=["gzip in gzip", "UTF-16", "packed parquet"],
)
def test_other_formats_are_refused_with_what_to_do(run, content, format_name):
    code, out, err = run(content)

    assert (code, out) == (2, "")
    assert err.startswith(f"error: file: must be JSON lines or a parquet file (got '{format_name}'). ")


# -- the command -------------------------------------------------------------------------------------------


def test_a_good_file_says_so_in_one_line(run):
    code, out, err = run("\n".join(json.dumps(r) for r in real_rollouts()), "--eos-id", "2")

    assert (code, err) == (0, "")
    assert out == "records.jsonl: 32 records in 32 lines (0 blank): 32 valid, 0 bad, 0 with warnings\n"


def test_what_the_command_prints(run):
    code, out, err = run(f"{good(0)}\n{SHORT}\n{{bad\n{SHORT}\n", "--show", "2", "--no-batch-rules")

    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "line 2 ('run1-p003-r01'): logprob_length: behavior_logprobs: must have one value per response "
        "token, 3 (got 1 value). Keep the sampler's ids and values together; never pad, cut or re-tokenise.",
        "line 3: json_syntax: line: must be one JSON value (got 'Expecting property name enclosed in double "
        "quotes at column 2'). Write one record per line.",
        "... and 1 more finding, counted below (--show prints more)",
        "",
        "rule            severity  records  values  first line  what it asks",
        "logprob_length  error           2       2           2  there is one log-probability per response "
        "token",
        "json_syntax     error           1       1           3  a line is one JSON value",
        "",
        "records.jsonl: 4 records in 4 lines (0 blank): 1 valid, 3 bad, 0 with warnings",
    ]


def test_a_length_mismatch_names_record_field_and_both_lengths(run):
    case = bug("bug-mask-09")

    code, out, _ = run("\n".join(case["input"]["jsonl"]), "--schema", "minimal")

    assert code == 1
    assert all(word in out for word in case["expected"]["message_mentions"])
    assert "0 valid, 1 bad" in out


def test_warnings_alone_pass_unless_strict(run):
    content = "\n".join(bug("bug-mask-10")["input"]["jsonl"])

    code, out, _ = run(content, "--schema", "minimal", "--json")
    strict, _, _ = run(content, "--schema", "minimal", "--strict")

    report = json.loads(out)["files"][0]
    assert (code, strict) == (0, 1)
    assert (report["errors"], report["warnings"]) == (0, 1)
    assert [f["record_id"] for f in report["findings"]] == bug("bug-mask-10")["expected"]["warnings_for"]


@pytest.mark.parametrize("limit", [0, 2])
def test_the_lag_limit_on_the_command_line(run, limit):
    case = bug("bug-stale-01")
    versions = case["input"]["behaviour_versions"]
    lines = [json.dumps(good_record(sample_id=str(v), policy_version=v)) for v in versions]
    trainer = str(case["input"]["trainer_version"])

    _, out, _ = run("\n".join(lines), "--json", "--trainer-version", trainer, "--max-lag", str(limit))

    bad = json.loads(out)["files"][0]["bad_lines"]
    assert bad == [i + 1 for i, kept in enumerate(case["expected"][f"max_lag={limit}"]) if not kept]


def test_one_bad_file_of_several_fails_and_both_are_reported(run, tmp_path):
    (tmp_path / "other.jsonl").write_text(SHORT)

    code, out, _ = run(GOOD, "other.jsonl", "--json")

    document = json.loads(out)
    assert (code, document["ok"]) == (1, False)
    assert [f["bad_lines"] for f in document["files"]] == [[], [1]]


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_a_file_without_records_is_not_a_success(run, content):
    code, out, _ = run(content)

    assert code == 1
    assert out.endswith("0 valid, 0 bad, 0 with warnings\nThere is no record in it.\n")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--max-lag", "2"], "error: max_policy_lag: needs a version to count from (got 2). "),
        (
            ["--schema", "trll"],
            "error: schema: must be one of lagsweep, minimal, verl, trl, areal, slime, openrlhf, nemo_rl, ",
        ),
        (["missing.jsonl"], "error: file: must be a file that exists (got 'missing.jsonl'). "),
        (["*.parquet"], "error: file: must match a file that exists (got '*.parquet'). "),
    ],
)
def test_usage_errors_have_code_2_and_no_traceback(run, flags, text):
    code, out, err = run(GOOD, *flags)

    assert (code, out) == (2, "")
    assert err.startswith(text)
    assert "Traceback" not in err


def test_a_dash_reads_from_stdin(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{GOOD}\n{SHORT}".encode())))

    code, out, _ = run(None, "--json", name="-")

    assert code == 1
    assert json.loads(out)["files"][0]["bad_lines"] == [2]


def test_text_from_a_record_cannot_drive_the_terminal(run):
    record = good_record(sample_id="\x1b[31mred\n", stop_reason="\x1b]0;x\x07", reward={"\x1b[2J": None})

    code, out, _ = run(json.dumps(record))

    assert code == 1
    assert "\x1b" not in out
    assert "\x07" not in out
    assert out.count("line 1 (") == 2


def test_what_is_one_is_named_so(run):
    _, out, _ = run(f"{GOOD}\n", "--statistics", "--clean", "clean.jsonl")
    _, of_three, _ = run("\n".join(json.dumps(row) for row in ONE_ALONE))

    assert "records.jsonl: 1 record in 1 line (0 blank): 1 valid, 0 bad, 0 with warnings" in out
    assert "\n1 group: 1 with 1 rollout\n" in out
    assert "clean.jsonl: 1 good record written, 0 left out" in out
    assert "(got 1 group of one)" in of_three
    assert [str(found).count("(got 1 group of one)") for found in batch_contract_errors(ONE_ALONE)] == [1]


def test_progress_is_plain_lines_on_stderr(run, monkeypatch):
    monkeypatch.setattr(records_module, "_PROGRESS_SECONDS", 0.0)

    _, out, err = run(f"{GOOD}\n{SHORT}\n", "--no-batch-rules")

    assert err == "records.jsonl: 1 line, 0 errors\nrecords.jsonl: 2 lines, 1 error\n"
    assert "\r" not in out + err


def test_json_is_json_whatever_the_records_hold(run):
    _, out, _ = run(GOOD.replace("-1.25", "NaN") + "\n" + json.dumps(good_record(sample_id=10**30)), "--json")

    document = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert document["files"][0]["rules"]["json_constant"]["rule"] == LINE_RULES["json_constant"][1]


def test_checking_jsonl_loads_no_compiler_and_no_table_library():
    program = (
        "import sys, io\n"
        "from lagsweep.sweeps.records.check import validate_records\n"
        "assert validate_records(sys.argv[1]).ok()\n"
        "print([m for m in ('numba', 'polars', 'scipy', 'xarray') if m in sys.modules])"
    )
    path = ROLLOUTS / "real_rollouts_smollm2.jsonl"

    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_a_stream_needs_no_end_to_be_read_line_by_line():
    lines = read_jsonl(io.BufferedReader(_Lines(itertools.repeat(b"{}\n"))))

    assert [next(lines).number for _ in range(3)] == [1, 2, 3]


def test_a_missing_file_is_refused_before_anything_is_counted(tmp_path):
    with pytest.raises(ConfigError, match="must be a file that exists"):
        validate_records(tmp_path / "none.jsonl")
