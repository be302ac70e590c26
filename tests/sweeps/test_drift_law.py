"""A drift from rollout records: what is read, what is refused, and where it works."""

from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from oracle.every_command import run

import lagsweep as ls
from lagsweep.errors import ConfigError, StoreError
from lagsweep.kernels.staleness.measured_drift import jackknifed_ess
from lagsweep.sweeps.presets.systems import workload_config
from lagsweep.sweeps.records.log_ratios import read_log_ratios
from lagsweep.testing import good_record

RECORDS = Path(__file__).resolve().parents[1] / "data" / "rollouts" / "real_rollouts_smollm2.jsonl"
# Of tests/data/rollouts/ess_real.json, worked out apart from the package.
REAL = {
    "token": [0.9964404619514157, 0.9704396212037493, 0.8116144082820913, 0.2564280390417483],
    "sequence": [0.9378168145154473, 0.10001078133913723, 0.0606107143377174, 0.03507188367949038],
}
SHORT = {"duration_seconds": 120.0}


def law(level="token", **more):
    return ls.DriftLaw.from_records(RECORDS, level, **more)


def records_file(folder, *changes, name="records.jsonl"):
    """Write a record for each of some changes of a good one with two tokens."""
    path = folder / name
    lines = []
    for number, change in enumerate(changes):
        record = {
            **good_record(), "sample_id": f"s{number}", "response_tokens": [314, 2],
            "behavior_logprobs": [-0.5, -0.25], "policy_version": 3,
        }  # fmt: skip
        record.pop("loss_mask", None)
        lines.append(json.dumps({**record, **change}))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("level", REAL)
def test_real_records_have_the_ess_that_was_measured(level):
    measured = law(level)

    assert measured.lags.tolist() == [0, 1, 2, 3]
    assert [measured.normalized_ess(lag) for lag in range(4)] == pytest.approx(REAL[level], rel=1e-12)
    rows = read_log_ratios(RECORDS, level).rows()
    assert [row.normalized_ess for row in rows] == pytest.approx(REAL[level], rel=1e-12)
    assert {(row.records, row.tokens) for row in rows} == {(32, 902)}


@pytest.mark.parametrize("level", REAL)
def test_a_run_of_one_lag_has_the_ess_of_its_law(level):
    fresh = ls.PipelineConfig(drift=law(level), mode="sequential", **SHORT)

    found = ls.simulate_pipeline(fresh).mean_expected_normalized_ess
    assert found == pytest.approx(REAL[level][0], rel=1e-12)


def test_masked_tokens_count_nowhere_and_each_token_has_its_own_lag(tmp_path):
    path = records_file(
        tmp_path,
        {"trainer_logprobs": [-0.4, -9.0], "trainer_version": 5, "loss_mask": [1, 0]},
        {"trainer_logprobs": [[-0.5, -0.25], [-0.6, -0.45]], "token_versions": [3, 4]},
    )  # fmt: skip
    tokens, whole = (ls.DriftLaw.from_records(path, level) for level in ("token", "sequence"))

    def by_lag(law):
        return {lag: ratios.round(9).tolist() for lag, ratios in zip(law.lags.tolist(), law.log_ratios)}

    assert by_lag(tokens) == {0: [0.0], 1: [-0.2, 0.0], 2: [-0.1, 0.1]}
    assert by_lag(whole) == {1: [0.0], 2: [-0.3, 0.1]}


