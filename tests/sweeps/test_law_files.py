"""Laws from files: every format gives the same law, and a bad file is named with column and row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from lagsweep.errors import ConfigError
from lagsweep.sweeps.laws.lengths import LengthLaw, SecondsLaw

_DATA = Path(__file__).parents[1] / "data" / "lengths"
_AIME = _DATA / "aime_baseline_step_1000.csv"
_GYM = _DATA / "nemo_gym_browser.csv"


def _written(folder, name, frame):
    path = folder / name
    match path.suffix:
        case ".csv":
            frame.write_csv(path)
        case ".parquet":
            frame.write_parquet(path)
        case _:
            frame.write_ndjson(path)
    return path


@pytest.fixture(params=["trace.csv", "trace.jsonl", "trace.ndjson", "trace.parquet", "TRACE.CSV"])
def gym_file(request, tmp_path):
    if request.param.endswith("CSV"):
        path = tmp_path / request.param
        path.write_bytes(_GYM.read_bytes())
        return path
    return _written(tmp_path, request.param, pl.read_csv(_GYM))


def test_every_format_gives_the_same_laws(gym_file):
    frame = pl.read_csv(_GYM)
    tokens, seconds = frame["output_tokens"].to_list(), frame["duration_s"].to_list()

    assert LengthLaw.from_file(gym_file, column="output_tokens") == LengthLaw.empirical(tokens)
    assert SecondsLaw.from_file(gym_file, column="duration_s") == SecondsLaw.empirical(seconds)
    paired = LengthLaw.paired_from_file(gym_file, "output_tokens", "duration_s")
    assert paired == LengthLaw.paired(tokens, seconds)
    grouped = LengthLaw.grouped_from_file(gym_file, "output_tokens", "task")
    assert grouped == LengthLaw.grouped(tokens, frame["task"].to_list())


def test_a_law_from_a_file_carries_its_digest_and_notices_a_change(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("tokens\n5\n7\n")
    law = LengthLaw.from_file(path, "tokens")
    spec = law.to_dict()

    assert spec == {"law": "from_file", "path": path.as_posix(), "column": "tokens", "digest": law.digest}
    assert LengthLaw.from_dict(spec) == law
    path.write_text("tokens\n5\n8\n")
    with pytest.raises(
        ConfigError, match=r"response_length\.digest: must be .* The file or table has changed"
    ):
        LengthLaw.from_dict(spec)


def test_changed_seconds_of_a_paired_file_are_noticed_too(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("t,s\n5,1\n7,2\n")
    spec = LengthLaw.paired_from_file(path, "t", "s").to_dict()
    path.write_text("t,s\n5,1\n7,3\n")

    with pytest.raises(ConfigError, match=r"response_length\.digest"):
        LengthLaw.from_dict(spec)


@pytest.mark.parametrize(
    "build",
    [
        lambda path: LengthLaw.from_file(path, "output_tokens"),
        lambda path: LengthLaw.paired_from_file(path, "output_tokens", "duration_s"),
        lambda path: LengthLaw.grouped_from_file(path, "output_tokens", "task"),
        lambda path: LengthLaw.mixture([(1, LengthLaw.from_file(path, "output_tokens"))]),
        lambda path: SecondsLaw.from_file(path, "duration_s"),
    ],
)
def test_an_embedded_law_stands_without_its_file(build, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(_GYM.read_bytes())
    law = build(path)
    data = json.loads(json.dumps(law.to_dict(embed=True)))
    path.unlink()

    assert type(law).from_dict(data) == law


def test_a_relative_path_starts_at_the_folder_given():
    spec = {"law": "from_file", "path": _AIME.name, "column": "output_tokens"}

    assert LengthLaw.from_dict(spec, folder=_DATA) == LengthLaw.from_file(_AIME, "output_tokens")
    mixture = {"law": "mixture", "parts": [{**spec, "weight": 1.0}]}
    assert (
        LengthLaw.from_dict(mixture, folder=_DATA).digest
        == LengthLaw.from_file(_AIME, "output_tokens").digest
    )


def test_group_ids_may_be_text_and_numbers_that_look_alike_stay_apart(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text("tokens,prompt\n5,01\n6,1\n7,nan\n8,nan\n")

    assert LengthLaw.grouped_from_file(path, "tokens", "prompt").group_starts.tolist() == [0, 1, 2, 4]


def test_whole_numbers_written_as_floats_are_lengths(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("tokens\n 5.0 \n7e0\n")

    assert LengthLaw.from_file(path, "tokens") == LengthLaw.empirical([5, 7])


def test_blank_json_lines_are_not_rows(tmp_path):
    path = tmp_path / "lengths.jsonl"
    path.write_text('{"tokens": 5}\n\n{"tokens": 7}\n')

    assert LengthLaw.from_file(path, "tokens") == LengthLaw.empirical([5, 7])


_BAD_ROWS = [
    (
        "bad.csv",
        "tokens\n5\n7\nabc\n",
        "bad.csv, column 'tokens', row 3: must be a whole number of at least 1 (got 'abc').",
    ),
    (
        "bad.csv",
        "tokens,b\n5,1\n,1\n",
        "bad.csv, column 'tokens', row 2: must be a whole number of at least 1 (got None).",
    ),
    (
        "bad.csv",
        "tokens\n5\n7.5\n",
        "bad.csv, column 'tokens', row 2: must be a whole number of at least 1 (got 7.5).",
    ),
    (
        "bad.csv",
        "tokens\n0\n7\n",
        "bad.csv, column 'tokens', row 1: must be a whole number of at least 1 (got 0).",
    ),
    (
        "bad.csv",
        "tokens\n5\n-7\n",
        "bad.csv, column 'tokens', row 2: must be a whole number of at least 1 (got -7).",
    ),
    (
        "bad.csv",
        "tokens\n5\nnan\n",
        "bad.csv, column 'tokens', row 2: must be a whole number of at least 1 (got nan).",
    ),
    (
        "bad.csv",
        "tokens\n5\ninf\n",
        "bad.csv, column 'tokens', row 2: must be a whole number of at least 1 (got inf).",
    ),
    (
        "bad.csv",
        "tokens\n99999999\n",
        "bad.csv, column 'tokens', row 1: must be at most 16777216 (got 99999999).",
    ),
    ("bad.csv", "tokens\n", "bad.csv, column 'tokens': must have at least one row (got 0)."),
    ("bad.csv", "token\n5\n", "column: must be a column of bad.csv (got 'tokens'). Did you mean 'token'?"),
    ("bad.csv", "a,b\n5,6\n", "column: must be a column of bad.csv (got 'tokens'). It has 'a', 'b'."),
    ("bad.csv", "", "path: must be a well-formed file (got "),
    (
        "bad.jsonl",
        '{"tokens": 5}\n{"tokens": "7"}\n',
        "bad.jsonl, column 'tokens', row 2: must be a whole number of at least 1 (got '7').",
    ),
    (
        "bad.jsonl",
        '{"tokens": 5}\n{"tokens": true}\n',
        "bad.jsonl, column 'tokens', row 2: must be a whole number of at least 1 (got True).",
    ),
    (
        "bad.jsonl",
        '{"tokens": 5}\n{"tokens": null}\n',
        "bad.jsonl, column 'tokens', row 2: must be a whole number of at least 1 (got None).",
    ),
    (
        "bad.jsonl",
        '{"tokens": 5}\n{"other": 1}\n',
        "bad.jsonl, column 'tokens', row 2: must be there (got None).",
    ),
    ("bad.jsonl", '{"other": 5}\n', "column: must be a column of bad.jsonl (got 'tokens'). It has 'other'."),
    ("bad.jsonl", '{"tokens": 5}\n{"tok', "bad.jsonl, line 2: must be a JSON object (got b'{\"tok')."),
    ("bad.jsonl", "[5]\n", "bad.jsonl, line 1: must be a JSON object (got [5])."),
    ("bad.jsonl", "", "bad.jsonl, column 'tokens': must have at least one row (got 0)."),
    ("bad.parquet", "no parquet", "path: must be a well-formed file (got "),
    ("bad.txt", "5\n", "path: must end in .csv, .jsonl, .ndjson, .parquet (got "),
]


@pytest.mark.parametrize(("name", "content", "text"), _BAD_ROWS)
def test_a_bad_file_is_named_with_column_row_and_value(name, content, text, tmp_path):
    path = tmp_path / name
    path.write_text(content)

    with pytest.raises(ConfigError) as raised:
        LengthLaw.from_file(path, "tokens")

    assert str(raised.value).startswith(text)


@pytest.mark.parametrize("content", [[5, None], [5.0, 2.5], ["5", "x"], [True, False]])
def test_a_bad_parquet_column_is_refused_at_its_row(content, tmp_path):
    path = tmp_path / "bad.parquet"
    pl.DataFrame({"tokens": content}).write_parquet(path)

    with pytest.raises(ConfigError, match=r"bad\.parquet, column 'tokens', row [12]: must be a whole number"):
        LengthLaw.from_file(path, "tokens")


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(ConfigError, match="path: must name a file that exists"):
        LengthLaw.from_file(tmp_path / "none.csv", "tokens")


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes(b"tokens\n\xff\xfe\n")

    with pytest.raises(ConfigError, match=r"bad\.csv"):
        LengthLaw.from_file(path, "tokens")


def test_a_missing_group_id_is_refused(tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text("tokens,prompt\n5,a\n6,\n")

    with pytest.raises(ConfigError, match=r"groups\.csv, column 'prompt', row 2: must have a group id"):
        LengthLaw.grouped_from_file(path, "tokens", "prompt")


def test_negative_seconds_are_refused_at_their_row(tmp_path):
    path = tmp_path / "seconds.csv"
    path.write_text("s\n1\n-0.5\n")

    with pytest.raises(ConfigError) as raised:
        SecondsLaw.from_file(path, "s")

    assert str(raised.value).startswith(
        "seconds.csv, column 's', row 2: must be a finite number of at least 0 (got -0.5)."
    )


def test_a_slice_of_real_agents_keeps_its_pairs():
    law = LengthLaw.paired_from_file(_GYM, "output_tokens", "duration_s")
    frame = pl.read_csv(_GYM).sort("output_tokens", "duration_s")

    assert np.array_equal(law.paired_tokens, frame["output_tokens"].to_numpy())
    assert np.array_equal(law.paired_seconds, frame["duration_s"].to_numpy())
