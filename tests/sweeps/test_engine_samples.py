"""Samples of engines: known steps are found again within their intervals, what tells no step is refused."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.every_command import run

import lagsweep as ls
from lagsweep import ConfigError
from lagsweep.sweeps.logs.engine_windows import windows_of
from lagsweep.sweeps.logs.sampled_engine import sampled_engine
from lagsweep.sweeps.logs.steps_robustly import drawn_lines, robust_line

# Fixed part, a request, a token of cache, in seconds: what made the samples below.
STEP = (0.012, 1.5e-4, 6e-8)
FIT = ["engine", "fit", "--samples"]
SECONDS = ("step_seconds", "step_seconds_per_rollout", "step_seconds_per_context_token")


def made(seed=0, count=120, *, noise=0.004, spoiled=0.1, step=STEP, accepted=1.0, running=None):
    """Make samples in which the same requests run for four samples each, a share of them with idle time."""
    rng = np.random.default_rng(seed)
    n = np.repeat(rng.integers(2, 120, count // 4 + 1) if running is None else running, 4)[:count]
    cache = n * rng.uniform(500, 9000, count // 4 + 1).repeat(4)[:count] * (1 + 0.02 * (np.arange(count) % 4))
    seconds = step[0] + step[1] * n + step[2] * cache
    seconds = seconds * np.exp(noise * rng.standard_normal(count))
    idle = rng.random(count) < spoiled
    seconds = np.where(idle, seconds * rng.uniform(1.5, 8, count), seconds)
    return pl.DataFrame(
        {
            "t_s": np.arange(count) * 5.0,
            "#running-req": n,
            "#token": cache.round(),
            "accept len": np.full(count, accepted),
            "gen throughput (token/s)": n * accepted / seconds,
            "prefill_since_last": np.zeros(count, dtype=int),
        }
    )


def fitted(folder, frame, name="samples.csv", **options):
    frame.write_csv(folder / name)
    return ls.fit_engine_samples(ls.read_engine_log(folder / name, **options))


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_known_line_is_found_again_in_spite_of_spoiled_windows(seed):
    rng = np.random.default_rng(seed)
    running = rng.integers(1, 200, 150).astype(float)
    cache = running * rng.uniform(100, 8000, 150)
    columns = np.column_stack([np.ones(150), running, cache])
    truth = np.array([rng.uniform(0.005, 0.05), rng.uniform(0, 5e-4), rng.uniform(0, 2e-7)])
    seen = columns @ truth * np.exp(0.003 * rng.standard_normal(150))
    seen[rng.choice(150, 30, replace=False)] *= rng.uniform(1.3, 9, 30)
    line = robust_line(columns, seen)

    assert np.median(np.abs(columns @ line.coefficients / (columns @ truth) - 1)) < 0.005
    assert (line.coefficients >= 0).all()
    assert 105 <= line.kept.sum() <= 130


def test_intervals_cover_the_truth_as_often_as_they_say(tmp_path):
    covered = []
    for seed in range(20):
        fit = fitted(tmp_path, made(seed, count=80))
        covered += [one.low <= truth <= one.high for one, truth in zip(fit.coefficients, STEP)]

    assert (
        sum(covered) >= 50
    )  # of 60; at 95 % fewer come once in 1,000 times, blocks of few windows cost some


def test_plain_least_squares_would_not_have_found_it(tmp_path):
    fit = fitted(tmp_path, made())
    windows = windows_of(fit.log)
    columns = np.column_stack([np.ones(len(windows)), windows.running, windows.cache])
    plain = np.linalg.lstsq(columns, windows.step_seconds, rcond=None)[0]
    exact = columns @ np.array(STEP)

    assert np.median(np.abs(columns @ plain / exact - 1)) > 0.1
    assert fit.median_error < 0.006
    assert [one.name for one in fit.coefficients] == list(SECONDS)
    assert np.median(np.abs(windows.step_seconds * (1 + fit.errors) / exact - 1)) < 0.004


def test_with_speculation_a_step_is_divided_by_its_tokens_in_the_engines_file(tmp_path):
    fit = fitted(tmp_path, made(accepted=2.5))
    engine = sampled_engine(fit)

    assert fit.value("step_seconds") == pytest.approx(STEP[0], rel=0.03)
    assert engine.step_seconds == pytest.approx(fit.value("step_seconds") / 2.5, rel=1e-5)
    assert any("2.5 tokens (speculation)" in note for note in fit.notes)


def test_where_the_same_number_runs_only_their_sum_is_given(tmp_path):
    fit = fitted(tmp_path, made(running=np.full(31, 40)))

    assert fit.constant_running == 40
    assert [one.name for one in fit.coefficients] == [SECONDS[0], SECONDS[2]]
    assert fit.value("step_seconds") == pytest.approx(STEP[0] + 40 * STEP[1], rel=0.02)
    assert fit.value("step_seconds_per_rollout") == 0
    assert "running is 40 throughout" in fit.notes[0]


def test_ranks_step_together_as_long_as_the_fullest(tmp_path):
    """Eight ranks with loads of their own, whose steps all last as the fullest one's does."""
    rng = np.random.default_rng(1)
    rows = []
    for block in range(30):
        n = rng.integers(5, 60, 8)
        cache = n * rng.uniform(500, 4000, 8)
        seconds = STEP[0] + STEP[1] * n.max() + STEP[2] * cache.max()
        for part in range(3):
            for rank in range(8):
                noisy = seconds * float(np.exp(0.003 * rng.standard_normal()))
                rows.append((5.0 * (3 * block + part), rank, n[rank], cache[rank], n[rank] / noisy))
    names = ["t_s", "rank", "#running-req", "#token", "gen throughput (token/s)"]
    fit = fitted(tmp_path, pl.DataFrame(rows, schema=names, orient="row"))

    assert fit.windows.ranks == 8
    assert fit.median_error < 0.005
    assert fit.value("step_seconds") == pytest.approx(STEP[0], rel=0.05)
    assert sampled_engine(fit).count == 8