def test_a_law_is_a_value_that_stands_without_its_file(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(RECORDS.read_bytes())
    measured = ls.DriftLaw.from_records(path, "sequence", beyond="last")
    plain = json.loads(json.dumps(measured.to_dict(embed=True)))
    path.unlink()

    assert ls.DriftLaw.from_dict(plain) == measured == copy.deepcopy(measured)
    assert pickle.loads(pickle.dumps(measured)) == measured
    assert measured != law("sequence")
    assert "embedded" not in repr(measured)
    assert measured.normalized_ess(9) == measured.normalized_ess(3)
    with pytest.raises(ConfigError, match="must be at most 3, the largest measured"):
        law().normalized_ess(4)


def test_a_file_that_has_changed_is_noticed(tmp_path):
    path = tmp_path / "records.jsonl"
    lines = RECORDS.read_text().splitlines()
    path.write_text("\n".join(lines) + "\n")
    plain = ls.DriftLaw.from_records(path, "token").to_dict()
    path.write_text("\n".join(lines[:-1]) + "\n")

    with pytest.raises(ConfigError, match=r"drift\.digest: must be .* The file or table has changed"):
        ls.PipelineConfig(drift=plain)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{}, {}], r"line 1: trainer_logprobs: is required[\s\S]*line 2: trainer_logprobs: is required"),
        ([{"trainer_logprobs": [-0.5]}], "trainer_version: must be a whole number beside one list"),
        ([{"trainer_logprobs": [[-0.5]]}], r"trainer_logprobs\[0\]: must have one value per response"),
        ([{"trainer_logprobs": [[-0.5, 0.7]]}], "must be finite log-probabilities, at most 0"),
        ([{"trainer_logprobs": [[-0.5, "a"]]}], "must be finite log-probabilities, at most 0"),
        ([{"trainer_logprobs": [-0.5, -0.2], "trainer_version": 2}], "must not be newer than the trainer's"),
        ([{"trainer_logprobs": [-0.5, -0.2], "trainer_version": 9999}], "must hold lags of at most 4,095"),
        ([{"behavior_logprobs": [0.5, -0.25]}], "line 1: behavior_logprobs.*lagsweep validate"),
        ([{"loss_mask": [0, 0], "trainer_logprobs": [[-0.5, -0.2]]}], "must hold log ratios"),
        ([], "must hold records"),
    ],
)  # fmt: skip
def test_a_bad_record_is_named_by_its_line(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=said):
        ls.DriftLaw.from_records(records_file(tmp_path, *changes), "token")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"lags": [1, 1], "log_ratios": [[0.0], [0.0]]}, "lags: must rise"),
        ({"lags": [1], "log_ratios": [[0.0], [0.0]]}, "must have one list for each lag"),
        ({"lags": [1], "log_ratios": [[]]}, r"log_ratios\[0\]: must be a list of numbers"),
        ({"lags": [1], "log_ratios": [[math.inf]]}, r"log_ratios\[0\]"),
        ({"lags": [1], "log_ratios": [[0.0]], "level": "word"}, "level: must be one of"),
        ({"lags": [1], "log_ratios": [[0.0]], "beyond": "first"}, "beyond: must be one of"),
    ],
)
def test_what_makes_no_law_is_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        ls.DriftLaw.from_log_ratios(**{"level": "token", **arguments})


