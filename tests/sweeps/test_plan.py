"""A plan: cells that can and cannot be, what is simulated, what only bounded, ranges; a plan as a sweep."""

from __future__ import annotations

import math

import polars as pl
import pytest

import lagsweep as ls
from lagsweep import ConfigError, LengthLaw, plan
from lagsweep.sweeps.plan.candidates import Candidates
from lagsweep.sweeps.plan.carrying_out import Runner, horizon_of
from lagsweep.sweeps.plan.question import ask, cut_law
from lagsweep.sweeps.plan.said import at_ends, heading
from lagsweep.sweeps.plan.screening import FEWEST, Bound, bound_of, near_best

LAW = LengthLaw.lognormal(median=600, sigma=0.7, minimum=1, maximum=4000)
ASKED = {
    "model": "Qwen3-8B",
    "accelerator": "H100-SXM",
    "gpus": 16,
    "prompts": 16,
    "group_size": 8,
    "law": LAW,
    "prompt_tokens": 200,
    "max_tokens": 4096,
}
SOME = {"rollout_gpus": [4, 8], "tensor_parallel": [1, 2], "caps": [16, 64], "cadences": [1]}


def cells_of(**changes):
    return Candidates(ask(**{**ASKED, **SOME, **changes})).cells()


def kinds(cells):
    return {one.kind for cell in cells for one in cell.reasons}


@pytest.fixture(scope="module")
def found():
    return plan(**ASKED, **SOME, price=2.0)


def test_every_combination_is_a_cell_once():
    cells = cells_of(systems=["colocated", "verl_one_step_off"], max_lags=[1, 2])

    # Colocated engines have all GPUs; one-step-off has a cadence of its own.
    assert len(cells) == 1 * 2 * 2 + 3 * 2 * 2 * 2
    assert len({cell.key for cell in cells}) == len(cells)


def test_weights_that_do_not_fit_say_by_how_much():
    cells = cells_of(model="Qwen3-32B", accelerator="L40S", tensor_parallel=[1], systems=["synchronous"])
    reasons = {one.kind: one for one in cells[0].reasons}

    # 61.0 GiB of weights on a card of 44.4 GiB, 0.9 of it.
    assert reasons["engine_memory"].amount == pytest.approx(61.02 - 0.9 * 44.4, abs=1.0)
    assert "GiB missing" in reasons["engine_memory"].text


def test_a_cache_below_the_longest_rollout_says_by_how_much():
    question = ask(
        **{**ASKED, **SOME, "model": "Qwen3-32B", "tensor_parallel": [1], "prompt_tokens": 90_000},
        systems=["synchronous"],
    )
    candidates = Candidates(question)
    cell = candidates.cells()[0]
    (reason,) = (one for one in cell.reasons if one.kind == "cache")
    missing = 94_096 - candidates.cache(cell).tokens

    assert reason.amount == missing > 40_000
    # 64 layers with 8 heads of 128, keys and values, two bytes each.
    assert f"{missing:,} tokens or {missing * 262_144 / 2**30:.1f} GiB a GPU missing" in reason.text


def test_a_trainer_that_does_not_fit_says_by_how_much():
    cells = cells_of(model="Qwen3-32B", gpus=16, rollout_gpus=[12], tensor_parallel=[4], systems=["areal"])
    (reason,) = (one for one in cells[0].reasons if one.kind == "trainer_memory")

    # 16 bytes a parameter over 4 GPUs alone are 122 GiB.
    assert reason.amount > 122 - 79.2
    assert "each of 4 training GPUs" in reason.text


def test_gpus_and_heads_that_do_not_divide_are_said():
    by_ranks = {
        cell.tensor_parallel: cell.reasons
        for cell in cells_of(
            rollout_gpus=[6], tensor_parallel=[2, 3, 4, 6], systems=["synchronous"], caps=[8]
        )
    }

    assert by_ranks[2] == ()
    assert [by_ranks[ranks][0].kind for ranks in (3, 4, 6)] == ["divide"] * 3
    assert "6 rollout GPUs do not divide into engines of 4" in by_ranks[4][0].text
    assert kinds(cells_of(gpus=32, rollout_gpus=[16], tensor_parallel=[16], systems=["areal"])) == {"node"}


