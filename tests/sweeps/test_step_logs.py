"""Step logs: every format reads the same, every framework's names become the same columns, units are kept."""

from __future__ import annotations

import gzip
import json
import sys

import polars as pl
import pytest

import lagsweep as ls
from lagsweep import ConfigError
from lagsweep.sweeps.logs.canonical import COLUMNS, PLACES
from lagsweep.sweeps.logs.frameworks import recognized, shipped_frameworks

ROWS = [
    {"step": 1, "timing_s/gen": 5.0, "timing_s/update_actor": 2.5, "timing_s/step": 9.0, "note": "first"},
    {"step": 2, "timing_s/gen": 4.0, "timing_s/update_actor": 2.25, "timing_s/step": 8.0, "note": None},
]


def write(folder, name, rows=ROWS):
    path = folder / name
    plain = name.removesuffix(".gz")
    if plain.endswith(".parquet"):
        pl.DataFrame(rows).write_parquet(path)
        return path
    if plain.endswith((".jsonl", ".ndjson")):
        text = "\n".join(json.dumps(row) for row in rows)
    elif plain.endswith(".json"):
        text = json.dumps(rows)
    elif plain.endswith(".tsv"):
        text = pl.DataFrame(rows).write_csv(separator="\t")
    else:
        text = pl.DataFrame(rows).write_csv()
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


