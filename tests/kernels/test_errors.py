"""Errors carry what is wrong as data; their text is made from it, once."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from lagsweep.errors import CheckpointError, ConfigError, ContractError, Finding, LagsweepError, StoreError
from lagsweep.kernels.contract.contract import require_contract
from lagsweep.kernels.errors import NO_VALUE, Words

KINDS = (LagsweepError, ConfigError, ContractError, StoreError, CheckpointError)
ONE = Finding("batch_tokens", "must be at least 1", 0, "Give 1 or more.")
TWO = Finding("mode", "is required", NO_VALUE, "Give it a value.")


@pytest.mark.parametrize("kind", KINDS)
def test_four_parts_are_one_finding_and_its_sentence(kind):
    error = kind("batch_tokens", "must be at least 1", 0, "Give 1 or more.")

    assert error.findings == (ONE,)
    assert str(error) == "batch_tokens: must be at least 1 (got 0). Give 1 or more."
    assert error.args == (str(error),)


@pytest.mark.parametrize("kind", KINDS)
def test_several_findings_are_several_lines_and_what_is_found_twice_is_said_once(kind):
    error = kind(ONE, TWO, ONE)

    assert error.findings == (ONE, TWO)
    assert str(error) == f"{ONE}\nmode: is required. Give it a value."


def test_a_text_without_parts_is_a_finding_without_a_field():
    error = StoreError("the store is gone")

    assert str(error) == "the store is gone"
    assert error.findings == (Finding("", "the store is gone"),)


def test_an_error_about_nothing_has_no_findings():
    assert LagsweepError().findings == ()
    assert str(LagsweepError()) == ""


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding("a", "is required"), "a: is required"),
        (Finding("a", "must be b", None), "a: must be b (got None)."),
        (Finding("", "and 5 more cells"), "and 5 more cells"),
        (Finding("a", "must be b", Words("nothing at all"), "Go."), "a: must be b (got nothing at all). Go."),
        (Finding("a", "must be b", {}, "Go."), "a: must be b (got {}). Go."),
        (Finding("a", "must be b", "x" * 200, "Go."), f"a: must be b (got '{'x' * 116}...). Go."),
        (Finding("a", "must be b", 10**5000, "Go."), "a: must be b (got a int). Go."),
    ],
)
def test_a_finding_is_written_with_the_parts_that_it_has(finding, text):
    assert str(finding) == text


def test_a_place_goes_before_every_field_and_nothing_else_changes():
    error = ConfigError(ONE, Finding("", "and 5 more cells")).within("base.")

    assert type(error) is ConfigError
    assert error.findings[0] == ONE._replace(field="base.batch_tokens")
    assert str(error).splitlines()[1] == "base.and 5 more cells"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_findings_survive_pickling_and_copying(kind, again):
    error = kind(ONE, TWO)
    error.add_note("seen in a worker")

    same = again(error)

    assert type(same) is kind
    assert (str(same), same.args, same.findings) == (str(error), error.args, error.findings)
    assert same.findings[1].value is NO_VALUE
    assert same.__notes__ == ["seen in a worker"]


@pytest.mark.parametrize("value", [lambda: None, np.arange(10_000), (part for part in "ab"), "x" * 10_000])
def test_a_value_that_cannot_travel_or_is_long_goes_as_the_text_that_shows_it(value):
    error = ConfigError("a", "must be b", value, "Go.")

    same = pickle.loads(pickle.dumps(error))

    assert str(same) == str(error)
    assert str(same.findings[0]) == str(error)


def test_a_contract_error_has_a_finding_for_each_broken_rule():
    with pytest.raises(ContractError) as caught:
        require_contract({"sample_id": "a", "prompt_tokens": []})

    fields = [finding.field for finding in caught.value.findings]
    assert {"prompt_id", "prompt_tokens"} <= set(fields)
    assert str(caught.value) == "\n".join(str(finding) for finding in caught.value.findings)
    empty = next(finding for finding in caught.value.findings if finding.field == "prompt_tokens")
    assert empty.value == "[]"
