"""What other settings would change in a logged run: ranges, the sentence, the lag under any name."""

from __future__ import annotations

import json
import re

import pytest
from strategies.logged_runs import EXAMPLE, KNOWN, known_run

import lagsweep as ls
from lagsweep.sweeps.calibrate.lag_knob import lag_knob
from lagsweep.sweeps.cli.main import main

GIVEN = {"group_size": 4, "rollout_workers": 64, "prompt_tokens": 100}
FLAGS = [
    "--preset", "verl_fully_async", "--knob", "staleness_threshold=0.5", "--knob",
    "trigger_parameter_sync_step=2", "--batch-groups", "32", "--group-size", "8", "--rollout-workers", "512",
]  # fmt: skip


@pytest.fixture(scope="module")
def example():
    return ls.calibrate(EXAMPLE, preset="verl_fully_async", batch_groups=32, **KNOWN)


@pytest.fixture(scope="module")
def found(example):
    axes = {"max_lag": [2, 3, 5], "max_queue_tokens": [None, 2_000_000]}
    return ls.what_if(example, axes, seeds=2)


def test_the_run_as_it_is_is_among_the_cells_and_saves_nothing(found):
    own = found.as_it_is
    assert own.settings == {"max_lag": 2, "max_queue_tokens": None}
    assert (own.saved.value, own.saved.low, own.saved.high) == (0, 0, 0)
    assert len(found.changes) == 6
    assert found.frame()["as_it_is"].sum() == 1


def test_savings_are_ranges_around_their_value_and_grow_with_the_lag(found):
    alone = [one for one in found.changes if one.settings["max_queue_tokens"] is None]
    for one in alone:
        assert one.saved.low <= one.saved.value <= one.saved.high
        assert one.step.low <= one.step.value <= one.step.high
    saved = {one.settings["max_lag"]: one.saved.value for one in alone}
    assert saved[2] == 0 < saved[3] < saved[5]
    lags = {one.settings["max_lag"]: one.lag.value for one in alone}
    assert lags[2] < lags[3] < lags[5]


def test_the_sentence_has_the_log_s_wait_the_range_and_what_changes_nothing(example, found):
    said = found.sentence
    share = example.estimates.idle.value / example.estimates.step.value
    assert said.startswith(f"your trainer waits {share:.0%} of each step for the slowest groups; ")
    assert "; publications take 5%; a lag of " in said
    assert re.search(r"a lag of [35] instead of 2 saves \d+ (to \d+ )?% at an ESS of 0\.\d\d", said)
    assert said.endswith("a smaller queue changes nothing.")
    assert max(map(len, repr(found).splitlines())) <= 80


def test_a_saving_is_what_two_runs_of_the_known_settings_differ_by():
    """The truth, simulated with the settings that the log was made with, lies within the range."""
    known, log = known_run("areal", max_head_offpolicyness=1, max_concurrent_rollouts=16)
    given = {**GIVEN, "max_head_offpolicyness": 1, "max_concurrent_rollouts": 16}
    told = ls.what_if(ls.calibrate(log, preset="areal", **given), {"max_lag": [1, 3]}, seeds=2)
    change = next(one for one in told.changes if one.settings["max_lag"] == 3)
    steps = [
        ls.simulate_pipeline(known.replace(max_head_offpolicyness=lag, stop_after_updates=400))
        for lag in (1, 3)
    ]  # fmt: skip
    truth = 1 - steps[1].seconds_per_update / steps[0].seconds_per_update

    assert truth > 0.1
    assert change.saved.low - 0.02 <= truth <= change.saved.high + 0.02


@pytest.mark.parametrize("preset", ["areal", "skyrl", "tinker", "prime_rl", "roll", "verl_fully_async"])
def test_the_lag_is_asked_for_under_any_system_s_name(preset):
    name, values = lag_knob(ls.preset_config(preset))
    for lag, value in list(values.items())[:6]:
        assert ls.preset_lag_bound(preset, {name: value}) == lag


def test_systems_without_such_a_knob_have_none():
    assert lag_knob(ls.preset_config("synchronous")) is None
    assert lag_knob(ls.PipelineConfig()) is None


