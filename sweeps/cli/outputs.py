"""Options that name a file to write: what is there already is replaced only when asked for.

A page that an earlier call drew is drawn anew without a word, since nobody writes into it. Any other file
may be a configuration that was changed by hand, or something else altogether: the call is refused before
any work is done, with the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ...kernels.errors import ConfigError
from .shared import this_command

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FORCE = "lagsweep.force"


def output_option(*names: str, **settings: Any) -> Callable[[_Command], _Command]:
    """Add an option that names a file to write; beside it a command has :func:`force_option`.

    Parameters
    ----------
    *names : str
        As for ``click.option``.
    **settings
        As for ``click.option``.
    """
    kind = click.Path(path_type=Path)
    return click.option(*names, **{"type": kind, "metavar": "FILE", **settings, "callback": _not_there})


def force_option(function: _Command) -> _Command:
    """Add ``--force``: files that are there are replaced."""
    option = click.option(
        "--force", is_flag=True, is_eager=True, expose_value=False, callback=_remember,
        help="Replace files that are there already.",
    )  # fmt: skip
    return option(function)


def command_again() -> str:
    """Return the command line that was typed, as it writes the same files again."""
    typed = this_command()
    return typed if "--force" in typed.split() else f"{typed} --force"


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    context.meta[_FORCE] = value
    return value


def _not_there(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    return None if path is None else free_file(path, max(parameter.opts, key=len))


def free_file(path: Path, flag: str) -> Path:
    """Refuse a file that is there, unless it is a page of ours or ``--force`` was given.

    Parameters
    ----------
    path : Path
    flag : str
        The option that names it.

    Raises
    ------
    ConfigError
    """
    from ..pages.page import is_own_page

    if click.get_current_context().meta.get(_FORCE) or not path.is_file() or is_own_page(path):
        return path
    rule = "must not be there yet: nothing is replaced unasked"
    raise ConfigError(flag, rule, str(path), f"Give --force to replace it, or {flag} with another name.")
