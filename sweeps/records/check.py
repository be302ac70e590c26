"""Check every rollout record of a file against the contract, in bounded memory, and count what is wrong.

Nothing stops at the first finding: all bad lines are counted by rule, the first ones are kept in full. What
is held at any time is one piece of the file, some bytes per bad record (its line number), and what
:mod:`.batch_state` keeps of each record for the rules of the batch. A file of more than a mebibyte is checked
by the piece (:mod:`.bulk`), a smaller one line by line, with the same findings.
"""

from __future__ import annotations

import io
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO, TypedDict, Unpack

import numpy as np

from ...kernels._arguments import instance
from ...kernels.contract.batch import BatchCheck
from ...kernels.contract.contract import RolloutContract
from ...kernels.contract.findings import RULES, ContractFinding, shown
from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked, flag_of, path_of
from .files import (
    LINE_RULES,
    MAX_LINE_BYTES,
    LineReader,
    RecordLine,
    is_parquet,
    plain_id,
    read_jsonl,
    table_batches,
)
from .streams import pieces, unpacked_stream

_PROGRESS_SECONDS = 5.0
_TABLE_ROWS = 16_384


@dataclass
class RuleCount:
    """How often a rule was broken: by how many records, by how many values, and where first."""

    severity: str
    records: int = 0
    values: int = 0
    first_line: int = 0

    @property
    def is_error(self) -> bool:
        """Whether the rule makes a record bad."""
        return self.severity == "error"


@dataclass(frozen=True)
class LineFinding:
    """A finding, the line it is about, and that record's id."""

    line: int
    record_id: Any
    finding: ContractFinding

    def __str__(self) -> str:
        """Return one line of text: place, id, code, sentence."""
        who = "" if self.record_id is None else f" ({shown(self.record_id)})"
        return f"line {self.line}{who}: {self.finding.code}: {self.finding}"


@dataclass
class RecordReport:
    """What a file's records are like.

    Attributes
    ----------
    file : str
        The file's name.
    lines : int
        Physical lines (or parquet rows), blank ones included.
    blank_lines : int
        Lines with white space only.
    records : int
        Lines that are not blank, readable or not.
    valid_records : int
        Records without an error; warnings do not count against them.
    bad_lines : list of int
        Every line with an error, rising, however many there are.
    warned_records : int
        Records with a warning.
    rules : dict of str to RuleCount
        Every broken rule.
    findings : list of LineFinding
        The first findings in full.
    hidden_findings : int
        How many more there were.
    statistics : dict or None
        By version and by group, where they were asked for; as in the page on ``--json``.
    """

    file: str
    lines: int = 0
    blank_lines: int = 0
    records: int = 0
    valid_records: int = 0
    bad_lines: list[int] = field(default_factory=list)
    warned_records: int = 0
    rules: dict[str, RuleCount] = field(default_factory=dict)
    findings: list[LineFinding] = field(default_factory=list)
    hidden_findings: int = 0
    statistics: dict[str, Any] | None = None

    @property
    def errors(self) -> int:
        """How many errors there were, by record and rule."""
        return sum(count.records for count in self.rules.values() if count.is_error)

    @property
    def warnings(self) -> int:
        """How many warnings there were, by record and rule."""
        return sum(count.records for count in self.rules.values() if not count.is_error)

    def ok(self, *, strict: bool = False) -> bool:
        """Say whether there are records, and none is bad; strictly, none with a warning either."""
        return self.records > 0 and not self.errors and not (strict and self.warnings)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "file": self.file,
            "lines": self.lines,
            "blank_lines": self.blank_lines,
            "records": self.records,
            "valid_records": self.valid_records,
            "bad_records": len(self.bad_lines),
            "bad_lines": self.bad_lines,
            "warned_records": self.warned_records,
            "errors": self.errors,
            "warnings": self.warnings,
            "rules": {
                code: {
                    "severity": count.severity,
                    "records": count.records,
                    "values": count.values,
                    "first_line": count.first_line,
                    "rule": rule_in_words(code),
                }
                for code, count in self.rules.items()
            },
            "findings": [
                {"line": item.line, "record_id": item.record_id, **item.finding.as_dict()}
                for item in self.findings
            ],
            "hidden_findings": self.hidden_findings,
            **({} if self.statistics is None else {"statistics": self.statistics}),
        }


