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
_DRAW_BLOCK = 512  # rollouts that are drawn at a time, of those that are kept
DRAW_WINDOW = 256  # and of those after them: they stay in the processor's first cache
# Places in `drawn` of MemberDraws: how many are kept; of those that can be read now the first, how many they
# are, and how far their places lie behind their numbers.
KEPT, FIRST, COUNT, SHIFT = range(4)


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
    is_kept = number < draws.drawn[KEPT]
    normal = draws.normals[place(number)] if is_kept else math.nan
    if normal != normal:
        normal = noise_from_bits(bits)
        if is_kept:
            draws.normals[place(number)] = normal
    return normal


@jit(counted=False)
def _draw_ahead_kernel(law_minimum, seed, number, draws, cdf, guide):
    """Draw a fresh rollout and some after it, words and lengths, and make them those that can be read.

    A seed's first rollouts are kept for its other configurations; those after them stand in a window that
    moves on. Returns the rollout's place.
    """
    words = draws.words
    drawn = draws.drawn
    kept = draws.normals.shape[0]
    if number < kept:
        first = drawn[KEPT]
        last = max(first, min(number + _DRAW_BLOCK, kept))
        shift = np.int64(0)
        draws.normals[first:last] = math.nan
        drawn[KEPT] = last
        drawn[FIRST] = 0
        drawn[COUNT] = last
    else:
        first = number
        last = number + DRAW_WINDOW
        shift = kept - number
        drawn[FIRST] = number
        drawn[COUNT] = DRAW_WINDOW
    drawn[SHIFT] = shift
    for other in range(first, last):
        column = place(other + shift)
        w0, w1, w2, w3 = rollout_words(seed, np.uint64(0), other)
        words[0, column] = w1
        if words.shape[0] > 1:
            words[1, column] = w0
            words[2, column] = w2
            words[3, column] = w3
        draws.tokens[column] = sample_length(uniform_from_word(w0), law_minimum, cdf, guide)
    return number + shift


@jit(inline=True, counted=False)
def draw_place(parameters, seed, number, is_fresh, tables, draws):
    """Return a rollout's place among the draws, drawn now if it is fresh; -1 if it is not there."""
    drawn = draws.drawn
    offset = number - drawn[FIRST]
    if 0 <= offset < drawn[COUNT]:
        return number + drawn[SHIFT]
    if is_fresh:
        return _draw_ahead_kernel(parameters.law_minimum, seed, number, draws, tables.cdf, tables.guide)
    return number if number < drawn[KEPT] else np.int64(-1)


@jit(counted=False)
def draw_again(law_minimum, seed, number, cdf, guide):
    """Draw tokens and noise (int64) of a rollout that is not among the draws."""
    w0, w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
    return sample_length(uniform_from_word(w0), law_minimum, cdf, guide), noise_bits(w1)


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
def _draw_member_kernel(
    parameters, seed, number, is_fresh, tables, draws, groups, record, position, published
):
    """Draw tokens, environment ticks and noise (int64) of a member; with the first, the group's own draws.

    published int64 is the version that the member starts with.
    """
    lowest = np.float64(parameters.law_minimum)
    highest = np.float64(parameters.law_maximum)
    words = draws.words
    where = np.int64(-1)
    if words.shape[0] > 1:
        where = draw_place(parameters, seed, number, is_fresh, tables, draws)
    if where >= 0:
        column = place(where)
        w1, w0, w2, w3 = words[0, column], words[1, column], words[2, column], words[3, column]
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