def test_a_batch_larger_than_what_may_start_within_the_lag_limit_is_said():
    cells = cells_of(systems=[], max_lags=[1, 2], cadences=[1, 2, 4], rollout_gpus=[8], tensor_parallel=[1])
    missing = {
        (cell.rules[-1], cell.cadence): one.amount
        for cell in cells
        for one in cell.reasons
        if one.kind == "lag_limit"
    }

    # A limit of L lets L + 1 batches start before a publication; one every K updates needs K.
    assert missing == {("1", 4): 2, ("2", 4): 1}


def test_what_is_refused_for_its_lag_limit_really_stalls():
    question = ask(**{**ASKED, **SOME}, systems=[], max_lags=[1])
    candidates = Candidates(question)
    cell = next(one for one in candidates.cells() if one.is_feasible)
    config = candidates.config({**cell.point, "sync_cadence": 4}, duration_seconds=1e5, stop_after_updates=9)

    assert ls.simulate_pipeline(config).stalled


def test_a_cap_below_a_batch_stalls_and_says_by_how_much():
    cells = cells_of(systems=["nemo_rl_legacy:max_running_groups=8"], rollout_gpus=[8])
    (reason,) = {one for cell in cells for one in cell.reasons if one.kind == "cap"}

    assert (reason.amount, reason.unit) == (8, "groups")
    assert "stalls" in reason.text


def test_a_larger_cap_that_changes_nothing_is_no_cell_of_its_own():
    cells = cells_of(caps=[64, 4096], systems=["synchronous"], rollout_gpus=[8], tensor_parallel=[1])
    small, large = sorted(cells, key=lambda cell: cell.cap)

    assert small.is_feasible
    assert [one.kind for one in large.reasons] == ["same"]


@pytest.mark.parametrize("label", ["colocated", "synchronous", "verl_one_step_off", "areal", "prime_rl"])
@pytest.mark.parametrize("cadence", [1, 2])
def test_no_simulation_is_faster_than_its_bound(label, cadence):
    candidates = Candidates(ask(**{**ASKED, **SOME, "cadences": [cadence]}, systems=[label], max_lags=[1, 2]))
    cells = [cell for cell in candidates.cells() if cell.is_feasible]
    bounds = [bound_of(candidates.config(cell.point)).bound_seconds for cell in cells]
    runner = Runner(candidates.workload(), horizon_of(min(bounds), [cadence]), threads=1)
    rows = runner.points([cell.point for cell in cells], 1)

    assert cells
    # Bounds are means: 20 updates of 128 answers have a few percent more or fewer tokens.
    assert all(row.seconds_per_update > 0.96 * bound for row, bound in zip(rows, bounds))


def test_the_best_is_the_best_of_what_was_simulated_and_no_bound_beats_it(found):
    simulated = found.table.filter(pl.col("status") == "simulated")
    bounded = found.table.filter(pl.col("status") == "bounded")
    best = found.best.result

    assert simulated["effective_tokens_per_second"].max() == best.effective_tokens_per_second
    assert len(bounded) == 0  # fewer than a hundred are feasible: all are simulated
    assert found.could_be_better == 0


def test_simulated_are_those_near_the_lowest_bound_and_then_the_next():
    few = plan(**ASKED, **SOME, seeds=1, most_simulated=3)
    simulated = few.table.filter(pl.col("status") == "simulated")
    bounded = few.table.filter(pl.col("status") == "bounded")

    assert len(simulated) == 3
    assert bounded["bound_seconds_per_update"].min() >= simulated["bound_seconds_per_update"].max()
    less = (bounded["bound_seconds_per_update"] < few.best.result.seconds_per_update).sum()
    assert few.could_be_better == less
    bounds = [Bound(0, 0, 10.0 + place) for place in range(200)]
    assert len(near_best(bounds, 120)) == FEWEST  # 1.3 times the lowest are four
    assert len(near_best(bounds, 50)) == 50
    assert len(near_best([Bound(0, 0, 10.0)] * 200, 120)) == 120


