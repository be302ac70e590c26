"""Laws in seconds against SciPy's quantiles and exact counts."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lagsweep.errors import ConfigError
from lagsweep.kernels.draws import sampler as kernel
from lagsweep.kernels.draws.length_table import LengthTable
from lagsweep.sweeps.laws.seconds import SecondsLaw

_UNIFORMS = np.linspace(0.0, 1.0, 999, endpoint=False)
_LAWS = {
    "fixed": SecondsLaw.fixed(2.5),
    "uniform": SecondsLaw.uniform(1, 3),
    "exponential": SecondsLaw.exponential(4.0),
    "lognormal": SecondsLaw.lognormal(5.0, 1.2, 60.0),
    "gamma": SecondsLaw.from_scipy("gamma", a=2.0, scale=3.0),
    "empirical": SecondsLaw.empirical([0.0, 3.5, 3.5, 1.0]),
}


@pytest.fixture(params=_LAWS, ids=str)
def law(request):
    return _LAWS[request.param]


def test_a_law_is_a_table_of_increasing_values(law):
    assert (np.diff(law.values_seconds) > 0).all()
    assert (law.values_seconds >= 0).all()
    assert (np.diff(law.cdf) > 0).all()
    assert law.cdf[-1] == 1.0
    assert law.values_seconds.shape == law.cdf.shape
    assert not law.values_seconds.flags.writeable


def test_the_kernels_sampler_picks_the_values(law):
    picked = kernel.sample_lengths(_UNIFORMS, LengthTable(0, law.cdf, law.guide))

    assert np.array_equal(law.values_seconds[picked], law.quantile_seconds(_UNIFORMS))
    expected = law.values_seconds[np.searchsorted(law.cdf, _UNIFORMS, side="right")]
    assert np.array_equal(law.quantile_seconds(_UNIFORMS), expected)


def test_a_law_survives_data_json_pickle_and_copies(law):
    pickled = pickle.loads(pickle.dumps(law))

    assert SecondsLaw.from_dict(json.loads(json.dumps(law.to_dict()))) == law == pickled
    assert hash(pickled) == hash(law)
    assert copy.deepcopy(law) is copy.copy(law) is law
    assert not pickled.cdf.flags.writeable


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("uniform", stats.uniform(1, 2)),
        ("exponential", stats.expon(scale=4.0)),
        ("gamma", stats.gamma(2.0, scale=3.0)),
    ],
)
def test_a_continuous_law_holds_4096_middle_quantiles(name, distribution):
    law = _LAWS[name]
    middles = (np.arange(4096) + 0.5) / 4096

    assert np.allclose(law.values_seconds, distribution.ppf(middles), rtol=1e-12)
    assert np.array_equal(law.cdf, np.arange(1, 4097) / 4096)
    assert law.mean_seconds == pytest.approx(distribution.mean(), rel=1e-3)


def test_lognormal_is_clipped_at_its_maximum():
    law = _LAWS["lognormal"]
    distribution = stats.lognorm(1.2, scale=5.0)
    below = law.values_seconds < 60.0

    assert law.values_seconds[-1] == 60.0
    middles = (np.arange(below.sum()) + 0.5) / 4096
    assert np.allclose(law.values_seconds[below], distribution.ppf(middles), rtol=1e-12)
    assert 1.0 - law.cdf[-2] == pytest.approx(distribution.sf(60.0), abs=1 / 4096)


@given(seconds=st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_empirical_gives_each_duration_as_often_as_it_was_seen(seconds):
    law = SecondsLaw.empirical(seconds)
    drawn = law.quantile_seconds((np.arange(len(seconds)) + 0.5) / len(seconds))

    assert drawn.tolist() == sorted(seconds)
    assert law.mean_seconds == pytest.approx(math.fsum(seconds) / len(seconds), rel=1e-12, abs=1e-12)


def test_laws_say_what_they_are():
    assert repr(SecondsLaw.fixed(2)) == "SecondsLaw.fixed(seconds=2.0)"
    assert SecondsLaw.exponential(3).name == "exponential(3)"
    assert SecondsLaw.fixed(2) != SecondsLaw.fixed(3)
    assert SecondsLaw.fixed(2) != 2


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: SecondsLaw.fixed(-1), "seconds: must be at least 0 (got -1.0)."),
        (lambda: SecondsLaw.fixed(True), "seconds: must be a number (got True)."),
        (lambda: SecondsLaw.fixed(math.inf), "seconds: must be finite (got inf)."),
        (
            lambda: SecondsLaw.uniform(3, 1),
            "maximum: must be at least the minimum, 3 (got 1.0). Swap the two.",
        ),
        (lambda: SecondsLaw.uniform(-3, 1), "minimum: must be at least 0 (got -3.0)."),
        (lambda: SecondsLaw.exponential(0), "mean: must be greater than 0 (got 0.0)."),
        (
            lambda: SecondsLaw.lognormal(1, 0, 5),
            "sigma: must be greater than 0 (got 0.0). Use SecondsLaw.fixed",
        ),
        (
            lambda: SecondsLaw.from_scipy("norm", loc=1.0),
            "norm, quantile: must be a finite number of at least 0 (got -2.",
        ),
        (
            lambda: SecondsLaw.from_scipy("gama"),
            "name: must be a continuous distribution of scipy.stats (got 'gama').",
        ),
        (lambda: SecondsLaw.empirical([]), "seconds: must have at least one value (got 0)."),
        (
            lambda: SecondsLaw.empirical([1, math.nan]),
            "seconds, position 1: must be a finite number of at least 0 (got nan).",
        ),
        (
            lambda: SecondsLaw.empirical([1, "2"]),
            "seconds, position 1: must be a finite number of at least 0 (got '2').",
        ),
        (
            lambda: SecondsLaw.from_dict({"law": "expnential", "mean": 3}),
            "environment_seconds.law: must be a known law (got 'expnential'). Did you mean 'exponential'?",
        ),
        (
            lambda: SecondsLaw.from_dict({"law": "fixed", "seconds": -3}),
            "environment_seconds.seconds: must be at least 0 (got -3.0).",
        ),
    ],
)
def test_bad_laws_are_refused(build, text):
    with pytest.raises(ConfigError) as raised:
        build()

    assert str(raised.value).startswith(text)