def test_rollouts_at_once_that_were_assumed_follow_the_rules():
    _, log = known_run("skyrl", max_staleness_steps=1)
    own = {name: GIVEN[name] for name in ("group_size", "prompt_tokens")}
    found = ls.calibrate(log, preset="skyrl", max_staleness_steps=1, **own)
    told = ls.what_if(found, {"max_lag": [1, 3]}, seeds=1)

    assert told.axes[0].along["rollout_workers"] == (64, 128)
    words = "they are what the rules allow at each max_lag, 64 and 128 for 1 and 3. --rollout-workers N keeps"
    assert words in " ".join(repr(told).split())


def test_rollouts_at_once_that_were_assumed_follow_the_batch_and_a_range_is_given():
    """As two runs of the known settings: twice the slots at twice the batch, as many slots, one batch."""
    known, log = known_run("skyrl", max_staleness_steps=1)
    own = {name: GIVEN[name] for name in ("group_size", "prompt_tokens")}
    found = ls.calibrate(log, preset="skyrl", max_staleness_steps=1, **own)
    told = ls.what_if(found, {"batch_groups": [8, 16], "max_lag": [1, 2]}, seeds=1)
    twice = told.changes[2]

    def seconds(groups, slots):
        fields = {**known.preset[1], "batch_groups": groups, "rollout_workers": slots}
        run = ls.simulate_pipeline(ls.preset_config("skyrl", **{**fields, "stop_after_updates": 300}))
        return run.seconds_per_update * run.updates / run.trained_tokens

    assert twice.settings == {"batch_groups": 16, "max_lag": 1}
    assert told.axes[0].along["rollout_workers"] == (64, 128)
    assert told.axes[0].one_batch == (32, 64)
    assert told.axes[1].along == {}  # one field is set by one axis
    for before, after in ((64, 128), (64, 64), (32, 64)):
        truth = 1 - seconds(16, after) / seconds(8, before)
        assert twice.saved.low - 0.03 <= truth <= twice.saved.high + 0.03
    assert "64 and 128 for 8 and 16; 64 for all of them, and one batch, are tried too." in " ".join(
        repr(told).split()
    )


def test_values_that_give_the_same_runs_are_named_with_the_limit_that_does_not_bind(example, found):
    assert (
        "max_queue_tokens = none and 2,000,000 give the very same runs: the queue cap does not bind there."
        in (found.as_dict()["said"])
    )
    tight = ls.what_if(example, {"max_queue_tokens": [None, 1000, 2000]}, seeds=1)
    (said,) = [one for one in tight.as_dict()["said"] if "very same runs" in one]
    # One group fills either: both caps bind, and alike.
    assert said == "max_queue_tokens = 1,000 and 2,000 give the very same runs."
    told = ls.what_if(example, {"max_lag": [2, 3]}, seeds=1)
    assert not [one for one in told.as_dict()["said"] if "very same runs" in one]


def test_a_lag_that_the_rules_do_not_know_is_refused_and_not_without_effect():
    _, log = known_run("synchronous")
    found = ls.calibrate(log, group_size=4)
    with pytest.raises(ls.ConfigError, match="has no effect under the rules of this run"):
        ls.what_if(found, {"max_lag": [0, 1]})


def test_where_nothing_is_faster_it_says_so():
    _, log = known_run("skyrl", decode_tokens_per_second=200.0)
    found = ls.calibrate(log, preset="skyrl", **GIVEN)
    told = ls.what_if(found, {"batch_groups": [4, 8]}, seeds=1)

    assert told.sentence.startswith("your trainer hardly waits; publications take 21%; ")
    assert "no other batch is faster per trained token: batches of 4 groups" in told.sentence
    assert re.search(r"costs \d+ (to \d+ )?% per trained token\.$", told.sentence)