def test_the_text_says_what_the_cap_cuts_and_keeps_the_law_s_name():
    law = LengthLaw.shipped("aime-rl-1000")
    asked = ask(**{**ASKED, **SOME, "law": law, "max_tokens": 2048})
    said = heading(asked)

    assert asked.cut_share == pytest.approx(float((law.sample(20_000, seed=1) > 2048).mean()), abs=0.01)
    assert f"answers by aime-rl-1000 (mean {asked.law.mean_tokens:,.0f}; {asked.cut_share:.0%}" in said
    assert "are cut at --max-tokens 2,048" in said
    whole = ask(**{**ASKED, **SOME})
    assert whole.cut_share == 0
    assert "cut" not in heading(whole)


def test_the_text_says_where_the_best_is_at_an_end_and_what_a_lag_limit_bounds(found):
    best, text = found.best.cell, " ".join(str(found).split())
    ends = {"cap": (best.cap, (16, 64), "--caps"),
            "rollout GPUs": (best.rollout_gpus, (4, 8), "--rollout-gpus")}  # fmt: skip
    if best.is_colocated:
        ends.pop("rollout GPUs")
    for words, (own, tried, flag) in ends.items():
        side = "largest" if own == max(tried) else "smallest"
        assert f"{words} {own} is the {side} tried ({flag})" in text
    assert "Lag limit L: L batches may start ahead of the weights" in text
    assert found.to_dict()["said"][0].startswith("Best: ")
    inner = plan(**ASKED, **{**SOME, "caps": [best.cap]}, seeds=1, most_simulated=2)
    assert "(--caps)" not in " ".join(at_ends(inner))  # nothing else was asked for


def test_figures_follow_from_each_other(found):
    for row in found.table.filter(pl.col("status") == "simulated").iter_rows(named=True):
        tokens = row["effective_tokens_per_second"]
        assert row["gpu_hours_per_million"] == pytest.approx(16 / 3600 / tokens * 1e6)
        assert row["cost_per_million"] == pytest.approx(2.0 * row["gpu_hours_per_million"])
        assert row["gpu_hours_per_update"] == pytest.approx(16 * row["seconds_per_update"] / 3600)
        assert tokens == pytest.approx(row["trained_tokens_per_second"] * row["ess"], rel=0.01)
        assert row["seconds_per_update_low"] < row["seconds_per_update"] < row["seconds_per_update_high"]
        assert row["gpu_hours_per_million_low"] < row["gpu_hours_per_million"]
        assert row["train_gpus"] == (16 if row["rules"] == "colocated" else 16 - row["rollout_gpus"])


def test_the_ends_of_the_best_and_of_what_stands_beside_it_are_simulated(found):
    beside = [row for row in (found.best, *found.splits, *found.neighbours) if row.speed]

    assert {row.span.source for row in beside} == {"simulated"}
    assert {row.cell.rollout_gpus for row in found.splits if not row.cell.is_colocated} == {4, 8}


def test_neighbours_differ_in_one_setting(found):
    best = found.best.cell
    for row in found.neighbours:
        assert sum(one != other for one, other in zip(row.cell.key, best.key)) == 1


def test_the_input_to_measure_first_moves_the_answer_most_and_lies_inside_the_range(found):
    swings = [one.swing_seconds for one in found.effects]
    figures = found.best.figures(16, None)

    assert swings == sorted(swings, reverse=True)
    assert found.measure_first is found.effects[0]
    for one in found.effects:
        for seconds in (one.low_seconds, one.high_seconds):
            assert (
                0.97 * figures["seconds_per_update_low"]
                <= seconds
                <= 1.03 * figures["seconds_per_update_high"]
            )


