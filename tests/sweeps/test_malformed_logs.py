"""Logs that are not as they should be: each is named in the findings, and nothing goes without a word."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import lagsweep as ls
from lagsweep import ConfigError

HEADER = "step,timing_s/gen,timing_s/update_actor,timing_s/step"


def lines(steps, *, gen=5.0, train=2.0, step=9.0):
    return [f"{k},{gen + k % 3 / 10},{train + k % 2 / 10},{step + k % 5 / 10}" for k in steps]


def read(folder, text, name="log.csv", **options):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return ls.read_step_log(path, **options)


def said(log, kind):
    return [(one.about, one.rows, one.done) for one in log.found(kind)]


def rows_of(log):
    """Return how many rows of the file the log accounts for."""
    joined = sum(one.rows for one in log.found("merged"))
    return len(log) + len(log.left_out) + joined


def test_1_a_restart_repeats_steps_and_begins_a_segment(tmp_path):
    text = "\n".join([HEADER, *lines(range(20)), *lines(range(15, 30))])
    log = read(tmp_path, text)

    assert log.frame.group_by("segment", maintain_order=True).len().rows() == [(0, 20), (1, 15)]
    assert log.frame["run"].unique().to_list() == [0]
    assert said(log, "restart") == [("step 15", 5, "split")]
    assert "steps 15-19 are there twice" in log.found("restart")[0].words
    assert rows_of(log) == 35


def test_2_two_runs_in_turns_are_told_apart_by_what_they_had(tmp_path):
    fast, slow = lines(range(30)), lines(range(30), step=90.0, gen=60.0)
    rows = [HEADER]
    for k in range(30):  # the slow one is ahead for a while, then behind
        rows += [fast[k], slow[k]] if k < 15 else [slow[k], fast[k]]
    log = read(tmp_path, "\n".join(rows))
    seconds = pl.col("step_seconds")
    means = log.frame.group_by("run", maintain_order=True).agg(low=seconds.min(), high=seconds.max())

    assert said(log, "interleaved") == [("step", 30, "split")]
    assert log.found("restart") == []
    assert [high - low < 1 for _, low, high in means.rows()] == [True, True]
    assert log.frame["run"].value_counts(sort=True)["count"].to_list() == [30, 30]


def test_3_milliseconds_are_refused_or_converted_never_taken_for_seconds(tmp_path):
    rows = [f"{k},{5 + k / 10},{2000 + k},{9 + k / 10}" for k in range(12)]
    text = "\n".join([HEADER, *rows])
    refused = read(tmp_path, text)
    told = read(tmp_path, text, columns={"training_seconds": "timing_s/update_actor:ms"})

    assert refused.frame["training_seconds"].null_count() == 12
    assert said(refused, "unit") == [("timing_s/update_actor", 12, "refused")]
    assert "--column training_seconds=NAME:ms" in refused.found("unit")[0].words
    assert told.frame["training_seconds"][0] == pytest.approx(2.0)


def test_4_a_whole_log_in_milliseconds_is_found_by_the_files_own_clock(tmp_path):
    rows = [f"{k},{9 * k},{9000 + k}" for k in range(15)]
    with pytest.raises(ConfigError, match="times what the file's own clock says; if in milliseconds"):
        read(tmp_path, "\n".join(["step,_runtime,timing_s/step", *rows]))
    log = read(
        tmp_path,
        "\n".join(["step,_runtime,timing_s/step", *rows]),
        columns={"step_seconds": "timing_s/step:ms"},
    )

    assert log.frame["step_seconds"][0] == 9.0


def test_5_numbers_come_as_text_of_many_forms(tmp_path):
    text = f"{HEADER}\n1,np.float64(5.5),'2.5',9.0\n2,tensor(4.5),\"1,002.5\",nan\n3,oops,None,8.0\n"
    log = read(tmp_path, text, columns={"rollouts": "timing_s/update_actor"})

    assert log.frame["generation_seconds"].to_list() == [5.5, 4.5, None]
    assert log.frame["rollouts"].to_list() == [2.5, 1002.5, None]
    assert log.frame["step_seconds"].to_list() == [9.0, None, 8.0]
    texts = {one.about: (one.done, one.words) for one in log.found("text")}
    assert texts["timing_s/gen"] == ("left out", "values 2 as np.float64(...) or the like, 1 not a number")
    assert texts["timing_s/update_actor"][1] == "values 1 in quotes, 1 with commas between thousands"


def test_6_an_export_of_weights_and_biases_has_rows_that_fill_half_the_columns(tmp_path):
    records = []
    for k in range(10):
        records.append({"_step": 2 * k, "training/global_step": k, "timing_s/gen": 5.0 + k / 10, "x": None})
        records.append({"_step": 2 * k, "training/global_step": k, "timing_s/step": 9.0 + k / 10, "x": None})
        records.append({"_step": 2 * k + 1, "system/gpu": 50, "x": None})
    packed = gzip.compress("\n".join(map(json.dumps, records)).encode())
    log = read(tmp_path, packed, "history.jsonl.gz")

    assert log.frame["step"].to_list() == list(range(10))
    assert log.frame["generation_seconds"].null_count() == log.frame["step_seconds"].null_count() == 0
    assert said(log, "merged") == [("step", 10, "joined")]
    assert said(log, "empty") == [("x", 0, "not read")]
    assert log.left_out["reason"].value_counts().rows() == [("holds no value that is read", 10)]
    assert rows_of(log) == 30


def test_7_a_charts_export_has_a_column_for_each_run(tmp_path):
    header = "Step,a - timing_s/step,a - timing_s/step__MIN,b - timing_s/step"
    log = read(tmp_path, "\n".join([header, *(f"{k},{9 + k / 10},0,{30 + k / 10}" for k in range(6))]))

    assert log.frame["run"].to_list() == [0] * 6 + [1] * 6
    assert log.frame["step_seconds"][0] == 9.0
    assert log.frame["step_seconds"][6] == 30.0
    assert said(log, "several_runs") == [("b", 6, "split")]


def test_8_broken_columns_are_refused_with_the_reason(tmp_path):
    header = "step,timing_s/step,timing_s/gen,timing_s/ref,timing_s/update_actor,response_length/mean,"
    header += "response_length/max,response_length/clip_ratio,perf/total_num_tokens,perf/mfu/actor"
    rows = [
        f"{k},{9 + k / 10},-5,0,0.003,500,{90 + k},{40 + k},{1000 * (k + 1)},{7000 + k}" for k in range(25)
    ]
    log = read(tmp_path, "\n".join([header, *rows]))
    refused = {one.about: one.words for one in log.findings if one.done == "refused"}

    assert {name: words.partition(":")[2].strip()[:32] for name, words in refused.items()} == {
        "timing_s/gen": "below 0 in 25 rows",
        "timing_s/ref": "0 in every row: it was not measu",
        "timing_s/update_actor": "3 ms in the middle, 0.03% of the",
        "response_length/max": "below response_length/mean (resp",
        "response_length/clip_ratio": "a share of up to 64; if in perce",
        "perf/total_num_tokens": "grows in every row, from 1000 to",
    }
    assert said(log, "broken")[0] == ("perf/mfu/actor", 25, "not read")
    assert log.frame["response_tokens_mean"].to_list() == [500.0] * 25
    assert all(log.frame[name].null_count() == 25 for name in ("generation_seconds", "training_seconds"))


def test_9_files_put_together_and_cut_off(tmp_path):
    whole = "\n".join([HEADER, *lines(range(8)), HEADER, *lines(range(8, 12)), "12,5.1"])
    log = read(tmp_path, whole)
    cut = read(tmp_path, '{"step": 1, "timing_s/step": 9.0}\n{"step": 2, "timing_s/st', "a.jsonl")

    assert log.frame["step"].to_list() == list(range(12))
    assert [one.words for one in log.found("file")] == [
        "the last line is cut off and was left out",
        "the header stands in it 2 times",
    ]
    assert [one.words for one in cut.found("file")] == ["line 2, the last one, is cut off and was left out"]


def test_10_rows_late_twice_missing_or_without_a_step(tmp_path):
    rows = lines([0, 1, 2, 4, 3, 5, 6, 6, 9, 10])
    rows[7] = rows[6]
    log = read(tmp_path, "\n".join([HEADER, *rows, ",5,2,9", "1.5,5,2,9"]))

    assert log.frame["step"].to_list() == [0, 1, 2, 3, 4, 5, 6, 9, 10]
    assert said(log, "out_of_order") == [("step", 1, "kept")]
    assert said(log, "repeated") == [("step", 1, "left out")]
    assert said(log, "no_step") == [("step", 2, "left out")]
    assert said(log, "gap") == [("step", 1, "kept")]
    assert log.left_out["reason"].to_list() == ["has no step", "has no step", "the same row stands before it"]
    assert rows_of(log) == 12


def test_first_steps_are_left_out_and_evaluations_are_told_inside_from_beside(tmp_path):
    header = "step,timing_s/gen,timing_s/step,timing_s/testing,timing_s/save_checkpoint"
    rows = []
    for k in range(40):
        evaluated = k % 10 == 9
        step = 9 + k % 3 / 10 + (30 if evaluated else 0) + (40 if k == 0 else 0)
        rows.append(f"{k},5,{step},{30 if evaluated else ''},{12 if evaluated else ''}")
    log = read(tmp_path, "\n".join([header, *rows]))

    assert said(log, "warm_up") == [("step_seconds", 1, "left out")]
    assert log.frame["step"][0] == 1
    assert log.step_holds == {"evaluation_seconds": True, "checkpoint_seconds": False}


def test_totals_over_a_run_become_what_each_step_added(tmp_path):
    header = "step,tqdm_elapsed_s,num_tokens,completion_length"
    rows = [f"{5 * k},{100 * k},{2000 * k},300" for k in range(6)]
    log = read(tmp_path, "\n".join([header, *rows]))

    assert log.frameworks == ("trl",)
    assert log.frame["step_seconds"].to_list() == [None] + [20.0] * 5
    assert log.frame["trained_tokens"].to_list() == [None] + [400.0] * 5
    assert log.found("gap")[0].words == "every 5th step is logged"


def test_the_same_number_twice_is_named_and_counted_once(tmp_path):
    header = (
        "step,time/step,time/wait_for_batch,time/forward_backward,time/broadcast_weights,time/save_weights"
    )
    rows = [f"{k},6,2,4,{0.5 + k / 10},{0.5 + k / 10}" for k in range(8)]
    log = read(tmp_path, "\n".join([header, *rows]))

    assert said(log, "same_twice") == [("time/save_weights", 8, "not read")]
    assert log.frame["publication_seconds"][0] == 0.5


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("", "a.csv", "must hold at least one row"),
        (HEADER, "a.csv", "must hold at least one row"),
        ("a,b\n1,2\n", "a.csv", "has no column of a framework that is known"),
        (f"{HEADER}\n1,2,3,4,5,6\n", "a.csv", "must be a well-formed file"),
        (b"step,timing_s/step\n1,\xff\n", "a.csv", "must be UTF-8"),
        ("step,timing_s/step\n1,\n", "a.csv", "has no value in any column of a step log"),
        ("[1, 2]", "a.json", "must be a JSON object"),
        ('{"step": 1}\nno\n{"step": 2}\n', "a.jsonl", "must be a JSON object"),
        ("nothing here", "a.log", "has no line of a step that is known"),
        (b"\x1f\x8b no", "a.csv.gz", "must be a gzip file that is whole"),
        (b"PAR1", "a.parquet", "must be a well-formed file"),
        ("x", "a.xlsx", "must end in .csv"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, text, name, words):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, name)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"framework": "verll"}, "framework: must be one of"),
        ({"columns": {"step_second": "x"}}, "Did you mean 'step_seconds'?"),
        ({"columns": {"step_seconds": "timing_s/stepp"}}, "Did you mean 'timing_s/step'?"),
        ({"units": {"step_seconds": "miles"}}, "unit of step_seconds: must be one of"),
        ({"columns": {"step_seconds": 3}}, "must be text"),
    ],
)
def test_what_the_user_says_wrongly_is_named(tmp_path, options, words):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "\n".join([HEADER, *lines(range(3))]), **options)

    assert words in str(caught.value)


def test_a_total_that_is_the_sum_of_its_phases_is_no_clocks_time(tmp_path):
    names = "global_step,timing/make_experience,timing/ppo_train,timing/broadcast,timing/generation"
    rows = [f"{k},{4 + k},{9 + k / 2},1,7" for k in range(8)]
    summed = "\n".join(
        [f"{names},timing/step_total", *(f"{row},{21 + 1.5 * k}" for k, row in enumerate(rows))]
    )
    clock = "\n".join(
        [f"{names},timing/step_total", *(f"{row},{23 + 1.5 * k}" for k, row in enumerate(rows))]
    )

    assert "the sum of its phases" in read(tmp_path, summed).found("meaning")[-1].words
    assert all("the sum of its phases" not in one.words for one in read(tmp_path, clock).found("meaning"))


def test_a_step_that_goes_back_all_the_time_is_none(tmp_path):
    rows = [f"{(7919 * k) % 1009},{9 + k % 5},5,9" for k in range(1000)]
    with pytest.raises(ConfigError, match="it goes back in more than 200 rows"):
        read(tmp_path, "\n".join([HEADER, *sorted(rows, key=lambda row: -int(row.split(",")[0]))]))


def test_steps_far_apart_are_counted_not_listed(tmp_path):
    log = read(tmp_path, "\n".join([HEADER, "1,5,2,9", "3,5,2,9", "4000000000000,5,2,9"]))

    assert log.found("gap")[0].words == "3,999,999,999,997 steps are not in the log: 2, 4-3999999999999"


def test_two_files_of_one_run_are_its_segments(tmp_path):
    (tmp_path / "a.csv").write_text("\n".join([HEADER, *lines(range(10))]))
    (tmp_path / "b.csv").write_text("\n".join([HEADER, *lines(range(7, 15))]))
    log = ls.read_step_log([tmp_path / "a.csv", tmp_path / "b.csv"])

    assert log.frame.group_by("run", "segment", maintain_order=True).len().rows() == [(0, 0, 10), (0, 1, 8)]
    assert said(log, "restart") == [("step 7", 3, "split")]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 12), st.just(2.5)),
            st.one_of(st.none(), st.sampled_from([5.0, 5.5, -1.0, "oops"])),
            st.one_of(st.none(), st.sampled_from([9.0, 9.25, 40.0])),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_every_row_of_a_file_is_in_the_frame_joined_or_left_out_with_a_reason(tmp_path, rows):
    text = "\n".join(",".join("" if each is None else str(each) for each in row) for row in rows)
    try:
        log = read(tmp_path, f"step,timing_s/gen,timing_s/step\n{text}\n")
    except ConfigError:
        reject()  # a file without one usable step is refused as a whole

    assert rows_of(log) == len(rows)
    assert not log.frame.select("run", "segment", "step").is_duplicated().any()
    assert all(log.left_out["reason"].str.len_chars() > 0)
    assert log.frame["generation_seconds"].min() is None or log.frame["generation_seconds"].min() >= 0
