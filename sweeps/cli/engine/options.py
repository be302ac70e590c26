"""What the engine commands share: how a request log is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from ....kernels.errors import ConfigError


def reading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what a file's columns are."""
    for option in reversed(
        (
            click.option(
                "--column", "columns", multiple=True, metavar="ROLE=NAME",
                help="What a column is: arrival, prompt, output, end_to_end, first_token, ...; repeatable.",
            ),
            click.option(
                "--unit", "units", multiple=True, metavar="[ROLE=]UNIT",
                help="Of all times, or of one: seconds, milliseconds, ...; repeatable.",
            ),
            click.option(
                "--where", multiple=True, metavar="COLUMN=TEXT", help="Keep these rows only; repeatable."
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return function


def named(flag: str, given: Sequence[str]) -> dict[str, str]:
    """Read NAME=TEXT options.

    Raises
    ------
    ConfigError
        For one without an equals sign, or given twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(flag, "must be NAME=TEXT", text, f"Write {flag} NAME=TEXT.")
        if name in found:
            raise ConfigError(f"{flag} {name}", "must be given once", value, "Leave one out.")
        found[name] = value
    return found


def units_of(given: Sequence[str]) -> dict[str, str] | None:
    """Read units: one for all times, or ROLE=UNIT."""
    whole = [text for text in given if "=" not in text]
    if len(whole) > 1:
        raise ConfigError("--unit", "must be given once for all times", ", ".join(whole), "Leave one out.")
    found = named("--unit", [text for text in given if "=" in text])
    if whole:
        found["all"] = whole[0]
    return found or None


def reading(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a reader that the options give."""
    return {
        "columns": named("--column", options["columns"]),
        "unit": units_of(options["units"]),
        "where": named("--where", options["where"]),
    }