def test_measuring_an_input_narrows_the_range(found):
    first = found.measure_first.input
    again = plan(**ASKED, **SOME, inputs={first.name: first.value})
    wide, narrow = (one.best.figures(16, None) for one in (found, again))

    assert again.best.cell.key == found.best.cell.key
    width = [one["seconds_per_update_high"] - one["seconds_per_update_low"] for one in (wide, narrow)]
    assert width[1] < 0.8 * width[0]
    assert first.name not in [one.input.name for one in again.effects]


def test_a_plan_is_a_sweep_that_other_commands_read(tmp_path):
    found = plan(**ASKED, **SOME, systems=["verl_one_step_off"], store=tmp_path / "planned", seeds=2)
    ds = ls.open_sweep(tmp_path / "planned")
    choice = ls.recommend(ds, maximize="effective_tokens_per_second")

    assert ds.sizes["point"] == sum(row.status == "simulated" for row in found.rows)
    assert choice.cell is not None
    assert ls.config_at(ds, int(ds.cell[found.best.place])) == found.config
    assert ls.verify_store(tmp_path / "planned").sound


def test_the_best_goes_on_as_a_configuration_and_a_sweep_around_it(found):
    config = found.config
    ds = found.sweep({"sync_seconds": [0.0, 5.0]}, seeds=2)

    assert config.batch_groups == 16
    assert config.engine.count == found.best.cell.engines
    assert config.rollout_workers <= found.best.cell.engines * found.best.cell.cap
    assert ds.sizes == {"sync_seconds": 2, "seed": 2, "lag": 65}
    assert repr(found).startswith("Qwen3-8B on 16 x H100-SXM: 16 prompts x 8 an update")


def test_nothing_feasible_is_said_and_has_no_configuration():
    found = plan(**{**ASKED, "model": "DeepSeek-V3"}, **SOME)

    assert found.best is None
    assert "No: none of the" in str(found)
    assert set(found.table["status"]) <= {"infeasible", "redundant"}
    with pytest.raises(ConfigError, match="no feasible cell"):
        _ = found.config
    with pytest.raises(ConfigError, match="no feasible cell"):
        found.sweep({"sync_seconds": [0.0]})


def test_a_measured_engine_stands_in_the_place_of_the_data_sheet(tmp_path):
    path = tmp_path / "engine.toml"
    path.write_text(
        "step_seconds = 0.02\nstep_seconds_per_context_token = 1e-7\nprefill_seconds_per_token = 5e-5\n"
        "kv_cache_tokens = 90000\ncount = 3\n[fitted]\ntensor_parallel = 2\n"
        "[fitted.intervals]\nstep_seconds = { value = 0.02, low = 0.018, high = 0.022 }\n"
    )
    some = {name: value for name, value in SOME.items() if name != "tensor_parallel"}
    found = plan(**ASKED, **some, systems=["verl_one_step_off"], measured=path, seeds=1)
    engine = found.config.engine

    assert (engine.step_seconds, engine.kv_cache_tokens) == (0.02, 90_000)
    assert engine.count == found.best.cell.rollout_gpus // 2
    names = [one.name for one in found.question.inputs if one.is_open]
    assert names[0] == "step_seconds"
    assert "weight_efficiency" not in names
    assert "Engine from engine.toml" in str(found)
    with pytest.raises(ConfigError, match="must be the one size of the measured engine"):
        plan(**ASKED, **some, tensor_parallel=[4], measured=path)


def test_mini_batches_cost_their_fixed_part_each():
    one, four = (
        next(cell for cell in cells_of(systems=["synchronous"], optimizer_steps=steps) if cell.is_feasible)
        for steps in (1, 4)
    )

    assert four.point["train_overhead_seconds"] == 4 * one.point["train_overhead_seconds"]


