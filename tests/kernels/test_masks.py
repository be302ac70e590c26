"""Completion masks, mask algebra and masked means against stored cases, a slow twin and the numpy form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import mask_twin
from oracle.case_files import bug, cases

from lagsweep.errors import ConfigError
from lagsweep.kernels.masks.algebra import combined_mask, mask_from_lengths, shifted_mask, trained_tokens
from lagsweep.kernels.masks.completion import (
    completion_ended,
    completion_lengths,
    completion_token_mask,
    truncation_flags,
)
from lagsweep.kernels.masks.means import completion_statistics, masked_mean
from lagsweep.kernels.staleness.ragged import offsets_from_lengths
from lagsweep.testing import completions

NAN = float("nan")


# -- stored cases ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", cases("completion_mask.json", function="completion_token_mask"), ids=lambda c: c["id"]
)
def test_stored_case(case):
    tokens, eos = case["inputs"]["tokens"], case["inputs"]["eos_token_ids"]
    if "raises" in case["expected"]:
        with pytest.raises(ValueError, match="tokens: must be whole token ids"):
            completion_token_mask(tokens, eos)
        return

    assert completion_token_mask(tokens, eos).tolist() == case["expected"]["mask"]
    assert completion_lengths(tokens, eos).tolist() == case["expected"]["lengths"]


@pytest.mark.parametrize(
    "case", cases("completion_mask.json", function="is_truncated"), ids=lambda c: c["id"]
)
def test_stored_truncation_case(case):
    inputs = case["inputs"]

    found = truncation_flags(
        [inputs["completion_ids"]], inputs["eos_token_ids"], pad_token_id=inputs["pad_token_id"]
    )

    assert found.tolist() == [case["expected"]]


def test_every_declared_eos_ends_a_completion():
    case = bug("bug-mask-01")
    tokens, eos = case["input"]["completion_ids"], case["input"]["eos_ids"]

    assert completion_token_mask(tokens, eos).tolist() == case["expected"]["mask"]
    assert completion_ended(tokens, eos).tolist() == case["expected"]["terminated"]
    assert truncation_flags(tokens, eos).mean() == pytest.approx(case["expected"]["clipped_ratio"])
    assert completion_token_mask(tokens, [32000])[0].tolist() == [1, 1, 1, 1, 0]


def test_the_true_eos_stays_in_when_pad_is_eos():
    case = bug("bug-mask-02")

    completion = completion_token_mask([case["input"]["completion_ids"]], case["input"]["eos_ids"])

    assert completion[0].tolist() == case["expected"]["completion_mask"]
    assert trained_tokens(completion).tolist() == [case["expected"]["trained_tokens"]]
    prompt = combined_mask([case["input"]["prompt_mask"]])
    assert prompt[0].tolist() == case["expected"]["prompt_attended"]


def test_a_dropped_completion_leaves_both_sum_and_count():
    case = bug("bug-mask-03")
    lengths, cut = case["input"]["lengths"], np.array(case["input"]["truncated"])

    mask = combined_mask(mask_from_lengths(lengths, 15), keep=~cut)

    assert mask.sum() == case["expected"]["active_tokens"]
    assert masked_mean(np.ones((3, 15)), mask) == case["expected"]["masked_mean"]
    assert masked_mean(np.where(mask, 1.0, NAN), mask) == case["expected"]["masked_mean"]


def test_lengths_are_of_what_was_generated_and_counts_of_what_is_trained():
    case = bug("bug-mask-05")
    expected = case["expected"]

    found = completion_statistics(
        case["input"]["generated_lengths"], case["input"]["truncated"], exclude_truncated=True
    )

    assert (found.length_min, found.length_max) == (expected["length_min"], expected["length_max"])
    assert (found.length_mean, found.trained_tokens) == (expected["length_mean"], expected["trained_tokens"])
    assert (found.completions, found.trained_completions, found.truncated_fraction) == (2, 1, 0.5)


def test_the_effective_mask_is_what_all_masks_share():
    case = bug("bug-mask-06")

    found = combined_mask(case["input"]["completion_mask"], case["input"]["tool_mask"])

    assert found.tolist() == case["expected"]["effective_mask"]
    assert trained_tokens(found).sum() == case["expected"]["trained_tokens"]


def test_a_response_has_as_many_predictions_as_tokens():
    case = bug("bug-mask-07")

    found = shifted_mask(case["input"]["token_mask"])

    assert found.tolist() == case["expected"]["shifted_mask"]
    assert found.sum() == case["expected"]["trained_predictions"]


def test_the_notebooks_call_works():
    suffix_mask = completion_token_mask(np.array([[5, 6, 2, 0], [5, 6, 7, 8]]), [])

    assert suffix_mask.sum(axis=1).tolist() == [4, 4]
    assert np.concatenate((np.ones((2, 3), dtype=np.int64), suffix_mask), axis=1).sum() == 14


# -- properties --------------------------------------------------------------------------------------------


@given(completions())
def test_equals_the_twin(batch):
    tokens, eos = batch

    assert completion_token_mask(tokens, eos).tolist() == mask_twin.mask(tokens.tolist(), eos)
    assert completion_ended(tokens, eos).tolist() == mask_twin.ended(tokens.tolist(), eos)


@given(completions(), st.data())
def test_lengths_cut_rows_whatever_the_padding_is(batch, data):
    tokens, eos = batch
    rows, width = tokens.shape
    lengths = data.draw(st.lists(st.integers(0, width), min_size=rows, max_size=rows))
    expected = mask_twin.mask(tokens.tolist(), eos, lengths)

    assert completion_token_mask(tokens, eos, lengths=lengths).tolist() == expected
    assert completion_lengths(tokens, eos, lengths=lengths).tolist() == [sum(row) for row in expected]
    ended = completion_ended(tokens, eos, lengths=lengths)
    assert ended.tolist() == mask_twin.ended(tokens.tolist(), eos, lengths)
    padding = np.arange(width) >= np.array(lengths, dtype=int).reshape(-1, 1)
    other = np.where(padding, 7, tokens)
    assert completion_token_mask(other, eos, lengths=lengths).tolist() == expected


@given(completions(max_tokens=200))
def test_equals_the_numpy_form_across_blocks(batch):
    tokens, eos = batch

    np.testing.assert_array_equal(completion_token_mask(tokens, eos), mask_twin.numpy_form(tokens, eos))


@given(completions(), st.integers(1, 5))
def test_the_number_of_threads_changes_nothing(batch, threads):
    tokens, eos = batch

    many = completion_token_mask(tokens, eos, threads=threads)

    np.testing.assert_array_equal(many, completion_token_mask(tokens, eos, threads=1))


@given(completions())
def test_masking_twice_is_masking_once_and_rows_only_depend_on_themselves(batch):
    tokens, eos = batch
    lengths = completion_lengths(tokens, eos)

    np.testing.assert_array_equal(completion_lengths(tokens, eos, lengths=lengths), lengths)
    np.testing.assert_array_equal(
        completion_token_mask(tokens[::-1], eos), completion_token_mask(tokens, eos)[::-1]
    )
    np.testing.assert_array_equal(
        mask_from_lengths(lengths, tokens.shape[1]), completion_token_mask(tokens, eos)
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_every_integer_type_gives_the_same_mask(dtype):
    tokens = np.array([[5, 2, 6], [5, 6, 7]], dtype=dtype)

    assert completion_token_mask(tokens, [2, -1, 2**40]).tolist() == [[1, 1, 0], [1, 1, 1]]


def test_strided_and_deeper_batches_work():
    tokens = np.arange(24).reshape(2, 3, 4)

    found = completion_token_mask(tokens, [1, 21])

    assert found.shape == (2, 3, 4)
    assert completion_lengths(tokens, [1, 21]).tolist() == [[2, 4, 4], [4, 4, 2]]
    assert completion_token_mask(tokens[0].T, [5]).tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1]]


def test_large_batches_are_cut_for_threads_without_a_seam():
    tokens = np.random.default_rng(3).integers(0, 40, (20_011, 200), dtype=np.int32)

    np.testing.assert_array_equal(completion_token_mask(tokens, [3]), mask_twin.numpy_form(tokens, [3]))


@given(completions(), st.data())
def test_masked_means_equal_numpy(batch, data):
    tokens, eos = batch
    values = data.draw(hnp.arrays(np.float64, tokens.shape, elements=st.floats(-100, 100)))
    mask = completion_token_mask(tokens, eos)
    row_means = [row[m].mean() for row, m in zip(values, mask) if m.any()]

    pooled = masked_mean(values, mask)
    per_sequence = masked_mean(values, mask, aggregate="sequence")

    assert math.isnan(pooled) is (not mask.any())
    if mask.any():
        assert pooled == pytest.approx(values[mask].mean(), rel=1e-9, abs=1e-9)
        assert per_sequence == pytest.approx(np.mean(row_means), rel=1e-9, abs=1e-9)


def test_a_row_without_active_tokens_has_no_mean():
    found = masked_mean([[1.0, 3.0], [5.0, 5.0]], [[1, 1], [0, 0]], aggregate="row")

    np.testing.assert_array_equal(found, [2.0, NAN])


def test_counts_are_64_bit_for_narrow_masks():
    mask = np.ones((1, 300), dtype=np.int8)

    assert trained_tokens(mask).tolist() == [300]


def test_totals_of_32_bit_lengths_do_not_wrap():
    case = bug("bug-numba-07")
    lengths = np.array(case["input"]["values"], dtype=case["input"]["dtype"])

    assert completion_statistics(lengths, [False, False, False]).trained_tokens == case["expected"]["sum"]
    assert offsets_from_lengths(lengths)[-1] == case["expected"]["sum"]


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: completion_token_mask([5, 6, 2], [2]),
            "tokens: must have rows and tokens, two dimensions or more (got (3,)). Wrap one completion in a "
            "list.",
        ),
        (
            lambda: completion_token_mask([[5, 6], [7]], [2]),
            "tokens: must be rows of one width (got [[5, 6], [7]]). Give integer ids, padded to one width; "
            "an empty batch may be [].",
        ),
        (
            lambda: completion_token_mask([[True, False]], [2]),
            "tokens: must be whole token ids (got 'bool'). Give integer ids, padded to one width; an empty "
            "batch may be [].",
        ),
        (
            lambda: completion_token_mask([[5, 6]], [2], lengths=[3]),
            "lengths: must be at most 2 (got 3). Give the number of generated tokens of each row.",
        ),
        (
            lambda: completion_token_mask([[5, 6]], [2], lengths=[1, 1]),
            "lengths: must have the shape (1,) (got (2,)). Give the number of generated tokens of each row.",
        ),
        (
            lambda: completion_token_mask([[5, 6]], [2.5]),
            "eos_token_ids: must be a whole number (got 2.5). Give a whole number.",
        ),
        (
            lambda: completion_token_mask([[5, 6]], [2], threads=0),
            "threads: must be at least 1 (got 0). Give a whole number in that range.",
        ),
        (
            lambda: shifted_mask([1, 1]),
            "mask: must not mark the first token of a sequence, which nothing predicts (got True). Give the "
            "mask of prompt and response together.",
        ),
        (
            lambda: combined_mask(),
            "masks: must be at least one (got 0). Give masks of one shape, and one keep flag per row.",
        ),
        (
            lambda: combined_mask([[1, 0]], [[1, 0, 1]]),
            "masks: shapes must fit together (got [(1, 2), (1, 3)]). Give masks of one shape, and one keep "
            "flag per row.",
        ),
        (
            lambda: combined_mask([[1, 2]]),
            "masks[0]: must hold only True and False, or 1 and 0 (got [[1, 2]]). Give a mask.",
        ),
        (
            lambda: masked_mean([1.0], [1], aggregate="batch"),
            "aggregate: must be one of token, sequence, row (got 'batch'). Name what the mean runs over.",
        ),
        (
            lambda: masked_mean([[1.0, 2.0]], [[1, 0, 1]]),
            "mask: must fit the shape of values, (1, 2) (got (1, 3)). Give one flag per value.",
        ),
        (
            lambda: completion_statistics([4], [0], effective_mask=[[1] * 5]),
            "effective_mask: must have a row per completion and no more active tokens than were generated "
            "(got [5]). Build it from the same completions.",
        ),
        (
            lambda: completion_token_mask(np.array([[2**63]], dtype=np.uint64), [2]),
            "tokens: must be below 2**63 (got 9223372036854775808). Give integer ids, padded to one width; "
            "an empty batch may be [].",
        ),
    ],
)
def test_refusals(call, text):
    with pytest.raises(ConfigError) as refused:
        call()

    assert str(refused.value) == text