def test_batches_of_another_size_are_held_against_each_other_by_the_token():
    """A step of twice the groups is longer, a token sooner: as two runs of the known settings."""
    known, log = known_run("synchronous")
    found = ls.calibrate(log, group_size=4, rollout_workers=known.rollout_workers)
    told = ls.what_if(found, {"batch_groups": [8, 16]}, seeds=2)
    own, twice = told.changes
    steps = [
        ls.simulate_pipeline(ls.preset_config("synchronous", **{
            **known.preset[1], "batch_groups": groups, "stop_after_updates": 300,
        }))
        for groups in (8, 16)
    ]  # fmt: skip
    seconds = [run.seconds_per_update / (run.trained_tokens / run.updates) for run in steps]
    truth = 1 - seconds[1] / seconds[0]

    assert twice.step.low > own.step.high
    assert truth > 0.05
    assert twice.saved.low - 0.03 <= truth <= twice.saved.high + 0.03
    assert "batches of 16 groups instead of 8 saves" in told.sentence
    assert "per trained token at an ESS of" in told.sentence
    rows = told.frame().to_dicts()
    assert [row["saved_of"] for row in rows] == ["trained token"] * 2
    gained = rows[1]["effective_tokens_per_second"] / rows[0]["effective_tokens_per_second"]
    assert gained == pytest.approx(1 / (1 - twice.saved.value), rel=1e-6)
    assert "eff. tokens/s" in repr(told)
    assert "steps of another batch_groups train other amounts" in repr(told).replace("\n", " ")


def test_updates_of_a_batch_are_counted_together():
    """A batch that is trained in two updates is one step still: its seconds do not halve."""
    _, log = known_run("synchronous")
    told = ls.what_if(ls.calibrate(log, group_size=4), {"updates_per_batch": [1, 2]}, seeds=1)
    own, twice = told.changes

    assert told.other_work == ()
    assert twice.step.value > 0.9 * own.step.value
    assert twice.effective.value < 1.1 * own.effective.value


@pytest.mark.parametrize(
    ("preset", "way_out"), [(None, "--preset areal "), ("verl_one_step_off", "--preset verl_v1 ")]
)
def test_the_system_that_is_named_as_the_way_out_takes_the_axis(preset, way_out):
    _, log = known_run("synchronous")
    found = ls.calibrate(log, preset=preset, group_size=4)
    with pytest.raises(ls.ConfigError) as raised:
        ls.what_if(found, {"max_lag": [1, 2]})
    (finding,) = raised.value.findings
    assert f"{preset or 'synchronous'} has no knob" in finding.rule
    assert way_out in finding.way_out

    name, lags = re.search(r"--preset (\w+) --axis max_lag=([\d,]+)", finding.way_out).groups()
    axis = {"max_lag": [int(lag) for lag in lags.split(",")]}
    told = ls.what_if(ls.calibrate(log, preset=name, group_size=4), axis, seeds=1)
    assert {1, 2} <= {one.settings["max_lag"] for one in told.changes}


def test_a_lag_that_no_system_gives_names_none():
    _, log = known_run("synchronous")
    with pytest.raises(ls.ConfigError) as raised:
        ls.what_if(ls.calibrate(log, group_size=4), {"max_lag": [500]})
    assert "and lags that its knob can give" in raised.value.findings[0].way_out


@pytest.mark.parametrize(
    ("axes", "field"),
    [({}, "axes"), ({"max_lag": [500]}, "max_lag"), ({"system": ["areal"]}, "system"),
     ({"nonsense": [1]}, "axes"),
     ({"rollout_workers": list(range(1, 400))}, "axes")],
)  # fmt: skip
def test_axes_that_cannot_be_are_refused(example, axes, field):
    with pytest.raises(ls.ConfigError) as raised:
        ls.what_if(example, axes)
    assert raised.value.findings[0].field.split(".")[0] == field


