"""Comparing systems on the same rollouts, and the two commands that show presets."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import threading

import numpy as np
import pytest
from scipy import stats

from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.compare.rows import (
    SLOT_SHARES,
    TRAINER_SHARES,
    comparison_rows,
    lag_quantile,
    wasted_share,
)
from lagsweep.sweeps.compare.systems import (
    DEFAULT_WORKLOAD,
    compare_systems,
    compared_systems,
    whole_workload,
)
from lagsweep.sweeps.compare.text import comparison_text, notes, workload_text
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.pages.comparison import write_comparison_page
from lagsweep.sweeps.presets.registry import all_presets
from lagsweep.sweeps.presets.systems import read_system
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.runs.simulate import simulate_pipeline

SMALL = {
    "batch_groups": 4,
    "group_size": 4,
    "rollout_workers": 48,
    "response_length": LengthLaw.lognormal(median=200, sigma=1.0, minimum=10, maximum=4000),
    "decode_tokens_per_second": 20.0,
    "decode_slowdown_per_rollout": 0.0,
    "rollout_overhead_seconds": 0.5,
    "train_overhead_seconds": 1.0,
    "train_tokens_per_second": 400.0,
    "sync_seconds": 2.0,
    "duration_seconds": 1500.0,
    "warmup_seconds": 200.0,
}
NAMED = [
    ("areal", {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 12}),
    ("tinker", {"stale_groups": "requeue"}),
    ("prime_rl", {}),
]
FLAGS = [
    *(
        "--batch-groups",
        "4",
        "--group-size",
        "4",
        "--rollout-workers",
        "48",
        "--law",
        "lognormal:200:1.0:10:4000",
    ),
    *(
        "--decode-tokens-per-second",
        "20",
        "--decode-slowdown-per-rollout",
        "0",
        "--rollout-overhead-seconds",
        "0.5",
    ),
    *("--train-overhead-seconds", "1", "--train-tokens-per-second", "400", "--sync-seconds", "2"),
    *("--duration-seconds", "1500", "--warmup-seconds", "200"),
]


@pytest.fixture(scope="module")
def systems():
    return compared_systems(NAMED, SMALL)


@pytest.fixture(scope="module")
def ds(systems):
    return compare_systems(systems, 6, threads=2)


@pytest.fixture(scope="module")
def rows(ds):
    return comparison_rows(ds)


def test_all_systems_have_the_same_workload_and_their_own_rules(systems):
    areal, tinker, prime, colocated, least = (system.config for system in systems)

    assert all(config.response_length == SMALL["response_length"] for config in (areal, tinker, prime))
    assert {config.rollout_workers for config in (areal, tinker, prime)} == {48}
    assert [limit.groups for limit in areal.limits] == [12]
    assert tinker.stale_action == "requeue"
    # The baseline has all GPUs on either side in turn.
    assert colocated.rollout_workers == 96
    assert colocated.train_tokens_per_second == 800.0
    assert least.rollout_workers == 96
    assert least.train_tokens_per_second == 400.0 / 0.5**0.2


def test_only_systems_that_abort_prefill_again(systems):
    assert {system.label: system.config.reprefill_tokens_per_second for system in systems} == {
        "areal": 5000.0,
        "tinker": None,
        "prime_rl": None,
        "synchronous_colocated": None,
        "colocated at 0.2": None,
    }


def test_rollout_number_i_has_the_same_length_in_every_system(systems):
    tokens = [
        {row.number: row.tokens for row in simulate_pipeline(system.config, rollouts=True).rollouts}
        for system in systems
    ]
    shared = set.intersection(*(set(found) for found in tokens))

    assert len(shared) > 300
    assert all(len({found[number] for found in tokens}) == 1 for number in shared)


def test_the_dataset_holds_the_runs_of_each_system_and_seed(systems, ds):
    run = simulate_pipeline(systems[1].config.replace(seed=4))

    assert ds["seed"].values.tolist() == [0, 1, 2, 3, 4, 5]
    for name in ("updates", "trained_tokens", "mean_lag", "length_bias_law", "trainer_batch_seconds"):
        assert ds[name].sel(system="tinker:stale_groups=requeue", seed=4).item() == run.metrics[name]
    assert (
        ds["lag_counts"].sel(system="tinker:stale_groups=requeue", seed=4).values.tolist()
        == run.lag_counts.tolist()
    )
    assert ds["seconds_per_update"].attrs["units"] == "s"


def test_threads_and_single_runs_give_the_same_dataset(systems, ds):
    alone = compare_systems(systems, [0, 1, 2, 3, 4, 5], threads=1)

    assert alone.identical(ds)


def test_means_and_paired_differences_carry_student_intervals(ds, rows):
    first = ds["trained_tokens_per_second"].values[0]
    own = ds["trained_tokens_per_second"].values[2]
    t = stats.t.ppf(0.975, 5)
    row = rows[2]

    assert row["label"] == "prime_rl"
    assert row["trained_tokens_per_second"] == pytest.approx(own.mean())
    assert row["trained_tokens_per_second_half_width"] == pytest.approx(t * own.std(ddof=1) / np.sqrt(6))
    assert row["trained_tokens_per_second_difference"] == pytest.approx((own - first).mean())
    half = t * (own - first).std(ddof=1) / np.sqrt(6)
    assert row["trained_tokens_per_second_difference_half_width"] == pytest.approx(half)
    assert row["trained_tokens_per_second_ratio"] == pytest.approx(own.mean() / first.mean())
    assert rows[0]["trained_tokens_per_second_difference"] == 0.0


def test_differences_can_be_taken_against_any_system(ds):
    rows = comparison_rows(ds, against="synchronous_colocated")

    assert [row["against"] for row in rows] == ["synchronous_colocated"] * 5
    assert rows[-2]["seconds_per_update_difference"] == 0.0
    assert rows[0]["seconds_per_update_difference"] < 0 < rows[-1]["seconds_per_update_difference"]


def test_pairing_narrows_the_interval_of_systems_that_are_alike():
    near = compared_systems(
        [("areal", {"max_head_offpolicyness": 2}), ("areal", {"max_head_offpolicyness": 3})],
        {**SMALL, "rollout_workers": 16},
        baseline=False,
    )
    row = comparison_rows(compare_systems(near, 8))[1]

    assert row["label"] == "areal 2"
    paired = row["seconds_per_update_difference_half_width"]
    assert paired < row["seconds_per_update_half_width"]


def test_shares_of_time_add_up(rows):
    for row in rows:
        assert sum(row.get(name, 0.0) for name in TRAINER_SHARES) == pytest.approx(1.0)
        assert sum(row.get(name, 0.0) for name in SLOT_SHARES) == pytest.approx(1.0)
        assert row["rollouts_per_batch"] == 16


def test_speed_ups_are_stated_as_the_range_between_both_ends_of_the_baseline(rows):
    *others, full, least = rows
    assert [full["label"], least["label"]] == ["synchronous_colocated", "colocated at 0.2"]
    assert full["trained_tokens_per_second"] > least["trained_tokens_per_second"]
    for row in others:
        for name in ("trained_tokens_per_second", "effective_tokens_per_second"):
            assert row[f"{name}_speedup"] == [row[name] / full[name], row[name] / least[name]]
    said = " ".join(notes(rows, "", 0.2, 0.95))
    low, high = others[0]["trained_tokens_per_second_speedup"]
    assert f"{others[0]['label']} {low:.2f}× to {high:.2f}×" in said


def test_a_baseline_with_knobs_of_the_user_s_own_has_no_range():
    named = [("tinker", {}), ("synchronous_colocated", {"training_scaling": 0.6})]
    systems = compared_systems(named, SMALL)
    assert [system.label for system in systems] == ["tinker", "synchronous_colocated"]
    found = comparison_rows(compare_systems(systems, 2))
    assert not any(name.endswith("_speedup") for row in found for name in row)


def test_a_batch_of_several_updates_counts_as_one_batch():
    systems = compared_systems([("verl_fully_async", {"require_batches": 4})], SMALL)
    row = comparison_rows(compare_systems(systems, 2))[0]

    assert row["rollouts_per_batch"] == 16


def test_lag_shares_are_those_of_all_trained_rollouts(ds, rows):
    for position, row in enumerate(rows):
        counts = ds["lag_counts"].values[position].sum(axis=0)
        assert row["lag_shares"] == pytest.approx((counts / counts.sum())[: len(row["lag_shares"])].tolist())
        assert sum(row["lag_shares"]) == pytest.approx(1.0)
        assert row["lag_largest"] == len(row["lag_shares"]) - 1
        assert row["lag_median"] == np.flatnonzero(np.cumsum(counts) >= counts.sum() / 2)[0]
    assert lag_quantile(np.zeros(65, int), 0.5) == -1


def test_waste_is_what_was_decoded_and_not_kept(systems, ds):
    waste = wasted_share(ds)
    config = systems[1].config.replace(warmup_seconds=0.0, seed=0)
    # Repeated prompts: every rollout that was completed and given up is waste, of all completed ones.
    run = simulate_pipeline(config, rollouts=True)
    completed = [row for row in run.rollouts if row.end is not None]
    given_up = sum(row.tokens for row in completed if row.outcome == "discarded")
    one = compare_systems(compared_systems([NAMED[1]], {**SMALL, "warmup_seconds": 0.0}), 1)

    assert given_up > 0
    assert wasted_share(one)[0, 0] == pytest.approx(given_up / sum(row.tokens for row in completed))
    assert waste[0].max() == 0.0
    assert waste[1].min() > 0.02


def test_groups_cancelled_in_flight_count_once_with_what_they_had_decoded():
    named = [("nemo_rl_windowed", {"max_staleness_versions": 0, "max_inflight_prompts": 12})]
    ds = compare_systems(compared_systems(named, {**SMALL, "train_tokens_per_second": 4000.0}), 2)
    run = {name: ds[name].values[0] for name in ds if ds[name].ndim == 2}
    lost = run["discarded_tokens"] + run["wasted_tokens"]

    assert (run["wasted_tokens"] > 0).all()
    assert (run["cancelled_tokens"] <= run["wasted_tokens"]).all()
    assert wasted_share(ds)[0] == pytest.approx(
        lost / (run["generated_tokens"] + run["wasted_tokens"] - run["cancelled_tokens"])
    )


def test_a_cancelled_comparison_stops(systems):
    cancel = threading.Event()
    cancel.set()

    with pytest.raises(Cancelled):
        compare_systems(systems, 4, cancel=cancel)


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "workload", "options", "text"),
    [
        ([("areal", {})], {}, {"baseline": False}, "systems: must be at least two (got ['areal'])."),
        (
            [("areal", {}), ("areal", {})],
            {},
            {},
            "systems: must differ (got 'areal'). Leave one out, or give it",
        ),
        ([("aral", {})], {}, {}, "preset: must be a known preset (got 'aral'). Did you mean 'areal'?"),
        (
            [("areal", {"max_staleness_steps": 2})],
            {},
            {},
            "max_staleness_steps: is neither a field nor a knob of preset 'areal' (got 2).",
        ),
        (
            [("tinker", {}), ("prime_rl", {})],
            {"resume_seconds": 2.0},
            {},
            "resume_seconds: has an effect on systems that abort only, and none of these does (got 2.0).",
        ),
        (
            [("areal", {})],
            {"warmup_seconds": 99_999.0},
            {},
            "areal: warmup_seconds: must be below duration_seconds",
        ),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(named, workload, options, text):
    with pytest.raises(ConfigError) as caught:
        compared_systems(named, workload, **options)

    assert str(caught.value).startswith(text)


def test_an_unknown_reference_names_the_nearest_system(ds):
    with pytest.raises(ConfigError) as caught:
        comparison_rows(ds, against="tinkr")

    assert str(caught.value).startswith(
        "against: must be one of the systems compared (got 'tinkr'). Did you mean"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("areal", ("areal", {})),
        ("areal:max_head_offpolicyness=4", ("areal", {"max_head_offpolicyness": 4})),
        (
            "verl_v1:max-off-policy-strategy=wait,num_warmup_batches=2",
            ("verl_v1", {"max_off_policy_strategy": "wait", "num_warmup_batches": 2}),
        ),
        ("miles:max_weight_staleness=none", ("miles", {"max_weight_staleness": None})),
        ("openrlhf:partial_rollout_enable=true", ("openrlhf", {"partial_rollout_enable": True})),
    ],
)
def test_a_system_is_read_from_text(text, expected):
    assert read_system(text) == expected


@pytest.mark.parametrize("text", ["areal:max_head_offpolicyness", "areal:=3", "areal:a=1,a=2", "areal:a="])
def test_a_knob_without_value_or_given_twice_is_refused(text):
    with pytest.raises(ConfigError, match="systems: must read PRESET:KNOB=VALUE"):
        read_system(text)


# --- the text -------------------------------------------------------------------------------------------


def text_of(rows):
    return comparison_text(rows, workload_text(whole_workload(SMALL)), "an assumed drift_per_version of 0.2")


def test_the_table_of_all_presets_fits_into_80_columns():
    systems = compared_systems([(name, {}) for name in all_presets()], {**SMALL, "duration_seconds": 500.0})
    rows = comparison_rows(compare_systems(systems, 2))
    text = text_of(rows)

    assert max(len(line) for line in text.splitlines()) <= 80
    assert all(text.count(f"\n{name} ") >= 3 for name in all_presets())


def test_the_text_says_what_it_assumes_and_what_was_set(rows):
    text = text_of(rows)
    flat = " ".join(text.split())

    assert "at an assumed drift_per_version of 0.2" in flat
    assert "95% Student interval over 6 seeds" in flat
    assert "areal: max_head_offpolicyness = 2, max_concurrent_rollouts = 12" in flat
    assert "batches of 4 × 4" in flat
    assert "Against areal, seed by seed" in flat


def test_what_is_equal_in_all_seeds_has_no_interval_and_that_is_said(rows):
    def with_steps(value, half):
        first = {**rows[0], "seconds_per_update": value, "seconds_per_update_half_width": half}
        return text_of([first, *rows[1:]])

    label = rows[0]["label"]
    equal, spread = with_steps(1277.8, 0.0), with_steps(1277.8, 0.4)
    line = next(line for line in equal.splitlines() if line.startswith(f"{label} "))
    assert line.split()[1] == "1,277.8"
    assert f"{label} 1,277.8 ±0.4" in " ".join(spread.split())
    assert "±0.0 " not in equal.split("Against")[0]
    assert f"(s/update of {label}: all seeds have as many updates in the window)" in " ".join(equal.split())
    assert "all seeds have as many updates" not in spread
    assert "a figure without is equal in all seeds" in " ".join(spread.split())


def test_a_straggler_past_its_bound_and_a_stall_are_said():
    named = [("skyrl", {"max_staleness_steps": 1}), ("trl_async", {"max_staleness": 0})]
    systems = compared_systems(named, {**SMALL, "train_tokens_per_second": 4000.0})
    rows = comparison_rows(compare_systems(systems, 2))
    flat = " ".join(text_of(rows).split())

    assert "skyrl: a straggler passed the typical bound of 1." in flat
    assert "trl_async: 2 of 2 runs stalled." in flat


def test_one_seed_has_no_interval(systems):
    rows = comparison_rows(compare_systems(systems, 1))

    assert "±0" not in text_of(rows)


# --- the page -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(ds, rows, systems, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "comparison.html"
    shared = workload_text(whole_workload(SMALL))
    write_comparison_page(ds, rows, systems, path, workload=shared, line="lagsweep compare areal tinker")
    return path.read_text(encoding="utf-8")


def test_the_page_holds_every_system_with_its_figures_and_its_source(page, rows, systems):
    for row, system in zip(rows, systems):
        preset = all_presets()[system.preset]
        assert f">{row['label']}</td>" in page
        assert f"{row['seconds_per_update']:.1f} ±{row['seconds_per_update_half_width']:.1f}" in page
        assert preset.repository in page
        assert preset.commit == "none" or f"{preset.commit} ({preset.date})" in page
        assert all(text in html.unescape(page) for text in preset.leaves_out)
    assert "batches of 4 × 4" in page
    assert "drift_per_version of 0.2" in page
    assert "lagsweep compare areal tinker" in page


def test_the_page_asks_for_nothing_from_a_network(page):
    content = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)[1]

    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    # A schema's name is a name and is never fetched.
    assert "http" not in re.sub(r'"\$schema":"[^"]*"', "", content)


def test_every_chart_of_the_page_has_a_place_a_caption_and_rows_of_every_system(page, rows):
    content = json.loads(
        re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)[1]
    )
    names = {chart["id"] for chart in content["charts"]}

    assert names == {f"chart-{name}" for name in ("frontier", "differences", "trainer", "slots", "lag")}
    assert all(f'id="{name}" role="img" aria-label="' in page for name in names)
    assert content["labels"] == {str(place): row["label"] for place, row in enumerate(rows)}
    tables = [
        dict(zip(table["fields"], table["columns"]))
        for table in content["tables"]
        if "share" in table["fields"]
    ]
    trainer = next(table for table in tables if "training" in table.get("what", ()))
    for place, row in enumerate(rows):
        shares = {
            what: share
            for cell, what, share in zip(trainer["cell"], trainer["what"], trainer["share"])
            if cell == place
        }
        assert shares["training"] == pytest.approx(row["trainer_busy"], rel=1e-6)
        assert sum(shares.values()) == pytest.approx(1.0, rel=1e-5)


def test_the_same_results_give_the_same_page(page, ds, rows, systems, tmp_path):
    shared = workload_text(whole_workload(SMALL))
    again = tmp_path / "again.html"
    write_comparison_page(ds, rows, systems, again, workload=shared, line="lagsweep compare areal tinker")

    assert again.read_text(encoding="utf-8") == page
    assert set(re.findall(r'"view_[0-9a-f_]+"', page)) <= {f'"view_{number}"' for number in range(1, 9)}


def test_a_name_that_is_code_stays_text_on_the_page(ds, rows, systems, tmp_path):
    hostile = "</script><img src=x onerror='alert(1)'>"
    named = [
        {**row, "label": f"{hostile}{place}", "against": f"{hostile}0"} for place, row in enumerate(rows)
    ]
    path = tmp_path / "comparison.html"
    write_comparison_page(ds, named, systems, path, workload=hostile, line=hostile)
    page = path.read_text(encoding="utf-8")

    assert "<img" not in page.partition("<script>")[0]
    assert page.count("</script>") == 3
    content = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(content)["labels"]["0"] == f"{hostile}0"


def test_a_page_s_name_is_checked_before_anything_runs(capsys, tmp_path):
    code, out, err = run_command(capsys, "compare", "areal", "tinker", "--report", str(tmp_path / "page.txt"))

    assert (code, out) == (2, "")
    assert err.startswith("error: --report: must end in .html")
    assert "runs" not in err


# --- the commands ---------------------------------------------------------------------------------------


def run_command(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code, *capsys.readouterr()


def test_compare_prints_json_with_settings_and_rows(capsys):
    code, out, err = run_command(capsys, "compare", "skyrl", "tinker", "--seeds", "2", "--json", *FLAGS)
    facts = json.loads(out)

    assert code == 0
    labels = ["skyrl", "tinker", "synchronous_colocated", "colocated at 0.2"]
    assert [system["label"] for system in facts["systems"]] == labels
    assert facts["systems"][1]["config"]["queue_order"] == "oldest_version"
    assert facts["systems"][0]["trained_tokens_per_second"] > 0
    assert facts["seeds"] == 2
    assert "8 of 8 runs done" in err


def test_compare_takes_the_same_preset_with_other_knobs(capsys):
    code, out, _ = run_command(
        capsys, "compare", "areal:max_head_offpolicyness=1", "areal:max_head_offpolicyness=3",
        "--no-baseline", "--seeds", "2", "--against", "areal 2", "-q", *FLAGS,
    )  # fmt: skip

    assert code == 0
    assert "Against areal 2, seed by seed" in out
    assert "areal 1: max_head_offpolicyness = 1\n" in out
    assert "synchronous_colocated" not in out


def test_compare_ends_with_2_and_one_line_for_a_user_s_mistake(capsys):
    code, out, err = run_command(capsys, "compare", "areal:max_head_offpolicynes=1")

    assert (code, out) == (2, "")
    assert err.startswith(
        "error: max_head_offpolicynes: is neither a field nor a knob of preset 'areal' (got 1)."
    )


def test_ctrl_c_stops_a_comparison_with_exit_code_130(capsys, ds):
    # `ds` is asked for so that the kernels are compiled already.
    timer = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    code, out, err = run_command(capsys, "compare", "skyrl", "prime_rl", "--seeds", "100000", *FLAGS)
    timer.join()

    assert (code, out) == (130, "")
    assert err.endswith("stopped; nothing is kept of a comparison\n")


def test_the_default_workload_keeps_both_sides_busy():
    named = [("skyrl", {}), ("synchronous", {})]
    rows = comparison_rows(compare_systems(compared_systems(named), 2))
    asynchronous, synchronous, colocated, _ = rows

    assert asynchronous["trainer_busy"] > 0.85
    assert asynchronous["slots_busy"] > 0.5
    assert colocated["seconds_per_update"] < synchronous["seconds_per_update"]
    assert 1.5 < colocated["seconds_per_update"] / asynchronous["seconds_per_update"] < 3.5
    assert DEFAULT_WORKLOAD["warmup_seconds"] < DEFAULT_WORKLOAD["duration_seconds"] / 5


def test_presets_are_listed_within_80_columns(capsys):
    code, out, _ = run_command(capsys, "presets")

    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert all(f"\n{name} " in out for name in all_presets())
    flat = " ".join(out.split())
    assert all(preset.title in flat for preset in all_presets().values())


@pytest.mark.parametrize("name", all_presets())
def test_a_preset_is_explained_within_80_columns(name, capsys):
    preset = all_presets()[name]
    code, out, _ = run_command(capsys, "presets", name)
    flat = " ".join(out.split())

    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert preset.repository in flat
    assert preset.commit == "none" or f"at {preset.commit} ({preset.date})" in flat
    assert preset.lag_bound in flat
    assert all(f"{knob.name} = " in flat for knob in preset.knobs)
    assert all(" ".join(text.split()) in flat for text in preset.leaves_out)


def test_presets_in_json_carry_knobs_rules_and_aliases(capsys):
    _, out, _ = run_command(capsys, "presets", "skyrl", "--json")
    facts = json.loads(out)

    assert facts["commit"] == "a956457"
    assert facts["knobs"][0] == {
        "name": "max_staleness_steps",
        "default": 4,
        "text": "batches that may start ahead of the weights",
        "minimum": 0,
        "maximum": None,
        "choices": [],
    }
    assert facts["rules_at_defaults"]["limits"] == [{"count": "started", "done": "published", "groups": 80}]
    assert {alias["preset"] for alias in facts["aliases"]} == {"areal", "verl_fully_async"}
    assert facts["lag_bound_at_defaults"] == 4


def test_an_unknown_preset_names_the_nearest(capsys):
    code, _, err = run_command(capsys, "presets", "verl_one_step")

    assert code == 2
    assert err == (
        "error: preset: must be a known preset (got 'verl_one_step'). Did you mean 'verl_one_step_off'?\n"
    )
