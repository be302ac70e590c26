"""``lagsweep validate``: check rollout records against the contract, all of them, by line."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...kernels.errors import ConfigError, many
from ..json_text import json_document

if TYPE_CHECKING:
    from ..records.check import RecordReport


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--show", default=20, type=click.IntRange(min=0), help="Print this many findings; all count.")
@click.option("--strict", is_flag=True, help="Let warnings fail too.")
@click.option(
    "--schema",
    "--shape",
    "schema",
    default="lagsweep",
    help="Whose field names: lagsweep, minimal, verl, trl, ...; auto tells by the first record.",
)
@click.option("--columns", multiple=True, metavar="OURS=THEIRS", help="A field's own name; repeatable.")
@click.option(
    "--statistics",
    is_flag=True,
    help="Print counts by version too, and groups (of one prompt) by their rollouts and by equal rewards.",
)
@click.option("--findings", metavar="FILE", help="Write all findings: FILE.parquet or FILE.jsonl.")
@click.option("--clean", metavar="FILE", help="Write the good records, as they are.")
@click.option("--overwrite", is_flag=True, help="Let --clean and --findings replace a file.")
@click.option("--eos-id", "eos_ids", type=int, multiple=True, help="An end-of-sequence id; repeatable.")
@click.option("--vocabulary-size", type=int, help="Token ids must be below it.")
@click.option("--max-context-tokens", type=int, help="Prompt and response together must fit.")
@click.option("--published-version", type=int, help="No record may be newer.")
@click.option("--trainer-version", type=int, help="The version that lags are counted from.")
@click.option("--max-lag", type=int, help="Largest policy lag that is kept.")
@click.option("--group-size", type=click.IntRange(min=1), help="Rollouts that each group must have.")
@click.option("--batch-rules/--no-batch-rules", default=True, help="Check each file as one batch too.")
@click.option(
    "--max-line-bytes", type=click.IntRange(min=1), help="Pass over longer lines. [default: 64 MiB]"
)
def command(files: tuple[str, ...], **options: Any) -> int:
    """Check the rollout records of files of JSON lines (gzip and zstandard too) or parquet.

    A folder stands for all such files in it, a pattern for those it matches; "-" reads JSON lines from stdin.
    Every bad record is found and counted by physical line number (parquet: row number). Exit code 0: all
    records are good (there may be warnings); 1: some are not, or there are none; 2: a file cannot be read,
    or an option is wrong.
    """
    from ..records.findings_file import findings_file
    from ..records.sources import record_files

    names = record_files(files)
    clean = _clean_path(names, options)
    found = _findings_path(names, clean, options)
    table: Any = contextlib.nullcontext() if found is None else findings_file(found)
    with table as rows:
        reports = [_report(name, options, rows) for name in names]
        cleaned = None if clean is None else _cleaned(clean, names, reports, options)
        joined = None if cleaned is None else _joined(cleaned, names, options, rows)
    good = all(report.ok(strict=options["strict"]) for report in (*reports, *([joined] if joined else [])))
    if options["as_json"]:
        document = {"ok": good, "files": [report.as_dict() for report in reports]}
        if cleaned is not None:
            together = {} if joined is None else {"as_one_batch": joined.as_dict()}
            document["clean"] = {**cleaned, **together}
        click.echo(json_document("validate", document, indent=1))
    else:
        click.echo("\n\n".join(_as_text(report) for report in reports))
        if cleaned is not None:
            click.echo("\n" + _cleaned_text(cleaned))
        if joined is not None:
            click.echo(_joined_text(joined))
    return 0 if good else 1


def _clean_path(names: list[str], options: dict[str, Any]) -> Path | None:
    """Return where the good records go, checked before anything is read."""
    if options["clean"] is None:
        return None
    from ..checks import path_of
    from ..records.cleaning import checked_clean_path

    path = path_of("--clean", options["clean"])
    return checked_clean_path(path, "--clean", names, overwrite=options["overwrite"])


def _findings_path(names: list[str], clean: Path | None, options: dict[str, Any]) -> Path | None:
    """Return where all findings go, checked before anything is read."""
    if options["findings"] is None:
        return None
    from ..checks import path_of
    from ..records.findings_file import checked_findings_path, same_file

    path = path_of("--findings", options["findings"])
    checked_findings_path(path, "--findings", names, overwrite=options["overwrite"])
    if clean is not None and same_file(path, clean):
        raise ConfigError("--findings", "must not be the file of --clean", str(path), "Name another file.")
    return path


def _cleaned(path: Path, names: list[str], reports: list[RecordReport], options: dict[str, Any]) -> Any:
    """Write the good records, and say how many were left out for which rules."""
    from ..records.cleaning import write_clean
    from ..records.files import MAX_LINE_BYTES

    parts = [(name, report.bad_lines) for name, report in zip(names, reports)]
    written = write_clean(path, parts, options["max_line_bytes"] or MAX_LINE_BYTES)
    rules: dict[str, int] = {}
    for report in reports:
        for code, count in report.rules.items():
            if count.is_error:
                rules[code] = rules.get(code, 0) + count.records
    left_out = sum(len(report.bad_lines) for report in reports)
    return {"file": str(path), "records": written, "left_out": left_out, "rules": rules}


def _cleaned_text(cleaned: dict[str, Any]) -> str:
    why = ", ".join(f"{code} {count:,}" for code, count in cleaned["rules"].items())
    written = many(cleaned["records"], "good record")
    return f"{cleaned['file']}: {written} written, {cleaned['left_out']:,} left out" + (
        f" (records by rule: {why})" if why else ""
    )


def _joined(cleaned: Any, names: list[str], options: dict[str, Any], rows: Any) -> RecordReport | None:
    """Check what several files gave as one batch: an id, or a group, may be in two of them."""
    if len(names) < 2 or not options["batch_rules"] or not cleaned["records"]:
        return None
    return _report(cleaned["file"], options, rows)


def _joined_text(joined: RecordReport) -> str:
    if not joined.errors:
        return f"{joined.file}: as one batch: no error, {joined.warned_records:,} with warnings"
    way_out = (
        "Clean the files one by one, or give their records ids of their own; --no-batch-rules looks away."
    )
    return f"\nAs one batch the good records of all files break rules:\n{_as_text(joined)}\n{way_out}"


def _schema(name: str, options: dict[str, Any]) -> Any:
    """Return whose names the records have: a system's, those of a map, or what the first record tells."""
    if options["columns"]:
        pairs = [pair.partition("=") for text in options["columns"] for pair in text.split(",")]
        for ours, mark, theirs in pairs:
            if not (ours and mark and theirs):
                way_out = "Give pairs, as --columns sample_id=id,reward=score."
                raise ConfigError("--columns", "must be OURS=THEIRS", ours + mark + theirs, way_out)
        return {ours: theirs for ours, _, theirs in pairs}
    if options["schema"] != "auto":
        return options["schema"].replace("-", "_")
    from ..records.sources import STDIN

    if name == STDIN:
        raise ConfigError("--shape", "must be named for the standard input", "auto", "Name the system.")
    from ...kernels.contract.schemas import detect_schema
    from ..checks import path_of
    from ..records.files import record_lines

    lines = record_lines(path_of("file", name))
    record = next((line.record for line in lines if isinstance(line.record, dict)), {})
    found = detect_schema(record)
    print(f"{name}: records of shape {found}", file=sys.stderr)
    return found