def test_windows_with_prompts_or_other_requests_are_not_used(tmp_path):
    frame = made(spoiled=0.0).with_columns(
        pl.when(pl.int_range(pl.len()) % 4 == 3).then(2).otherwise(0).alias("prefill_since_last")
    )
    fit = fitted(tmp_path, frame)
    used = {one.about: one.rows for one in fit.findings if one.kind == "not_used"}

    assert used["prompt_tokens_per_second"] == 30
    assert fit.samples + sum(used.values()) == 120
    assert (np.diff(fit.windows.rows) >= 1).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"frame": made(count=12)[:6]}, "at least 10 are needed"),
        (
            {"frame": made(running=np.arange(31) % 3 + 1, count=12)[:9]},
            "requests ran in them: that says nothing of a busy engine",
        ),
        ({"frame": made(noise=1.2, count=60)}, "no line fits: half of the samples are off by more than"),
    ],
)
def test_samples_that_tell_no_step_are_refused_with_the_reason(tmp_path, change, words):
    fit = fitted(tmp_path, change["frame"])

    assert words in fit.refused
    assert fit.coefficients == ()
    assert words in str(fit).replace("\n  ", " ")
    with pytest.raises(ConfigError, match="must be a fit"):
        sampled_engine(fit)


def test_a_full_cache_with_few_samples_says_that_requests_lose_their_places(tmp_path):
    rows = [(10 * k, 50.0 + k % 2, 40, 99.0 - k % 3, 900.0, 0.0) for k in range(8)]
    names = [
        "t_s",
        "Running",
        "Waiting",
        "GPU KV cache usage",
        "Avg generation throughput",
        "Avg prompt throughput",
    ]
    fit = fitted(tmp_path, pl.DataFrame(rows, schema=names, orient="row"))

    assert len(fit.refusals) == 2
    assert "requests wait for room in a full cache in 8 of 8 samples" in fit.refusals[1]


