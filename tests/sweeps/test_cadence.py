"""How often to checkpoint: curves along the cadence, the page, choices with failures, drill and plan."""

from __future__ import annotations

import dataclasses
import math
import re
from importlib import resources

import click.testing
import numpy as np
import pytest
from oracle.every_command import run

import lagsweep as ls
from lagsweep.kernels import expected_overhead_fraction, optimal_checkpoint_interval
from lagsweep.sweeps.checkpoint.scope_losses import failing, scope_losses
from lagsweep.sweeps.memory.models import load_model
from lagsweep.sweeps.pages.cadence import agrees
from lagsweep.sweeps.plan.checkpoints import (
    TrainerFailures,
    checked_failures,
    checkpoint_bytes,
    checkpoints_of,
)
from lagsweep.sweeps.results.cadence import cadence_curves, least_loss
from lagsweep.sweeps.results.cadence_text import cadence_text
from lagsweep.sweeps.runs.diagnosis import explain_stall

BASE = ls.PipelineConfig(
    rollout_workers=6,
    duration_seconds=20_000,
    max_queue_tokens=40_000,
    max_policy_lag=20,
    drift_per_version=0.1,
    restart_seconds=60,
    trainer_mtbf_seconds=1800,
    checkpoint_every_updates=4,
    checkpoint_seconds=10,
)
AXES = {
    "checkpoint_every_updates": [2, 8, 20, 80],
    "trainer_mtbf_seconds": [1800, 10_000],
    "checkpoint_scope": ["full", "weights_only"],
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    store = tmp_path_factory.mktemp("cadence") / "store"
    return ls.run_sweep(BASE, AXES, seeds=4, store=store), store


def test_a_curve_is_what_its_cells_are(swept):
    ds, _ = swept
    found = cadence_curves(ds)

    assert [(one.mtbf_seconds, one.scope) for one in found.curves] == [
        (rate, scope) for rate in (1800, 10_000) for scope in ("full", "weights_only")
    ]
    for one in found.curves:
        own = ds.sel(trainer_mtbf_seconds=one.mtbf_seconds, checkpoint_scope=one.scope)
        effective = own["effective_tokens_per_second"].mean("seed").values
        assert one.cadences.tolist() == AXES["checkpoint_every_updates"]
        assert one.effective == pytest.approx(effective)
        assert one.goodput == pytest.approx(own["goodput_fraction"].mean("seed").values)
        assert one.cells.tolist() == own["cell"].values.tolist()
        assert one.best == int(np.argmax(effective))
        assert one.cadences[one.best] in one.alike
        step = one.step_seconds
        for rule, updates in one.rules.items():
            interval = optimal_checkpoint_interval(10.0, one.mtbf_seconds, method=rule)
            assert updates * step == pytest.approx(interval)
        run = own.isel(checkpoint_every_updates=one.best)
        still = run["trainer_checkpoint_seconds"] + run["trainer_restart_seconds"]
        assert step == pytest.approx(float(((20_000 - still) / run["updates"]).mean()))


def test_the_loss_of_a_trainer_that_never_waits_is_the_formulas(swept):
    one = cadence_curves(swept[0]).curves[0]
    every = float(one.cadences[one.best])
    overhead = expected_overhead_fraction(every * 5.0, 10.0, 1800.0, restart_seconds=60.0)

    assert least_loss(one, 5.0) == pytest.approx(overhead / (1 + overhead))
    never = dataclasses.replace(one, mtbf_seconds=None)
    assert least_loss(never, 5.0) == pytest.approx(10 / (every * 5 + 10))


def test_the_exact_optimum_may_be_as_good_as_the_best_or_beside_it(swept):
    one = cadence_curves(swept[0]).curves[0]
    one = dataclasses.replace(one, alike=(8, 20))

    for exact, agreed in ((1.9, False), (2.0, True), (79.0, True), (81.0, False)):
        assert agrees(dataclasses.replace(one, rules={"exact": exact})) is agreed


def test_nothing_is_drawn_without_failures_or_with_one_cadence():
    quick = ls.PipelineConfig(duration_seconds=200)
    assert cadence_curves(ls.run_sweep(quick, {"max_lag": [0, 1]}, seeds=1)) is None
    one = quick.replace(checkpoint_every_updates=4)
    assert cadence_curves(ls.run_sweep(one, {"max_lag": [0, 1]}, seeds=1)) is None
    points = [{"checkpoint_every_updates": [2, 4], "max_lag": [1, 2]}]
    assert cadence_curves(ls.run_sweep(one, points, seeds=1)) is None


def test_a_rate_of_none_is_a_curve_without_rules():
    base = BASE.replace(duration_seconds=4000)
    axes = {"checkpoint_every_updates": [2, 8], "trainer_mtbf_seconds": [1800, "none"]}
    found = cadence_curves(ls.run_sweep(base, axes, seeds=2))

    assert [one.mtbf_seconds for one in found.curves] == [1800, None]
    assert found.curves[1].rules == {}
    assert "no failures" in cadence_text(found)


@pytest.mark.parametrize("columns", ["60", "80"])
def test_the_table_of_a_store_names_the_best_cadence(swept, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    out = run(["show", str(swept[1])]).out.decode()
    best = cadence_curves(swept[0]).curves[0]

    assert max(map(len, out.splitlines())) <= int(columns)
    assert re.search(rf"a failure.*\s{best.cadences[best.best]}\s", out)
    assert "goodput" in out
    assert "s/update" not in out


def test_the_page_has_the_curves_and_says_what_is_hidden(swept, tmp_path):
    page = ls.write_report(
        swept[0], tmp_path / "page.html", store=str(swept[1]), images=False
    ).page.read_text()

    for text in (
        "How often to checkpoint", "What failures and checkpoints cost", "chart-cadence-effective",
        "chart-cadence-goodput", "Young", "runs without failures of the trainer and without checkpoints",
        "checkpoints of the weights only change", "Largest effective_tokens_per_second",
    ):  # fmt: skip
        assert text in page
    hidden = re.findall(r"failures and checkpoints cost [\d.]+% of the trained tokens", page)
    assert len(hidden) == 4


def test_the_page_of_a_sweep_without_failures_has_no_such_part(tmp_path):
    ds = ls.run_sweep(ls.PipelineConfig(duration_seconds=200), {"max_lag": [0, 1]}, seeds=2)
    page = ls.write_report(ds, tmp_path / "page.html", images=False).page.read_text()

    assert "How often to checkpoint" not in page
    assert "What failures" not in page
    assert "Largest trained_tokens_per_second" in page


def test_failures_make_scenarios_and_the_tokens_that_survive_the_objective(swept):
    best = ls.recommend(swept[0])

    assert best.objective == "effective_tokens_per_second"
    assert best.scenario_axes == ("trainer_mtbf_seconds",)
    assert set(best.settings) == set(AXES)
    assert best.figures["goodput_fraction"] == pytest.approx(
        float(swept[0]["goodput_fraction"].sel(best.settings).mean())
    )
    assert "goodput" in str(best)
    assert ls.recommend(swept[0], maximize="goodput_fraction").objective == "goodput_fraction"


def test_a_least_goodput_is_a_bound(swept):
    goodput = swept[0]["goodput_fraction"].mean("seed").min("trainer_mtbf_seconds")
    limit = float(np.sort(goodput.values.ravel())[-3])
    best = ls.recommend(swept[0], min_goodput=limit)

    assert best.admissible == 3
    kept = {name: value for name, value in best.settings.items() if name != "trainer_mtbf_seconds"}
    assert float(goodput.sel(kept)) >= limit
    none = run(["recommend", str(swept[1]), "--min-goodput", "0.999"])
    assert none.code == 1
    assert "raise goodput" in " ".join(none.out.decode().split())


def test_a_bound_on_goodput_needs_failures():
    ds = ls.run_sweep(ls.PipelineConfig(duration_seconds=200), {"max_lag": [0, 1]}, seeds=2)
    with pytest.raises(ls.errors.ConfigError, match="goodput_fraction"):
        ls.recommend(ds, min_goodput=0.5)
    with pytest.raises(ls.errors.ConfigError, match="min_goodput: must be a metric of these runs"):
        ls.search(ls.PipelineConfig(duration_seconds=60), {"max_lag": [0, 1]}, min_goodput=0.5)


def test_a_search_chooses_a_cadence_by_what_survives():
    found = ls.search(
        BASE.replace(duration_seconds=4000, trainer_mtbf_seconds=600),
        {"checkpoint_every_updates": [1, 8, 200]},
        min_goodput=0.2,
        budget_runs=200,
    )

    assert found.objectives[0][0] == "effective_tokens_per_second"
    assert found.settings == {"checkpoint_every_updates": 8}
    assert ("min_goodput", "goodput_fraction", 0.2) in found.bounds


def test_tokens_lost_are_a_part_of_all_tokens(swept):
    shares = ls.recommend(swept[0]).limits["tokens"]

    assert shares["lost in failures"] > 0
    assert sum(shares.values()) == pytest.approx(1)


def test_one_run_says_what_was_lost():
    flags = ["--trainer-mtbf-seconds", "300", "--restart-seconds", "20", "--duration-seconds", "2000"]
    out = run(
        ["simulate", *flags, "--checkpoint-every-updates", "4", "--checkpoint-seconds", "2"]
    ).out.decode()
    told = " ".join(out.split())

    assert "Failures and checkpoints goodput_fraction" in told
    assert "trainer_restart_seconds" in told
    assert re.search(r"\d+ of \d+ updates were lost in failures", told)
    assert "Failures and checkpoints" not in run(["simulate", "--duration-seconds", "200"]).out.decode()


def test_a_run_whose_updates_are_all_lost_says_so():
    config = BASE.replace(checkpoint_every_updates=None, checkpoint_seconds=0, duration_seconds=2000)
    for seed in range(20):
        result = ls.simulate_pipeline(config.replace(trainer_mtbf_seconds=40, restart_seconds=0, seed=seed))
        if result.metrics["updates"] and result.metrics["lost_updates"] == result.metrics["updates"]:
            from lagsweep.sweeps.runs.diagnosis import failure_remark

            assert "every update was lost" in failure_remark(result.config, result.metrics)
            return
    raise AssertionError("no run lost everything")


def test_a_restart_that_does_not_end_explains_a_starved_run():
    config = BASE.replace(restart_seconds=100_000, duration_seconds=5000, trainer_mtbf_seconds=300)
    result = ls.simulate_pipeline(config)

    assert "restart_seconds (100000) keeps the trainer down" in explain_stall(config, result)


def test_compared_systems_show_goodput_and_restarts():
    small = ["--batch-groups", "4", "--group-size", "2", "--duration-seconds", "400", "--warmup-seconds", "0"]
    fails = ["--trainer-mtbf-seconds", "100", "--restart-seconds", "20", "--checkpoint-every-updates", "2"]
    answer = run(["compare", "areal", "tinker", "--seeds", "2", "-q", *small, *fails])
    out = answer.out.decode()

    assert answer.code == 0
    assert "goodput" in out
    assert "restart" in out
    assert "Lost in failures a run: areal" in " ".join(out.split())


# The drill ------------------------------------------------------------------------------------------------


def test_each_scope_loses_what_its_runs_report():
    config = BASE.replace(duration_seconds=6000, trainer_mtbf_seconds=900)
    full, bare = scope_losses(config, 3)
    runs = [
        ls.simulate_pipeline(config.replace(seed=seed, checkpoint_scope="weights_only")) for seed in range(3)
    ]
    came = [sum(row["event"] == "failure" for row in one.timeline) for one in runs]
    tokens = [one.metrics["lost_tokens"] / count for one, count in zip(runs, came) if count]

    assert full.failures == bare.failures == sum(came) > 0
    assert bare.per_failure["lost_tokens"][0] == pytest.approx(np.mean(tokens))
    assert full.against_full == (0.0, 0.0)
    speeds = [one.trained_tokens_per_second[0] for one in (full, bare)]
    assert math.copysign(1, bare.against_full[0]) == math.copysign(1, speeds[1] - speeds[0])


def test_what_a_run_does_not_say_is_assumed_and_named():
    plain = ls.PipelineConfig(duration_seconds=800)
    config, assumed = failing(plain)
    assert (config.trainer_mtbf_seconds, config.checkpoint_every_updates) == (100, 10)
    assert assumed == ("trainer_mtbf_seconds", "checkpoint_every_updates")
    assert failing(plain, 50.0, 3)[1] == ()


def test_the_drill_of_a_run_fits_and_needs_one(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    spec = tmp_path / "run.toml"
    spec.write_text("[base]\nduration_seconds = 1200\n[axes]\nmax_lag = [1, 2]\n")
    answer = run(["drill", "--config", str(spec), "--seeds", "2"])
    out = answer.out.decode()

    assert answer.code == 0
    assert max(map(len, out.splitlines())) <= 60
    assert "Assumed" in out
    assert "weights_only" in out
    refused = run(["drill", "--trainer-mtbf-seconds", "100"])
    assert refused.code == 2
    assert b"--trainer-mtbf-seconds: needs a run" in refused.err
    rare = run(["drill", "--config", str(spec), "--trainer-mtbf-seconds", "1e12", "--seeds", "1"])
    assert rare.code == 2
    assert b"must let the trainer fail" in rare.err


# The plan -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "save", "mtbf"), [(200.0, 180.0, 36_000.0), (900.0, 5.0, 3600.0), (3.0, 1.0, 50.0)]
)
def test_no_other_cadence_of_a_plan_costs_less(step, save, mtbf):
    found = checkpoints_of(TrainerFailures(mtbf, 300.0, save), step, 1000.0)
    overheads = expected_overhead_fraction(np.arange(1, 400) * step, save, mtbf, restart_seconds=300.0)

    assert found.every_updates == 1 + int(np.argmin(overheads))
    assert found.goodput_fraction == pytest.approx(1 / (1 + overheads.min()))
    assert found.effective_tokens_per_second == pytest.approx(1000 * found.goodput_fraction)


def test_a_plans_checkpoint_is_measured_or_sized_by_the_ledger():
    shape = load_model("Llama-3.1-8B").shape
    found = checked_failures(shape, 36_000, None, None, 2e9)

    assert checkpoint_bytes(shape) == 14 * 8_030_261_248
    assert found.checkpoint_seconds == pytest.approx(checkpoint_bytes(shape) / 2e9, rel=1e-5)
    assert found.restart_seconds == 300
    assert checked_failures(shape, 36_000, 10, 60, None) == TrainerFailures(36_000, 10, 60)
    assert checked_failures(shape, None, None, None, None) is None
    for given in (
        (36_000, None, None, None),
        (36_000, None, 60, 1e9),
        (None, 10, None, None),
        (-1, None, 60, None),
    ):
        with pytest.raises(ls.errors.ConfigError):
            checked_failures(shape, *given)


# The shipped example --------------------------------------------------------------------------------------


def test_the_example_has_published_rates_and_room_around_the_optimum():
    file = resources.files("lagsweep.sweeps") / "examples" / "checkpoint-cadence.toml"
    with resources.as_file(file) as path:
        spec = ls.load_spec(path)
    rates = spec.design.columns["trainer_mtbf_seconds"][1]
    cadences = spec.design.columns["checkpoint_every_updates"][1]

    assert rates[0] == round(54 * 86_400 / 419)
    assert rates[1] == 4 * rates[0]
    step = spec.base.train_overhead_seconds + spec.base.batch_tokens / spec.base.train_tokens_per_second
    for rate in rates:
        best = optimal_checkpoint_interval(60.0, float(rate)) / step
        assert min(cadences) < best / 2
        assert max(cadences) > 2 * best


def test_help_names_the_new_flags():
    from lagsweep.sweeps.cli.drill_command import command

    out = click.testing.CliRunner().invoke(command, ["--help"]).output
    assert "--config SPEC" in out
