"""Length laws against SciPy, exact counts and the laws of their parts."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
import tomllib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from lagsweep.errors import ConfigError
from lagsweep.kernels.draws import philox as rng
from lagsweep.kernels.draws import sampler as kernel
from lagsweep.sweeps.laws.lengths import LengthLaw

_LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=60)
_DEFAULT = LengthLaw.lognormal(median=300, sigma=0.6, minimum=16, maximum=2048)


@st.composite
def _laws(draw, depth=0):
    """Any law that needs no file."""
    kind = draw(
        st.sampled_from(["lognormal", "fixed", "uniform", "geometric", "empirical", "table", "mixture"])
    )
    low = draw(st.integers(1, 50))
    high = low + draw(st.integers(0, 500))
    match kind:
        case "lognormal":
            return LengthLaw.lognormal(
                draw(st.floats(0.5, 1000)), draw(st.floats(0.01, 3)), minimum=low, maximum=high
            )
        case "fixed":
            return LengthLaw.fixed(low)
        case "uniform":
            return LengthLaw.uniform(low, high)
        case "geometric":
            return LengthLaw.geometric(draw(st.floats(1, 300)), high)
        case "empirical":
            return LengthLaw.empirical(draw(_LENGTHS))
        case "table":
            cdf = [*sorted(draw(st.lists(st.floats(0, 1), max_size=20))), 1.0]
            return LengthLaw.from_table(low, cdf, cut_at_maximum=draw(st.booleans()))
    if depth:
        return LengthLaw.fixed(high)
    weights = st.floats(0.01, 10)
    return LengthLaw.mixture(draw(st.lists(st.tuples(weights, _laws(depth=1)), min_size=1, max_size=3)))


def _fraction_of(law, k):
    """Probability of at most k tokens, from the table."""
    return 0.0 if k < law.minimum else float(law.cdf[min(k, law.maximum) - law.minimum])


@given(law=_laws())
def test_every_law_is_a_table_with_the_promised_form(law):
    assert law.cdf.shape == (law.maximum - law.minimum + 1,)
    assert law.cdf.dtype == np.float64
    assert law.guide.dtype == np.int64
    assert (np.diff(law.cdf) >= 0).all()
    assert law.cdf[-1] == 1.0
    assert 1 <= law.minimum <= law.smallest_tokens <= law.mean_tokens <= law.largest_tokens <= law.maximum
    assert not law.cdf.flags.writeable
    assert not law.guide.flags.writeable


@given(law=_laws())
def test_a_law_survives_data_json_pickle_and_copies(law):
    through_json = LengthLaw.from_dict(json.loads(json.dumps(law.to_dict())))
    embedded = LengthLaw.from_dict(law.to_dict(embed=True))
    pickled = pickle.loads(pickle.dumps(law))

    for other in (through_json, embedded, pickled):
        assert other == law
        assert hash(other) == hash(law)
        assert other.digest == law.digest
        assert (other.cut_at_maximum, other.mean_tokens) == (law.cut_at_maximum, law.mean_tokens)
    assert not pickled.cdf.flags.writeable
    assert copy.deepcopy(law) is law
    assert copy.copy(law) is law


@given(law=_laws(), seed=st.integers(0, 2**64 - 1), first=st.integers(0, 1000))
def test_a_sample_is_the_inverse_of_the_table_at_the_rollouts_first_word(law, seed, first):
    words = np.random.Philox(key=seed, counter=first).random_raw(4 * 5)[::4]
    uniforms = (words >> np.uint64(11)) * 2.0**-53

    assert np.array_equal(
        law.sample(5, seed=seed, first=first),
        law.minimum + np.searchsorted(law.cdf, uniforms, side="right"),
    )


@given(law=_laws(), q=st.floats(0, 1))
def test_a_quantile_is_the_smallest_length_with_enough_probability(law, q):
    k = law.quantile(q)

    assert isinstance(k, int)
    assert _fraction_of(law, k) >= q
    assert k == law.smallest_tokens or _fraction_of(law, k - 1) < q


def test_the_ends_of_the_quantiles_are_the_ends_of_what_can_occur():
    law = LengthLaw.from_table(10, [0.0, 0.5, 1.0, 1.0])

    assert law.quantile([0.0, 0.5, 1.0]).tolist() == [11, 11, 12]
    assert (law.smallest_tokens, law.largest_tokens, law.maximum) == (11, 12, 13)


def test_lognormal_holds_ndtr_at_the_half_and_clips_into_the_ends():
    k = np.arange(16, 2048)
    expected = ndtr((np.log(k + 0.5) - math.log(300)) / 0.6)

    assert np.array_equal(_DEFAULT.cdf[:-1], expected)
    assert _DEFAULT.cdf[-1] == 1.0
    assert (_DEFAULT.minimum, _DEFAULT.maximum, _DEFAULT.cut_at_maximum) == (16, 2048, True)
    assert LengthLaw.lognormal() == _DEFAULT


def test_a_configured_maximum_stays_even_where_it_has_no_probability():
    law = LengthLaw.lognormal(median=300, sigma=0.05, minimum=16, maximum=2048)

    assert (law.minimum, law.maximum) == (16, 2048)
    assert law.largest_tokens < 600
    assert not law.cut_at_maximum


def test_the_cut_is_told_from_a_law_that_ends_by_itself():
    def uniform_from_scipy(maximum):
        return LengthLaw.from_scipy("uniform", loc=10.0, scale=90.0, maximum=maximum)

    assert uniform_from_scipy(50).cut_at_maximum
    assert not uniform_from_scipy(200).cut_at_maximum
    assert LengthLaw.geometric(50, 500).cut_at_maximum
    assert not LengthLaw.geometric(1, 500).cut_at_maximum
    assert not LengthLaw.fixed(7).cut_at_maximum
    assert not LengthLaw.uniform(1, 9).cut_at_maximum
    assert not LengthLaw.empirical([5, 9, 9]).cut_at_maximum


@pytest.mark.parametrize("mean", [1.0, 1.5, 40.0, 5000.0])
def test_geometric_equals_exact_fractions(mean):
    law = LengthLaw.geometric(mean, 200)
    stay = 1 - 1 / Fraction(mean)
    expected = [float(1 - stay**k) for k in range(1, 200)]

    assert np.allclose(law.cdf[:-1], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gamma", {"a": 2.0, "scale": 100.0}),
        ("weibull_min", {"c": 0.7, "scale": 200.0}),
        ("lognorm", {"s": 0.6, "scale": 300.0}),
        ("norm", {"loc": 100.0, "scale": 50.0}),
    ],
)
def test_from_scipy_takes_the_distribution_function_at_the_half(name, parameters):
    law = LengthLaw.from_scipy(name, 5, 800, **parameters)
    expected = getattr(stats, name)(**parameters).cdf(np.arange(5, 800) + 0.5)

    assert np.array_equal(law.cdf[:-1], expected)
    assert law.to_dict() == {"law": "from_scipy", "name": name, "minimum": 5, "maximum": 800, **parameters}


@given(lengths=_LENGTHS)
def test_empirical_holds_the_exact_counts(lengths):
    law = LengthLaw.empirical(lengths)
    counts = Counter(lengths)
    drawn = kernel.sample_lengths((np.arange(len(lengths)) + 0.5) / len(lengths), law)

    assert sorted(lengths) == drawn.tolist()
    assert (law.minimum, law.maximum) == (min(lengths), max(lengths))
    assert law.mean_tokens == pytest.approx(np.mean(lengths), rel=1e-12)
    assert law.std_tokens == pytest.approx(np.std(lengths), rel=1e-9, abs=1e-6)
    assert law == LengthLaw.from_counts(list(counts), list(counts.values()))
    assert law == LengthLaw.empirical(np.array(lengths, dtype=np.float32))


def test_uniform_equals_an_empirical_law_of_each_length_once():
    assert LengthLaw.uniform(3, 40) == LengthLaw.empirical(range(3, 41))
    assert LengthLaw.fixed(5) == LengthLaw.uniform(5, 5) == LengthLaw.empirical([5, 5])


def test_sampled_moments_are_those_of_the_law():
    lengths = _DEFAULT.sample(20_000, seed=5)

    assert abs(lengths.mean() - _DEFAULT.mean_tokens) < 5 * _DEFAULT.std_tokens / math.sqrt(20_000)
    assert lengths.std() == pytest.approx(_DEFAULT.std_tokens, rel=0.05)


@given(a=_laws(depth=1), b=_laws(depth=1), weight=st.floats(0.01, 5))
def test_a_mixture_is_the_weighted_sum_of_its_parts(a, b, weight):
    law = LengthLaw.mixture([(weight, a), (1.0, b)])
    lengths = range(law.minimum, law.maximum + 1)

    expected = [(weight * _fraction_of(a, k) + _fraction_of(b, k)) / (weight + 1) for k in lengths]
    mean = (weight * a.mean_tokens + b.mean_tokens) / (weight + 1)

    assert np.allclose(law.cdf, expected, rtol=0, atol=1e-14)
    assert law.mean_tokens == pytest.approx(mean, rel=1e-10)


def test_a_mixture_is_cut_if_every_part_that_reaches_its_maximum_was_cut_there():
    cut = LengthLaw.lognormal(median=80, sigma=1.0, minimum=1, maximum=100)

    assert LengthLaw.mixture([(1, cut), (1, LengthLaw.fixed(50))]).cut_at_maximum
    assert not LengthLaw.mixture([(1, cut), (1, LengthLaw.fixed(100))]).cut_at_maximum
    assert not LengthLaw.mixture([(1, cut), (1, LengthLaw.fixed(200))]).cut_at_maximum


def test_digest_and_equality_follow_table_cut_and_rows_not_names():
    assert _DEFAULT.digest != LengthLaw.lognormal(median=301).digest
    assert LengthLaw.from_table(1, [0.5, 1.0]) == LengthLaw.empirical([1, 2])
    assert LengthLaw.from_table(1, [0.5, 1.0], cut_at_maximum=True) != LengthLaw.empirical([1, 2])
    assert LengthLaw.paired([1, 2], [5, 5]) != LengthLaw.paired([1, 2], [5, 6])
    assert LengthLaw.paired([1, 2], [5, 5]) != LengthLaw.empirical([1, 2])
    assert LengthLaw.grouped([1, 2, 1], "aab") != LengthLaw.grouped([1, 2, 1], "aba")
    assert LengthLaw.fixed(3) != "fixed"


def test_digests_are_those_of_earlier_versions():
    fixed = "c6e67e663b58101d4cc17727d10187fe0c1aaa2d23b6055ffaa1e5abe90d3444"
    uniform = "af1a6091f9f6e24a993e05da32a6c811509704da00f714e09c9703620d6658d9"

    assert LengthLaw.fixed(100).digest == fixed
    assert LengthLaw.uniform(1, 4).digest == uniform


@given(rows=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 20)), min_size=1, max_size=80))
def test_paired_rows_give_the_tokens_of_the_table_for_the_same_uniform(rows):
    tokens, seconds = zip(*rows, strict=True)
    law = LengthLaw.paired(tokens, seconds)
    steps = np.arange(1, len(rows) + 1) / len(rows)
    near = np.concatenate([steps, np.nextafter(steps, 0), np.nextafter(steps, 1), [0.0], law.cdf])
    uniforms = np.concatenate([near[near < 1], rng.uniforms(rng.philox_words(1, count=10)).ravel()])

    picked = kernel.sample_rows(uniforms, len(rows))

    assert np.array_equal(law.paired_tokens[picked], kernel.sample_lengths(uniforms, law))
    assert law.digest == LengthLaw.empirical(tokens).digest
    assert sorted(zip(law.paired_tokens, law.paired_seconds, strict=True)) == sorted(rows)
    assert sorted(picked[near.size :].tolist()) == sorted(
        np.floor(uniforms[near.size :] * len(rows)).astype(int)
    )


def test_the_order_of_a_trace_does_not_matter_to_pairs():
    law = LengthLaw.paired([9, 4, 4], [1.0, 8.0, 2.0])

    assert law == LengthLaw.paired([4, 9, 4], [2.0, 1.0, 8.0])
    assert law.paired_tokens.tolist() == [4, 4, 9]
    assert law.paired_seconds.tolist() == [2.0, 8.0, 1.0]
    assert LengthLaw.from_dict(law.to_dict()) == law
    assert _DEFAULT.paired_seconds is None


def test_groups_keep_their_rows_together_in_the_order_of_the_trace():
    law = LengthLaw.grouped([5, 7, 6, 9, 8], ["b", "a", "b", "a", "b"])

    assert law.group_tokens.tolist() == [5, 6, 8, 7, 9]
    assert law.group_starts.tolist() == [0, 3, 5]
    assert law.group_of_row.tolist() == [0, 0, 0, 1, 1]
    assert LengthLaw.from_dict(law.to_dict()) == law
    assert law.digest == LengthLaw.empirical([5, 6, 7, 8, 9]).digest
    assert _DEFAULT.group_starts is None
    assert not law.group_tokens.flags.writeable
    assert not pickle.loads(pickle.dumps(law)).group_starts.flags.writeable


@given(groups=st.lists(st.integers(0, 5), min_size=1, max_size=40), member=st.integers(0, 10))
def test_each_member_of_a_group_is_uniform_over_all_rows_and_of_one_group(groups, member):
    law = LengthLaw.grouped(range(1, len(groups) + 1), groups)
    rows = [
        int(kernel.member_row(np.int64(row), np.int64(member), law.group_starts, law.group_of_row))
        for row in range(len(groups))
    ]

    assert sorted(rows) == list(range(len(groups)))
    assert [law.group_of_row[row] for row in rows] == law.group_of_row.tolist()


def _correlation_by_hand(tokens, groups):
    """ICC(1) from the definition, with plain sums."""
    by_group = {}
    for value, group in zip(tokens, groups, strict=True):
        by_group.setdefault(group, []).append(value)
    n, k = len(tokens), len(by_group)
    mean = sum(tokens) / n
    between = sum(len(g) * (sum(g) / len(g) - mean) ** 2 for g in by_group.values()) / (k - 1)
    within = sum((x - sum(g) / len(g)) ** 2 for g in by_group.values() for x in g) / (n - k)
    n0 = (n - sum(len(g) ** 2 for g in by_group.values()) / n) / (k - 1)
    return (between - within) / (between + (n0 - 1) * within)


@given(st.data())
def test_within_group_correlation_is_the_intraclass_correlation(data):
    groups = data.draw(
        st.lists(st.integers(0, 4), min_size=4, max_size=40).filter(lambda g: 1 < len(set(g)) < len(g))
    )
    tokens = data.draw(st.lists(st.integers(1, 100), min_size=len(groups), max_size=len(groups)))
    found = LengthLaw.grouped(tokens, groups).within_group_correlation()

    if len(set(tokens)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(_correlation_by_hand(tokens, groups), rel=1e-9, abs=1e-9)


def test_within_group_correlation_recovers_the_one_that_was_put_in():
    generator = np.random.default_rng(2)
    prompts = np.repeat(generator.normal(0, 60, 400), 8)
    tokens = np.rint(2000 + prompts + generator.normal(0, 80, 3200)).astype(int)
    law = LengthLaw.grouped(tokens, np.repeat(np.arange(400), 8))

    assert law.within_group_correlation() == pytest.approx(60**2 / (60**2 + 80**2), abs=0.05)


def test_equal_members_correlate_fully():
    assert LengthLaw.grouped([5, 5, 9, 9], [1, 1, 2, 2]).within_group_correlation() == 1.0


def test_a_law_is_a_table_in_toml():
    spec = tomllib.loads(
        """
        law = "mixture"
        [[parts]]
        weight = 0.75
        law = "uniform"
        minimum = 10
        maximum = 20
        [[parts]]
        weight = 0.25
        law = "from_scipy"
        name = "expon"
        scale = 100.0
        maximum = 500
        """
    )
    a, b = LengthLaw.uniform(10, 20), LengthLaw.from_scipy("expon", scale=100, maximum=500)

    assert LengthLaw.from_dict(spec) == LengthLaw.mixture([(0.75, a), (0.25, b)])


def test_laws_say_what_they_are():
    assert repr(LengthLaw.fixed(300)) == "LengthLaw.fixed(n=300)"
    assert (
        repr(LengthLaw.empirical(range(1, 100)))
        == "LengthLaw.from_counts(tokens=<99 values>, counts=<99 values>)"
    )
    assert (
        repr(LengthLaw.mixture([(2, LengthLaw.fixed(3))]))
        == "LengthLaw.mixture([(2.0, LengthLaw.fixed(n=3))])"
    )
    assert _DEFAULT.name == "lognormal(300, 0.6)"
    with pytest.raises(AttributeError):
        _DEFAULT.minimum = 3


def test_importing_and_building_simple_laws_loads_neither_numba_nor_polars_nor_scipy():
    code = (
        "import sys\n"
        "from lagsweep.sweeps.laws.lengths import LengthLaw, SecondsLaw\n"
        "LengthLaw.empirical([3, 4]), LengthLaw.geometric(20, 300), LengthLaw.shipped('aime-rl-1000')\n"
        "SecondsLaw.exponential(3)\n"
        "print([m for m in ('numba', 'scipy', 'polars', 'xarray') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


_REFUSED = [
    (
        lambda: LengthLaw.lognormal(median=0),
        "median: must be greater than 0 (got 0.0). Give a number in that range.",
    ),
    (lambda: LengthLaw.lognormal(median=True), "median: must be a number (got True)."),
    (lambda: LengthLaw.lognormal(median="300"), "median: must be a number (got '300')."),
    (lambda: LengthLaw.lognormal(median=math.nan), "median: must not be NaN (got nan)."),
    (
        lambda: LengthLaw.lognormal(median=[1, 2]),
        "median: must be one number (got [1, 2]). Give a single number.",
    ),
    (lambda: LengthLaw.lognormal(sigma=0), "sigma: must be greater than 0 (got 0.0). Use LengthLaw.fixed"),
    (lambda: LengthLaw.lognormal(minimum=0), "minimum: must be at least 1 (got 0)."),
    (lambda: LengthLaw.lognormal(minimum=1.5), "minimum: must be a whole number (got 1.5)."),
    (
        lambda: LengthLaw.lognormal(maximum=10),
        "maximum: must be at least the minimum, 16 (got 10). Swap the two.",
    ),
    (lambda: LengthLaw.lognormal(maximum=2**30), "maximum: must be at most 16777216 (got 1073741824)."),
    (lambda: LengthLaw.fixed(0), "n: must be at least 1 (got 0)."),
    (lambda: LengthLaw.fixed([3]), "n: must be one number (got [3])."),
    (lambda: LengthLaw.uniform(9, 3), "maximum: must be at least the minimum, 9 (got 3). Swap the two."),
    (lambda: LengthLaw.geometric(0.5, 10), "mean: must be at least 1 (got 0.5)."),
    (lambda: LengthLaw.geometric(math.inf, 10), "mean: must be finite (got inf)."),
    (
        lambda: LengthLaw.from_scipy("gama", maximum=9),
        "name: must be a continuous distribution of scipy.stats (got 'gama'). Did you mean 'gamma'?",
    ),
    (
        lambda: LengthLaw.from_scipy("poisson", mu=3, maximum=9),
        "name: must be a continuous distribution of scipy.stats",
    ),
    (
        lambda: LengthLaw.from_scipy("gamma", a=2.0),
        "maximum: must be given (got None). Give the longest response",
    ),
    (
        lambda: LengthLaw.from_scipy("gamma", maximum=9),
        "a: must be given for gamma (got {}). Parameters: a, loc, scale.",
    ),
    (
        lambda: LengthLaw.from_scipy("gamma", a=2, scal=3, maximum=9),
        "scal: must be a parameter of gamma (got 3). Did you mean 'scale'?",
    ),
    (lambda: LengthLaw.from_scipy("gamma", a=-2.0, maximum=9), "parameters: must be in the domain of gamma"),
    (lambda: LengthLaw.empirical([]), "lengths: must have at least one value (got 0)."),
    (
        lambda: LengthLaw.empirical([3, 0]),
        "lengths, position 1: must be a whole number of at least 1 (got 0).",
    ),
    (
        lambda: LengthLaw.empirical([3, 4.5]),
        "lengths, position 1: must be a whole number of at least 1 (got 4.5).",
    ),
    (
        lambda: LengthLaw.empirical([3, math.nan]),
        "lengths, position 1: must be a whole number of at least 1 (got nan).",
    ),
    (
        lambda: LengthLaw.empirical([math.inf]),
        "lengths, position 0: must be a whole number of at least 1 (got inf).",
    ),
    (
        lambda: LengthLaw.empirical([3, True]),
        "lengths, position 1: must be a whole number of at least 1 (got True).",
    ),
    (
        lambda: LengthLaw.empirical([3, None]),
        "lengths, position 1: must be a whole number of at least 1 (got None).",
    ),
    (
        lambda: LengthLaw.empirical(["3"]),
        "lengths, position 0: must be a whole number of at least 1 (got '3').",
    ),
    (
        lambda: LengthLaw.empirical([10**400]),
        "lengths, position 0: must be a whole number of at least 1 (got 1000",
    ),
    (lambda: LengthLaw.empirical([2**25]), "lengths, position 0: must be at most 16777216 (got 33554432)."),
    (lambda: LengthLaw.empirical("abc"), "lengths: must be a row of numbers (got 'abc')."),
    (lambda: LengthLaw.empirical(5), "lengths: must be a row of numbers (got 5)."),
    (lambda: LengthLaw.from_counts([3, 4], [1]), "counts: must have 2 values, as tokens (got 1)."),
    (lambda: LengthLaw.from_counts([3, 4, 3], [1, 1, 1]), "tokens: must name no length twice (got 3)."),
    (lambda: LengthLaw.from_table(1, [0.5]), "cdf: must grow from 0 or more to exactly 1"),
    (lambda: LengthLaw.mixture([]), "parts: must be a list of pairs of weight and law (got [])."),
    (
        lambda: LengthLaw.mixture([(1, 5)]),
        "parts, position 0: must be a pair of weight and law (got (1, 5)).",
    ),
    (
        lambda: LengthLaw.mixture([(0, LengthLaw.fixed(1))]),
        "parts, position 0, weight: must be greater than 0 (got 0.0).",
    ),
    (
        lambda: LengthLaw.mixture([(1, LengthLaw.paired([1], [2]))]),
        "parts, position 0: must be a law without pairs, groups or segments (got 'paired(1 rows)').",
    ),
    (lambda: LengthLaw.paired([1, 2], [1]), "seconds: must have 2 values, as tokens (got 1)."),
    (
        lambda: LengthLaw.paired([1], [-1]),
        "seconds, position 0: must be a finite number of at least 0 (got -1).",
    ),
    (lambda: LengthLaw.grouped([1, 2], [1]), "groups: must have 2 values, as tokens (got 1)."),
    (lambda: LengthLaw.fixed(1).within_group_correlation(), "law: must have groups (got 'fixed(1)')."),
    (
        lambda: LengthLaw.grouped([1, 2], [1, 1]).within_group_correlation(),
        "groups: must be two or more, one with two rows (got 1).",
    ),
    (lambda: _DEFAULT.quantile(1.5), "q: must be at most 1 (got 1.5)."),
    (
        lambda: LengthLaw.shipped("aime-rl-100O"),
        "name: must be a shipped law (got 'aime-rl-100O'). Did you mean",
    ),
    (lambda: LengthLaw.from_dict(5), "response_length: must be a table of settings (got 5)."),
    (
        lambda: LengthLaw.from_dict({"median": 3}),
        "response_length.law: must name a law (got {'median': 3}). Laws: lognormal,",
    ),
    (
        lambda: LengthLaw.from_dict({"law": "log_normal"}),
        "response_length.law: must be a known law (got 'log_normal'). Did you mean 'lognormal'?",
    ),
    (
        lambda: LengthLaw.from_dict({"law": "lognormal", "medain": 3}),
        "response_length.medain: must be a setting of lognormal (got 3). Did you mean 'median'?",
    ),
    (
        lambda: LengthLaw.from_dict({"law": "lognormal", "median": -3}),
        "response_length.median: must be greater than 0 (got -3.0).",
    ),
    (
        lambda: LengthLaw.from_dict({"law": "fixed"}),
        "response_length.n: must be given for fixed (got {}). Settings: n.",
    ),
    (
        lambda: LengthLaw.from_dict({"law": "fixed", "n": 3, "digest": "00"}),
        "response_length.digest: must be ",
    ),
    (
        lambda: LengthLaw.from_dict({"law": "mixture", "parts": [{"law": "fixed", "n": 3}]}),
        "response_length.parts: must each have a weight (got {'law': 'fixed', 'n': 3}).",
    ),
    (
        lambda: LengthLaw.from_dict({"law": "mixture", "parts": 3}),
        "response_length.parts: must be a list of laws with weights (got 3).",
    ),
]


@pytest.mark.parametrize(("build", "text"), _REFUSED, ids=[text[:40] for _, text in _REFUSED])
def test_bad_laws_are_refused_with_field_rule_value_and_way_out(build, text):
    with pytest.raises(ConfigError) as raised:
        build()

    assert str(raised.value).startswith(text)
    assert str(raised.value).endswith((".", "?"))


@pytest.mark.parametrize(
    ("median", "sigma", "share"), [(9000, 0.8, "97%"), (1500, 0.8, "35%"), (2048, 0.1, "50%")]
)
def test_a_default_maximum_that_cuts_much_is_refused(median, sigma, share):
    with pytest.raises(ConfigError, match=rf"maximum: must be given: .*would cut {share}"):
        LengthLaw.lognormal(median=median, sigma=sigma)

    assert LengthLaw.lognormal(median=median, sigma=sigma, maximum=65_536).truncated_share < 0.01


def test_a_default_maximum_that_cuts_little_stays_2048():
    assert LengthLaw.lognormal(median=300, sigma=1.0).maximum == 2048
    assert LengthLaw.lognormal() == LengthLaw.lognormal(300, 0.6, 16, 2048)


@pytest.mark.parametrize(
    ("law", "share"),
    [
        (LengthLaw.geometric(mean=9000, maximum=1000), (1 - 1 / 9000) ** 999),
        (LengthLaw.fixed(7), 0.0),
        (LengthLaw.uniform(1, 4), 0.0),
        (LengthLaw.from_table(3, [1.0], cut_at_maximum=True), 1.0),
        (LengthLaw.from_table(3, [0.25, 1.0], cut_at_maximum=True), 0.75),
    ],
)
def test_the_truncated_share_is_that_of_the_longest_length(law, share):
    assert law.truncated_share == pytest.approx(share, abs=1e-9)
