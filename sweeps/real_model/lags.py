"""How an old policy's samples lose weight as the new policy moves on: measured, update by update."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels.contract.contract import RolloutContract
from ...kernels.masks.completion import completion_token_mask
from ...kernels.staleness.drift import drift_from_ess
from ...kernels.staleness.ess_levels import rollout_ess
from ...kernels.staleness.lag import policy_lag
from ...kernels.staleness.off_policy import off_policy_report
from .policies import ModelLearner, ModelSampler, batch_of
from .workloads import Workload

LEVELS = ("token", "sequence", "sequence_geometric")
FIRST_TRAINED = 1000  # group numbers of what is trained on: none of the held ones is


@dataclass(frozen=True)
class LagCurve:
    """What the same samples are worth to later policies.

    Attributes
    ----------
    rows : list of dict
        One for each lag: normalized ESS by level, drift that it means, mean difference of log-probabilities.
    updates : list of dict
        One for each optimizer step: loss, reward, seconds.
    held : list of dict
        All records that were held.
    faults : list of dict
        Records changed in one way each: findings of the contract.
    active_tokens, cut : int
        Tokens that count by the mask, and responses that were cut.
    sampling_seconds, scoring_seconds : float
    """

    rows: list[dict[str, Any]]
    updates: list[dict[str, Any]]
    held: list[dict[str, Any]]
    faults: list[dict[str, Any]]
    active_tokens: int
    cut: int
    sampling_seconds: float
    scoring_seconds: float


def lag_curve(sampler: ModelSampler, learner: ModelLearner, workload: Workload) -> LagCurve:
    """Sample by the first policy, train on other samples, and score the first ones after each update.

    Parameters
    ----------
    sampler, learner
        Of the same weights; both move on.
    workload : Workload

    Returns
    -------
    LagCurve
    """
    started = time.monotonic()
    held = [sampler.sample(number, learner.version) for number in range(workload.held_groups)]
    sampled = time.monotonic() - started
    rows: list[dict[str, Any]] = []
    updates, scoring = [], 0.0
    for update in range(workload.updates + 1):
        started = time.monotonic()
        scores = [learner.scores(group) for group in held]
        scoring += time.monotonic() - started
        fresh = rows[0]["sequence"] if rows else 1.0
        rows.append(lag_row(held, scores, learner.version, sampler.facts.eos, fresh))
        if update == workload.updates:
            break
        started = time.monotonic()
        group = sampler.sample(FIRST_TRAINED + update, learner.version)
        between = time.monotonic()
        figures = learner.train(group)
        updates.append(
            {
                "update": learner.version,
                "loss": figures["loss"],
                "reward": figures["reward"],
                "sampling_seconds": between - started,
                "training_seconds": time.monotonic() - between,
            }
        )
        sampler.follow(learner)
    flat = [record for group in held for record in group]
    active = sum(int(_mask(group, sampler.facts.eos).sum()) for group in held)
    return LagCurve(
        rows,
        updates,
        flat,
        contract_rows(flat, sampler.facts.eos, sampler.facts.vocabulary),
        active,
        sum(record["stop_reason"] == "length" for record in flat),
        sampled,
        scoring,
    )


def _mask(group: Sequence[Mapping[str, Any]], eos: Sequence[int]) -> np.ndarray:
    tokens, _, lengths = batch_of(group, pad=0)
    return completion_token_mask(tokens, eos, lengths=lengths)


def lag_row(
    held: Sequence[Sequence[Mapping[str, Any]]],
    scores: Sequence[np.ndarray],
    trainer_version: int,
    eos: Sequence[int],
    fresh_ess: float = 1.0,
) -> dict[str, Any]:
    """Return what groups of one behaviour version are worth to a policy that scored them.

    Parameters
    ----------
    held : sequence of groups of records
    scores : sequence of ndarray, shape (rollouts, longest) each
        Log-probabilities by the trainer's policy.
    trainer_version : int
    eos : sequence of int
    fresh_ess : float
        Normalized ESS of the sequences at lag 0: sampler and trainer differ in numbers even then.

    Returns
    -------
    dict
        ``lag``; ``token``, ``sequence``, ``sequence_geometric``: normalized ESS by level; ``drift``: that of
        one version which gives the sequences' ESS (None at lag 0); ``kl``: mean of behaviour minus trainer
        log-probability, nats a token; ``largest``: the largest token weight.

    Examples
    --------
    >>> group = [{"response_tokens": [5, 2], "behavior_logprobs": [-1.0, -1.0], "policy_version": 3}] * 2
    >>> row = lag_row([group], [np.array([[-1.0, -1.0], [-1.0, -1.5]])], 4, [2])
    >>> row["lag"], round(row["sequence"], 3), row["kl"]
    (1, 0.943, 0.125)
    """
    width = max(one.shape[1] for one in scores)
    trainer, behaviour, active = [], [], []
    for group, told in zip(held, scores):
        short = ((0, 0), (0, width - told.shape[1]))
        trainer.append(np.pad(told, short))
        behaviour.append(np.pad(batch_of(group, pad=0)[1], short))
        active.append(np.pad(_mask(group, eos), short))
    new, old, mask = (np.concatenate(parts) for parts in (trainer, behaviour, active))
    log_ratio = np.where(mask, new - old, 0.0)
    ess = {level: float(rollout_ess(log_ratio, level=level, mask=mask).normalized_ess) for level in LEVELS}
    lags = policy_lag(trainer_version, [record["policy_version"] for group in held for record in group])
    lag = int(np.max(lags))
    report = off_policy_report(new, old, mask=mask)
    return {
        "lag": lag,
        **ess,
        "drift": _drift(ess["sequence"], lag, fresh_ess),
        "kl": float(report.k1_kl),
        "largest": float(np.exp(log_ratio[mask].max())),
    }


def _drift(ess: float, lag: int, fresh_ess: float) -> float | None:
    if lag == 0:
        return None
    return float(drift_from_ess(min(ess, fresh_ess), lag, ess_at_lag_0=fresh_ess))


def contract_rows(
    records: Sequence[Mapping[str, Any]], eos: Sequence[int], vocabulary: int
) -> list[dict[str, Any]]:
    """Check records, and the first of them changed in one way at a time.

    Parameters
    ----------
    records : sequence of mapping
        Of a behaviour policy of version 0.
    eos : sequence of int
    vocabulary : int

    Returns
    -------
    list of dict
        ``fault``, ``records``, ``findings``, ``codes``.
    """
    check = RolloutContract(
        eos_token_ids=eos,
        vocabulary_size=vocabulary,
        trainer_version=4,
        published_version=4,
        max_policy_lag=4,
    )
    first = dict(next((one for one in records if one["stop_reason"] == "eos"), records[0]))
    tokens, logprobs = first["response_tokens"], first["behavior_logprobs"]
    changed = (
        ("as sampled", list(records)),
        ("a log-probability lost", [{**first, "behavior_logprobs": logprobs[:-1]}]),
        ("the version of a later policy", [{**first, "policy_version": 9}]),
        ("an id beyond the vocabulary", [{**first, "response_tokens": [vocabulary, *tokens[1:]]}]),
        ("the end cut off, still called eos", [_without_end(first)]),
    )
    rows = []
    for fault, some in changed:
        found = [finding for record in some for finding in check.errors(record)]
        codes = ", ".join(sorted({finding.code for finding in found}))
        rows.append({"fault": fault, "records": len(some), "findings": len(found), "codes": codes or "-"})
    return rows


def _without_end(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without its last token, which says that it ended by itself."""
    shorter = {name: record[name][:-1] for name in ("response_tokens", "behavior_logprobs")}
    return {**record, **shorter, "stop_reason": "eos"}