class TestConfigurations:
    def test_a_given_drift_per_version_is_refused_beside_it(self):
        with pytest.raises(ConfigError, match="drift_per_version: has an effect without drift only"):
            ls.PipelineConfig(drift=law(), drift_per_version=0.3)
        with pytest.raises(ConfigError, match="drift_length_exponent: must be 0 beside drift"):
            ls.PipelineConfig(drift=law(), drift_length_exponent=1)

    @pytest.mark.parametrize(
        "fields",
        [
            {"max_policy_lag": 4},
            {"prefetch_batches": 2},
            {"updates_per_batch": 3, "batch_groups": 4},
            {"mode": "sequential", "sync_every_updates": 5, "max_policy_lag": 9},
            {"stale_check": "never"},
        ],
    )
    def test_lags_that_no_record_has_are_refused_or_held(self, fields):
        with pytest.raises(ConfigError, match=r"drift: must know every lag.*beyond = 'last'"):
            ls.PipelineConfig(drift=law(), **fields)
        held = ls.PipelineConfig(drift=law(beyond="last"), **fields)
        assert held.drift.words.endswith("measured at lags 0 to 3 (lags beyond 3: as 3)")

    @pytest.mark.parametrize(
        "fields",
        [
            {"max_policy_lag": 3},
            {"mode": "sequential", "max_policy_lag": 9},
            {"stale_check": "never", "stop_after_updates": 4},
        ],
    )
    def test_lags_that_the_rules_keep_out_need_no_record(self, fields):
        assert ls.PipelineConfig(drift=law(), **fields).drift == law()

    def test_a_preset_may_know_a_bound_that_its_rules_do_not_tell(self):
        assert ls.preset_config("verl_one_step_off", drift=law()).drift == law()
        for name in ("prime_rl", "slime_fully_async"):
            with pytest.raises(ConfigError, match="drift: must know every lag"):
                ls.preset_config(name, drift=law())
            assert ls.preset_config(name, drift=law(beyond="last")).drift == law(beyond="last")
        # A rule of the user's own in the place of the preset's: nothing is proved of it.
        with pytest.raises(ConfigError, match="no rule bounds it"):
            ls.preset_config("verl_one_step_off", drift=law(), queue_order="random")

    def test_a_workload_leaves_it_to_its_systems(self):
        workload = workload_config(drift=ls.DriftLaw.from_log_ratios([0, 1], [[0.0], [0.1]], "token"))

        assert workload.replace(system="verl_one_step_off").drift == workload.drift
        with pytest.raises(ConfigError, match="drift: must know every lag"):
            workload.replace(system="prime_rl")

    def test_a_cell_keeps_a_drift_per_version_only_where_it_counts(self):
        base = ls.PipelineConfig(drift_per_version=0.4, **SHORT)
        ds = ls.run_sweep(base, {"drift": [None, law()]}, seeds=1, baseline=True, progress=False)
        configs = [ls.config_at(ds, int(cell)) for cell in ds["cell"].values]

        assert [one.drift_per_version for one in configs] == [0.4, 0.2]
        assert ds["drift"].values.tolist() == ["none", "real_rollouts_smollm2.jsonl:token"]
        assert ds["baseline_mean_expected_normalized_ess"].values.ravel().tolist() == pytest.approx(
            [1.0, REAL["token"][0]]
        )

    def test_every_cell_is_held_against_the_records(self):
        with pytest.raises(ConfigError, match=r"drift: must know every lag.*\(cell max_lag=4\)"):
            ls.run_sweep(ls.PipelineConfig(drift=law(), **SHORT), {"max_lag": [2, 4]}, seeds=1)

    def test_a_bound_by_versions_of_tokens_needs_a_drift_per_version(self):
        ds = ls.run_sweep(
            ls.PipelineConfig(drift=law(), publication="pause", **SHORT), {"max_lag": [1]}, 1, progress=False
        )
        with pytest.raises(ConfigError, match="drift: must be none in every cell"):
            ls.token_version_ess(ds)


class TestStores:
    def test_a_store_stands_without_the_records_and_names_a_file_that_has_changed(self, tmp_path):
        path = tmp_path / "records.jsonl"
        path.write_bytes(RECORDS.read_bytes())
        (tmp_path / "spec.toml").write_text(
            'seeds = 2\n[base]\nduration_seconds = 120\n'
            'drift = { law = "from_records", path = "records.jsonl", level = "token" }\n'
            "[axes]\nmax_lag = [0, 2]\n"
        )  # fmt: skip
        call = ["run", str(tmp_path / "spec.toml"), "--store", str(tmp_path / "store"), "-q"]
        first = run(call)
        assert first.code == 0, first.err
        assert b"the drift of records.jsonl:token" in first.out.replace(b"\n", b" ")
        path.write_text("".join(RECORDS.read_text().splitlines(keepends=True)[:20]))
        changed = run(call)
        path.unlink()

        assert changed.code == 3
        assert b"base.drift: records.jsonl:token (digest" in changed.err
        assert b"its content changed" in changed.err
        again = run(["run", str(tmp_path / "store" / "spec.toml"), "--store", str(tmp_path / "store"), "-q"])
        assert (again.code, again.out) == (0, first.out)
        assert run(["verify", str(tmp_path / "store"), "--sample", "2"]).code == 0
        ds = ls.open_sweep(tmp_path / "store")
        assert ls.config_at(ds, {"max_lag": 2}).drift == law()

    def test_another_law_is_no_extension(self, tmp_path):
        base = ls.PipelineConfig(drift=law(), **SHORT)
        ls.run_sweep(base, {"max_lag": [1]}, 1, store=tmp_path / "store", progress=False)
        with pytest.raises(StoreError, match=r"base\.drift"):
            ls.run_sweep(
                base.replace(drift=law("sequence")), {"max_lag": [1]}, 1, store=tmp_path / "store",
                progress=False,
            )  # fmt: skip

    def test_a_checkpoint_holds_the_law(self, tmp_path):
        path = tmp_path / "records.jsonl"
        path.write_bytes(RECORDS.read_bytes())
        config = ls.PipelineConfig(drift=ls.DriftLaw.from_records(path, "token"), **SHORT)
        run_of = ls.start_run(config)
        ls.advance_run(run_of, until_seconds=60.0)
        manifest = ls.simulation_checkpoint(run_of)
        path.unlink()
        resumed = ls.restore_simulation(manifest)

        assert ls.advance_run(resumed)
        assert ls.advance_run(run_of)
        assert ls.finish_run(resumed).metrics == ls.finish_run(run_of).metrics


