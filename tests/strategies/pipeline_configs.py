"""Plain settings of the core for the twin: `to_twin` turns what is drawn into its own form.

The table of a law is computed here, apart from the package.
"""

from __future__ import annotations

import functools
import itertools
import math

from scipy.special import ndtr

from lagsweep.sweeps.testing.core_settings import (
    DRIFTS,
    LAWS,
    build_law,
    pipeline_settings,
    to_config,
    with_measured_drift,
)

__all__ = [
    "DRIFTS",
    "LAWS",
    "build_law",
    "law_maximum",
    "law_mean",
    "law_table",
    "pipeline_settings",
    "to_config",
    "to_twin",
    "with_measured_drift",
]

# Laws ------------------------------------------------------------------------------------------------------


@functools.cache
def law_table(spec):
    """Return (minimum, cdf, cut) of a law given as a tuple."""
    kind, *numbers = spec
    if kind == "fixed":
        return numbers[0], [1.0], False
    if kind == "uniform":
        low, high = numbers
        count = high - low + 1
        return low, [(k + 1) / count for k in range(count)], False
    if kind == "table":
        minimum, counts = numbers
        total = sum(counts)
        return minimum, [part / total for part in itertools.accumulate(counts)], False
    median, sigma, minimum, maximum = numbers

    def below(x):
        return float(ndtr((math.log(x) - math.log(median)) / sigma))

    cdf = list(itertools.accumulate((below(k + 0.5) for k in range(minimum, maximum + 1)), max))
    cut = cdf[-1] < 1.0
    cdf[-1] = 1.0
    return minimum, cdf, cut


def law_maximum(spec):
    """Return the longest response of a law."""
    minimum, cdf, _ = law_table(spec)
    return minimum + len(cdf) - 1


@functools.cache
def law_mean(spec):
    """Return the mean response of a law."""
    minimum, cdf, _ = law_table(spec)
    return math.fsum((minimum + i) * (b - a) for i, (a, b) in enumerate(itertools.pairwise([0.0, *cdf])))


def to_twin(settings):
    """Return the settings as the twin takes them."""
    minimum, cdf, cut = law_table(settings["response_length"])
    return {**settings, "response_length": {"minimum": minimum, "cdf": cdf, "cut": cut}}
