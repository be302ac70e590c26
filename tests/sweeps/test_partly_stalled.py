"""Verdicts about settings of which some runs stall, ends of axes that are knobs or points, busy trainers."""

from __future__ import annotations

import numpy as np
import pytest
from oracle.made_up_sweeps import made_up, noise
from oracle.small_sweeps import small_base

from lagsweep import frontier, load_spec, preset_config, recommend, run_spec, run_sweep, write_report
from lagsweep.sweeps.cli.shared import remarks
from lagsweep.sweeps.results.frontier_table import worth_a_look

SEEDS = 6


def partly(**figures):
    """Three settings of like throughput; the second stalls under three seeds of six."""
    updates = np.full((3, SEEDS), 10)
    updates[1, :3] = 0
    speed = np.array([1000.0, 1010.0, 900.0])[:, None] + noise((3, SEEDS), size=30.0)
    speed[1, :3] = 0.0
    speed[1, 3:] *= 2
    given = {"trained_tokens_per_second": speed, "updates": updates, **figures}
    return made_up({"max_lag": [0, 1, 2]}, SEEDS, **given)


def test_a_tie_that_stalls_under_some_seeds_is_never_a_tie_without_a_word():
    found = recommend(partly())
    shown = str(found)
    involved = [tie for tie in found.ties if tie.halted_runs] or [found]

    assert involved
    assert "stalled or trained nothing in 3 of 6 runs" in " ".join(shown.split())
    assert not found.settled


def test_the_table_and_the_remarks_name_settings_that_stall_under_some_seeds():
    ds = partly()
    found = frontier(ds)

    assert found.frame.sort("max_lag")["halted_runs"].to_list() == [0, 3, 0]
    assert "3 of 6" in str(found)
    assert any("in some runs" in line for line in remarks(ds))
    assert not any("in every run" in line for line in remarks(ds))


def test_the_page_names_them_too(tmp_path):
    write_report(partly(), tmp_path / "page.html", images=False)
    text = (tmp_path / "page.html").read_text("utf-8")

    assert "Runs that stalled or trained nothing, in 1 configurations: max_lag=1 in 3 of 6." in text


def test_a_sweep_in_which_every_run_trains_has_no_such_column():
    ds = made_up({"max_lag": [0, 1]}, SEEDS)

    assert "halted" not in str(frontier(ds))
    assert "halted" not in str(recommend(ds))
    assert frontier(ds).frame["halted_runs"].sum() == 0


def test_the_end_of_a_knobs_axis_is_a_doubt():
    settings = {"group_size": 4, "batch_groups": 8, "rollout_workers": 64, "duration_seconds": 3000.0}
    base = preset_config("verl_fully_async", **settings, train_tokens_per_second=4000.0)
    knob = "preset.staleness_threshold"
    found = recommend(run_sweep(base, {knob: [0.0, 0.25, 0.5]}, seeds=4))

    assert found.settings[knob] == 0.5
    doubts = [
        doubt for doubt in found.doubts if "largest preset.staleness_threshold tried, 0.5" in doubt.text
    ]
    assert len(doubts) == 1
    assert "0.75" in doubts[0].command


@pytest.mark.parametrize("busy", [0.8, 0.999])
def test_nothing_still_helps_where_the_trainer_has_no_time_left(busy):
    speed = np.array([500.0, 800.0, 1000.0])[:, None] + noise((3, SEEDS))
    given = {"trained_tokens_per_second": speed, "trainer_utilization": np.full((3, SEEDS), busy)}
    found = recommend(made_up({"max_lag": [0, 1, 2]}, SEEDS, **given))

    assert found.settings["max_lag"] == 2
    assert any("still helps there" in doubt.text for doubt in found.doubts) == (busy < 0.99)


def test_of_settings_that_are_equal_to_a_thousandth_the_freshest_is_chosen():
    speed = np.array([1000.0, 1000.3, 1000.5])[:, None] + np.zeros((3, SEEDS))
    ess = np.array([0.99, 0.95, 0.90])[:, None] + np.zeros((3, SEEDS))
    given = {"trained_tokens_per_second": speed, "mean_expected_normalized_ess": ess}

    assert recommend(made_up({"max_lag": [0, 1, 2]}, SEEDS, **given)).settings == {"max_lag": 0}


def test_the_end_of_points_is_a_doubt_without_a_command_that_would_not_fit_them(tmp_path):
    spec = tmp_path / "zip.toml"
    spec.write_text(
        "seeds = 4\n[base]\npreset = 'verl_fully_async'\ngroup_size = 4\n"
        "batch_groups = 8\nrollout_workers = 64\n"
        "duration_seconds = 3000.0\ntrain_tokens_per_second = 4000.0\n[[zip]]\n"
        "'preset.staleness_threshold' = [0.0, 0.25, 0.5]\n'preset.trigger_parameter_sync_step' = [1, 2, 4]\n"
    )
    ds = run_spec(load_spec(spec))
    doubts = [doubt for doubt in recommend(ds).doubts if "still helps there" in doubt.text]

    assert [doubt.command for doubt in doubts] == [None, None]
    assert "such as 0.75" in doubts[0].text


def test_a_setting_that_stalls_in_every_run_is_never_the_fastest():
    stalled = np.zeros((3, SEEDS), int)
    stalled[1] = 1
    speed = np.array([1000.0, 5000.0, 900.0])[:, None] + noise((3, SEEDS), size=3.0)
    ds = made_up({"max_lag": [0, 1, 2]}, SEEDS, trained_tokens_per_second=speed, stalled=stalled)
    wishes = dict(worth_a_look(frontier(ds)))
    every = made_up({"max_lag": [0, 1, 2]}, SEEDS, trained_tokens_per_second=speed, stalled=stalled * 0 + 1)

    assert wishes["fastest"]["max_lag"] == 0
    assert worth_a_look(frontier(every)) == []
    assert "Every configuration stalled in every run." in str(frontier(every))


@pytest.mark.parametrize("cap", [417, 420])
def test_a_cap_below_a_batch_is_named_where_runs_stall(cap):
    base = small_base(duration_seconds=400.0, batch_tokens=420, rollout_workers=1)
    ds = run_sweep(base, {"queue_cap": [cap, 4000], "max_lag": [1, 4]}, 20)
    named = [line for line in remarks(ds) if "is below a batch" in line]

    assert bool(named) == (cap < 420)
    assert not named or "417 tokens is below a batch of 420" in named[0]
