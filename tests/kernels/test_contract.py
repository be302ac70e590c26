"""The rollout contract: stored cases, reports from the field, every rule once, and records of anything."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.case_files import ROLLOUTS, bug, cases, real_rollouts

from lagsweep.errors import ConfigError, ContractError
from lagsweep.kernels.contract.contract import (
    RolloutContract,
    batch_contract_errors,
    require_contract,
    rollout_contract_errors,
)
from lagsweep.kernels.contract.findings import RULES, ContractFinding
from lagsweep.kernels.contract.schemas import REQUIRED, SCHEMA_NAMES, detect_schema
from lagsweep.kernels.contract.token_rules import first_difference
from lagsweep.testing import arbitrary_records, damaged_records, good_record, json_values

NAN, INF = float("nan"), float("inf")


def without(*names):
    return {name: value for name, value in good_record().items() if name not in names}


def codes(record, **limits):
    return {f.code for f in rollout_contract_errors(record, warnings=True, **limits)}


def batch_codes(records, **limits):
    return {f.code for f in batch_contract_errors(records, **limits)}


# -- stored cases ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", cases("rollout_contract.json", function="rollout_contract_errors"), ids=lambda c: c["id"]
)
def test_stored_case(case):
    found = rollout_contract_errors(case["inputs"]["record"], **case.get("context", {}))

    assert sorted({f.field for f in found}) == case["expected"]["error_fields"]
    assert (found == []) is case["expected"]["valid"]


@pytest.mark.parametrize(
    "case", cases("rollout_contract.json", function="rollout_batch_errors"), ids=lambda c: c["id"]
)
def test_stored_batch_case(case):
    inputs = dict(case["inputs"])

    found = batch_contract_errors(inputs.pop("records"), **inputs)

    assert sorted({f.field for f in found}) == case["expected"]["error_fields"]


@pytest.mark.parametrize(
    ("case_id", "code"), [("contract-12", "logprobs_all_zero"), ("contract-32", "truncated_sampling")]
)
def test_valid_but_suspicious_records_warn(case_id, code):
    case = next(c for c in cases("rollout_contract.json") if c["id"] == case_id)

    assert codes(case["inputs"]["record"]) == {code}


def test_text_encoded_again_is_found_when_an_encoder_is_given():
    case = next(c for c in cases("rollout_contract.json") if c["id"] == "contract-41")
    text, canonical = case["inputs"]["text"], case["expected"]["canonical_tokens"]
    record = good_record(
        response_tokens=case["inputs"]["response_tokens"],
        behavior_logprobs=[-0.5, -0.5],
        response_text=text,
        stop_reason="length",
    )

    found = rollout_contract_errors(record, warnings=True, encode={text: canonical}.__getitem__)

    assert [f.code for f in found] == ["retokenization_drift"]
    assert codes({**record, "response_tokens": canonical}, encode={text: canonical}.__getitem__) == set()


def test_real_rollouts_are_good():
    records = real_rollouts()

    assert [rollout_contract_errors(r, warnings=True, eos_token_ids=2) for r in records] == [[]] * 32
    assert batch_contract_errors(records, eos_token_ids=[2], trainer_version=3, max_policy_lag=3) == []


# -- reports from the field --------------------------------------------------------------------------------


def _tokens(count):
    return list(range(5, 5 + count))


def _logprobs(count):
    return [-0.5] * count


def _sized(prompt, response, **changes):
    sizes = {
        "prompt_tokens": _tokens(prompt),
        "response_tokens": _tokens(response),
        "behavior_logprobs": _logprobs(response),
    }
    return good_record(**{**sizes, **changes})


def _turn_tokens():
    case = json.loads((ROLLOUTS / "retokenised_prefix.json").read_text())
    return case["seen_token_ids"], case["output_prompt_token_ids"], case["first_difference"]


def _catalogue():
    """Build a record (or batch) from each stored report, with the codes that it must and may not give."""
    report = {c["id"]: c["minimal_record"] for c in cases_of_catalogue()}
    seen, rebuilt, _ = _turn_tokens()
    turns = [
        {"prompt_tokens": seen[:8], "response_tokens": seen[8:]},
        {"prompt_tokens": rebuilt, "response_tokens": [2]},
    ]
    short, stale, over = (report[name] for name in ("loss-mask-short", "retry-stale-state", "over-seq-len"))
    budget, text = report["turn-budget-overrun"], report["text-without-logprobs"]
    pair, teacher = report["logprob-length"], report["teacher-logprob-length"]
    dead, group = report["empty-trajectory-with-error"], report["partial-group-after-cancel"]
    appended = report["eos-placeholder-logprob"]
    null = report["null-content-tool-call"]
    episode = [
        _sized(3, 3, sample_id=str(i), episode_id="e1")
        if turn["ok"]
        else good_record(sample_id=str(i), episode_id="e1", response_tokens=[], behavior_logprobs=[])
        for i, turn in enumerate(report["sibling-of-failed"]["episode"])
    ]
    return {
        "loss-mask-short": (
            _sized(short["prompt_len"], short["response_length"], loss_mask=[1] * short["loss_mask_n"]),
            {},
            {"mask_length"},
        ),
        "retry-stale-state": (
            _sized(
                stale["prompt_len"],
                stale["response_token_ids_n"],
                behavior_logprobs=_logprobs(stale["rollout_log_probs_n"]),
                loss_mask=[1] * stale["loss_mask_n"],
            ),
            {},
            {"logprob_length", "mask_length"},
        ),
        "turn-budget-overrun": (
            _sized(budget["prompt_len"], sum(budget["turn_tokens"])),
            {"max_context_tokens": budget["max_context"]},
            {"context_length"},
        ),
        "text-without-logprobs": (
            _sized(3, text["response_token_ids_n"], behavior_logprobs=_logprobs(text["rollout_log_probs_n"])),
            {},
            {"logprob_length"},
        ),
        "logprob-length": (
            _sized(3, pair["completion_ids_n"], behavior_logprobs=_logprobs(pair["completion_logprobs_n"])),
            {},
            {"logprob_length"},
        ),
        "over-seq-len": (
            _sized(1000, over["length"] - 1000),
            {"max_context_tokens": over["seq_len"]},
            {"context_length"},
        ),
        "teacher-logprob-length": (
            _sized(
                teacher["prompt_ids_n"],
                teacher["completion_ids_n"],
                teacher_logprobs=_logprobs(teacher["teacher_logprobs_n"]),
            ),
            {},
            {"teacher_length"},
        ),
        "empty-trajectory-with-error": (
            good_record(
                response_tokens=dead["trajectory"],
                behavior_logprobs=[],
                error=dead["error"],
                reward=dead["reward"],
            ),
            {},
            {"record_error", "response_empty", "reward_null"},
        ),
        "sibling-of-failed": (episode, {}, {"response_empty", "episode_incomplete"}),
        "null-content-tool-call": (
            good_record(messages=[{**null, "tool_calls": [{"name": "search"}] * null["tool_calls"]}]),
            {},
            set(),
        ),
        "eos-placeholder-logprob": (
            _sized(
                3,
                appended["response_ids_n"],
                behavior_logprobs=_logprobs(7) + appended["logprobs_tail"],
                loss_mask=[1] * 7 + appended["loss_mask_tail"],
            ),
            {},
            {"last_logprob_zero"},
        ),
        "retokenised-prefix": (good_record(turns=turns), {}, {"turn_prefix"}),
        "partial-group-after-cancel": (
            [good_record(sample_id=str(i)) for i in range(group["rows_after_recreate"])],
            {"group_size": group["num_generations"]},
            {"group_size"},
        ),
    }


def cases_of_catalogue():
    return json.loads((ROLLOUTS / "malformed_catalogue.json").read_text())["cases"]


@pytest.mark.parametrize("case_id", [c["id"] for c in cases_of_catalogue()])
def test_report_of_the_catalogue(case_id):
    subject, limits, expected = _catalogue()[case_id]

    found = batch_codes(subject, **limits) if isinstance(subject, list) else codes(subject, **limits)

    assert found == expected


def test_a_failure_is_reported_before_its_emptiness():
    record, _, _ = _catalogue()["empty-trajectory-with-error"]

    assert rollout_contract_errors(record)[0].code == "record_error"


def test_a_rebuilt_prompt_is_caught_at_its_first_wrong_token():
    seen, rebuilt, at = _turn_tokens()
    record, _, _ = _catalogue()["retokenised-prefix"]

    assert first_difference(seen, rebuilt) == at
    found = rollout_contract_errors(record)
    assert [f.path for f in found] == ["turns[1].prompt_tokens"]
    assert f"token {at} should be {seen[at]} (got {rebuilt[at]})" in found[0]


def test_fewer_logprobs_than_tokens_is_an_error_with_both_lengths_in_the_systems_words():
    record = json.loads(bug("bug-mask-09")["input"]["jsonl"][0])

    found = rollout_contract_errors(record, schema="minimal")

    assert [f.path for f in found] == ["completion_logprobs"]
    assert found[0] == (
        "completion_logprobs: must have one value per response token, 5 (got 4 values). Keep the sampler's "
        "ids and values together; never pad, cut or re-tokenise."
    )


def test_an_appended_eos_is_a_warning_unless_it_is_masked():
    case = bug("bug-mask-10")
    records = [json.loads(line) for line in case["input"]["jsonl"]]

    warned = [r["rollout_id"] for r in records if codes(r, schema="minimal") == {"last_logprob_zero"}]

    assert warned == case["expected"]["warnings_for"]
    assert [rollout_contract_errors(r, schema="minimal") for r in records] == [[], []]


def test_logprobs_of_another_temperature_are_flagged_in_a_record_and_in_a_batch():
    temperature = bug("bug-mask-12")["input"]["temperature"]
    hot = good_record(sample_id="a", decoding={"temperature": temperature})
    raw = good_record(sample_id="b", decoding={"temperature": temperature, "logprobs_temperature": 1.0})

    assert codes(hot) == set()
    assert codes(raw) == {"logprob_temperature"}
    assert "mixed_temperature" in batch_codes([hot, raw])
    assert "mixed_temperature" not in batch_codes([hot, good_record(**{**hot, "sample_id": "c"})])


@pytest.mark.parametrize("limit", [0, 2])
def test_the_lag_limit_keeps_exactly_what_is_not_beyond_it(limit):
    case = bug("bug-stale-01")
    contract = RolloutContract(trainer_version=case["input"]["trainer_version"], max_policy_lag=limit)

    kept = [contract.errors(good_record(policy_version=v)) == [] for v in case["input"]["behaviour_versions"]]

    assert kept == case["expected"][f"max_lag={limit}"]


def test_a_record_that_spans_versions_goes_by_its_oldest_token():
    case = bug("bug-stale-06")["input"]
    versions = case["token_versions"]
    limits = {"trainer_version": case["trainer_version"], "max_policy_lag": case["max_lag"]}
    record = _sized(3, 4, token_versions=versions, policy_version=versions[0])

    assert codes(record) == set()
    assert codes(record, **limits) == {"lag_over_limit"}
    # Stamped with the newest version, the record must not slip through.
    late = {**record, "policy_version": versions[-1]}
    assert codes(late, **limits) == {"version_not_oldest", "lag_over_limit"}


def test_a_tool_mask_that_outlives_its_row_is_a_warning():
    case = bug("bug-mask-06")["input"]
    record = _sized(3, 4, loss_mask=case["completion_mask"][1], tool_mask=case["tool_mask"][1])

    assert codes(record) == {"tool_mask_outside", "nothing_trained"}


# -- every rule once ---------------------------------------------------------------------------------------

BROKEN = {
    "record_type": [1, 2],
    "record_error": good_record(error="AgentError"),
    "missing_field": without("decoding"),
    "id_type": good_record(sample_id="  "),
    "version_type": good_record(policy_version=17.0),
    "version_unpublished": (good_record(), {"published_version": 16}),
    "lag_over_limit": (good_record(), {"trainer_version": 20, "max_policy_lag": 2}),
    "tokens_type": good_record(response_tokens="31 15 2"),
    "token_id": good_record(prompt_tokens=[11, True]),
    "token_range": good_record(response_tokens=[31, -100, 2]),
    "prompt_empty": good_record(prompt_tokens=[]),
    "response_empty": good_record(response_tokens=[], behavior_logprobs=[]),
    "context_length": (good_record(), {"max_context_tokens": 5}),
    "logprobs_type": good_record(behavior_logprobs={"0": -0.5}),
    "logprob_length": good_record(behavior_logprobs=[-0.5]),
    "logprob_null": good_record(behavior_logprobs=[-0.5, None, -0.5]),
    "logprob_number": good_record(behavior_logprobs=[-0.5, "-0.5", -0.5]),
    "logprob_finite": good_record(behavior_logprobs=[-0.5, -INF, -0.5]),
    "logprob_positive": good_record(behavior_logprobs=[-0.5, 0.5, -0.5]),
    "logprob_marker": good_record(behavior_logprobs=[-0.5, -9999, -0.5]),
    "mask_type": good_record(loss_mask=[1, 0.5, 1]),
    "mask_length": good_record(loss_mask=[1, 1]),
    "token_versions": good_record(token_versions=[17, 17]),
    "teacher_length": good_record(teacher_logprobs=[-0.5] * 3),
    "decoding_type": good_record(decoding=0.8),
    "temperature": good_record(decoding={"temperature": 0.0}),
    "top_p": good_record(decoding={"temperature": 1.0, "top_p": 1.5}),
    "top_k": good_record(decoding={"temperature": 1.0, "top_k": -2}),
    "min_p": good_record(decoding={"temperature": 1.0, "min_p": NAN}),
    "reward_null": good_record(reward={"correctness": None}),
    "reward_type": good_record(reward=True),
    "reward_empty": good_record(reward={}),
    "reward_finite": good_record(reward=NAN),
    "stop_type": good_record(stop_reason=3),
    "stop_unknown": good_record(stop_reason="lenght"),
    "stop_untrainable": good_record(stop_reason="aborted"),
    "stop_mismatch": (good_record(), {"eos_token_ids": [7]}),
    "message_content": good_record(messages=[{"role": "assistant", "content": None}]),
    "turns_type": good_record(turns=[{"prompt_tokens": [1]}]),
    "turn_prefix": good_record(
        turns=[
            {"prompt_tokens": [1, 2], "response_tokens": [3]},
            {"prompt_tokens": [1, 2], "response_tokens": [3]},
        ]
    ),
    "duplicate_sample_id": [good_record(), good_record()],
    "group_size": ([good_record()], {"group_size": 2}),
    "episode_incomplete": [
        good_record(sample_id="a", episode_id=1),
        good_record(sample_id="b", episode_id=1, reward=None),
    ],
    "logprobs_all_zero": good_record(behavior_logprobs=[0.0, 0.0, 0.0]),
    "last_logprob_zero": good_record(behavior_logprobs=[-0.5, -0.5, 0.0]),
    "truncated_sampling": good_record(decoding={"temperature": 1.0, "top_k": 50}),
    "logprob_temperature": good_record(decoding={"temperature": 0.6, "logprobs_temperature": 1.0}),
    "tokens_after_eos": (good_record(response_tokens=[2, 15, 2]), {"eos_token_ids": [2]}),
    "length_but_eos": (good_record(stop_reason="length"), {"eos_token_ids": [2]}),
    "tool_mask_outside": good_record(loss_mask=[1, 0, 1], tool_mask=[1, 1, 1]),
    "nothing_trained": good_record(loss_mask=[0, 0, 0]),
    "version_not_oldest": good_record(token_versions=[16, 17, 17]),
    "versions_decrease": good_record(token_versions=[18, 17, 18]),
    "retokenization_drift": (good_record(response_text="x"), {"encode": lambda text: [1]}),
    "group_of_one": [good_record(sample_id="a"), good_record(sample_id="b", prompt_id="p004")],
    "mixed_temperature": [
        good_record(sample_id="a"),
        good_record(sample_id="b", decoding={"temperature": 1.0}),
    ],
    "mixed_verifier": [good_record(sample_id="a"), good_record(sample_id="b", verifier_version="v5")],
}
BATCH_CODES = {"duplicate_sample_id", "group_size", "episode_incomplete", "group_of_one"}
BATCH_CODES |= {"mixed_temperature", "mixed_verifier"}


def test_every_rule_has_a_record_that_breaks_it():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("code", BROKEN)
def test_each_rule_reports_its_code_with_its_severity(code):
    subject, limits = BROKEN[code] if isinstance(BROKEN[code], tuple) else (BROKEN[code], {})
    check = batch_contract_errors if code in BATCH_CODES else rollout_contract_errors

    found = [f for f in check(subject, warnings=True, **limits) if f.code == code]
    only_errors = [f for f in check(subject, warnings=False, **limits) if f.code == code]

    assert len(found) == 1
    assert found[0].severity == RULES[code][0]
    assert only_errors == (found if RULES[code][0] == "error" else [])
    assert found[0].startswith(f"{found[0].path}: ")
    assert "(got " in found[0]
    assert found[0].endswith((".", "?"))


@pytest.mark.parametrize("name", REQUIRED)
def test_each_required_field_is_missed_by_name(name):
    found = rollout_contract_errors(without(name))

    assert [(f.code, f.path) for f in found] == [("missing_field", name)]
    assert found[0] == f"{name}: is required (got nothing). Record it where the rollout is made."


def test_a_misspelt_field_is_pointed_out():
    record = without("behavior_logprobs")
    record["behaviour_logprobs"] = [-0.5, -0.5, -0.5]

    assert rollout_contract_errors(record) == [
        "behavior_logprobs: is required (got nothing). Did you mean 'behaviour_logprobs'?"
    ]


def test_a_record_in_another_systems_words_is_told_which_schema_has_them():
    record = json.loads(bug("bug-mask-09")["input"]["jsonl"][0])
    ways_out = {f.path: f.split("(got nothing). ")[1] for f in rollout_contract_errors(record)}

    assert ways_out["behavior_logprobs"] == (
        "It is 'completion_logprobs' in schema 'minimal'; check with that schema."
    )
    assert ways_out["response_tokens"] == (
        "It is 'completion_token_ids' in schema 'minimal'; check with that schema."
    )
    # Neither another schema's field nor an optional one of ours is a misspelling of what is missing.
    assert ways_out["prompt_tokens"] == ways_out["prompt_id"] == "Record it where the rollout is made."
    assert rollout_contract_errors({**without("prompt_id"), "group_id": "g", "index": 0}) == [
        "prompt_id: is required (got nothing). Record it where the rollout is made."
    ]


def test_ids_kept_as_floats_are_no_integers_even_without_a_fraction():
    case = next(c for c in cases("rollout_contract.json") if c["id"] == "contract-28")
    (found,) = rollout_contract_errors(case["inputs"]["record"])

    assert found == (
        "response_tokens[0]: must be an integer, as 3 values are not (got 314.0). Keep the sampled ids."
    )


def test_the_hint_at_a_schema_also_leads_back_to_ours():
    (found,) = rollout_contract_errors({**without(), "prompt_ids": [1], "completion_ids": [2]}, schema="trl")

    assert found == (
        "sampling_per_token_logps: is required (got nothing). "
        "It is 'behavior_logprobs' in schema 'lagsweep'; check with that schema."
    )


def test_all_violations_are_reported_not_only_the_first():
    record = good_record(
        policy_version=-1,
        behavior_logprobs=[NAN, None, 0.5, NAN],
        reward={"a": INF, "b": "1"},
        stop_reason="?",
    )

    found = rollout_contract_errors(record)

    assert [(f.code, f.path, f.occurrences) for f in found] == [
        ("version_type", "policy_version", 1),
        ("logprob_length", "behavior_logprobs", 1),
        ("logprob_null", "behavior_logprobs[1]", 1),
        ("logprob_finite", "behavior_logprobs[0]", 2),
        ("logprob_positive", "behavior_logprobs[2]", 1),
        ("reward_finite", "reward.a", 1),
        ("reward_type", "reward.b", 1),
        ("stop_unknown", "stop_reason", 1),
    ]
    assert found[3] == (
        "behavior_logprobs[0]: must be finite, as 2 values are not (got nan). A sampled token has a "
        "probability above 0; ask the engine."
    )


def test_the_notebooks_call_works():
    broken = without("behavior_logprobs")
    broken["policy_version"] = -1

    assert rollout_contract_errors(good_record()) == []
    assert {f.field for f in rollout_contract_errors(broken)} == {"behavior_logprobs", "policy_version"}


@pytest.mark.parametrize("value", [1e-7, 0.0, -0.0, 1e-6])
def test_rounding_above_zero_passes(value):
    assert rollout_contract_errors(good_record(behavior_logprobs=[-0.5, value, -0.5])) == []


def test_all_eos_ids_count_for_a_stop():
    assert codes(good_record(), eos_token_ids=[7, 2]) == set()
    assert codes(good_record(stop_reason="stop"), eos_token_ids=[7]) == set()


# -- findings as objects -----------------------------------------------------------------------------------


def test_a_finding_is_a_string_that_survives_copy_and_pickle():
    (found,) = rollout_contract_errors(good_record(reward=NAN))

    for again in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert (
            again
            == found
            == "reward: must be finite (got nan). One NaN makes a whole batch NaN; drop the rollout."
        )
        assert isinstance(again, ContractFinding)
        assert (again.code, again.path, again.severity) == ("reward_finite", "reward", "error")
    assert json.loads(json.dumps(found.as_dict()))["message"] == found
    assert found.field == "reward"


def test_the_door_of_a_queue_raises_with_every_error():
    require_contract(good_record())
    with pytest.raises(ContractError) as refused:
        require_contract(good_record(reward=None, stop_reason="aborted"))

    assert str(refused.value).count("\n") == 1
    assert "reward: " in str(refused.value)


# -- batches -----------------------------------------------------------------------------------------------


def test_batch_findings_name_both_places():
    records = [good_record(sample_id=i) for i in ("a", "b", "a", "a")]

    found = [f for f in batch_contract_errors(records) if f.code == "duplicate_sample_id"]

    assert [f.path for f in found] == ["records[2].sample_id", "records[3].sample_id"]
    assert found[0] == (
        "records[2].sample_id: must occur once in a batch, and records[0] has it already (got the same id "
        "again). Number the rollouts of a prompt apart."
    )


def test_a_text_and_a_number_are_two_ids():
    assert batch_codes([good_record(sample_id="1"), good_record(sample_id=1)]) == set()


def test_groups_go_by_group_id_where_there_is_one():
    records = [good_record(sample_id=str(i), prompt_id=str(i), group_id="g") for i in range(4)]

    assert batch_codes(records, group_size=4) == set()
    assert [f.path for f in batch_contract_errors(records, group_size=8)] == ["records[0].group_id"]


def test_groups_of_one_are_one_warning_with_their_number():
    records = [good_record(sample_id=str(i), prompt_id=str(i)) for i in range(5)]

    (found,) = batch_contract_errors(records)

    assert (found.code, found.occurrences, found.path) == ("group_of_one", 5, "records[0].prompt_id")
    assert batch_contract_errors(records, warnings=False) == []


def test_a_batch_that_is_no_list_is_reported():
    assert [f.code for f in batch_contract_errors({"sample_id": "a"})] == ["record_type"]
    assert [f.code for f in batch_contract_errors(3)] == ["record_type"]
    assert batch_contract_errors([]) == []


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4))
def test_duplicates_and_group_sizes_equal_a_plain_count(ids, size):
    records = [good_record(sample_id=i, prompt_id=i) for i in ids]

    found = batch_contract_errors(records, group_size=size)

    assert sum(f.code == "duplicate_sample_id" for f in found) == len(ids) - len(set(ids))
    wrong = {i for i in ids if ids.count(i) != size}
    assert sum(f.code == "group_size" for f in found) == len(wrong)


# -- other systems' names ----------------------------------------------------------------------------------

FOREIGN = {
    "minimal": {
        "rollout_id": "r1",
        "completion_token_ids": [5, 6, 2],
        "completion_logprobs": [-0.5, -0.5, -0.5],
        "completion_mask": [1, 1, 1],
        "policy_version": 3,
    },
    "verl": {
        "uid": "p1",
        "prompt_ids": [5],
        "response_ids": [6, 2],
        "response_mask": [1, 1],
        "response_logprobs": [-0.5, -0.5],
        "reward_score": 1.0,
        "extra_fields": {"min_global_steps": 3, "max_global_steps": 4},
    },
    "trl": {
        "prompt_ids": [5],
        "completion_ids": [6, 2],
        "sampling_per_token_logps": [-0.5, -0.5],
        "model_version": 3,
    },
    "areal": {
        "input_tokens": [5],
        "output_tokens": [6, 2],
        "output_logprobs": [-0.5, -0.5],
        "output_versions": [3, 4],
        "stop_reason": "stop",
    },
    "slime": {
        "index": 0,
        "group_index": 0,
        "tokens": [5, 6, 2],
        "response_length": 2,
        "loss_mask": None,
        "rollout_log_probs": [-0.5, -0.5],
        "weight_versions": ["3", "4"],
        "reward": 1.0,
        "status": "completed",
    },
}


# Systems whose records carry no version.
UNVERSIONED = {
    "openrlhf": {
        "sequences": [5, 6, 2],
        "action_mask": [1, 1],
        "rollout_log_probs": [-0.5, -0.5],
        "rewards": 1.0,
    },
    "nemo_rl": {
        "token_ids": [5, 6, 2, 0],
        "input_lengths": 3,
        "token_loss_mask": [0, 1, 1, 0],
        "generation_logprobs": [0.0, -0.5, -0.5, 0.0],
        "rewards": 1.0,
    },
    "prime_rl": {
        "token_ids": [5, 6, 7, 2],
        "mask": [False, True, False, True],
        "logprobs": [0.0, -0.5, 0.0, -0.5],
        "temperatures": [1.0, 1.0, 1.0, 1.0],
    },
    "skyrl": {
        "prompt_token_ids": [5],
        "response_ids": [6, 2],
        "loss_masks": [1, 1],
        "rollout_logprobs": [-0.5, -0.5],
        "rewards": [0.0, 1.0],
        "stop_reasons": "stop",
    },
}


@pytest.mark.parametrize("schema", UNVERSIONED)
def test_a_good_record_of_a_system_without_versions_is_good_at_any_lag_limit(schema):
    assert codes(UNVERSIONED[schema], schema=schema, trainer_version=6, max_policy_lag=0) == set()


@pytest.mark.parametrize(
    ("schema", "changes", "path"),
    [
        ("openrlhf", {"rollout_log_probs": [-0.5]}, "rollout_log_probs"),
        ("openrlhf", {"action_mask": [1, 1, 1, 1]}, "sequences"),
        ("nemo_rl", {"generation_logprobs": [0.0, -0.5]}, "generation_logprobs"),
        ("nemo_rl", {"generation_logprobs": [0.0, 0.5, -0.5, 0.0]}, "generation_logprobs[0]"),
        ("prime_rl", {"mask": [True]}, "token_ids"),
        ("prime_rl", {"token_ids": [5, -6, 7, 2]}, "token_ids[0]"),
        ("skyrl", {"loss_masks": [1]}, "loss_masks"),
        ("skyrl", {"rewards": [None, 1.0]}, "rewards"),
    ],
)
def test_joint_lists_are_split_and_what_is_wrong_in_them_is_named(schema, changes, path):
    found = rollout_contract_errors({**UNVERSIONED[schema], **changes}, schema=schema)

    assert path in {f.path for f in found}


@pytest.mark.parametrize("schema", [*FOREIGN, *UNVERSIONED])
def test_a_systems_record_is_told_by_its_names(schema):
    assert detect_schema((FOREIGN | UNVERSIONED)[schema]) == schema


def test_a_record_whose_names_are_nobodys_is_not_guessed_at():
    with pytest.raises(ConfigError, match=r"shape: must have the field names of one .*those of none"):
        detect_schema({"id": 1, "text": "x"})


def test_a_map_of_columns_requires_what_it_maps_and_names_it():
    columns = {"sample_id": "id", "policy_version": "meta.step", "loss_mask": "mask"}
    contract = RolloutContract(schema=columns, published_version=5)

    assert contract.errors({"id": "a", "meta": {"step": 3}}) == []
    assert [f.path for f in contract.errors({"id": "a", "meta": {"step": 7}})] == ["meta.step"]
    assert [f.path for f in contract.errors({"id": "", "meta": 1})] == ["id", "meta.step"]
    with pytest.raises(ConfigError, match="columns: must be one of sample_id"):
        RolloutContract(schema={"sampleid": "id"})
    with pytest.raises(ConfigError, match=r"columns\.sample_id: must be the name of a field"):
        RolloutContract(schema={"sample_id": 3})


@pytest.mark.parametrize("schema", FOREIGN)
def test_a_good_record_of_another_system_is_good_and_its_lag_is_that_of_its_oldest_part(schema):
    limits = {"schema": schema, "trainer_version": 6}

    assert set(FOREIGN) == set(SCHEMA_NAMES) - {"lagsweep", *UNVERSIONED}
    assert codes(FOREIGN[schema], max_policy_lag=3, **limits) == set()
    assert codes(FOREIGN[schema], max_policy_lag=2, **limits) == {"lag_over_limit"}


@pytest.mark.parametrize(
    ("schema", "changes", "path"),
    [
        ("verl", {"response_logprobs": [-0.5]}, "response_logprobs"),
        ("trl", {"completion_ids": []}, "completion_ids"),
        ("areal", {"output_versions": [3]}, "output_versions"),
        ("slime", {"status": "aborted"}, "status"),
        ("slime", {"response_length": 55}, "tokens"),
        ("slime", {"weight_versions": ["default"]}, "weight_versions"),
    ],
)
def test_findings_use_the_systems_own_names(schema, changes, path):
    found = rollout_contract_errors({**FOREIGN[schema], **changes}, schema=schema)

    assert path in {f.path for f in found}


def test_a_verl_record_without_a_version_misses_it_by_its_full_path():
    record = {**FOREIGN["verl"], "extra_fields": {}}

    assert [f.path for f in rollout_contract_errors(record, schema="verl")] == [
        "extra_fields.min_global_steps"
    ]


# -- values of other kinds ---------------------------------------------------------------------------------


def test_numpy_values_count_as_what_they_are():
    record = good_record(
        policy_version=np.int64(17),
        prompt_tokens=np.array([11, 42]),
        response_tokens=np.array([31, 15, 2], dtype=np.int32),
        behavior_logprobs=np.array([-0.5, -1.25, -0.25], dtype=np.float32),
        decoding={"temperature": np.float32(0.8), "top_p": np.float64(1.0)},
        reward=np.float64(1.0),
        loss_mask=np.array([True, True, True]),
        token_versions=[np.int64(17)] * 3,
    )

    assert codes(record, trainer_version=18, max_policy_lag=1, eos_token_ids=np.array([2])) == set()
    assert codes({**record, "behavior_logprobs": np.array([-0.5, NAN, -0.5])}) == {"logprob_finite"}
    assert "tokens_type" in codes({**record, "response_tokens": np.ones((3, 1), dtype=int)})


@given(json_values() | arbitrary_records() | damaged_records())
def test_anything_is_reported_and_nothing_raises(record):
    found = rollout_contract_errors(
        record,
        warnings=True,
        eos_token_ids=[2],
        vocabulary_size=1000,
        max_context_tokens=6,
        published_version=20,
        trainer_version=21,
        max_policy_lag=3,
        encode=lambda text: [1],
    )

    assert all(isinstance(f, ContractFinding) and f.code in RULES for f in found)
    assert all(len(f) < 400 for f in found)
    json.dumps([f.as_dict() for f in found])


@given(st.lists(damaged_records() | json_values(), max_size=5), st.sampled_from(SCHEMA_NAMES))
def test_batches_of_anything_are_reported_in_every_schema(records, schema):
    found = batch_contract_errors(records, schema=schema, group_size=2, trainer_version=20, max_policy_lag=3)

    assert all(f.path.startswith("records[") for f in found)


def test_the_strategy_of_damaged_records_reaches_good_ones_and_many_rules():
    good, reached = [], set()

    @settings(max_examples=200, database=None, derandomize=True)
    @given(damaged_records())
    def collect(record):
        found = codes(record, vocabulary_size=100)
        good.append(not any(RULES[code][0] == "error" for code in found))
        reached.update(found)

    collect()

    assert sum(good) >= 10
    assert len(reached) >= 18


@given(damaged_records())
def test_a_record_without_errors_really_has_what_a_trainer_reads(record):
    if rollout_contract_errors(record):
        return

    assert len(record["behavior_logprobs"]) == len(record["response_tokens"]) > 0
    assert all(math.isfinite(lp) and lp <= 1e-6 for lp in record["behavior_logprobs"])
    assert all(type(t) is int and t >= 0 for t in record["prompt_tokens"] + record["response_tokens"])
    assert record["decoding"]["temperature"] > 0
    reward = record["reward"]
    assert all(math.isfinite(r) for r in (reward.values() if isinstance(reward, dict) else [reward]))


@given(damaged_records())
def test_the_record_is_left_as_it_was(record):
    before = copy.deepcopy(record)

    rollout_contract_errors(record, warnings=True)

    assert repr(record) == repr(before)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (
            {"max_policy_lag": 2},
            "max_policy_lag: needs a version to count from (got 2). Give trainer_version or "
            "published_version.",
        ),
        (
            {"trainer_version": -1},
            "trainer_version: must be at least 0 (got -1). Give a whole number in that range.",
        ),
        (
            {"schema": "verll"},
            "schema: must be one of lagsweep, minimal, verl, trl, areal, slime, openrlhf, nemo_rl, prime_rl, "
            "skyrl (got 'verll'). Did you mean 'verl'?",
        ),
    ],
)
def test_bad_limits_are_the_callers_error(limits, text):
    with pytest.raises(ConfigError) as refused:
        rollout_contract_errors(good_record(), **limits)

    assert str(refused.value) == text


def test_a_mask_of_another_length_than_the_log_probabilities_raises_nothing_where_no_response_is_known():
    record = good_record(response_tokens=None, loss_mask=[1, 1])

    assert [error.code for error in rollout_contract_errors(record)] == ["tokens_type"]
