"""Lengths of responses: columns by names, prompts within their environment, nothing dropped silently."""

from __future__ import annotations

import pytest

from lagsweep import ConfigError
from lagsweep.sweeps.logs.lengths import read_lengths


def read(folder, text, name="lengths.csv", **options):
    (folder / name).write_text(text)
    return read_lengths(folder / name, **options)


def test_lengths_have_prompt_step_and_version(tmp_path):
    text = "uid,response_length,global_step,policy_version,truncated\n"
    text += "b,120,1,0,False\na,80,1,0,true\nb,100,2,1,\n"
    log = read(tmp_path, text)

    assert log.frame.select("response_tokens", "prompt", "step", "version").rows() == [
        (120, 0, 1, 0), (80, 1, 1, 0), (100, 0, 2, 1),
    ]  # fmt: skip
    assert log.frame["truncated"].to_list() == [False, True, None]
    assert log.frame["prompt_tokens"].null_count() == 3


def test_a_prompts_number_counts_within_its_environment(tmp_path):
    log = read(tmp_path, "env,task,output_tokens\nweb,1,10\nweb,1,11\ncode,1,12\nweb,2,13\n")

    assert log.frame["prompt"].to_list() == [0, 0, 1, 2]


def test_a_length_that_holds_the_prompt_is_cut_by_it(tmp_path):
    log = read(tmp_path, "task_id,seqlen,prompt_len,head_version\n7,300,100,-1\n7,250,100,0\n")

    assert log.frame["response_tokens"].to_list() == [200, 150]
    assert log.frame["version"].to_list() == [-1, 0]
    assert [one.about for one in log.findings if one.kind == "derived"] == ["response_tokens"]


def test_rows_without_a_length_are_named_and_left_out(tmp_path):
    log = read(tmp_path, 'response_tokens\n10\n""\n-3\n2.5\n20\n')

    assert log.frame["response_tokens"].to_list() == [10, 20]
    assert log.left_out.rows() == [
        (2, "has no length"),
        (3, "its length is below 1, or too large"),
        (4, "its length is no whole number"),
    ]
    assert [one.rows for one in log.findings if one.kind == "broken"] == [3]


def test_many_of_the_longest_are_cut_at_a_limit_and_one_length_is_none(tmp_path):
    cut = read(tmp_path, "response_tokens\n" + "\n".join(map(str, [*range(1, 60), *[512] * 10])))
    same = read(tmp_path, "response_tokens\n" + "\n".join(["512"] * 9))

    assert [one.words for one in cut.findings if one.kind == "cut"] == [
        "14% are 512 long, the most that any is: cut at a limit"
    ]
    assert [one.words for one in same.findings if one.kind == "constant"] == [
        "512 in every row: a limit, not lengths"
    ]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("a\n1\n", {}, "has no column of lengths"),
        ("tokens\nx\n", {}, "must hold lengths"),
        ("tokens\n1\n", {"columns": {"token": "tokens"}}, "columns: must be one of"),
        ("tokens\n1\n", {"columns": {"prompt": "taks"}}, "columns prompt: must be a column of the file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, options, words):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, **options)

    assert words in str(caught.value)