def _report(name: str, options: dict[str, Any], rows: Any) -> RecordReport:
    """Check one file."""
    from ...kernels.contract.contract import RolloutContract
    from ..records.check import validate_records
    from ..records.files import MAX_LINE_BYTES

    contract = RolloutContract(
        schema=_schema(name, options),
        eos_token_ids=options["eos_ids"] or None,
        vocabulary_size=options["vocabulary_size"],
        max_context_tokens=options["max_context_tokens"],
        published_version=options["published_version"],
        trainer_version=options["trainer_version"],
        max_policy_lag=options["max_lag"],
    )
    if rows is not None:
        rows.file = name
    return validate_records(
        sys.stdin.buffer if name == "-" else name,
        contract=contract,
        group_size=options["group_size"],
        batch_rules=options["batch_rules"],
        keep=options["show"],
        max_line_bytes=options["max_line_bytes"] or MAX_LINE_BYTES,
        statistics=options["statistics"],
        progress=lambda lines, errors: print(
            f"{name}: {many(lines, 'line')}, {many(errors, 'error')}", file=sys.stderr
        ),
        on_finding=None if rows is None else rows.add,
    )


def _as_text(report: RecordReport) -> str:
    """Write findings, counts by rule, and a last line that sums up."""
    from ..records.check import rule_in_words

    parts = [str(item) for item in report.findings]
    if report.hidden_findings:
        more = many(report.hidden_findings, "more finding")
        parts.append(f"... and {more}, counted below (--show prints more)")
    if report.rules:
        rows = [("rule", "severity", "records", "values", "first line", "what it asks")]
        order = sorted(report.rules.items(), key=lambda item: (item[1].severity, -item[1].records, item[0]))
        for code, count in order:
            numbers = (f"{count.records:,}", f"{count.values:,}", f"{count.first_line:,}")
            rows.append((code, count.severity, *numbers, rule_in_words(code)))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        table = []
        for row in rows:
            cells = [row[i].rjust(widths[i]) if i in (2, 3, 4) else row[i].ljust(widths[i]) for i in range(5)]
            table.append("  ".join([*cells, row[5]]))
        parts += ["", *table] if parts else table
        parts.append("")
    parts.append(
        f"{report.file}: {many(report.records, 'record')} in {many(report.lines, 'line')} "
        f"({report.blank_lines:,} blank): "
        f"{report.valid_records:,} valid, {len(report.bad_lines):,} bad, "
        f"{report.warned_records:,} with warnings"
    )
    if report.statistics is not None:
        from ..records.statistics import statistics_text

        parts += ["", *statistics_text(report.statistics)]
    if not report.records:
        parts.append("There is no record in it.")
    return "\n".join(parts)