def rule_in_words(code: str) -> str:
    """Say what a rule asks for.

    Examples
    --------
    >>> rule_in_words("prompt_empty")
    'a prompt has tokens'
    """
    return (RULES.get(code) or LINE_RULES[code])[1]


class _Tally:
    """Counts findings as they come, and keeps the first of them."""

    def __init__(
        self, report: RecordReport, keep: int, on_finding: Callable[[LineFinding], None] | None = None
    ) -> None:
        self.report = report
        self._keep = keep
        self._on_finding = on_finding
        self._bad = array("Q")
        self._warned = array("Q")

    def add(self, line: int, record_id: Any, findings: Iterable[ContractFinding]) -> None:
        """Count one record's findings; a rule counts once per record."""
        seen: set[str] = set()
        for found in findings:
            count = self.report.rules.setdefault(found.code, RuleCount(found.severity, first_line=line))
            count.values += found.occurrences
            count.records += found.code not in seen
            seen.add(found.code)
            lines = self._bad if found.severity == "error" else self._warned
            if not lines or lines[-1] != line:
                lines.append(line)
            if self._on_finding is not None:
                self._on_finding(LineFinding(line, record_id, found))
            if len(self.report.findings) < self._keep:
                self.report.findings.append(LineFinding(line, record_id, found))
            else:
                self.report.hidden_findings += 1

    def close(self) -> None:
        """Turn the lines seen into sorted lists without repeats."""
        # Batch rules come last and may name lines that are bad already.
        self.report.bad_lines = np.unique(np.array(self._bad)).tolist()
        self.report.warned_records = np.unique(np.array(self._warned)).size
        self.report.valid_records = self.report.records - len(self.report.bad_lines)


def validate_lines(
    lines: Iterable[RecordLine],
    *,
    file: str,
    contract: RolloutContract | None = None,
    group_size: int | None = None,
    batch_rules: bool = True,
    keep: int = 20,
    progress: Callable[[int, int], None] | None = None,
    on_finding: Callable[[LineFinding], None] | None = None,
) -> RecordReport:
    """Check lines as they are read, one by one.

    Parameters
    ----------
    lines : iterable of RecordLine
        From ``read_jsonl`` or ``record_lines``.
    file : str
        The name for the report.
    contract : RolloutContract, optional
        The rules and their limits; our own field names and no limits without it.
    group_size : int, optional
        How many rollouts each group must have.
    batch_rules : bool
        Whether the whole file is also checked as one batch.
    keep : int
        How many findings to keep in full; all are counted.
    progress : callable, optional
        Called every few seconds with the lines and the bad records so far.
    on_finding : callable, optional
        Called with every finding in full.

    Returns
    -------
    RecordReport

    Examples
    --------
    >>> import io
    >>> from lagsweep.sweeps.records.files import read_jsonl
    >>> report = validate_lines(read_jsonl(io.BytesIO(b"{bad\\n\\n")), file="example")
    >>> report.bad_lines, report.blank_lines, list(report.rules)
    ([1], 1, ['json_syntax'])
    """
    contract = contract or RolloutContract()
    report = RecordReport(file)
    tally = _Tally(report, keep, on_finding)
    batch = BatchCheck(group_size=group_size, lines=True) if batch_rules else None
    due = time.monotonic() + _PROGRESS_SECONDS
    for line in lines:
        report.lines = line.number
        if line.blank:
            report.blank_lines += 1
            continue
        report.records += 1
        if not line.readable:
            tally.add(line.number, None, line.findings)
            continue
        check = contract.check(line.record)
        check.findings.extend(line.findings)
        if batch is not None:
            batch.add(line.number, check)
        if check.findings:
            tally.add(line.number, plain_id(check.get("sample_id")), check.findings)
        if progress is not None and time.monotonic() >= due:
            progress(line.number, report.errors)
            due = time.monotonic() + _PROGRESS_SECONDS
    for place, found in batch.findings() if batch is not None else ():
        tally.add(place, None, [found])
    tally.close()
    return report


class CheckOptions(TypedDict, total=False):
    """The further options of :func:`validate_records`."""

    group_size: int | None
    batch_rules: bool
    keep: int
    progress: Callable[[int, int], None] | None
    on_finding: Callable[[LineFinding], None] | None


