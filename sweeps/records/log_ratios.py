"""Log ratios from rollout records, by lag: what the trainer's weights make of what the sampler drew.

A record has the sampler's log-probabilities (``behavior_logprobs``) and its version (``policy_version``).
Beside them stands ``trainer_logprobs``, the same tokens under the trainer's weights: one list, of the version
in ``trainer_version``; or a list of lists, of which list k is of the weights k updates after the newest
version that sampled a token (``policy_version``, unless the record has ``token_versions``). Each list is one
*reading*: a log ratio for each token, trainer minus sampler.

At level ``"token"`` every token that the masks leave counts by itself, at its own lag (by ``token_versions``
where they are there, else by ``policy_version``). At level ``"sequence"`` a reading counts once, as the sum
over these tokens, at the lag of its oldest token.

A file is checked by the contract first: a bad record refuses the whole, by its line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.contract.contract import RolloutContract
from ...kernels.contract.record import RecordCheck, flat_list, is_finite
from ...kernels.contract.token_rules import check_masks
from ...kernels.errors import ConfigError, Finding, Words, many
from ...kernels.staleness.measured_drift import jackknifed_ess
from ..checks import checked, path_of
from ..user_files import refuse_pipe
from .check import validate_records
from .files import record_lines

Level = Literal["token", "sequence"]
LEVELS: tuple[Level, ...] = ("token", "sequence")
TRAINER = "trainer_logprobs"
MOST_LOG_RATIOS = 2**20  # a store keeps them all: some 20 MB
LARGEST_LAG = 4095
_MOST_FINDINGS = 20
_AT_MOST = 1e-6  # float32 log-softmax rounds near-certain tokens there, as the contract allows


class LagRow(NamedTuple):
    """What was measured at one lag.

    Attributes
    ----------
    lag : int
    records, log_ratios, tokens : int
        How many there are; at level ``token`` each token is a log ratio.
    mean_log_ratio : float
    normalized_ess, half_width : float
        With the interval that leaving out one record at a time gives.
    """

    lag: int
    records: int
    log_ratios: int
    tokens: int
    mean_log_ratio: float
    normalized_ess: float
    half_width: float


@dataclass(frozen=True)
class LogRatios:
    """The log ratios of a file, at one level.

    Attributes
    ----------
    file : str
        The file's name.
    level : str
        ``token`` or ``sequence``.
    values : ndarray of float64, shape (n,)
    lags, records, tokens : ndarray of int64, shape (n,)
        The lag, the number of the record and the tokens of each.
    """

    file: str
    level: Level
    values: NDArray[np.float64]
    lags: NDArray[np.int64]
    records: NDArray[np.int64]
    tokens: NDArray[np.int64]

    def by_lag(self) -> dict[int, NDArray[np.float64]]:
        """Return the log ratios of each lag that was measured, rising."""
        order = np.argsort(self.lags, kind="stable")
        lags, starts = np.unique(self.lags[order], return_index=True)
        return dict(zip(lags.tolist(), np.split(self.values[order], starts[1:])))

    def rows(self, confidence: float = 0.95) -> list[LagRow]:
        """Say what was measured at each lag."""
        found = []
        for lag in np.unique(self.lags).tolist():
            here = self.lags == lag
            values, records = self.values[here], self.records[here]
            ess = jackknifed_ess(values, records, confidence)
            found.append(
                LagRow(
                    lag,
                    len(np.unique(records)),
                    len(values),
                    int(self.tokens[here].sum()),
                    float(values.mean()),
                    ess.normalized_ess,
                    ess.half_width,
                )
            )
        return found


def checked_level(level: Any) -> Level:
    """Return a level.

    Raises
    ------
    ConfigError
        If it is none.

    Examples
    --------
    >>> checked_level("token")
    'token'
    """
    chosen: Level = checked(Level, "level", level, way_out="Take what your trainer weighs.")
    return chosen


class _Reading(NamedTuple):
    """The log ratios of one record under some weights of the trainer: values, lags, tokens of each."""

    values: NDArray[np.float64]
    lags: NDArray[np.int64]
    tokens: NDArray[np.int64]


def read_log_ratios(path: str | os.PathLike[str], level: str) -> LogRatios:
    """Read the log ratios of a file of rollout records.

    Parameters
    ----------
    path : path_like
        JSON lines or parquet, records as ``docs/rollout-contract.md`` says.
    level : {"token", "sequence"}
        What one log ratio is of.

    Raises
    ------
    ConfigError
        If the file cannot be read, a record breaks the contract, lacks ``trainer_logprobs`` or has some that
        do not fit it (each named by its line), or there is nothing to learn, or too much to keep.
    """
    chosen = checked_level(level)
    file = path_of("path", path)
    refuse_pipe(file, "path")
    if not file.is_file():
        raise ConfigError("path", "must be a file that exists", str(path), "Give JSON lines or parquet.")
    _check_contract(file)
    found: list[_Reading] = []
    owners: list[int] = []
    findings: list[Finding] = []
    contract, size = RolloutContract(), 0
    for number, line in enumerate(line for line in record_lines(file) if not line.blank):
        try:
            readings = [_of_level(one, chosen) for one in _readings(contract.check(line.record))]
        except ConfigError as error:
            findings += error.within(f"{file.name}, line {line.number}: ").findings
            continue
        found += readings
        owners += [number] * len(readings)
        size += sum(len(one.values) for one in readings)
        if size > MOST_LOG_RATIOS:
            way_out = "Give a part of the records, or take level 'sequence'."
            raise ConfigError("path", f"must hold at most {MOST_LOG_RATIOS:,} log ratios", size, way_out)
    if findings:
        raise ConfigError(*_first(findings))
    if not size:
        raise ConfigError("path", "must hold log ratios", Words("none"), "Give records with trained tokens.")
    records = np.repeat(np.array(owners, np.int64), [len(one.values) for one in found])
    values, lags, tokens = map(np.concatenate, zip(*found))
    if lags.max() > LARGEST_LAG:
        rule = f"must hold lags of at most {LARGEST_LAG:,}"
        raise ConfigError("path", rule, int(lags.max()), "Leave the oldest records out.")
    return LogRatios(file.name, chosen, values, lags, records, tokens)


def _check_contract(file: Path) -> None:
    """Refuse a file with a bad record, naming the first ones."""
    report = validate_records(file)
    if report.ok():
        return
    if not report.records:
        raise ConfigError("path", "must hold records", Words("none"), "Give a file of rollout records.")
    errors = [item for item in report.findings if item.finding.severity == "error"]
    named = [item.finding.parts.within(f"{file.name}, line {item.line}: ") for item in errors]
    if not named:  # warnings alone came first
        rule = f"must have no error, and {len(report.bad_lines)} records have some"
        named = [Finding(f"{file.name}, line {report.bad_lines[0]}", rule, Words("a bad record"), "")]
    last = named[-1]
    way_out = f"{last.way_out} `lagsweep validate {file.name}` lists every finding.".strip()
    raise ConfigError(*named[:-1], last._replace(way_out=way_out))


def _first(findings: list[Finding]) -> list[Finding]:
    """Keep the first findings, and say how many more there were."""
    kept, more = findings[:_MOST_FINDINGS], len(findings) - _MOST_FINDINGS
    if more > 0:
        kept[-1] = kept[-1]._replace(way_out=f"{kept[-1].way_out} {more:,} more records are like this.")
    return kept


def _readings(check: RecordCheck) -> Iterator[_Reading]:
    """Return the readings of a good record, token by token, without what its masks leave out."""
    from ...kernels.staleness.lag import policy_lag  # loads Numba, as the next one

    record = check.values
    response = flat_list(record["response_tokens"]) or []
    behaviour = np.array(flat_list(record["behavior_logprobs"]), np.float64)
    mask = check_masks(check, response, None)
    active = np.ones(len(response), bool) if mask is None else np.array(mask, bool)
    own = int(record["policy_version"])
    versions = np.array(flat_list(record.get("token_versions")) or [own] * len(response), np.int64)
    for trainer, logprobs in _trainer_logprobs(record, int(versions.max(initial=own)), len(response)):
        lags = np.asarray(policy_lag(trainer, versions[active]), np.int64).reshape(-1)
        values = np.array(logprobs, np.float64)[active] - behaviour[active]
        yield _Reading(values, lags, np.ones(len(values), np.int64))


def _trainer_logprobs(record: Any, newest: int, tokens: int) -> Iterator[tuple[int, list[float]]]:
    """Return the trainer's versions and its log-probabilities under each, checked."""
    given = record.get(TRAINER)
    if given is None:
        way_out = (
            "Write the log-probabilities of its tokens under the trainer's weights beside the sampler's."
        )
        raise ConfigError(TRAINER, "is required", Words("nothing"), way_out)
    nested = isinstance(given, list | tuple | np.ndarray) and len(given) and flat_list(given[0]) is not None
    if not nested:
        version = record.get("trainer_version")
        if isinstance(version, bool) or not isinstance(version, int | np.integer):
            way_out = "Give the trainer's version, or a list of lists: one for each lag from 0."
            raise ConfigError("trainer_version", "must be a whole number beside one list", version, way_out)
    for place, row in enumerate(given if nested else [given]):
        name = f"{TRAINER}[{place}]" if nested else TRAINER
        logprobs = flat_list(row)
        if logprobs is None or len(logprobs) != tokens:
            what = Words("no list" if logprobs is None else many(len(logprobs), "value"))
            raise ConfigError(
                name, f"must have one value per response token, {tokens}", what, "Never pad or cut."
            )
        wrong = [one for one in logprobs if not _is_log_probability(one)]
        if wrong:
            rule = "must be finite log-probabilities, at most 0"
            raise ConfigError(name, rule, wrong[0], "Leave the record out, or compute it again.")
        yield (newest + place if nested else int(version)), logprobs


def _is_log_probability(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and is_finite(value) and value <= _AT_MOST


def _of_level(one: _Reading, level: Level) -> _Reading:
    """Return a reading as it is, or one log ratio of the whole sequence; nothing where nothing is active."""
    if level == "token" or not len(one.values):
        return one
    from ...kernels.staleness.ess_levels import sequence_log_weights

    whole = sequence_log_weights(one.values, level="sequence", group_offsets=[0, len(one.values)])
    oldest = np.array([one.lags.max()])
    return _Reading(np.atleast_1d(whole), oldest, np.array([len(one.values)], np.int64))