def run(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_calibrate_writes_a_file_that_run_takes_and_a_page(tmp_path, capsys):
    toml, page = tmp_path / "run.toml", tmp_path / "page.html"
    code, out, _ = run(
        ["calibrate", str(EXAMPLE), *FLAGS, "-o", str(toml), "--page", str(page)], capsys
    )  # fmt: skip
    assert code == 0
    assert out.rstrip().endswith(f"written: {toml}, {page}")
    text = page.read_text()
    for part in ("How well it predicts", "Step by step", "What was fitted", "The run as it is", "steps-wait"):
        assert part in text
    assert "http" not in text.split("<script")[0].split("<body")[1]

    code, out, err = run(["run", str(toml), "--dry-run", "--json"], capsys)
    assert code == 0, err
    assert json.loads(out)


def test_calibrate_as_json_is_what_the_object_says(example, tmp_path, capsys):
    code, out, _ = run(
        ["calibrate", str(EXAMPLE), *FLAGS, "-o", str(tmp_path / "run.toml"), "--json"], capsys
    )  # fmt: skip
    facts = json.loads(out)
    assert code == 0
    assert facts["steps"] == {"fitted": 112, "held": 48}
    assert facts["preset"] == "verl_fully_async"
    assert [one["name"] for one in facts["fits"]] == [one.name for one in example.fits]
    assert {"name", "measured", "predicted", "low", "high", "error", "identified"} <= set(
        facts["backtest"][0]
    )


def test_whatif_prints_the_sentence_first(capsys):
    code, out, _ = run(["whatif", str(EXAMPLE), *FLAGS, "--axis", "max_lag=2,3", "--seeds", "1"], capsys)
    assert code == 0
    assert out.startswith("Your trainer waits ")
    assert "as it is" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calibrate", "{folder}/none.csv"], "none.csv"),
        (["calibrate", str(EXAMPLE), "--page", "{folder}/page.txt"], "must end in .html"),
        (["calibrate", str(EXAMPLE), "--column", "step_seconds"], "must be NAME=TEXT"),
        (["calibrate", str(EXAMPLE), "--preset", "arael"], "areal"),
        (["whatif", str(EXAMPLE), *FLAGS, "--axis", "max_lag=500"], "staleness_threshold"),
    ],
)
def test_a_wrong_call_ends_with_2_and_the_way_out(arguments, said, tmp_path, capsys):
    code, _, err = run([text.format(folder=tmp_path) for text in arguments], capsys)
    assert code == 2
    assert said in err


def test_one_size_gives_a_range_for_other_gpus_and_two_sizes_a_figure():
    """Training takes 2 + 160 / GPUs seconds of a step: 10 on 20 GPUs, 6 on 40."""

    def log(gpus):
        seconds = 2 + 160 / gpus
        run = known_run("skyrl", train_overhead_seconds=seconds, train_tokens_per_second=1e9,
                        decode_tokens_per_second=400.0)  # fmt: skip
        return run[1].drop("lag_mean", "lag_max", "dropped_rollouts")

    given = {**GIVEN, "preset": "skyrl", "trainer_gpus": 20, "decode_tokens_per_second": 400.0}
    one = ls.what_if(ls.calibrate(log(20), **given), {"trainer_gpus": [20, 80]}, seeds=1)
    wide = next(change for change in one.changes if change.settings["trainer_gpus"] == 80)
    assert wide.saved.high - wide.saved.low > 0.15

    two = ls.calibrate(log(20), other_sizes={40: log(40)}, **given)
    fits = {fit.name: fit.value for fit in two.fits}
    assert fits["training on any number of GPUs"] == pytest.approx(2, abs=0.3)
    assert fits["training that GPUs divide"] == pytest.approx(160, rel=0.05)
    narrow = next(
        change
        for change in ls.what_if(two, {"trainer_gpus": [20, 80]}, seeds=1).changes
        if change.settings["trainer_gpus"] == 80
    )
    # 11.5 s with the publication become 5.5 s at best: generation may show before that.
    assert narrow.saved.high - narrow.saved.low < wide.saved.high - wide.saved.low
    assert narrow.saved.value <= 6 / 11.5 + 0.03
    assert one.as_it_is.saved.value == 0


def test_more_gpus_of_rollouts_divide_what_rollouts_share():
    _, log = known_run("synchronous", decode_slowdown_per_rollout=0.02)
    found = ls.calibrate(log, group_size=4, rollout_gpus=8)
    told = ls.what_if(found, {"rollout_gpus": [4, 8, 16]}, seeds=1)
    steps = [one.step.value for one in told.changes]

    assert steps[0] > steps[1] > steps[2]
    with pytest.raises(ls.ConfigError, match="--trainer-gpus"):
        ls.what_if(found, {"trainer_gpus": [16]})


def test_the_command_takes_gpus_of_a_side_as_an_axis(capsys):
    call = ["whatif", str(EXAMPLE), *FLAGS, "--seeds", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*call, "--rollout-gpus", "16", "--axis", "rollout_gpus=16,32", "--json"])
    cells = json.loads(capsys.readouterr().out)["cells"]
    with pytest.raises(SystemExit) as unknown:
        main([*call, "--axis", "rollout_gpu=16,32"])

    assert ended.value.code == 0
    assert {cell["rollout_gpus"] for cell in cells} == {"16", "32"}
    assert unknown.value.code == 2