VLLM = """\
(APIServer pid=0) INFO 09-03 06:00:00 [core.py:1] GPU KV cache size: 41,408 tokens
(APIServer pid=0) INFO 09-03 06:08:58 [loggers.py:123] Engine 000: Avg prompt throughput: 12.5 tokens/s, Avg \
generation throughput: 679.1 tokens/s, Running: 56 reqs, Waiting: 42 reqs, GPU KV cache usage: 50.0%, Prefix \
cache hit rate: 49.1%
a line of something else
(APIServer pid=0) INFO 09-03 06:09:08 [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg \
generation throughput: 700.0 tokens/s, Running: 56 reqs, Waiting: 41 reqs, GPU KV cache usage: 60.0%, Prefix \
cache hit rate: 49.2%
"""
SGLANG = """\
[2026-01-04 07:38:40 DP1 TP1] Prefill batch, #new-seq: 1, #new-token: 3584, #cached-token: 0, token usage: \
0.65, #running-req: 77, #queue-req: 0,
[2026-01-04 07:38:42 DP1 TP1] Decode batch, #running-req: 24, #token: 84480, token usage: 0.64, accept len: \
2.89, accept rate: 0.72, cpu graph: True, gen throughput (token/s): 536.25, #queue-req: 1,
[2026-01-04 07:38:43 DP0 TP0] Decode batch. #running-req: 8, #full token: 900, full token usage: 0.10, mamba \
num: 80, cuda graph: True, gen throughput (token/s): 80.5, #queue-req: 0
"""


def test_what_the_cache_holds_is_worked_out_from_tokens_and_their_share(tmp_path):
    frame = made().with_columns((pl.col("#token") / 2_500_000).round(2).alias("token usage"))
    log = fitted(tmp_path, frame).log

    assert log.pool_tokens == pytest.approx(2_500_000, rel=0.01)
    assert [one.about for one in log.findings if one.kind == "derived"] == ["kv_cache_tokens"]
    assert fitted(tmp_path, frame, kv_cache_tokens=2_490_000).log.pool_tokens == 2_490_000


def test_lines_of_vllm_are_read_with_the_cache_that_it_printed(tmp_path):
    (tmp_path / "vllm.log").write_text(VLLM)
    log = ls.read_engine_log(tmp_path / "vllm.log")

    assert (log.engine, log.pool_tokens, len(log)) == ("vllm", 41_408, 2)
    assert log.frame["seconds"].to_list() == [0.0, 10.0]
    assert log.frame["waiting"].to_list() == [42.0, 41.0]
    assert log.frame["cache_tokens"].to_list() == pytest.approx([20_704, 24_844.8])
    assert log.frame["prompt_tokens_per_second"].to_list() == [12.5, 0.0]


def test_lines_of_sglang_are_read_by_rank_with_the_prefills_before_them(tmp_path):
    (tmp_path / "sglang.log").write_text(SGLANG)
    frame = ls.read_engine_log(tmp_path / "sglang.log").frame.sort("rank")

    assert frame["rank"].to_list() == [0, 1]
    assert frame["prefills"].to_list() == [0.0, 1.0]
    assert frame["accepted_tokens"].to_list() == [None, 2.89]
    assert frame["generated_tokens_per_second"].to_list() == [80.5, 536.25]
    assert frame["running"].to_list() == [8.0, 24.0]


def test_counters_of_a_metrics_endpoint_become_speeds(tmp_path):
    rows = [(10 * k, 8, 0.1 + k / 100, 1000 * k, 50) for k in range(4)] + [(40, 8, 0.2, 10, 50)]
    names = ["timestamp", "vllm:num_requests_running", "vllm:kv_cache_usage_perc",
             "vllm:generation_tokens_total", "vllm:prompt_tokens_total"]  # fmt: skip
    pl.DataFrame(rows, schema=names, orient="row").write_csv(tmp_path / "metrics.csv")
    log = ls.read_engine_log(tmp_path / "metrics.csv", kv_cache_tokens=50_000)

    assert log.frame["generated_tokens_per_second"].to_list() == [None, 100.0, 100.0, 100.0, None]
    assert log.frame["prompt_tokens_per_second"].to_list() == [None, 0.0, 0.0, 0.0, 0.0]
    assert log.frame["cache_tokens"][0] == pytest.approx(5000)


