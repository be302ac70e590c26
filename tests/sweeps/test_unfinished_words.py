"""Sweeps that are not done: tables name the seeds that figures are of, and say where every run failed."""

from __future__ import annotations

import numpy as np
import pytest
from oracle.made_up_sweeps import ESS, THROUGHPUT, made_up, noise
from oracle.small_sweeps import small_base

from lagsweep import frontier, recommend, run_sweep
from lagsweep.custom import Custom, RunMetric
from lagsweep.sweeps.pages.content import gather
from lagsweep.sweeps.pages.sections import report_values

LAGS = {"max_lag": [0, 1, 2]}


def words(text):
    return " ".join(str(text).split())


def begun(*done, seeds=20):
    """Return a sweep of which each cell has so many of its seeds done; all are on the frontier."""
    values = np.array([[30.0], [20.0], [10.0]]) + noise((3, seeds), 1)
    ess = np.array([[0.5], [0.7], [0.9]]) + 1e-4 * noise((3, seeds), 2)
    ds = made_up(LAGS, seeds, **{THROUGHPUT: values, ESS: ess})
    for cell, count in enumerate(done):
        ds["status"][cell, count:] = 0
    ds.attrs["complete"] = 0
    return ds


@pytest.mark.parametrize(
    ("done", "said"),
    [
        ((7, 7, 7), "over 7 of 20 seeds"),
        ((3, 7, 5), "over 3 to 7 of 20 seeds"),
        ((20, 20, 20), "over 20 seeds"),
        ((0, 7, 7), "over 7 of 20 seeds"),
    ],
)
def test_the_table_names_the_seeds_that_are_done(done, said):
    assert f"Student interval {said}" in words(frontier(begun(*done)))


def test_one_seed_done_gives_no_interval():
    found = words(frontier(begun(1, 1, 1)))

    assert "Figures are of 1 of 20 seeds, which gives no interval." in found
    assert "Student" not in found


def test_the_baselines_own_seeds_are_named_where_they_differ():
    ds = run_sweep(small_base(), LAGS, 5, baseline=True)
    ds["status"][:, 3:] = 0

    assert "interval over 3 of 5 seeds, of seq. over 5 seeds" in words(frontier(ds))


def test_a_recommendation_is_of_the_seeds_that_are_done():
    best = recommend(begun(7, 6, 5))

    assert (best.seeds, best.seeds_done) == (20, 7)
    assert "(95% interval over 7 of 20 seeds)" in words(best)
    assert "(95% interval over 20 seeds)" in words(recommend(begun(20, 20, 20)))
    one = recommend(begun(1, 1, 1))
    assert "(1 of 20 seeds, no interval)" in words(one)
    assert one.ties == ()
    assert "One seed of the choice is done: no interval, and nothing can be told apart." in words(one)


def test_seeds_that_the_sweep_still_lacks_are_not_asked_for_anew():
    seeds = 400
    values = np.array([[30.0], [29.8], [5.0]]) + 0.5 * noise((3, seeds), 1)
    ds = made_up(LAGS, seeds, **{THROUGHPUT: values, ESS: 0.9})
    ds["status"][:, 6:] = 0
    best = recommend(ds, store="r")
    (open_tie,) = [doubt for doubt in best.doubts if "cannot be told apart" in doubt.text]
    needed = int(open_tie.text.partition("about ")[2].partition(" ")[0].replace(",", ""))

    assert "with 6 of 400 seeds" in open_tie.text
    assert ("--seeds" in open_tie.command) == (needed > seeds)


def test_runs_that_halted_are_counted_among_those_that_are_done():
    ds = begun(8, 8, 8)
    ds["stalled"][0, 0] = 1

    assert "stalled or trained nothing in 1 of 8 runs." in words(recommend(ds))


def test_the_same_runs_are_found_among_those_that_are_done():
    ds = run_sweep(small_base(), {"queue_cap": [5000, 6000]}, 6)
    ds["status"][:, 4:] = 0
    best = recommend(ds)

    assert best.identical == 1
    assert "The same run at every seed that is done: queue_cap=6000." in words(best)


# No figures at all -----------------------------------------------------------------------------------------


class Broken(RunMetric):
    """A metric that cannot be computed."""

    name, long_name, version = "broken", "what cannot be computed", "1"

    def value(self, run):
        raise ValueError("no such thing")


def failed():
    ds = run_sweep(small_base(), LAGS, 2)
    ds["status"][:] = 2
    return ds


def test_where_every_run_failed_that_is_said_and_nothing_else():
    found, best = words(frontier(failed())), recommend(failed(), min_ess=0.9)

    assert found == "All 6 runs failed."
    assert [doubt.text for doubt in best.doubts] == ["All 6 runs failed."]
    assert "trained" not in words(best).partition("What this store")[2]
    values = report_values(gather(failed()))
    assert values["frontier_words"] == [("", "All 6 runs failed.")]


def test_where_nothing_is_done_yet_that_is_said():
    ds = failed()
    ds["status"][:] = 0
    assert words(frontier(ds)) == "No run is done yet."
    ds["status"][0] = 2

    assert words(frontier(ds)) == "No run is done: 2 failed, 4 are missing."


def test_a_metric_of_the_users_that_raises_fails_every_run():
    ds = run_sweep(small_base(), LAGS, 2, custom=Custom(metrics=[Broken()]))

    assert words(frontier(ds)) == "All 6 runs failed."
