"""The strategies reach the states that matter: counted on the twin alone, over a fixed set of examples."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from oracle.level1 import run_level1
from strategies.pipeline_configs import LAWS, law_mean, law_table, pipeline_settings, to_twin

EXAMPLES = 1500


@pytest.fixture(scope="module")
def reached():
    counts = Counter()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(pipeline_settings())
    def count(drawn):
        run = run_level1(to_twin(drawn))
        counts.update(run["reached"])
        counts["examples"] += 1
        counts["several_updates"] += run["updates"] > 1
        counts["positive_lag"] += sum(run["lag_counts"][1:]) > 0

    count()
    return counts


@pytest.mark.parametrize(
    "state",
    [
        "discard_on_update",
        "discard_on_arrival",
        "replaced_publication",
        "overshoot",
        "stall",
        "starvation",
        "reserve",
        "sequential",
        "tie",
        "event_on_horizon",
        "event_on_warmup",
        "instant_publication",
        "instant_step",
        "stopped_by_update",
        "waiting_publication",
    ],
)
def test_state_is_reached_in_two_percent_of_examples(reached, state):
    assert reached[state] >= 0.02 * reached["examples"]


def test_half_of_the_examples_train_more_than_once_and_lag(reached):
    assert reached["examples"] >= 0.9 * EXAMPLES
    assert reached["several_updates"] >= 0.5 * reached["examples"]
    assert reached["positive_lag"] >= 0.4 * reached["examples"]


@pytest.mark.parametrize(
    "law", LAWS, ids=lambda law: f"{law[0]}-{law[1]}-{law[2] if len(law) > 2 else ''}"[:24]
)
def test_tables_are_distribution_functions(law):
    minimum, cdf, _ = law_table(law)
    assert minimum >= 1
    assert cdf == sorted(cdf)
    assert cdf[0] >= 0.0
    assert cdf[-1] == 1.0
    assert minimum <= law_mean(law) <= minimum + len(cdf) - 1
