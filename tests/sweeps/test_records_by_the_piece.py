"""Records checked by the piece: the findings of line by line, whatever the file, pieces and limits."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracle.case_files import real_rollouts

from lagsweep.errors import ConfigError
from lagsweep.kernels.contract.contract import RolloutContract
from lagsweep.kernels.contract.line_shapes import line_shapes
from lagsweep.sweeps.records import batch_state, streams
from lagsweep.sweeps.records.batch_state import BatchState, value_digests
from lagsweep.sweeps.records.check import validate_lines, validate_records
from lagsweep.sweeps.records.files import read_jsonl
from lagsweep.testing import damaged_records, good_record

CONTRACTS = [
    {},
    {"eos_token_ids": [2], "vocabulary_size": 200},
    {"trainer_version": 12, "max_policy_lag": 4, "max_context_tokens": 6},
    {"schema": "minimal"},
    {"schema": "trl"},
    {"schema": "verl", "published_version": 20},
    {"schema": "areal"},
    {"schema": "slime"},
]
TEXTS = [
    b"", b"  ", b"\xc2\xa0", b"{", b"{bad", b"17", b"null", b"[]", b'{"a": 1, "a": 2}',
    b'{"sample_id": "\xff"}',
    b'{"sample_id": "\\ud800"}', b'{"sample_id": 01}', b'{"sample_id": 9223372036854775808}',
    b'{"policy_version": 3.0}', b'{"policy_version": true}', b'{"policy_version": "3"}', b'{"x":NaN}',
    b'{"a":{"b":{"c":[[1],[2.5]]}}} ', b'{"a":1}{"b":2}', b'{"a":1},{"b":2}', b'\x00', b'{"k\\u0041": 1}',
    b'{"response_tokens": [1, true], "behavior_logprobs": [-1e999]}', b"{" * 100 + b"}" * 100,
]  # fmt: skip


def both_ways(content, first, piece, monkeypatch, **options):
    """Check some content line by line and by pieces of some bytes; gives both reports as plain values."""
    contract = RolloutContract(**options.pop("contract", {}))
    limit = options.pop("limit", 2**20)
    lines = read_jsonl(io.BytesIO(content), max_line_bytes=limit)
    singly = validate_lines(lines, file="<stream>", contract=contract, keep=10_000, **options)
    monkeypatch.setattr(streams, "FIRST_PIECE_BYTES", first)
    monkeypatch.setattr(streams, "PIECE_BYTES", piece)
    stream = io.BytesIO(content)
    together = validate_records(stream, contract=contract, max_line_bytes=limit, keep=10_000, **options)
    monkeypatch.undo()
    return singly.as_dict(), together.as_dict()


@st.composite
def contents(draw):
    """Lines of good records, of damaged ones, of other forms, and of no records at all."""
    made = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["good", "good", "good", "damaged", "text", "turned"]))
        if kind == "text":
            made.append(draw(st.sampled_from(TEXTS)))
            continue
        record = draw(damaged_records()) if kind == "damaged" else good_record()
        record["sample_id"] = draw(st.sampled_from(["a", "b", "c", "d", 1, 2, "1"]))
        record["prompt_id"] = draw(st.sampled_from(["p", "q", 1]))
        if draw(st.booleans()):
            record |= draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "group_id": st.sampled_from(["g", 3, None]),
                        "episode_id": st.sampled_from(["e", "f"]),
                        "loss_mask": st.sampled_from([[1, 1, 1], [0, 1, 1], [0, 0, 0], [1, 1]]),
                        "token_versions": st.sampled_from([[3, 3, 3], [3, 4, 4], [4, 3, 3]]),
                        "policy_version": st.integers(0, 14),
                        "behavior_logprobs": st.lists(st.sampled_from([-0.5, 0.0, 0, -1, 1e-7]), max_size=4),
                        "decoding": st.fixed_dictionaries(
                            {"temperature": st.sampled_from([0.8, 1, 0.0])},
                            optional={
                                "top_p": st.sampled_from([1, 0.9]),
                                "top_k": st.sampled_from([-1, 0, 20]),
                                "logprobs_temperature": st.sampled_from([0.8, 1.0]),
                            },
                        ),
                        "messages": st.sampled_from(
                            [[{"role": "user", "content": "x"}], [{"role": "assistant", "content": None}]]
                        ),
                        "stop_reason": st.sampled_from(["eos", "EOS", "length", "abort", "x"]),
                        "reward": st.sampled_from([0, 0.5, {}, {"a": 1}, {"a": None}]),
                        "error": st.sampled_from(["", "failed", None]),
                        "verifier_version": st.sampled_from(["v1", "v2"]),
                    },
                )
            )
        if kind == "turned":
            record = dict(reversed(record.items()))
        made.append(json.dumps(record, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass"))
    ending = draw(st.sampled_from([b"\n", b"\r\n"]))
    return (
        draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
        + ending.join(made)
        + draw(st.sampled_from([b"", ending]))
    )


@given(
    contents(),
    st.sampled_from(CONTRACTS),
    st.integers(1, 400),
    st.integers(1, 3000),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([2**20, 150]),
)
@settings(max_examples=100)
@example(b'{"a":1}\n' * 3, {}, 1, 1, None, 7)
def test_by_the_piece_and_line_by_line_agree(content, contract, first, piece, group_size, limit):
    if limit < 2**20:  # whether three bytes of a mark count is not said
        content = content.removeprefix(b"\xef\xbb\xbf")
    with pytest.MonkeyPatch.context() as patch:
        singly, together = both_ways(
            content, first, piece, patch, contract=contract, group_size=group_size, limit=limit
        )

    assert together == singly


SKYRL = {
    "prompt_token_ids": [5, 6], "response_ids": [7, 8, 2], "rollout_logprobs": [-0.5, -0.25, -1.0],
    "loss_masks": [1, 1, 1], "rewards": 1.0, "stop_reasons": "stop",
}  # fmt: skip


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "rewards": st.sampled_from(
                    [1.0, 1, [0.0, 0.5, 0.5], [0, 1], [], [True], [None], {"a": 1.0}, None]
                ),
                "rollout_logprobs": st.sampled_from([[-0.5], [-0.5, -0.5, 0.5], None]),
                "loss_masks": st.sampled_from([[0, 0, 0], [1, 1, 0], [1]]),
                "stop_reasons": st.sampled_from(["length", "abort", None]),
            },
        ),
        min_size=1,
        max_size=8,
    )
)
@example([{}, {"rewards": [0.0, 0.5, 0.5]}, {"rewards": 2.0}])
def test_what_is_derived_of_some_records_only_is_screened_where_nothing_is(changes):
    content = b"".join(json.dumps({**SKYRL, **change}).encode() + b"\n" for change in changes)
    with pytest.MonkeyPatch.context() as patch:
        singly, together = both_ways(content, 1, 700, patch, contract={"schema": "skyrl"})

    assert together == singly


def good_lines(settings):
    return b"".join(
        json.dumps({**good_record(sample_id=f"s{i}", prompt_id=i // 2), "decoding": one}).encode() + b"\n"
        for i, one in enumerate(settings)
    )


@given(
    st.lists(
        st.fixed_dictionaries(
            {"temperature": st.sampled_from([0.8, 1.0, 0.0, -1.0]) | st.floats(0.5, 1.5)},
            optional={"top_p": st.sampled_from([1.0, 0.9]), "top_k": st.sampled_from([-1, 50])},
        ),
        min_size=1,
        max_size=40,
    )
)
@example([{"temperature": 1 + k / 64} for k in range(20)])
def test_settings_of_few_or_many_kinds_give_the_findings_of_line_by_line(settings):
    with pytest.MonkeyPatch.context() as patch:
        singly, together = both_ways(good_lines(settings), 1, 2000, patch)

    assert together == singly


def test_few_settings_are_not_read_line_by_line(monkeypatch):
    asked = []
    read = pl.read_ndjson
    monkeypatch.setattr(
        pl, "read_ndjson", lambda text, schema: asked.append(set(schema)) or read(text, schema=schema)
    )
    content = good_lines([{"temperature": 0.8}, {"temperature": 1.0}, {"temperature": 0.0}] * 4)
    _, together = both_ways(content, 1, len(content), monkeypatch)

    assert together["bad_lines"] == [3, 6, 9, 12]
    assert asked.count({"decoding"}) == 3
    assert sum("decoding" in columns for columns in asked) == 3


@given(contents(), st.integers(1, 400), st.integers(1, 3000), st.sampled_from([2**20, 150]))
@settings(max_examples=40)
def test_a_file_that_can_be_looked_into_gives_the_findings_of_line_by_line(
    tmp_path_factory, content, first, size, limit
):
    content = content.removeprefix(b"\xef\xbb\xbf")
    path = tmp_path_factory.getbasetemp() / "looked-into.jsonl"
    path.write_bytes(content)
    lines = read_jsonl(io.BytesIO(content), max_line_bytes=limit)
    singly = validate_lines(lines, file=str(path), keep=10_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "FIRST_PIECE_BYTES", first)
        patch.setattr(streams, "PIECE_BYTES", size)
        together = validate_records(path, max_line_bytes=limit, keep=10_000)

    assert together.as_dict() == singly.as_dict()


# -- the compiled pass over bytes --------------------------------------------------------------------------


def shapes(*lines):
    return line_shapes(b"\n".join(lines))[1].tolist()


json_texts = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(-1e9, 1e9)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=4), json_texts, max_size=4), st.binary(max_size=3), st.integers(0, 60)
)
def test_what_has_a_shape_is_a_json_object_in_bytes_too(record, junk, place):
    text = json.dumps(record, ensure_ascii=False).encode()
    damaged = (text[:place] + junk + text[place + len(junk) :]).replace(b"\n", b" ")

    if shapes(damaged)[0]:
        found = json.loads(damaged.decode("utf-8", "replace"), parse_constant=float.fromhex)
        assert isinstance(found, dict)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a": 1}', b'{"a": 1.0}'),
        (b'{"a": 1}', b'{"b": 1}'),
        (b'{"a": [1]}', b'{"a": []}'),
        (b'{"a": [1, 2]}', b'{"a": [1, "2"]}'),
        (b'{"a": true}', b'{"a": false}'),
        (b'{"a": null}', b'{"a": "null"}'),
        (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}'),
        (b'{"a": 1, "a": 2}', b'{"a": 1}'),
        (b'{"a": {"b": 1}}', b'{"a": [{"b": 1}]}'),
        (b'{"a": {}, "b": 1}', b'{"a": {"b": 1}}'),
    ],
)
def test_other_keys_or_kinds_are_another_shape(one, other):
    first, second = shapes(one, other)

    assert first != second
    assert first
    assert second


def test_other_values_and_spaces_are_the_same_shape():
    one, *others = shapes(
        b'{"a": 1, "b": [1.5, -2.0], "c": "x"}',
        b' { "a":-22,"b":[0.25,1e5,7.0] , "c" : "\\u00e9 \\"long\\" one" } \r',
        '{"a": 3, "b": [1E-9], "c": "é"}'.encode(),
    )

    assert others == [one, one]


@pytest.mark.parametrize("line", TEXTS)
def test_rare_and_broken_lines_have_none(line):
    one = (
        b'{"a": 1, "a"',
        b'{"sample_id": "\xff',
        *(b'{"policy_version": ' + c for c in (b"3", b"t", b'"')),
    )

    assert bool(shapes(line)[:1] not in ([], [0], [1])) == line.startswith(one)


# -- digests of ids ----------------------------------------------------------------------------------------


def test_ids_whose_first_halves_are_equal_are_no_duplicates_unless_the_second_are_too():
    state = BatchState(group_size=None)
    high, low = np.array([7, 7, 7], dtype=np.uint64), np.array([1, 2, 1], dtype=np.uint64)
    none = (np.zeros(3, dtype=np.uint64),) * 2
    state.add(np.array([4, 5, 9]), (high, low), none, none, np.zeros(3, bool), np.zeros(3))

    assert [place for place, _ in state.findings()] == [9]


@given(
    st.lists(st.sampled_from(["1", 1, "a", "\ud800", "'\\ud800'", 2**63, 2**64, str(2**63), " ", None, -1]))
)
def test_digests_are_equal_where_ids_are_and_nowhere_else(ids):
    high, low = value_digests(ids)

    for i, one in enumerate(ids):
        for j, other in enumerate(ids):
            no_id = one in (" ", None, 2**64)
            same = (high[i], low[i]) == (high[j], low[j])
            assert same == (one == other and type(one) is type(other)) or no_id


def test_groups_are_merged_as_they_come(monkeypatch):
    monkeypatch.setattr(batch_state, "_MERGE_ROWS", 3)
    state = BatchState(group_size=2)
    none = (np.zeros(4, dtype=np.uint64),) * 2
    for start in range(1, 21, 4):
        groups = value_digests([f"g{place // 3}" for place in range(start, start + 4)])
        places = np.arange(start, start + 4)
        state.add(places, none, groups, none, np.zeros(4, bool), np.ones(4))

    table = state.groups().sort("first")
    assert table["size"].to_list() == [2, 3, 3, 3, 3, 3, 3]
    assert table["first"].to_list() == [1, 3, 6, 9, 12, 15, 18]
    assert [place for place, _ in state.findings()] == [3, 6, 9, 12, 15, 18]


# -- tables ------------------------------------------------------------------------------------------------


def test_a_table_of_good_rows_is_screened_and_of_bad_ones_tells_all(tmp_path):
    rows = [good_record(sample_id=f"s{i}", prompt_id=i // 2) for i in range(40)]
    rows[3]["behavior_logprobs"] = [-0.5, float("nan"), -0.5]
    rows[7]["response_tokens"] = [31, None, 2]
    rows[9]["reward"] = {"correctness": float("inf"), "format": 0.0}
    rows[11]["decoding"] = {"temperature": float("nan"), "top_p": 1.0}
    rows[13]["prompt_tokens"] = []
    path = tmp_path / "r.parquet"
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)

    report = validate_records(path)

    assert report.bad_lines == [4, 8, 10, 12, 14]
    assert set(report.rules) == {"logprob_finite", "token_id", "reward_finite", "temperature", "prompt_empty"}


# -- packed files ------------------------------------------------------------------------------------------


def test_gzip_and_zstandard_are_read_as_what_is_in_them(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    content = b"".join(json.dumps(record).encode() + b"\n" for record in real_rollouts())
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(content[:999]) + gzip.compress(content[999:]))
    packer = zstandard.ZstdCompressor()
    (tmp_path / "c.jsonl.zst").write_bytes(packer.compress(content[:999]) + packer.compress(content[999:]))
    to_skip = b"\x5a\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    (tmp_path / "d.jsonl.zst").write_bytes(to_skip + packer.compress(content))

    reports = [validate_records(path) for path in sorted(tmp_path.iterdir())]

    assert [report.records for report in reports] == [32, 32, 32, 32]
    assert [report.as_dict() | {"file": ""} for report in reports[1:]] == [
        reports[0].as_dict() | {"file": ""}
    ] * 3


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:40] + b"\x00\xff" + data[42:]])
@pytest.mark.parametrize("packing", ["gzip", "zstandard"])
def test_a_packed_file_that_is_cut_or_altered_is_refused(tmp_path, damage, packing):
    content = b"".join(json.dumps(record).encode() + b"\n" for record in real_rollouts())
    if packing == "gzip":
        data = gzip.compress(content)
    else:
        data = pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True).compress(content)
    (tmp_path / "r").write_bytes(damage(data))

    with pytest.raises(ConfigError, match="file: must be a packed file that is whole"):
        validate_records(tmp_path / "r")
