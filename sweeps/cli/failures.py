"""How a command fails: which errors are reports and not defects, their exit codes, and what is said of them.

The sentence goes to stderr. A command that was called with ``--json`` prints the same as data on stdout, one
document: ``{"schema", "error": {"kind", "exit_code", "message", "findings"}}``, a finding being ``{"field",
"rule", "value", "way_out"}``.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from ...kernels.errors import (
    NO_VALUE,
    CheckpointError,
    ConfigError,
    Finding,
    LagsweepError,
    StoreError,
    is_short,
    shown_value,
)


class Stopped(Exception):
    """A command that ends before its work is done, on request: what it says is no error's text."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Failure(NamedTuple):
    """What a failed command has to say, and its exit code."""

    kind: str
    exit_code: int
    message: str
    findings: tuple[Finding, ...]

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "error": {
                "kind": self.kind,
                "exit_code": self.exit_code,
                "message": self.message,
                "findings": [
                    {**finding._asdict(), "value": _value(finding.value)} for finding in self.findings
                ],
            }
        }


def _value(value: Any) -> Any:
    """Return a short value as it is, of a long one the text that the message shows."""
    if value is NO_VALUE:
        return None
    return value if is_short(value) else shown_value(value)


def failure_of(error: BaseException) -> Failure | None:
    """Tell what an error means for the user; None for a defect, which keeps its traceback.

    Examples
    --------
    >>> failure_of(ConfigError("seeds", "must be given", None, "Give 100.")).exit_code
    2
    """
    if isinstance(error, LagsweepError):
        code = (
            3
            if isinstance(error, StoreError | CheckpointError)
            else 2
            if isinstance(error, ConfigError)
            else 1
        )
        return Failure(type(error).__name__, code, str(error), error.findings)
    if isinstance(error, Stopped):
        return _failure("Stopped", error.exit_code, Finding("", str(error)))
    if isinstance(error, click.ClickException):
        finding = getattr(error, "finding", None) or Finding(
            _flag(error), error.message or error.format_message()
        )
        return Failure("UsageError", error.exit_code, error.format_message(), (finding,))
    if isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
        return _failure("Stopped", 128 + signal.SIGINT, Finding("", "interrupted"))
    if isinstance(error, OSError):
        return _failure("OSError", 2, _about_file(error))
    if isinstance(error, MemoryError):
        way_out = "Ask for fewer runs, rows or tokens."
        return _failure("MemoryError", 3, Finding("memory", "must hold what was asked for", way_out=way_out))
    if isinstance(error, RecursionError):
        return _failure(
            "RecursionError", 2, Finding("input", "must not be nested this deeply", way_out="Flatten it.")
        )
    if isinstance(error, RuntimeError) and "zstd" in str(error).lower():
        # A chunk's checksum or frame does not hold; which one, only `verify` finds out.
        rule = f"a chunk is damaged and cannot be read ({error})"
        way_out = "`lagsweep verify STORE` names every damaged chunk, and --repair undoes their units."
        return _failure("StoreError", 3, Finding("store", rule, way_out=way_out))
    return None


def all_missing(error: BaseException, arguments: Sequence[str]) -> BaseException:
    """Return an error that names every option that is missing, not only the first; any other error as it is.

    Parameters
    ----------
    error : BaseException
    arguments : sequence of str
        What was typed.
    """
    if not isinstance(error, click.MissingParameter) or error.ctx is None:
        return error
    typed = {argument.partition("=")[0] for argument in arguments}
    missing = [
        option
        for option in error.ctx.command.get_params(error.ctx)
        if isinstance(option, click.Option) and is_needed(option) and typed.isdisjoint(option.opts)
    ]
    if len(missing) < 2:
        return error
    return ConfigError(
        *(Finding(max(one.opts, key=len), "is required", way_out=one.help or "") for one in missing)
    )


def is_needed(option: click.Option) -> bool:
    """Whether a command cannot do without an option."""
    return option.required or isinstance(option, NeededOption)


class NeededOption(click.Option):
    """An option that is required, whose absence the command words itself where it is the only one."""


def _failure(kind: str, exit_code: int, finding: Finding) -> Failure:
    return Failure(kind, exit_code, str(finding), (finding,))


def _flag(error: click.ClickException) -> str:
    """Name the flag or argument that a usage error is about, if it is about one."""
    name = getattr(error, "option_name", None)
    if name is None and isinstance(error, click.BadParameter) and error.param is not None:
        if isinstance(error.param, click.Option):
            name = error.param.opts[0]
        elif error.ctx is not None:
            name = error.param.make_metavar(error.ctx)
    return name or ""


def _about_file(error: OSError) -> Finding:
    """Word a file error: the path, what the system says, and the way out."""
    reason = error.strerror or str(error)
    path = error.filename if error.filename is not None else "output"
    shown = str(path) if len(str(path)) <= 120 else f"{str(path)[:117]}..."
    return Finding(shown, f"cannot be used: {reason}", way_out="Name another path, or make room for it.")


def tell(error: BaseException, failure: Failure, arguments: Sequence[str]) -> None:
    """Say on stderr what went wrong and, where JSON was asked for, print it as data on stdout."""
    if isinstance(error, click.ClickException):
        error.show()
    elif isinstance(error, Stopped | KeyboardInterrupt):
        click.echo(failure.message, err=True)
    elif not isinstance(error, click.exceptions.Abort):  # of which click has ended the line already
        click.echo(f"error: {failure.message}", err=True)
    if wants_json(arguments):
        from ..json_text import json_document

        with contextlib.suppress(OSError):  # it may be stdout that failed
            click.echo(json_document("error", failure.document()))


def wants_json(arguments: Sequence[str]) -> bool:
    """Tell whether ``--json`` was given, also where the arguments could not be read.

    Examples
    --------
    >>> wants_json(["show", "store", "--json"]), wants_json(["show", "--", "--json"])
    (True, False)
    """
    flags = list(arguments)
    return "--json" in flags[: flags.index("--")] if "--" in flags else "--json" in flags
