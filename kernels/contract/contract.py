"""The rollout contract: what a record must hold before it enters an optimizer batch.

A rollout's record crosses from the sampler to the trainer, and what is wrong with it there trains silently:
log-probabilities shorter than the tokens get padded with 0 (probability 1), a NaN reward makes a batch NaN
while the loss logs 0, a version stamped late hides its lag. :func:`rollout_contract_errors` reports
*every* violation, each as a sentence that also carries a code, a path and a severity.

A record has ``sample_id``, ``prompt_id``, ``policy_version`` (the version that sampled it; of several, the
oldest), ``prompt_tokens``, ``response_tokens``, ``behavior_logprobs``, ``decoding`` (with ``temperature``),
``reward`` (a number, or a mapping of numbers), ``stop_reason`` and ``verifier_version``. It may have
``loss_mask``, ``tool_mask``, ``token_versions``, ``teacher_logprobs``, ``group_id``, ``episode_id``,
``error``, ``messages``, ``turns``, ``response_text``, ``logprobs_mode``; anything else is left alone. Other
systems' names: ``schema``.

Conventions chosen where systems differ: log-probabilities up to 1e-6 pass (float32 rounding); a temperature
of 0 is refused (its log-probabilities are not the sampler's); a scalar reward is fine, null never is;
"aborted" is known but cannot be trained on, and a stop reason that is not known is refused; versions and
token ids are integers, not texts or floats; an empty prompt, response or reward mapping is refused.
Log-probabilities that are all 0, and truncated sampling without a record of its mode, are valid and give a
warning. Whether "eos" is true can only be said when ``eos_token_ids`` are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from .._arguments import flag, one_whole, whole_numbers
from ..errors import ConfigError, ContractError
from .batch import BatchCheck
from .findings import ContractFinding, make_finding
from .record import ContractLimits, RecordCheck
from .rules import checked
from .schemas import schema_named


class Limits(TypedDict, total=False):
    """The keyword arguments of :class:`RolloutContract`."""

    schema: str | Mapping[str, str]
    eos_token_ids: ArrayLike | None
    vocabulary_size: int | None
    max_context_tokens: int | None
    published_version: int | None
    trainer_version: int | None
    max_policy_lag: int | None
    encode: Callable[[str], Any] | None


class RolloutContract:
    """The contract with its limits read once, for checking many records.

    Parameters
    ----------
    schema : str or mapping
        Whose field names the records have; see ``contract.schemas.SCHEMA_NAMES``. A mapping names the
        records' own fields: ``{"sample_id": "id", "reward": "score"}``.
    eos_token_ids : int or array_like of int, optional
        Every id that ends a completion; then stop reasons are compared with the last token.
    vocabulary_size : int, optional
        Token ids must be below it.
    max_context_tokens : int, optional
        Prompt and response together must fit.
    published_version : int, optional
        The newest version that samplers can have; a record must not exceed it.
    trainer_version : int, optional
        The version that lags are counted from; ``published_version`` if not given.
    max_policy_lag : int, optional
        Largest lag that is kept: ``trainer_version - policy_version <= max_policy_lag``.
    encode : callable, optional
        Turns ``response_text`` into ids, to find text that was encoded again. Its own errors are not caught.

    Raises
    ------
    ConfigError
        If a limit is not a whole number, or a lag limit has no version to count from.

    Examples
    --------
    >>> contract = RolloutContract(trainer_version=10, max_policy_lag=2)
    >>> [f.code for f in contract.errors({"policy_version": 7}) if f.field == "policy_version"]
    ['lag_over_limit']
    """

    def __init__(
        self,
        *,
        schema: str | Mapping[str, str] = "lagsweep",
        eos_token_ids: ArrayLike | None = None,
        vocabulary_size: int | None = None,
        max_context_tokens: int | None = None,
        published_version: int | None = None,
        trainer_version: int | None = None,
        max_policy_lag: int | None = None,
        encode: Callable[[str], Any] | None = None,
    ) -> None:
        self.schema = schema_named(schema)
        limits = {
            "vocabulary_size": (vocabulary_size, 1),
            "max_context_tokens": (max_context_tokens, 1),
            "published_version": (published_version, 0),
            "trainer_version": (trainer_version, 0),
            "max_policy_lag": (max_policy_lag, 0),
        }
        whole = {
            name: None if value is None else one_whole(name, value, minimum=least)
            for name, (value, least) in limits.items()
        }
        if max_policy_lag is not None and trainer_version is None and published_version is None:
            way_out = "Give trainer_version or published_version."
            raise ConfigError("max_policy_lag", "needs a version to count from", max_policy_lag, way_out)
        if encode is not None and not callable(encode):
            raise ConfigError("encode", "must be a function", encode, "Give one that turns text into ids.")
        eos = None
        if eos_token_ids is not None:
            ids = np.atleast_1d(whole_numbers("eos_token_ids", eos_token_ids, minimum=0))
            eos = frozenset(ids.reshape(-1).tolist())
        self.limits = ContractLimits(eos_token_ids=eos, encode=encode, **whole)

    def check(self, record: object) -> RecordCheck:
        """Run every rule over one record; ``.findings`` of the result has errors and warnings."""
        return checked(record, self.schema, self.limits)

    def errors(self, record: object, *, warnings: bool = False) -> list[ContractFinding]:
        """Return the errors of one record, and its warnings if wanted."""
        warnings = flag("warnings", warnings)
        findings = self.check(record).findings
        return findings if warnings else [f for f in findings if f.severity == "error"]


def rollout_contract_errors(
    record: object,
    *,
    warnings: bool = False,
    schema: str | Mapping[str, str] = "lagsweep",
    eos_token_ids: ArrayLike | None = None,
    vocabulary_size: int | None = None,
    max_context_tokens: int | None = None,
    published_version: int | None = None,
    trainer_version: int | None = None,
    max_policy_lag: int | None = None,
    encode: Callable[[str], Any] | None = None,
) -> list[ContractFinding]:
    """Report every violation of the rollout contract by one record.

    Parameters
    ----------
    record : mapping
        The record. Whatever it holds is reported, never raised.
    warnings : bool
        Give warnings too; by default a record with warnings alone gives ``[]``, for it may be trained on.
    schema, eos_token_ids, vocabulary_size, max_context_tokens, published_version, trainer_version, \
