"""One frontier for each scenario, in tables, on pages and in plots, as a recommendation reasons."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from oracle.made_up_sweeps import ESS, THROUGHPUT, made_up
from oracle.small_sweeps import small_base

from lagsweep import LengthLaw, frontier, plot_frontier, recommend, run_sweep, write_report
from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.show_command import command as show
from lagsweep.sweeps.pages.content import gather
from lagsweep.sweeps.results.frontier import nondominated
from lagsweep.sweeps.results.frontier_table import worth_a_look

LAGS, DRIFTS = [0, 2, 6], [0.1, 0.4]


def drifting():
    """Faster with more lag; under a small drift the ESS hardly falls, under a large one it does."""
    speed = np.array([500.0, 900.0, 1200.0])[:, None, None] + np.zeros((3, 2, 4))
    ess = np.array([[1.0, 1.0], [0.97, 0.75], [0.93, 0.50]])[:, :, None] + np.zeros((3, 2, 4))
    return made_up({"max_lag": LAGS, "drift_per_version": DRIFTS}, 4, **{THROUGHPUT: speed, ESS: ess})


def test_no_setting_of_one_scenario_beats_one_of_another():
    found = frontier(drifting())

    # Across scenarios those of the large drift are beaten by themselves under the small one.
    assert found.on_frontier().height == 6
    assert found.scenario_axes == ("drift_per_version",)
    assert [values for values, _ in found.parts()] == [{"drift_per_version": one} for one in DRIFTS]
    for values, part in found.parts():
        own = found.frame.filter(found.frame["drift_per_version"] == values["drift_per_version"])
        assert part.axes == ("max_lag",)
        assert part.frame.equals(own)
        expected = nondominated(own[THROUGHPUT].to_numpy(), own[ESS].to_numpy())
        assert own["on_frontier"].to_list() == expected.tolist()
    assert frontier(drifting(), scenarios=[]).on_frontier().height == 4


def test_the_fastest_fresh_setting_is_told_for_each_scenario_and_agrees_with_the_recommendation():
    ds = drifting()
    fresh = [row for wish, row in worth_a_look(frontier(ds)) if wish.startswith("fastest, ESS")]

    assert [(row["drift_per_version"], row["max_lag"]) for row in fresh] == [(0.1, 6), (0.4, 0)]
    # In every scenario at once only the setting without lag keeps the bound.
    assert recommend(ds, min_ess=0.9).settings["max_lag"] == 0


def test_the_table_has_a_part_for_each_scenario():
    text = str(frontier(drifting()))
    first, second = text.split("drift_per_version=0.4:")

    assert first.startswith("drift_per_version=0.1:\n")
    for part in (first, second):
        assert part.count("tokens/s  ") >= 1
        assert "freshest" in part
    assert "each of its 2 scenarios has a frontier of its own" in " ".join(text.split())
    assert "`lagsweep recommend` chooses one setting for all scenarios" in " ".join(text.split())


def test_one_value_of_what_nobody_chooses_is_no_scenario():
    axes = {"max_lag": LAGS, "drift_per_version": [0.2]}
    found = frontier(made_up(axes, 3))

    assert found.scenario_axes == ()
    assert found.parts() == [({}, found)]
    assert "scenario" not in str(found)


def made_up_alone():
    return made_up({"drift_per_version": [0.1, 0.2, 0.3]}, 3)


def test_where_no_scenario_has_settings_to_compare_the_table_is_one():
    found = frontier(made_up_alone())

    assert found.on_frontier().height == 3
    assert [values for values, _ in found.parts()] == [{}]
    assert "drift_per_version" in str(found).splitlines()[0]
    assert found.alone
    assert "each configuration has a value of its own: no two can be compared" in " ".join(str(found).split())
    marks = [layer["mark"]["type"] for layer in plot_frontier(made_up_alone()).to_dict()["layer"]]
    assert "line" not in marks


def test_of_many_scenarios_the_first_are_shown_and_counted():
    drifts = [round(0.05 * k, 2) for k in range(1, 10)]
    text = str(frontier(made_up({"max_lag": [0, 2], "drift_per_version": drifts}, 2)))

    assert text.count(":\n\n") == 6
    assert "each of its 9 scenarios has a frontier of its own; the first 6 are shown" in " ".join(
        text.split()
    )


@pytest.fixture(scope="module")
def laws(tmp_path_factory):
    store = tmp_path_factory.mktemp("laws") / "store"
    axes = {"response_length": [LengthLaw.fixed(40), LengthLaw.uniform(20, 120)], "max_lag": [0, 1, 3]}
    return run_sweep(small_base(), axes, 3, store=store, baseline=True), store


def test_each_law_has_the_baseline_of_its_own_law(laws):
    ds, store = laws
    found = frontier(ds)

    assert found.baseline is None
    means = ds[f"baseline_{THROUGHPUT}"].mean("seed").values.tolist()
    assert [part.baseline[THROUGHPUT] for _, part in found.parts()] == pytest.approx(means)
    assert means[0] != means[1]
    assert str(found).count("seq.") == 3  # two rows and a note
    shown = json.loads(CliRunner().invoke(show, [str(store), "--json"]).output)
    assert [one["values"]["response_length"] for one in shown["scenarios"]] == [
        "fixed(40)",
        "uniform(20, 120)",
    ]
    assert [one["baseline"][THROUGHPUT] for one in shown["scenarios"]] == pytest.approx(means)


def test_the_page_has_a_chart_and_rows_for_each_scenario(laws, tmp_path):
    content = gather(laws[0])
    by_law = [one.row["response_length"] for one in content.shown]
    text = write_report(laws[0], tmp_path / "page.html", images=True)

    assert sorted(set(by_law)) == ["fixed(40)", "uniform(20, 120)"]
    assert by_law == sorted(by_law)  # one scenario after the other
    page = text.page.read_text("utf-8")
    assert page.count('id="chart-frontier-') == 2
    assert "each of its 2 values is a scenario with a frontier of its own" in page
    assert "Nobody chooses response length: each chart is one scenario" in page
    assert (tmp_path / "page-charts" / "frontier.svg").read_text("utf-8").count("response length") >= 2


def test_a_plot_has_a_chart_for_each_scenario_and_colours_that_stay():
    spec = plot_frontier(drifting()).to_dict()
    titles = [part["title"]["text"] for part in spec["concat"]]
    scales = [
        layer["encoding"]["color"]["scale"]
        for part in spec["concat"]
        for layer in part["layer"]
        if "color" in layer.get("encoding", {})
    ]

    assert titles == ["drift per version 0.1", "drift per version 0.4"]
    assert all(scale == scales[0] for scale in scales)
    assert "layer" in plot_frontier(drifting(), scenarios=[]).to_dict()


def test_an_unknown_scenario_is_refused():
    with pytest.raises(ConfigError, match=r"scenarios: must name axes of the sweep \(got 'max_lagg'\)"):
        frontier(drifting(), scenarios=["max_lagg"])
