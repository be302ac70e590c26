"""A configuration: what it refuses, how it says so, and what it keeps."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

from lagsweep import ConfigError, Limit, PipelineConfig, SecondsLaw, simulate_pipeline
from lagsweep.sweeps.config.config import LengthLaw

REFUSED = [
    ({"batch_tokns": 3}, "batch_tokns: is not a known field (got 3). Did you mean 'batch_tokens'?"),
    ({"batch_tokens": 0}, "batch_tokens: must be at least 1 (got 0). Give 1 or more."),
    ({"batch_tokens": True}, "batch_tokens: must be a whole number (got True). Give a whole number."),
    ({"batch_tokens": 2.5}, "batch_tokens: must be a whole number (got 2.5). Give a whole number."),
    ({"batch_tokens": "9"}, "batch_tokens: must be a whole number (got '9'). Give a whole number."),
    ({"duration_seconds": math.nan}, "duration_seconds: must be finite (got nan). Give a finite number."),
    ({"duration_seconds": math.inf}, "duration_seconds: must be finite (got inf). Give a finite number."),
    ({"duration_seconds": 0}, "duration_seconds: must be above 0 (got 0). Give a number above 0."),
    ({"sync_seconds": -1}, "sync_seconds: must be at least 0 (got -1). Give 0 or more."),
    ({"sync_seconds": True}, "sync_seconds: must be a number (got True). Give a number."),
    ({"drift_per_version": 11}, "drift_per_version: must be at most 10 (got 11). Give 10 or less."),
    ({"seed": 2**64}, f"seed: must be below 2**64 (got {2**64}). Give a number below 2**64."),
    ({"mode": "async"}, "mode: must be one of 'bounded_async' or 'sequential' (got 'async'). "),
    ({"cancel_in_flight": 1}, "cancel_in_flight: must be true or false (got 1). Give true or false."),
    ({"response_length": 300}, "response_length: must be a length law (got 300). "),
    ({"response_length": {"law": ["x"]}}, "response_length"),
    ({"limits": [3]}, "limits: must hold limits (got 3). "),
    (
        {"warmup_seconds": 120.0},
        "warmup_seconds: must be below duration_seconds, which is 120 (got 120.0). ",
    ),
    (
        {"admission": "reserve", "max_queue_tokens": 2000},
        "max_queue_tokens: with admission 'reserve' must be at least 2048, the longest response (got 2000). ",
    ),
]


@pytest.mark.parametrize(
    ("fields", "text"), REFUSED, ids=[str(next(iter(case[0].items()))) for case in REFUSED]
)
def test_what_breaks_a_rule_is_refused_by_field_rule_value_and_way_out(fields, text):
    with pytest.raises(ConfigError) as caught:
        PipelineConfig(**fields)

    assert str(caught.value).startswith(text)


def test_every_finding_is_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        PipelineConfig(batch_tokens=0, sync_seconds=-1, nonsense=3)

    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("whole", [np.int64(5), np.uint8(5), 5.0, np.float64(5.0)])
def test_whole_numbers_of_any_kind_are_taken(whole):
    value = PipelineConfig(max_policy_lag=whole).max_policy_lag

    assert value == 5
    assert type(value) is int


def test_flags_of_numpy_are_taken():
    config = PipelineConfig(publication_blocks_trainer=np.bool_(True))

    assert config.publication_blocks_trainer is True


def test_a_configuration_cannot_be_changed_in_place():
    with pytest.raises(Exception, match="frozen"):
        PipelineConfig().seed = 3


def test_positional_arguments_are_refused():
    with pytest.raises(TypeError):
        PipelineConfig("sequential")


def test_plain_data_gives_the_same_configuration_back():
    config = PipelineConfig(
        batch_groups=4,
        group_size=2,
        limits=[Limit("started", "popped", 8)],
        response_length=LengthLaw.uniform(10, 20),
        environment_seconds=SecondsLaw.exponential(2.0),
        publication="abort",
        resume_seconds=1.0,
    )

    assert PipelineConfig.from_dict(config.to_dict()) == config
    assert PipelineConfig.from_dict(config.to_dict(full=True)) == config
    assert not config.is_level_1


def test_only_what_differs_from_the_defaults_is_written():
    assert PipelineConfig().to_dict() == {}
    assert PipelineConfig(seed=3, mode="sequential").to_dict() == {"mode": "sequential", "seed": 3}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_are_equal_and_run_alike(copied):
    config = PipelineConfig(duration_seconds=30)

    assert copied(config) == config
    assert hash(copied(config)) == hash(config)
    assert simulate_pipeline(copied(config)).metrics == simulate_pipeline(config).metrics


def test_something_else_than_a_configuration_is_refused():
    with pytest.raises(ConfigError, match=r"config: must be a PipelineConfig \(got None\)\."):
        simulate_pipeline(None)
    with pytest.raises(ConfigError, match="config: must map field names to values"):
        PipelineConfig.from_dict(3)
