"""``lagsweep validate``: check rollout records against the contract, all of them, by line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..json_text import json_document

if TYPE_CHECKING:
    from ..records.check import RecordReport


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--show", default=20, type=click.IntRange(min=0), help="Print this many findings; all count.")
@click.option("--strict", is_flag=True, help="Let warnings fail too.")
@click.option("--schema", default="lagsweep", help="Whose field names: lagsweep, minimal, verl, trl, ....")
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
    """Check the rollout records of JSONL or parquet files; "-" reads JSON lines from stdin.

    Every bad record is found and counted by physical line number (parquet: row number). Exit code 0: all
    records are good (there may be warnings); 1: some are not, or there are none; 2: a file cannot be read,
    or an option is wrong.
    """
    reports = [_report(name, options) for name in files]
    good = all(report.ok(strict=options["strict"]) for report in reports)
    if options["as_json"]:
        document = {"ok": good, "files": [report.as_dict() for report in reports]}
        click.echo(json_document("validate", document, indent=1))
    else:
        click.echo("\n\n".join(_as_text(report) for report in reports))
    return 0 if good else 1


def _report(name: str, options: dict[str, Any]) -> RecordReport:
    """Check one file."""
    from ...kernels.contract.contract import RolloutContract
    from ..records.check import validate_records
    from ..records.files import MAX_LINE_BYTES

    contract = RolloutContract(
        schema=options["schema"],
        eos_token_ids=options["eos_ids"] or None,
        vocabulary_size=options["vocabulary_size"],
        max_context_tokens=options["max_context_tokens"],
        published_version=options["published_version"],
        trainer_version=options["trainer_version"],
        max_policy_lag=options["max_lag"],
    )
    return validate_records(
        sys.stdin.buffer if name == "-" else name,
        contract=contract,
        group_size=options["group_size"],
        batch_rules=options["batch_rules"],
        keep=options["show"],
        max_line_bytes=options["max_line_bytes"] or MAX_LINE_BYTES,
        progress=lambda lines, errors: print(f"{name}: {lines:,} lines, {errors:,} errors", file=sys.stderr),
    )


def _as_text(report: RecordReport) -> str:
    """Write findings, counts by rule, and a last line that sums up."""
    from ..records.check import rule_in_words

    parts = [str(item) for item in report.findings]
    if report.hidden_findings:
        parts.append(f"... and {report.hidden_findings:,} more findings, counted below (--show prints more)")
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
        f"{report.file}: {report.records:,} records in {report.lines:,} lines "
        f"({report.blank_lines:,} blank): "
        f"{report.valid_records:,} valid, {len(report.bad_lines):,} bad, "
        f"{report.warned_records:,} with warnings"
    )
    if not report.records:
        parts.append("There is no record in it.")
    return "\n".join(parts)
