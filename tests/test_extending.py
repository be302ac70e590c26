"""Nothing that is added to the loops is forgotten: every metric is compared, every choice is drawn."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from oracle import compare
from oracle.level1 import run_level1
from oracle.level4 import run_level4
from oracle.level23 import run_level23
from strategies.failing_configs import failing_settings
from strategies.general_configs import general_settings, to_twin
from strategies.pipeline_configs import pipeline_settings, with_measured_drift

from lagsweep.custom import AdmissionState, RolloutStart
from lagsweep.kernels.pipeline import records
from lagsweep.kernels.pipeline.metrics import GENERAL_METRICS, METRICS, OPTIONAL_METRICS, MetricAttributes
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.testing.trainer_settings import trainer_settings

# Drawn by none of them: a name of the run, what is compared by fields, and what rebuilds a configuration.
NOT_DRAWN = {"seed", "engine"}
STRATEGIES = (
    pipeline_settings(),
    general_settings(),
    trainer_settings(),
    failing_settings(),
    with_measured_drift(pipeline_settings()),
)
EXAMPLES = 400


@pytest.fixture(scope="module")
def drawn():
    """Every value of every plain setting that the strategies draw, in a fixed set of examples."""
    values = {}
    for strategy in STRATEGIES:

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def note(plain):
            for name, value in plain.items():
                values.setdefault(name, set()).add(repr(value))

        note()
    return values


def choices_of(field):
    """The values that a field may have where they are listed: of Literal, of None beside it, and of bool."""
    annotation = PipelineConfig.model_fields[field].annotation
    parts = [annotation, *typing.get_args(annotation)]
    found = {
        choice
        for part in parts
        if typing.get_origin(part) is typing.Literal
        for choice in typing.get_args(part)
    }
    return found | ({True, False} if annotation is bool else set())


CHOICES = [
    (field, choice) for field in PipelineConfig.model_fields for choice in sorted(choices_of(field), key=repr)
]


def test_the_listed_choices_are_those_of_many_fields():
    assert len({field for field, _ in CHOICES}) >= 12
    assert ("publication", "abort") in CHOICES
    assert ("queue_overflow", "hold") in CHOICES


@pytest.mark.parametrize("field", sorted(set(PipelineConfig.model_fields) - NOT_DRAWN))
def test_every_field_is_drawn_with_a_value_that_is_not_its_default(drawn, field):
    default = PipelineConfig.model_fields[field].get_default(call_default_factory=True)

    assert drawn.get(field, set()) - {repr(default)}


@pytest.mark.parametrize(("field", "choice"), CHOICES)
def test_every_choice_of_a_field_is_drawn(drawn, field, choice):
    default = PipelineConfig.model_fields[field].get_default(call_default_factory=True)

    assert repr(choice) in drawn[field] | {repr(default)}


def test_every_metric_of_both_loops_is_compared_with_the_twin():
    assert {metric.name for metric in METRICS} == {*compare.INTEGERS, *compare.FLOATS}


TWIN_SETTINGS = {
    "duration_seconds": 20.0,
    "rollout_workers": 2,
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "response_length": ("fixed", 100),
    "batch_tokens": None,
    "batch_groups": 2,
    "train_tokens_per_second": 200.0,
}


BY_TOKENS = {"batch_tokens": 200, "batch_groups": None}


def test_the_twin_reports_every_metric_of_generation_and_rules():
    """The agreement tests compare these by name, so one that the twin lacks fails there too."""
    run = run_level23(to_twin(TWIN_SETTINGS))
    wanted = {metric.name for metric in GENERAL_METRICS}
    # Engines and failures have twins of their own, tests/oracle/level23_engines.py and level4.py.
    rest = {name: some for name, some in OPTIONAL_METRICS.items() if name not in ("engine", "failures")}
    wanted |= {metric.name for some in rest.values() for metric in some}

    assert wanted - set(run) == set()
    failing = run_level4(to_twin(TWIN_SETTINGS | {"worker_mtbf_seconds": 5.0}))
    assert {metric.name for metric in OPTIONAL_METRICS["failures"]} - set(failing) == set()
    assert {metric.name for metric in METRICS} - set(run_level1(to_twin(TWIN_SETTINGS | BY_TOKENS))) == set()


def test_the_agreement_test_takes_its_metrics_from_the_tables():
    text = Path(__file__).with_name("test_level23_agreement.py").read_text(encoding="utf-8")

    assert "for metric in GENERAL_METRICS" in text
    assert "metrics_of_options(config.options_in_use)" in text


def test_every_metric_is_an_attribute_for_editors_and_a_field_of_a_report():
    names = [metric.name for metric in (*METRICS, *GENERAL_METRICS)]
    names += [metric.name for some in OPTIONAL_METRICS.values() for metric in some]

    assert set(MetricAttributes.__annotations__) == set(names)
    assert list(records.GENERAL_REPORT.names) == names


def test_what_a_rule_is_told_has_the_names_of_the_records():
    assert AdmissionState._fields == records.ADMISSION_STATE.names
    assert RolloutStart._fields == records.ROLLOUT_START.names
