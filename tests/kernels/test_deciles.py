"""The decile of a length by the guide is the one that nine comparisons give."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lagsweep.kernels.pipeline.groups import decile_guide_of, decile_of

lengths = st.integers(1, 70_000)


@given(st.lists(lengths, min_size=9, max_size=9).map(sorted), st.lists(lengths, min_size=1, max_size=20))
@example([16] * 9, [1, 16, 17, 70_000])  # all at once, at the edge of a bucket
@example([15] * 4 + [16] * 5, [14, 15, 16, 17, 31, 32])
@example(list(range(1, 10)), list(range(1, 40)))  # all within one bucket
def test_every_length_is_in_the_decile_that_its_quantiles_say(quantiles, tokens):
    edges, guide = decile_guide_of(np.array(quantiles))

    for length in [*tokens, *quantiles, *(quantile + 1 for quantile in quantiles)]:
        assert decile_of(length, edges, guide) == sum(length > quantile for quantile in quantiles)
