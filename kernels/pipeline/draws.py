"""What a member of a group draws beside a length: rows of a trace, environment, prompt, the filter.

A draw depends on (seed, rollout number) or (seed, group number) alone, see :mod:`.draws.philox`:
``w0`` of a rollout gives its length (or its row of a trace), ``w2`` its environment, ``w3`` of a group's
first member the filter; ``w0`` of the group's own block (key word 2) is the normal of its prompt.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from ..draws.philox import normal_from_word, normal_quantile, rollout_words, uniform_from_word
from ..draws.sampler import member_row, pick_row, sample_length
from .places import place
from .records import ENVIRONMENT_LAW, ENVIRONMENT_PAIRED

_TWO_TO_MINUS_52 = 2.0**-52
_DRAW_BLOCK = 512


@jit(inline=True, counted=False)
def noise_bits(word):
    """Keep the bits of a uint64 word that make its normal, as int64."""
    return np.int64(word >> np.uint64(12))


@jit(inline=True, counted=False)
def uniform_from_bits(bits):
    """Return the uniform in (0, 1) of kept bits, as `middle_uniform` does of the whole word."""
    return (np.float64(bits) + 0.5) * _TWO_TO_MINUS_52


@jit(inline=True, counted=False)
def noise_from_bits(bits):
    """Return the standard normal of kept bits, as `normal_from_word` does of the whole word."""
    return normal_quantile(uniform_from_bits(bits))


@jit(inline=True, counted=False)
def shared_normal(draws, number, bits):
    """Return the standard normal of a rollout's kept bits: the seed's other configurations need it too."""
    if number >= draws.drawn[0]:
        return noise_from_bits(bits)
    normal = draws.normals[place(number)]
    if normal != normal:
        normal = noise_from_bits(bits)
        draws.normals[place(number)] = normal
    return normal


@jit(counted=False)
def _draw_ahead_kernel(parameters, seed, tables, draws, last):
    """Draw the seed's rollouts up to last - 1 that are not drawn yet: words and lengths."""
    words = draws.words
    for number in range(draws.drawn[0], last):
        w0, w1, w2, w3 = rollout_words(seed, np.uint64(0), number)
        words[0, number] = w0
        words[1, number] = w1
        words[2, number] = w2
        words[3, number] = w3
        draws.normals[number] = math.nan
        draws.tokens[number] = sample_length(
            uniform_from_word(w0), parameters.law_minimum, tables.cdf, tables.guide
        )
    draws.drawn[0] = last


@jit(inline=True, counted=False)
def draw_ahead(parameters, seed, number, tables, draws):
    """Say whether a rollout is among the shared draws, once they are drawn up to it."""
    size = draws.tokens.shape[0]
    if number >= size:
        return False
    if number >= draws.drawn[0]:
        _draw_ahead_kernel(parameters, seed, tables, draws, min(number + _DRAW_BLOCK, size))
    return True


@jit(inline=True, counted=False)
def segment_of(tables, version):
    """Return the segment of a law by version that holds at a published version."""
    segment = tables.segments.shape[0] - 1
    while tables.segments[segment].version > version:
        segment -= 1
    return segment


@jit(counted=False)
def _draw_of_segment_kernel(uniform, tables, segment):
    """Draw tokens and environment ticks under the law of a segment."""
    law = tables.segments[segment]
    first = law.rows_start
    if law.rows_end > first:
        row = first + pick_row(uniform, law.rows_end - first)
        return tables.segment_tokens[row], tables.segment_ticks[row]
    cdf = tables.segment_cdf[law.cdf_start : law.cdf_end]
    guide = tables.segment_guide[law.guide_start : law.guide_end]
    return sample_length(uniform, law.minimum, cdf, guide), np.int64(0)


@jit(counted=False)
def _draw_member_kernel(parameters, seed, number, tables, draws, groups, record, position, published):
    """Draw tokens, environment ticks and noise (int64) of a member; with the first, the group's own draws.

    published int64 is the version that the member starts with.
    """
    lowest = np.float64(parameters.law_minimum)
    highest = np.float64(parameters.law_maximum)
    if draw_ahead(parameters, seed, number, tables, draws):
        words = draws.words
        column = place(number)
        w0, w1, w2, w3 = words[0, column], words[1, column], words[2, column], words[3, column]
    else:
        w0, w1, w2, w3 = rollout_words(seed, np.uint64(0), number)
    uniform = uniform_from_word(w0)
    environment = np.int64(0)
    if parameters.segments > 0:
        segment = segment_of(tables, published)
        lowest = np.float64(tables.segments[segment].minimum)
        highest = np.float64(tables.segments[segment].maximum)
        tokens, environment = _draw_of_segment_kernel(uniform, tables, segment)
    elif parameters.trace_groups == 1:
        if position == 0:
            groups[record].first_row = pick_row(uniform, tables.trace_tokens.shape[0])
        row = member_row(
            groups[record].first_row, position, tables.trace_group_starts, tables.trace_group_of_row
        )
        tokens = tables.trace_tokens[row]
    elif parameters.environment == ENVIRONMENT_PAIRED:
        row = pick_row(uniform, tables.trace_tokens.shape[0])
        tokens = tables.trace_tokens[row]
        environment = tables.trace_ticks[row]
    else:
        tokens = sample_length(uniform, parameters.law_minimum, tables.cdf, tables.guide)
    if parameters.environment == ENVIRONMENT_LAW:
        drawn = sample_length(
            uniform_from_word(w2), np.int64(0), tables.environment_cdf, tables.environment_guide
        )
        environment = tables.environment_ticks[drawn]
    sigma = parameters.prompt_sigma
    if position == 0:
        if sigma > 0.0:
            v0, _v1, _v2, _v3 = rollout_words(seed, np.uint64(2), groups[record].number)
            groups[record].factor = math.exp(sigma * normal_from_word(v0) - sigma * sigma / 2)
        if parameters.filter > 0.0 and uniform_from_word(w3) < parameters.filter:
            groups[record].filtered = 1
    if sigma > 0.0:
        scaled = np.float64(math.floor(np.float64(tokens) * groups[record].factor + 0.5))
        tokens = np.int64(min(max(scaled, lowest), highest))
    return tokens, environment, noise_bits(w1)
