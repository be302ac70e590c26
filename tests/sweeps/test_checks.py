"""What counts as a number is the same for every argument, wherever it is given."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from oracle.made_up_sweeps import ESS, THROUGHPUT, made_up, noise

from lagsweep import LengthLaw, PipelineConfig, recommend
from lagsweep.errors import ConfigError
from lagsweep.sweeps.checkpoint.checkpoint import make_checkpoint
from lagsweep.sweeps.checkpoint.prompts import PromptCursor
from lagsweep.sweeps.checks import Flag, RealNumber, WholeNumber, checked
from lagsweep.sweeps.config.config import Limit
from lagsweep.sweeps.execute.threads import checked_threads
from lagsweep.sweeps.laws.seconds import SecondsLaw
from lagsweep.sweeps.presets.registry import preset_config
from lagsweep.sweeps.spec.axes import checked_axis, expand
from lagsweep.sweeps.spec.cells import find_cell
from lagsweep.sweeps.spec.design import sampled_group
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.spec.reading import spec_from_sections
from lagsweep.sweeps.spec.seeds import read_seeds

NO_NUMBERS = [
    True, np.True_, np.bool_(False), "3", b"3", "", 1j, np.complex128(3), ...,
    float("nan"), np.float64("nan"), np.float32("nan"), float("inf"), np.float64("inf"), -np.inf,
]  # fmt: skip
FRACTIONS = [2.5, np.float64(2.5), np.float32(0.5), Fraction(5, 2)]
WHOLE_FLOATS = [3.0, np.float64(3.0), np.float32(3.0)]
COUNTS = [3, np.int64(3), np.int8(3), np.uint64(3)]


def _sweep():
    values = np.ones((4, 8)) + noise((4, 8), 1)
    columns = {THROUGHPUT: values, ESS: np.full((4, 8), 0.95), "max_lag_observed": np.ones((4, 8))}
    return made_up({"max_lag": [1, 2, 3, 4]}, 8, **columns, mean_lag=np.ones((4, 8)))


def _count_of_an_axis(value):
    return expand("sync_cadence", {"from": 1, "to": 9, "count": value})


WHOLE = {
    "a field": lambda value: PipelineConfig(rollout_workers=value),
    "a field of level 3": lambda value: PipelineConfig(group_size=value),
    "a limit": lambda value: Limit(groups=value),
    "an axis's value": lambda value: checked_axis("max_lag", [value]),
    "an axis's count": _count_of_an_axis,
    "seeds by number": read_seeds,
    "seeds as a list": lambda value: read_seeds([value]),
    "the first seed": lambda value: read_seeds({"first": value, "count": 2}),
    "sampled points": lambda value: sampled_group(
        {"max_lag": {"from": 0, "to": 9}}, method="latin_hypercube", points=value
    ),
    "a sample's seed": lambda value: sampled_group(
        {"max_lag": {"from": 0, "to": 9}}, method="latin_hypercube", points=2, seed=value
    ),
    "threads": checked_threads,
    "a preset's knob": lambda value: preset_config("areal", max_head_offpolicyness=value),
    "a preset's workload": lambda value: preset_config("areal", batch_groups=value),
    "a recommendation's bound": lambda value: recommend(_sweep(), max_lag=value),
    "a prompt ledger's samples": PromptCursor,
    "a length": LengthLaw.fixed,
}
REAL = {
    "a field": lambda value: PipelineConfig(sync_seconds=value),
    "an axis's value": lambda value: checked_axis("sync_seconds", [value]),
    "an axis's end": lambda value: expand("sync_seconds", {"from": 0, "to": value, "count": 2}),
    "an axis's step": lambda value: expand("sync_seconds", {"from": 0, "to": 15, "step": value}),
    "a preset's knob": lambda value: preset_config("verl_fully_async", staleness_threshold=value),
    "a preset's workload": lambda value: preset_config("areal", train_tokens_per_second=value),
    "seconds": SecondsLaw.fixed,
    "a law's parameter": lambda value: LengthLaw.lognormal(median=value),
}
SHARES = {
    "a recommendation's bound": lambda value: recommend(_sweep(), min_ess=value),
    "a recommendation's confidence": lambda value: recommend(_sweep(), confidence=value),
}
STRICT = {
    "a checkpoint's counter": lambda value: make_checkpoint(
        optimizer_step=value, current_version=9, published_version=9, dataset_cursor=9, rng={}
    ),
    "a cell": lambda value: find_cell(_SPEC, value),
}
_SPEC = make_spec(PipelineConfig(), {"max_lag": [1, 2]}, 2)


@pytest.mark.parametrize("value", [*NO_NUMBERS, *FRACTIONS], ids=repr)
@pytest.mark.parametrize("take", WHOLE.values(), ids=WHOLE)
def test_what_is_no_whole_number_is_refused_everywhere(take, value):
    with pytest.raises(ConfigError) as caught:
        take(value)

    assert len(caught.value.findings) == 1


@pytest.mark.parametrize("value", [*COUNTS, *WHOLE_FLOATS], ids=repr)
@pytest.mark.parametrize("take", WHOLE.values(), ids=WHOLE)
def test_a_whole_number_is_taken_in_any_type_everywhere(take, value):
    take(value)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("take", [*REAL.values(), *SHARES.values()], ids=[*REAL, *SHARES])
def test_what_is_no_finite_number_is_refused_everywhere(take, value):
    with pytest.raises(ConfigError):
        take(value)


@pytest.mark.parametrize("value", [*COUNTS, *WHOLE_FLOATS, *FRACTIONS], ids=repr)
@pytest.mark.parametrize("take", REAL.values(), ids=REAL)
def test_a_number_is_taken_in_any_type_everywhere(take, value):
    take(value)


@pytest.mark.parametrize("value", [0.5, np.float64(0.5), np.float32(0.5), Fraction(1, 2)], ids=repr)
@pytest.mark.parametrize("take", SHARES.values(), ids=SHARES)
def test_a_share_is_taken_in_any_type(take, value):
    take(value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, *FRACTIONS, *WHOLE_FLOATS], ids=repr)
@pytest.mark.parametrize("take", STRICT.values(), ids=STRICT)
def test_a_counter_and_an_id_are_never_floats(take, value):
    with pytest.raises(ConfigError) as caught:
        take(value)

    assert caught.value.findings[0].field in ("optimizer_step", "cell")


@pytest.mark.parametrize("value", [1, 0, "true", 1.0, None], ids=repr)
def test_a_flag_is_true_or_false(value):
    with pytest.raises(ConfigError, match="cancel_in_flight: must be true or false"):
        PipelineConfig(cancel_in_flight=value)
    with pytest.raises(ConfigError, match=r"masks: must be true or false \(got .*\)\. Write masks = true\."):
        spec_from_sections({"masks": value, "axes": {"max_lag": [1]}})


@pytest.mark.parametrize("value", [True, np.True_])
def test_numpys_bool_is_a_flag_too(value):
    assert PipelineConfig(cancel_in_flight=value).cancel_in_flight is True
    assert checked(Flag, "flag", value) is True


def test_an_argument_is_given_back_in_its_own_type():
    assert type(checked(WholeNumber, "n", np.float32(3.0))) is int
    assert type(checked(RealNumber, "x", np.int64(3))) is float


@pytest.mark.parametrize(
    ("value", "limits", "text"),
    [
        (0, {"low": 1}, "n: must be at least 1 (got 0). Give 1 or more."),
        (9, {"high": 8}, "n: must be at most 8 (got 9). Give 8 or less."),
        ("9", {"low": 1}, "n: must be a whole number (got '9'). Give a whole number."),
        (0, {"low": 1, "rule": "must be a count"}, "n: must be a count (got 0). Give 1 or more."),
        (0, {"low": 1, "way_out": "Leave it out."}, "n: must be at least 1 (got 0). Leave it out."),
    ],
)
def test_a_refusal_has_the_callers_words_where_it_has_some(value, limits, text):
    with pytest.raises(ConfigError) as caught:
        checked(WholeNumber, "n", value, **limits)

    assert str(caught.value) == text
    assert caught.value.findings[0].value is value
