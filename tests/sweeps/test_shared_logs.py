"""Real logs of seven frameworks and two engines, where the folder with them lies beside the checkout.

None of them is shipped: most state no license. Their names, origins and oddities stand in the folder's own
page; what is expected here was read there.
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

import lagsweep as ls

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("LAGSWEEP_SHARED", ROOT.parent / "shared")) / "data"
pytestmark = pytest.mark.skipif(not (DATA / "logs").is_dir(), reason="needs ../shared/data/logs")

# Of each: the framework, rows kept, and findings that must be there, as (kind, what it is about).
STEP_LOGS = {
    "logs/nemo_rl_grpo_gemma3-1b_b200x8.csv": ("nemo_rl", 50, {("holds", "evaluation_seconds")}),
    "logs/prime_rl_qwen3-0.6b_orchestrator.csv": (
        "prime_rl_orchestrator", 997, {("unused", "time/wait_for_weight_ckpt"), ("warm_up", "step_seconds")},
    ),
    "logs/prime_rl_qwen3-0.6b_trainer.csv": (
        "prime_rl_trainer", 499,
        {("same_twice", "time/save_weights"), ("polled", "wait_seconds"), ("gap", "step"),
         ("warm_up", "step_seconds"), ("beside", "publication_seconds")},
    ),
    "logs/slime_rollout_qwen3.5-35b-a3b_h200x4.csv": (
        "slime", 6, {("several_runs", "fp8_cache_aware"), ("meaning", "rollouts = rollout/num_segments")},
    ),
    "logs/tinker_qwen30b_cookbook.csv": ("tinker", 199, {("part_batch", "rollouts")}),
    "logs/tinker_qwen4b_cookbook.csv": ("tinker", 595, {("interleaved", "step")}),
    "logs/trl_grpo_qwen2.5-3b_hotpotqa.csv": (
        "trl", 1875, {("derived", "step_seconds"), ("polled", "step_seconds")},
    ),
    "logs/trl_unsloth_grpo.csv": ("trl", 7, {("derived", "trained_tokens"), ("gap", "step")}),
    "logs/verl_grpo_qwen2.5-7b_1gpu_resp20.csv": (
        "verl", 698,
        {("unused", "perf/throughput"), ("unused", "timing_s/generate_sequences"),
         ("warm_up", "step_seconds"), ("beside", "checkpoint_seconds")},
    ),
    "logs/verl_ppo_getting_started_notebook_1gpu.csv": ("verl_2024", 61, {("beside", "evaluation_seconds")}),
    "logs/verl_separate_async_qwen3-4b_lora_npu2.csv": (
        "verl_v1", 124, {("unused", "perf/throughput"), ("warm_up", "step_seconds")},
    ),
    "runs/open_instruct_rl0_32b_async_history.csv": (
        "open_instruct", 1092,
        {("broken", "learner_mfu"), ("broken", "time/training"), ("zero", "learner_tokens_per_second_step"),
         ("restart", "step 100"), ("restart", "step 200")},
    ),
    "runs/verl_ppo_gsm8k_qwen2.5-0.5b_resp512.csv": ("verl_2024", 435, {("beside", "evaluation_seconds")}),
}  # fmt: skip
# Of each: what to read of it, the listed median error of a robust fit in percent, None where it is refused.
ENGINE_LOGS = [
    ("vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "1"}}, 2.7),
    ("vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "2"}}, 2.2),
    ("vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "5"}}, 2.2),
    ("vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "6"}}, 5.5),
    ("vllm_qwen3-coder-30b-a3b_long_context.csv", {"kv_cache_tokens": 151_216}, 0.10),
    ("sglang_ascend_qwen3-32b_w8a8_tp4.csv", {}, 0.31),
    ("sglang_ascend_qwen3-30b-a3b_w8a8_tp2.csv", {}, 0.36),
    ("sglang_ascend_qwen3-next-80b-a3b_w8a8_tp4.csv", {}, 0.71),
    ("sglang_ascend_qwen3-32b_bf16_tp8.csv", {}, 1.2),
    ("sglang_ascend_qwen3-32b_bf16_8p_18k.csv", {}, 1.7),
    ("sglang_ascend_deepseek-r1_w4a8_dp16.csv", {}, 0.39),
    ("sglang_dgxspark_int4_spec.csv", {}, 4.8),
    ("vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "4"}}, None),
    ("vllm_h100_qwen3-30b-a3b_bf16.csv", {"kv_cache_tokens": 94_784}, None),
    ("vllm_dgxspark_qwen38-int4.csv", {}, None),
]
REFUSED = {
    "vllm_a100_qwen2_tests1-6.csv": ["at least 10 are needed", "requests wait for room in a full cache"],
    "vllm_h100_qwen3-30b-a3b_bf16.csv": ["1 to 3 requests ran in them", "at least 10 are needed"],
    "vllm_dgxspark_qwen38-int4.csv": ["no line fits", "speculation whose accepted tokens the log does not"],
}


@pytest.mark.parametrize("name", STEP_LOGS)
def test_a_step_log_is_read_and_its_oddities_are_named(name):
    framework, rows, findings = STEP_LOGS[name]
    log = ls.read_step_log(DATA / name)

    assert (log.frameworks, len(log)) == ((framework,), rows)
    assert findings <= {(one.kind, one.about) for one in log.findings}
    assert log.frame.select("run", "segment", "step").is_duplicated().sum() == 0


def test_all_step_logs_of_the_folder_are_here():
    known = {Path(name).name for name in STEP_LOGS} | {name for name, _, _ in ENGINE_LOGS}

    assert {path.name for folder in ("logs", "runs") for path in (DATA / folder).glob("*.csv")} == known


def test_the_two_runs_in_one_file_have_all_steps_each():
    log = ls.read_step_log(DATA / "logs/tinker_qwen4b_cookbook.csv")
    rows = log.frame.group_by("run", maintain_order=True).agg(steps=pl.col("step").n_unique())

    assert rows.rows() == [(0, 297), (1, 298)]  # the first step of one is left out as a slow first step
    assert log.left_out.select("step", "reason").rows() == [(0, "a first step, slower than those after it")]
    assert [one.rows for one in log.found("interleaved")] == [298]


def test_the_two_sides_of_prime_rl_are_one_run():
    names = ("orchestrator", "trainer")
    log = ls.read_step_log([DATA / f"logs/prime_rl_qwen3-0.6b_{name}.csv" for name in names])

    assert log.frame["step"].n_unique() == len(log) == 998
    assert log.frame["wait_seconds"].count() == 499
    assert log.frame["lag_mean"].drop_nulls().unique().to_list() == [1.0]


@pytest.mark.parametrize(("name", "options", "listed"), ENGINE_LOGS)
def test_an_engine_log_is_fitted_as_well_as_listed_or_refused(name, options, listed):
    fit = ls.fit_engine_samples(ls.read_engine_log(DATA / "logs" / name, **options))

    if listed is None:
        assert all(words in fit.refused for words in REFUSED[name])
        assert fit.coefficients == ()
    else:
        assert fit.refusals == ()
        assert 100 * fit.median_error <= 1.2 * listed
        assert all(one.value >= 0 and one.low <= one.value <= one.high for one in fit.coefficients)


def test_raw_lines_of_consoles_are_read(tmp_path):
    text = (DATA / "logs" / "raw_line_samples.txt").read_text(encoding="utf-8")
    parts = {part.splitlines()[0]: part for part in text.split("\n### ")}

    def read(title, reader, **options):
        (part,) = [part for name, part in parts.items() if title in name]
        (tmp_path / "part.log").write_text(part, encoding="utf-8")
        return reader(tmp_path / "part.log", **options)

    assert read("verl separate_async", ls.read_step_log).frame["step"].to_list() == [3, 4]
    assert read("np.float64", ls.read_step_log).frame["training_seconds"].to_list() == [7.827415915206075]
    assert read("verl 0.1", ls.read_step_log).frame["critic_seconds"].to_list() == [9.179]
    assert read("NeMo RL", ls.read_step_log).frame["step_seconds"].to_list() == [43.31]
    assert len(read("SGLang decode, hybrid", ls.read_engine_log)) == 3
    assert len(read("DP+PD", ls.read_engine_log)) == 3
    assert read("sliding window", ls.read_engine_log).frame["accepted_tokens"].to_list() == [2.63, 2.3]
    assert read("vLLM 0.10", ls.read_engine_log).frame["running"].to_list() == [56.0, 55.0, 55.0, 75.0]
    assert len(read("vLLM 0.26", ls.read_engine_log)) == 2