def _validate_parts(
    parts: Callable[[Any], Iterator[Any]],
    *,
    file: str,
    contract: RolloutContract,
    with_statistics: bool,
    group_size: int | None = None,
    batch_rules: bool = True,
    keep: int = 20,
    progress: Callable[[int, int], None] | None = None,
    on_finding: Callable[[LineFinding], None] | None = None,
) -> RecordReport:
    """Check a file by the piece; `parts` takes the checker and gives what each piece had."""
    from .batch_state import BatchState
    from .bulk import BulkCheck
    from .statistics import RecordStatistics

    report = RecordReport(file)
    tally = _Tally(report, keep, on_finding)
    statistics = RecordStatistics() if with_statistics else None
    batch = BatchState(group_size=group_size, with_rewards=with_statistics) if batch_rules else None
    due = time.monotonic() + _PROGRESS_SECONDS
    bulk = BulkCheck(contract, batch, statistics, lambda single: tally.add(*single))
    for report.lines in parts(bulk):
        if progress is not None and time.monotonic() >= due:
            progress(report.lines, report.errors)
            due = time.monotonic() + _PROGRESS_SECONDS
    report.blank_lines = bulk.blank_lines
    report.records = report.lines - report.blank_lines
    for place, found in batch.findings() if batch is not None else ():
        tally.add(place, None, [found])
    tally.close()
    if statistics is not None:
        report.statistics = statistics.as_dict(None if batch is None else batch.groups())
    return report


def validate_records(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    contract: RolloutContract | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    statistics: bool = False,
    **options: Unpack[CheckOptions],
) -> RecordReport:
    """Check every record of a file of JSON lines (gzip, zstandard) or parquet, or of a stream of lines.

    Parameters
    ----------
    source : str, Path or binary file
        A path, or a stream opened for reading bytes.
    contract : RolloutContract, optional
        The rules and their limits.
    max_line_bytes : int
        Longer lines are reported and passed over.
    statistics : bool
        Whether the report has statistics by version and by group.
    **options
        ``group_size``, ``batch_rules``, ``keep``, ``progress`` and ``on_finding`` as in
        :func:`validate_lines`.

    Returns
    -------
    RecordReport
        ``report.ok()`` says whether all is well; ``report.bad_lines`` names every bad line.

    Raises
    ------
    ConfigError
        If the file is missing, or neither JSON lines nor parquet, or packed and damaged; never because of a
        record.
    """
    if contract is not None:
        instance("contract", contract, RolloutContract, "Build one, as RolloutContract(max_policy_lag=2).")
    contract = contract or RolloutContract()
    with_statistics = flag_of("statistics", statistics)
    max_line_bytes = checked(WholeNumber, "max_line_bytes", max_line_bytes, low=1, high=2**40)
    if not isinstance(source, str | os.PathLike) and not callable(getattr(source, "readline", None)):
        way_out = "Give a path, or a file opened for reading bytes."
        raise ConfigError("source", "must be a path or a stream", source, way_out)
    common: Any = {"contract": contract, **options}
    if not isinstance(source, str | os.PathLike):
        name = str(getattr(source, "name", "<stream>"))
        if not callable(getattr(source, "read", None)):
            lines = read_jsonl(source, max_line_bytes=max_line_bytes)
            return validate_lines(lines, file=name, **common)
        return _validate_stream(source, name, max_line_bytes, with_statistics, common)
    path = path_of("source", source)
    if is_parquet(path):
        batches = table_batches(path, _TABLE_ROWS)
        return _validate_parts(
            lambda bulk: bulk.rows(batches), file=str(path), with_statistics=with_statistics, **common
        )
    with path.open("rb") as stream:
        return _validate_stream(stream, str(path), max_line_bytes, with_statistics, common)


def _validate_stream(
    stream: BinaryIO, name: str, max_line_bytes: int, with_statistics: bool, common: dict[str, Any]
) -> RecordReport:
    """Check JSON lines: a small file line by line, for which nothing needs to be compiled or loaded."""
    parts = pieces(unpacked_stream(stream), max_line_bytes)
    first = next(parts)
    if first.last and not with_statistics:
        lines = read_jsonl(io.BytesIO(first.content), max_line_bytes=max_line_bytes)
        return validate_lines(lines, file=name, **common)
    reader = LineReader(max_line_bytes)
    return _validate_parts(
        lambda bulk: bulk.lines(chain([first], parts), reader),
        file=name,
        with_statistics=with_statistics,
        **common,
    )