def test_without_the_size_of_the_cache_its_coefficient_is_of_the_whole(tmp_path):
    frame = made().rename({"#token": "tokens"}).with_columns((pl.col("tokens") / 2e6).alias("token usage"))
    fit = fitted(tmp_path, frame)

    assert [one.name for one in fit.coefficients][-1] == "step_seconds_per_cache"
    assert fit.value("step_seconds_per_cache") == pytest.approx(2e6 * STEP[2], rel=0.05)
    assert any("give --kv-cache-tokens" in note for note in fit.notes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "vlm"}, "engine: must be one of"),
        ({"where": {"rank": "1"}}, "where: must be a column of samples.csv"),
        ({"columns": {"runing": "x"}}, "Did you mean 'running'?"),
        ({"columns": {"running": "#running"}}, "columns running: must be a column of the file"),
        ({"kv_cache_tokens": 0}, "kv_cache_tokens: must be at least 1"),
    ],
)
def test_what_the_user_says_wrongly_is_named(tmp_path, options, words):
    made().write_csv(tmp_path / "samples.csv")
    with pytest.raises(ConfigError) as caught:
        ls.read_engine_log(tmp_path / "samples.csv", **options)

    assert words in str(caught.value)


def test_a_file_that_says_nothing_of_an_engine_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="column of running: is required"):
        ls.read_engine_log(tmp_path / "a.csv")


def test_draws_are_the_same_each_time():
    columns = np.column_stack([np.ones(30), np.arange(1.0, 31)])
    seen = 0.01 + 0.001 * np.arange(1.0, 31) + 0.0001 * np.sin(np.arange(30))

    assert np.array_equal(drawn_lines(columns, seen, draws=20), drawn_lines(columns, seen, draws=20))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made().write_csv(tmp_path / "samples.csv")
    made(noise=1.2).write_csv(tmp_path / "noise.csv")
    return tmp_path


def test_the_command_writes_an_engine_that_simulates(folder):
    answer = run([*FIT, "samples.csv", "--kv-cache-tokens", "900,000", "--page", "p.html", "-o", "e.toml"])
    out = answer.out.decode()

    assert answer.code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert out.splitlines()[-1] == "written: e.toml, p.html"
    written = tomllib.loads((folder / "e.toml").read_text())
    assert written["kv_cache_tokens"] == 900_000
    assert written["step_seconds"] == pytest.approx(STEP[0], rel=0.03)
    assert set(written["fitted"]["intervals"]) == set(SECONDS)
    assert "default-src 'none'" in (folder / "p.html").read_text()
    assert run(["simulate", "--engine", "e.toml", "--duration-seconds", "60", "--json"]).code == 0


def test_the_command_refuses_with_one_and_writes_no_engine(folder):
    answer = run([*FIT, "noise.csv", "--page", "p.html", "--json"])
    found = json.loads(answer.out)

    assert answer.code == 1
    assert found["written"] == ["p.html"]
    assert "no line fits" in found["refused"][0]
    assert not (folder / "engine.toml").exists()


def test_options_of_requests_have_no_effect_on_samples_and_are_refused(folder):
    answer = run([*FIT, "samples.csv", "samples.csv", "--model", "Qwen3-8B", "--engines", "2"])
    words = answer.err.decode()

    assert answer.code == 2
    for name in ("REQUESTS", "--model", "--engines"):
        assert f"{name}: has no effect with --samples" in words
    assert b"REQUESTS: is required" in run(["engine", "fit"]).err
