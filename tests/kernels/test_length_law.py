"""Length tables against NumPy's searchsorted, exact fractions and brute force."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import lognorm

from lagsweep.errors import ConfigError
from lagsweep.kernels.draws import length_table
from lagsweep.kernels.draws import philox as rng
from lagsweep.kernels.draws import sampler as length_law
from lagsweep.kernels.draws.sampler import make_length_table

_LAST_UNIFORM = 1.0 - 2.0**-53
_COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=200).filter(lambda counts: sum(counts) > 0)


@st.composite
def _cdfs(draw):
    """Tables of all shapes: flat stretches, jumps from 0 to 1, values a rounding step apart, many ones."""
    size = draw(st.integers(1, 300))
    kind = draw(st.sampled_from(["any", "counts", "tiny", "step"]))
    if kind == "any":
        values = draw(st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size))
        cdf = np.sort(np.array(values))
    elif kind == "counts":
        return length_table.table_from_counts(draw(_COUNTS))
    elif kind == "tiny":
        start = draw(st.floats(0.0, 0.999))
        cdf = np.minimum(start + np.arange(size) * np.spacing(start), 1.0)
    else:
        cdf = (np.arange(size) >= draw(st.integers(0, size - 1))).astype(float)
    cdf[-1] = 1.0
    return cdf


def _interesting_uniforms(cdf):
    """Every table value, its neighbours, cell borders and the ends of [0, 1)."""
    near = np.concatenate([cdf, np.nextafter(cdf, 0.0), np.nextafter(cdf, 1.0), np.arange(64) / 64])
    ends = np.array([0.0, 2.0**-53, _LAST_UNIFORM])
    all_values = np.concatenate([near, ends])
    return all_values[(all_values >= 0.0) & (all_values < 1.0)]


@given(cdf=_cdfs(), minimum=st.integers(1, 10_000), more=st.lists(st.floats(0.0, _LAST_UNIFORM), max_size=20))
def test_the_sampler_equals_searchsorted(cdf, minimum, more):
    uniforms = np.concatenate([_interesting_uniforms(cdf), np.array(more)])
    expected = minimum + np.searchsorted(cdf, uniforms, side="right")

    lengths = length_law.sample_lengths(uniforms, make_length_table(minimum, cdf))

    assert lengths.dtype == np.int64
    assert np.array_equal(lengths, expected)


@pytest.mark.parametrize("entries", [1, 2, 3, 2033, 16_384, 16_385, 32_753, 100_000])
def test_the_sampler_equals_searchsorted_on_long_tables(entries):
    k = np.arange(1, entries + 1)
    cdf = length_table.table_from_cdf_values(lognorm.cdf(k + 0.5, 1.1, scale=entries / 8))
    table = make_length_table(1, cdf)
    uniforms = np.concatenate(
        [rng.uniforms(rng.philox_words(entries, count=2000)).ravel(), _interesting_uniforms(cdf[::50])]
    )

    assert np.array_equal(
        length_law.sample_lengths(uniforms, table), 1 + np.searchsorted(cdf, uniforms, side="right")
    )


@given(cdf=_cdfs())
def test_the_guide_brackets_every_answer(cdf):
    guide = length_table.guide_table(cdf)
    cells = guide.size - 1
    uniforms = _interesting_uniforms(cdf)
    answers = np.searchsorted(cdf, uniforms, side="right")
    cell = np.floor(uniforms * cells).astype(int)

    assert cells & (cells - 1) == 0
    assert (guide[cell] <= answers).all()
    assert (answers <= guide[cell + 1]).all()


def test_the_guide_of_a_long_table_leaves_little_to_search():
    k = np.arange(1, 30_001)
    cdf = length_table.table_from_cdf_values(lognorm.cdf(k + 0.5, 0.8, scale=6000))
    widths = np.diff(length_table.guide_table(cdf))

    assert widths.mean() < 0.5


@given(rows=st.integers(1, 5000), more=st.lists(st.floats(0.0, _LAST_UNIFORM), min_size=1, max_size=20))
@example(rows=3, more=[_LAST_UNIFORM])
@example(rows=49, more=[1 / 49])
def test_a_row_is_picked_as_from_the_table_of_rows(rows, more):
    steps = np.arange(1, rows + 1) / rows
    uniforms = np.concatenate([_interesting_uniforms(steps), np.array(more)])
    picked = length_law.sample_rows(uniforms, rows)

    assert np.array_equal(picked, np.searchsorted(steps, uniforms, side="right"))
    assert np.abs(picked - np.floor(uniforms * rows)).max() <= 1


@given(counts=_COUNTS)
def test_a_table_of_counts_holds_the_nearest_floats_to_the_exact_fractions(counts):
    cdf = length_table.table_from_counts(counts)
    total = sum(counts)
    exact = [float(Fraction(sum(counts[: i + 1]), total)) for i in range(len(counts))]

    assert cdf.tolist() == exact
    assert cdf[-1] == 1.0


def test_a_continuous_law_is_clipped_into_its_ends_and_never_decreases():
    cdf = length_table.table_from_cdf_values([-0.1, 0.2, 0.2 - 1e-16, 0.7, 1.2, 0.99])

    assert cdf.tolist() == [0.0, 0.2, 0.2, 0.7, 1.0, 1.0]


@given(counts=_COUNTS, minimum=st.integers(1, 1000))
def test_moments_are_those_of_the_counts(counts, minimum):
    values = np.repeat(minimum + np.arange(len(counts)), counts)
    moments = length_table.law_moments(minimum, length_table.table_from_counts(counts))

    assert moments.mean == pytest.approx(values.mean(), rel=1e-12)
    assert moments.variance == pytest.approx(values.var(), rel=1e-9, abs=1e-9)
    assert moments.smallest == values.min()
    assert moments.largest == values.max()


@given(first=_COUNTS, second=_COUNTS, low=st.integers(1, 40), weight=st.floats(0.01, 100))
def test_a_mixture_is_the_weighted_sum_of_its_parts(first, second, low, weight):
    a, b = length_table.table_from_counts(first), length_table.table_from_counts(second)
    minimum, cdf = length_table.mix_tables([(weight, 20, a), (1.0, low, b)])

    for k in range(minimum, minimum + cdf.size):
        part_a = 0.0 if k < 20 else a[min(k - 20, a.size - 1)]
        part_b = 0.0 if k < low else b[min(k - low, b.size - 1)]
        assert cdf[k - minimum] == pytest.approx((weight * part_a + part_b) / (weight + 1.0), abs=1e-14)
    assert cdf[-1] == 1.0
    assert minimum == min(20, low)


def test_the_digest_is_that_of_the_bytes_named():
    cdf = np.array([0.5, 1.0])
    expected = hashlib.sha256((300).to_bytes(8, "little") + cdf.astype("<f8").tobytes()).hexdigest()

    assert length_table.table_digest(300, cdf) == expected
    assert length_table.table_digest(301, cdf) != expected


def test_building_tables_loads_no_numba():
    code = (
        "import sys, lagsweep.kernels.draws.length_table\n"
        "print([name for name in ('numba', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: make_length_table(0, [1.0]),
            "minimum: must be a whole number of at least 1 (got 0). A response has a token.",
        ),
        (
            lambda: make_length_table(True, [1.0]),
            "minimum: must be a whole number of at least 1 (got True)",
        ),
        (
            lambda: make_length_table(1, [0.5, 0.9]),
            "cdf: must grow from 0 or more to exactly 1 (got array(",
        ),
        (
            lambda: make_length_table(1, [0.5, 0.4, 1.0]),
            "cdf: must grow from 0 or more to exactly 1",
        ),
        (lambda: make_length_table(1, [-0.5, 1.0]), "cdf: must grow from 0 or more to exactly 1"),
        (
            lambda: make_length_table(1, [np.nan, 1.0]),
            "cdf: must grow from 0 or more to exactly 1",
        ),
        (
            lambda: make_length_table(1, []),
            "cdf: must be one row of 1 to 16777216 values (got (0,)).",
        ),
        (lambda: length_table.table_from_cdf_values([0.1, np.nan]), "cdf: must hold numbers only (got nan)."),
        (
            lambda: length_table.table_from_cdf_values([]),
            "cdf: must be one row of at least one value (got (0,)).",
        ),
        (
            lambda: length_table.table_from_counts([0, 0]),
            "counts: must be 0 or more, with a positive sum (got [0, 0])",
        ),
        (lambda: length_table.table_from_counts([2, -1]), "counts: must be 0 or more, with a positive sum"),
        (
            lambda: length_table.table_from_counts([0.5]),
            "counts: must be one row of whole numbers (got [0.5]).",
        ),
        (lambda: length_table.mix_tables([]), "parts: must have positive, finite weights (got [])."),
        (
            lambda: length_table.mix_tables([(0.0, 1, np.ones(1))]),
            "parts: must have positive, finite weights (got [0.0]).",
        ),
        (
            lambda: length_law.sample_lengths([1.0], make_length_table(1, [1.0])),
            "uniforms: must be in [0, 1) (got array([1.])).",
        ),
        (lambda: length_law.sample_rows([0.5], 0), "rows: must be a whole number of at least 1 (got 0)."),
    ],
)
def test_bad_tables_are_refused(call, text):
    with pytest.raises(ConfigError) as raised:
        call()

    assert str(raised.value).startswith(text)


def test_shapes_are_kept():
    table = make_length_table(4, [0.5, 1.0])

    assert length_law.sample_lengths([[0.1], [0.9]], table).tolist() == [[4], [5]]
    assert length_law.sample_lengths(0.75, table).shape == ()
    assert length_law.sample_lengths([], table).shape == (0,)