max_policy_lag, encode
        As in :class:`RolloutContract`.

    Returns
    -------
    list of ContractFinding
        Strings with ``code``, ``path``, ``severity`` and ``occurrences``; ``[]`` for a good record.

    Raises
    ------
    ConfigError
        If a limit is no whole number; never because of the record.

    Examples
    --------
    >>> record = {
    ...     "sample_id": "p003-r01", "prompt_id": "p003", "policy_version": 17,
    ...     "prompt_tokens": [101, 42], "response_tokens": [314, 2], "behavior_logprobs": [-0.5, -0.25],
    ...     "decoding": {"temperature": 0.8}, "reward": 1.0, "stop_reason": "eos", "verifier_version": "v4",
    ... }
    >>> rollout_contract_errors(record)
    []
    >>> broken = {**record, "policy_version": -1, "behavior_logprobs": [-0.5]}
    >>> for error in rollout_contract_errors(broken):
    ...     print(error.code, "|", error)
    version_type | policy_version: must be a whole number of 0 or more (got -1). Stamp the version that sampled the tokens.
    logprob_length | behavior_logprobs: must have one value per response token, 2 (got 1 value). Keep the sampler's ids and values together; never pad, cut or re-tokenise.
    """  # noqa: E501  (a doctest's output is one line)
    contract = RolloutContract(
        schema=schema,
        eos_token_ids=eos_token_ids,
        vocabulary_size=vocabulary_size,
        max_context_tokens=max_context_tokens,
        published_version=published_version,
        trainer_version=trainer_version,
        max_policy_lag=max_policy_lag,
        encode=encode,
    )
    return contract.errors(record, warnings=warnings)


def batch_contract_errors(
    records: Iterable[Any], *, group_size: int | None = None, warnings: bool = True, **limits: Unpack[Limits]
) -> list[ContractFinding]:
    """Report every violation by the records of a batch, and by the batch as a whole.

    Beside each record's own: sample ids that occur twice, groups that are not ``group_size`` rollouts,
    groups of one (warning), episodes of which only a part is good, and mixtures of temperatures or verifier
    versions (warnings). A group is the records with one ``group_id``, or one ``prompt_id`` without it.

    Parameters
    ----------
    records : iterable of mapping
        The batch.
    group_size : int, optional
        How many rollouts each group must have.
    warnings : bool
        Give warnings too; most of what only a batch shows is one.
    **limits
        As in :class:`RolloutContract`.

    Returns
    -------
    list of ContractFinding
        Paths begin with ``records[i]``; the records' own findings first.

    Raises
    ------
    ConfigError
        If a limit is no whole number; never because of a record.

    Examples
    --------
    >>> found = batch_contract_errors([{"sample_id": "a"}, {"sample_id": "a"}])
    >>> [f.path for f in found if f.code == "duplicate_sample_id"]
    ['records[1].sample_id']
    """
    contract, warnings = RolloutContract(**limits), flag("warnings", warnings)
    size = None if group_size is None else one_whole("group_size", group_size, minimum=1)
    try:
        each = None if isinstance(records, Mapping | str | bytes) else iter(records)
    except Exception:  # a foreign object may raise anything when it is asked for its items
        each = None
    if each is None:
        way_out = "Give a list, also for one record."
        return [make_finding("record_type", "records", "must be a list of records", records, way_out)]
    batch = BatchCheck(group_size=size)
    findings: list[ContractFinding] = []
    for place, record in enumerate(each):
        check = contract.check(record)
        batch.add(place, check)
        for found in check.findings:
            findings.append(found.within(f"records[{place}]."))
    findings.extend(found for _, found in batch.findings())
    return findings if warnings else [f for f in findings if f.severity == "error"]


def require_contract(record: object, **limits: Unpack[Limits]) -> None:
    """Raise when a record breaks the contract, naming every error; for the door of a queue.

    Parameters
    ----------
    record : mapping
        The record.
    **limits
        As in :class:`RolloutContract`.

    Raises
    ------
    ContractError
        If there is an error; its text has one line for each.

    Examples
    --------
    >>> require_contract({"sample_id": "a"})
    Traceback (most recent call last):
        ...
    lagsweep.kernels.errors.ContractError: prompt_id: is required (got nothing). Record it where ...
    """
    errors = RolloutContract(**limits).errors(record)
    if errors:
        raise ContractError(*(found.parts for found in errors))