FORMATS = ["a.csv", "a.tsv", "a.jsonl", "a.ndjson", "a.json", "a.parquet", "a.csv.gz", "a.jsonl.gz"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_kind_of_file_reads_the_same(tmp_path, name):
    log = ls.read_step_log(write(tmp_path, name))

    assert log.frameworks == ("verl",)
    assert log.frame["generation_seconds"].to_list() == [5.0, 4.0]
    assert log.frame["training_seconds"].to_list() == [2.5, 2.25]
    assert log.frame["step"].to_list() == [1, 2]


def test_a_frame_has_all_columns_and_null_where_nothing_was_logged(tmp_path):
    log = ls.read_step_log(write(tmp_path, "a.csv"))

    assert log.frame.columns == [*PLACES, *COLUMNS]
    assert log.frame["wait_seconds"].null_count() == 2
    assert log.frame["lag_mean"].null_count() == 2
    assert set(log.columns) == {"step_seconds", "generation_seconds", "training_seconds"}


# One row each with the names that the framework's code writes, and what must become of it.
FRAMEWORKS = {
    "verl_fully_async": (
        {"step": 4, "timing_s/gen": 3.0, "timing_s/step": 20.0, "timing_s/timing_s/param_sync": 1.5,
         "fully_async/count/dropped_stale_samples": 7, "fully_async/trainer/idle_ratio": 0.15},
        {"wait_seconds": 3.0, "step_seconds": 20.0, "publication_seconds": 1.5, "generation_seconds": None},
    ),
    "verl_v1": (
        {"step": 4, "timing_s/gen": 3.0, "timing_s/step": 20.0,
         "training/off_policy/trajectory_staleness/mean": 0.5,
         "training/off_policy/trajectory_staleness_worst/max": 2},
        {"wait_seconds": 3.0, "lag_mean": 0.5, "lag_max": 2.0, "generation_seconds": None},
    ),
    "verl_2024": (
        {"step": 0, "timing/gen": 18.0, "timing/ref": 5.0, "timing/values": 5.5, "timing/adv": 0.5,
         "timing/update_critic": 16.0, "timing/update_actor": 20.0},
        {"step_seconds": 65.0, "critic_seconds": 16.0, "value_seconds": 5.5, "reference_seconds": 5.0},
    ),
    "skyrl": (
        {"trainer/global_step": 3, "timing/step": 30.0, "timing/generate": 12.0, "timing/policy_train": 8.0,
         "timing/train_critic_and_policy": 9.0, "timing/convert_to_training_input": 0.5,
         "timing/sync_weights": 2.0, "async/staleness_mean": 1.5},
        {"step_seconds": 30.0, "generation_seconds": 12.0, "training_seconds": 8.0, "lag_mean": 1.5,
         "publication_seconds": 2.0},
    ),
    "openrlhf": (
        {"global_step": 5, "timing/make_experience": 4.0, "timing/ppo_train": 9.0, "timing/broadcast": 1.0,
         "timing/generation": 7.0, "timing/step_total": 21.0},
        {"step_seconds": 21.0, "training_seconds": 9.0, "publication_seconds": 1.0,
         "log_probability_seconds": 4.0},
    ),
    "areal": (
        {"step": 2, "timeperf/rollout": 6.0, "timeperf/train_step": 9.0, "timeperf/update_weights": 2.0,
         "timeperf/recompute_logp": 1.0, "ppo_actor/version_stats/sample_staleness_theta_avg": 1.25},
        {"wait_seconds": 6.0, "training_seconds": 9.0, "step_seconds": 17.0, "lag_mean": 1.25},
    ),
    "slime": (
        {"rollout/step": 2, "perf/step_time": 50.0, "perf/train_wait_time": 30.0, "perf/train_time": 20.0,
         "perf/actor_train_time": 14.0, "perf/log_probs_time": 3.0, "perf/rollout_time": 25.0},
        {"step_seconds": 50.0, "wait_seconds": 30.0, "training_seconds": 14.0, "generation_seconds": 25.0},
    ),
    "nemo_rl": (
        {"step": 1, "timing/train/total_step_time": 40.0, "timing/train/policy_training": 5.0,
         "timing/train/exposed_generation": 12.0, "train/avg_trajectory_age": 1.0},
        {"step_seconds": 40.0, "training_seconds": 5.0, "wait_seconds": 12.0, "lag_mean": 1.0},
    ),
    "trl": (
        {"step": 10, "step_time": 7.5, "completions/mean_length": 300, "completions/max_length": 900,
         "completions/clipped_ratio": 0.25},
        {"step_seconds": 7.5, "response_tokens_mean": 300.0, "response_tokens_max": 900.0,
         "clipped_fraction": 0.25},
    ),
    "tinker": (
        {"step": 1, "time/total": 100.0, "time/train": 30.0, "time/save_checkpoint": 15.0,
         "time/assemble_training_data": 1.0, "env/all/total_episodes": 768, "env/all/total_ac_tokens": 15360,
         "env/all/total_ob_tokens": 7680},
        {"generation_seconds": 54.0, "publication_seconds": 15.0, "response_tokens_mean": 20.0,
         "prompt_tokens_mean": 10.0, "trained_tokens": 23040.0, "rollouts": 768.0},
    ),
    "prime_rl_orchestrator": (
        {"step": 7, "time/step": 5.5, "time/generate_completions": 3.0, "time/wait_for_weight_ckpt": 1.0,
         "progress/ckpt_step": 6, "progress/samples": 256},
        {"generation_seconds": 3.0, "lag_mean": 1.0, "rollouts": 256.0, "wait_seconds": None},
    ),
    "open_instruct": (
        {"training_step": 7, "time/total": 20.0, "throughput/device/data loading (s)": 13.0,
         "time/weight_sync": 3.5},
        {"step_seconds": 20.0, "wait_seconds": 13.0, "publication_seconds": 3.5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_is_known_by_its_names_and_read_by_its_map(tmp_path, name):
    row, expected = FRAMEWORKS[name]
    log = ls.read_step_log(write(tmp_path, "a.jsonl", [row]))

    assert log.frameworks == (name,)
    assert {key: log.frame[key][0] for key in expected} == expected


def test_all_maps_are_tried_and_name_only_columns_that_there_are():
    maps = shipped_frameworks()

    assert set(maps) - {"lagsweep", "verl", "prime_rl_trainer"} == set(FRAMEWORKS)
    for one in maps.values():
        assert set(one.columns) <= {*PLACES, *COLUMNS}, one.name
        assert set(one.notes) <= set(one.columns), one.name
        assert {*one.inside, *one.beside} <= set(one.columns), one.name
        assert one.origin or one.name == "lagsweep"
    assert recognized(["a", "b"]) is None


def test_the_same_name_is_generation_in_one_framework_and_a_wait_in_another(tmp_path):
    path = write(tmp_path, "a.jsonl", [FRAMEWORKS["verl_v1"][0]])
    read_as_synchronous = ls.read_step_log(path, framework="verl")

    assert read_as_synchronous.frame["generation_seconds"][0] == 3.0
    assert read_as_synchronous.frame["wait_seconds"][0] is None


def test_a_column_of_the_user_beats_the_framework_and_has_its_unit(tmp_path):
    rows = [{**row, "ms spent": 1000 * row["timing_s/step"] + 1} for row in ROWS]
    path = write(tmp_path, "a.csv", rows)

    for given in ({"columns": {"step_seconds": "ms spent:ms"}},
                  {"columns": {"step_seconds": "ms spent"}, "units": {"step_seconds": "ms"}}):  # fmt: skip
        log = ls.read_step_log(path, **given)
        assert log.frame["step_seconds"].to_list() == pytest.approx([9.001, 8.001])
        assert log.columns["step_seconds"].said_by == "user"
        assert log.columns["step_seconds"].factor == 0.001
        assert [one.done for one in log.found("unit")] == ["converted"]


def test_a_column_whose_own_name_has_a_colon_is_found(tmp_path):
    log = ls.read_step_log(
        write(tmp_path, "a.csv", [{"n": 1, "cost:h": 5.0}]),
        columns={"step": "n", "step_seconds": "cost:h"},
    )

    assert log.frame["step_seconds"].to_list() == [5.0]


def test_plain_names_with_a_unit_behind_need_no_map(tmp_path):
    rows = [{"step": k, "step_ms": 5000 + k, "wait_seconds": 1.0 + k, "lag_mean": 2} for k in range(3)]
    log = ls.read_step_log(write(tmp_path, "a.csv", rows))

    assert log.frame["step_seconds"].to_list() == pytest.approx([5.0, 5.001, 5.002])
    assert log.frame["wait_seconds"].to_list() == [1.0, 2.0, 3.0]
    assert log.frame["step"].to_list() == [0, 1, 2]


CONSOLE = """\
\x1b[36m(TaskRunner pid=0)\x1b[0m step:1 - timing_s/gen:np.float64(5.5) - timing_s/step:9.0 - note:text
noise that is no step
(TaskRunner pid=0) step:2 - timing_s/gen:4.5 - timing_s/step:8.0
"""
NEMO = """\
========================= Step 2/50 =========================
  • Mean Generation Length: 756.4512
⏱️  Timing:
  • Total step time: 43.31s
  • generation: 33.22s (76.7%)
  • policy_training: 3.24s (7.5%)
========================= Step 3/50 =========================
  • Total step time: 41.00s
  • policy_training: 3.00s (7.3%)
"""
SLIME = """\
[2026-01-01] perf 3: {'perf/rollout_time': 25.5, 'perf/longest_sample_tokens_per_sec': 20.0}
[2026-01-01] perf 3: {'perf/step_time': 50.5, 'perf/train_wait_time': 30.5, 'perf/actor_train_time': 14.5}
"""


@pytest.mark.parametrize(
    ("text", "framework", "expected"),
    [
        (CONSOLE, "verl", {"generation_seconds": [5.5, 4.5], "step_seconds": [9.0, 8.0]}),
        (NEMO, "nemo_rl", {"generation_seconds": [33.22, None], "training_seconds": [3.24, 3.0]}),
        (SLIME, "slime", {"generation_seconds": [25.5], "step_seconds": [50.5], "wait_seconds": [30.5]}),
    ],
)
def test_a_console_is_read_line_by_line(tmp_path, text, framework, expected):
    (tmp_path / "out.log").write_text(text)
    log = ls.read_step_log(tmp_path / "out.log")

    assert log.frameworks == (framework,)
    assert {name: log.frame[name].to_list() for name in expected} == expected


def test_the_two_sides_of_prime_rl_are_joined_by_step(tmp_path):
    trainer = [
        {"step": k, "time/step": 6.0, "time/wait_for_batch": 2.0, "time/forward_backward": 3.5}
        for k in (0, 2, 3)
    ]
    rollouts = [
        {"step": k, "time/step": 5.0, "time/generate_completions": 3.0, "time/wait_for_weight_ckpt": 0}
        for k in range(4)
    ]
    paths = [write(tmp_path, "o.jsonl", rollouts), write(tmp_path, "t.jsonl", trainer)]
    log = ls.read_step_log(paths)

    assert log.frame["step_seconds"].to_list() == [6.0, None, 6.0, 6.0]
    assert log.frame["generation_seconds"].to_list() == [3.0, 3.0, 3.0, 3.0]
    assert [one.words for one in log.found("sides")] == [
        "joined by step with the other side; 1 step are only in one of them; step_seconds from the trainer's"
    ]


def test_logs_of_two_frameworks_are_no_run(tmp_path):
    paths = [write(tmp_path, "a.csv"), write(tmp_path, "b.jsonl", [FRAMEWORKS["trl"][0]])]

    with pytest.raises(ConfigError, match="must be logs of one framework"):
        ls.read_step_log(paths)


def test_text_and_data_name_every_column_and_finding(tmp_path):
    log = ls.read_step_log(write(tmp_path, "a.csv"))
    facts = log.as_dict()

    assert str(log).startswith("2 steps of verl, synchronous, from a.csv.")
    assert max(map(len, str(log).splitlines())) <= 80
    assert facts["columns"]["training_seconds"]["source"] == "timing_s/update_actor"
    assert len(facts["findings"]) == len(log.findings)
    assert json.loads(json.dumps(facts)) == facts


def test_a_missing_package_for_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    (tmp_path / "events.out.tfevents.1").write_bytes(b"")
    with pytest.raises(ConfigError, match="needs the package tensorboard"):
        ls.read_step_log(tmp_path / "events.out.tfevents.1")


def test_a_folder_without_event_files_is_no_log(tmp_path):
    with pytest.raises(ConfigError, match="a folder with TensorBoard's event files"):
        ls.read_step_log(tmp_path)


@pytest.mark.filterwarnings("ignore")  # of the package and what it is built on
def test_tensorboards_scalars_are_read_by_step(tmp_path):
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    event = pytest.importorskip("tensorboard.compat.proto.event_pb2").Event
    summary = pytest.importorskip("tensorboard.compat.proto.summary_pb2").Summary
    log = writer.EventFileWriter(str(tmp_path / "run"))
    for step in range(6):
        values = {"train/timing/step_total": 9 + step, "train/timing/ppo_train": 4}
        scalars = [summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        log.add_event(event(step=step, wall_time=1000.0 + step, summary=summary(value=scalars)))
    log.close()
    found = ls.read_step_log(tmp_path / "run")

    assert found.frameworks == ("openrlhf",)
    assert found.frame["step_seconds"].to_list() == [9.0, 10.0, 11.0, 12.0, 13.0, 14.0]
    assert found.frame["training_seconds"].to_list() == [4.0] * 6