class TestCommands:
    def test_what_records_measure_is_listed_lag_by_lag(self):
        answer = run(["ledger", "drift", "--records", str(RECORDS)])
        text = answer.out.decode()

        assert answer.code == 0
        assert "0.256 ±0.667" in text
        assert "rather too high" in text
        assert run(["ledger", "drift", "--records", str(RECORDS), "--tokens", "3"]).code == 2

    @pytest.mark.parametrize(
        "call",
        [
            ["simulate", "--duration-seconds", "60"],
            ["compare", "verl_one_step_off", "synchronous", "--seeds", "1", "-q", "--batch-groups", "4",
             "--group-size", "2", "--duration-seconds", "60", "--warmup-seconds", "0"],
        ],
    )  # fmt: skip
    def test_a_table_says_what_its_ess_rests_on(self, call):
        answer = run([*call, "--drift", f"from_records:{RECORDS}:token:last"])
        text = " ".join(answer.out.decode().split())

        assert answer.code == 0, answer.err
        assert "the drift of real_rollouts_smollm2.jsonl:token, measured at lags 0 to 3" in text
        assert "(lags beyond 3: as 3)" in text
        assert "drift_per_version" not in text

    def test_a_plan_may_rest_on_records(self):
        question = {
            "model": "Qwen3-8B", "accelerator": "H100", "gpus": 8, "prompts": 4, "group_size": 4,
            "law": ls.LengthLaw.fixed(500), "prompt_tokens": 100, "max_tokens": 1000, "rollout_gpus": [4],
            "tensor_parallel": [1], "systems": ["verl_one_step_off"], "caps": [16], "seeds": 1,
        }  # fmt: skip
        found = ls.plan(**question, drift=law())

        assert "the drift of real_rollouts_smollm2.jsonl:token" in " ".join(str(found).split())
        assert found.to_dict()["asked"]["drift_per_version"] is None
        with pytest.raises(ConfigError, match="drift_per_version: must be left out beside drift"):
            ls.plan(**question, drift=law(), drift_per_version=0.3)


def test_few_log_ratios_of_heavy_weights_know_too_little_of_the_tail():
    """Of normal log ratios, whose ESS is known: what 32 of them show lies above it in most samples."""
    spread = 1.5
    draws = np.random.default_rng(7).normal(-(spread**2) / 2, spread, (400, 32))
    shown = [jackknifed_ess(row, np.arange(32)).normalized_ess for row in draws]

    assert np.mean(np.array(shown) > math.exp(-(spread**2))) > 0.9


def test_the_interval_of_an_ess_holds_it_about_as_often_as_it_says():
    """Of normal log ratios with a light tail, where the jackknife is at home."""
    spread, known = 0.3, math.exp(-(0.3**2))
    draws = np.random.default_rng(8).normal(-(spread**2) / 2, spread, (300, 60))
    found = [jackknifed_ess(row, np.arange(60)) for row in draws]

    assert np.mean([abs(one.normalized_ess - known) <= one.half_width for one in found]) > 0.8
    assert math.isnan(jackknifed_ess(draws[0], np.zeros(60, int)).half_width)