def test_colocated_engines_have_all_gpus_less_cache_and_a_switch_of_phases():
    cells = cells_of(systems=["colocated", "synchronous"], rollout_gpus=[8], tensor_parallel=[2], caps=[16])
    turns, apart = (next(c for c in cells if c.is_colocated is flag) for flag in (True, False))

    assert (turns.engines, apart.engines) == (8, 4)
    assert turns.point["engine"].kv_cache_tokens < apart.point["engine"].kv_cache_tokens
    assert turns.point["train_tokens_per_second"] == pytest.approx(
        2 * apart.point["train_tokens_per_second"], rel=1e-5
    )
    # 16.4 GB at 50 GB/s, and the switch.
    assert turns.point["sync_seconds"] == pytest.approx(2 * 8_190_735_360 / 50e9 + 11, rel=1e-4)


def test_a_reference_model_takes_memory_and_a_pass():
    questions = [
        ask(**{**ASKED, **SOME}, systems=["synchronous"], reference_model=flag) for flag in (False, True)
    ]
    without, beside = (Candidates(one) for one in questions)
    cell = next(one for one in without.cells() if one.is_feasible)

    assert beside.memory(cell).phases["training"] > without.memory(cell).phases["training"]
    rates = [one.point(cell, one.question.values())["train_tokens_per_second"] for one in (without, beside)]
    assert rates[1] == pytest.approx(rates[0] * 1.38 / 1.76, rel=1e-4)


def test_a_law_is_cut_at_the_longest_answer_that_engines_allow():
    grouped = LengthLaw.grouped([10, 500, 20, 30], ["a", "a", "b", "b"])

    assert cut_law(LAW, 5000) is LAW
    assert cut_law(LAW, 1000).maximum == 1000
    assert cut_law(LAW, 1000).cut_at_maximum
    assert cut_law(grouped, 100).mean_tokens == 40
    assert cut_law(LengthLaw.fixed(900), 100) == LengthLaw.fixed(100)
    with pytest.raises(ConfigError, match="must not go beyond max_tokens"):
        cut_law(LengthLaw.paired([10, 500], [1.0, 2.0]), 100)


def test_without_a_law_three_are_named_with_their_means():
    with pytest.raises(ConfigError) as caught:
        plan(**{**ASKED, "law": None})

    assert "aime-rl-1000 (mean 1,840)" in caught.value.findings[0].way_out
    assert caught.value.findings[0].way_out.count("(mean ") == 3


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"gpus": 1}, "gpus"),
        ({"rollout_gpus": [16]}, "rollout_gpus"),
        ({"rollout_gpus": []}, "rollout_gpus"),
        ({"systems": ["areals"]}, "preset"),
        ({"systems": []}, "systems"),
        ({"utilization": 0}, "utilization"),
        ({"prompts": 2**20}, "prompts"),
        ({"network": "wires"}, "network"),
        ({"engine_format": "fp3"}, "engine_format"),
        ({"price": -1}, "price"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_a_question_that_cannot_be_is_refused(changes, field):
    with pytest.raises(ConfigError) as caught:
        plan(**{**ASKED, **SOME, **changes})

    assert caught.value.findings[0].field == field


def test_a_cell_that_cannot_be_at_the_slow_end_has_no_slow_end():
    # A card that weights fill: with 0.4 GiB less the longest rollout does not fit any more.
    asked = {**ASKED, "model": "Qwen3-32B", "rollout_gpus": [4], "tensor_parallel": [1], "caps": [16]}
    one = Candidates(ask(**asked, systems=["synchronous"]))
    held = one.cache(one.cells()[0])
    assert held.low < held.tokens - 500
    found = plan(
        **{**asked, "max_tokens": held.tokens - 500, "cadences": [1]}, systems=["synchronous"], seeds=1
    )

    assert found.best.span.slow == math.inf
    assert found.best.span.slow_effective == 0
    assert "does not fit" in str(found)
