"""Options that name a file to write: what is there already is replaced only when asked for.

A page that an earlier call drew is drawn anew without a word, since nobody writes into it, and so is a chart
beside it that nobody has changed, as its seal tells. Any other file may be a configuration that was changed
by hand, or something else altogether: the call is refused before anything is written, with the way out. What
reading shows to be wrong with the inputs is said first, since a file that is in the way says nothing of them:
the options note what is there, and :func:`free_outputs` refuses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from ...kernels.errors import ConfigError, Finding
from .shared import this_command

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FORCE = "lagsweep.force"
_IN_THE_WAY = "lagsweep.in_the_way"
_TAKEN = "lagsweep.taken"
_PACKED = (".gz", ".zst")
_LONGEST_NAME = 150  # of what an input gives: with an ending it is a file name everywhere


def output_option(*names: str, **settings: Any) -> Callable[[_Command], _Command]:
    """Add an option that names a file to write.

    Beside it a command has :func:`force_option`, and calls :func:`free_outputs` when its inputs are checked.

    Parameters
    ----------
    *names : str
        As for ``click.option``.
    **settings
        As for ``click.option``.
    """
    kind = click.Path(path_type=Path)
    return click.option(*names, **{"type": kind, "metavar": "FILE", **settings, "callback": _noted})


def force_option(function: _Command) -> _Command:
    """Add ``--force``: files that are there are replaced; own pages and charts are without it, too."""
    option = click.option(
        "--force", is_flag=True, is_eager=True, expose_value=False, callback=_remember,
        help="Replace files that are there already; pages and charts that Lagsweep drew always are.",
    )  # fmt: skip
    return option(function)


def command_again() -> str:
    """Return the command line that was typed, as it writes the same files again."""
    typed = this_command()
    return typed if "--force" in typed.split() else f"{typed} --force"


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
    context.meta[_FORCE] = value
    return value


def _noted(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    return None if path is None else note_output(path, max(parameter.opts, key=len))


def note_output(path: Path, flag: str) -> Path:
    """Note a file that will be written, by a name that was not given too, for :func:`free_outputs`.

    Two options that name one file, by other spellings or links too, are noted even with --force.

    Parameters
    ----------
    path : Path
    flag : str
        The option that names it.
    """
    meta = click.get_current_context().meta
    found = _in_the_way(path, flag)
    other = meta.setdefault(_TAKEN, {}).setdefault(os.path.realpath(path), flag)
    if other != flag:  # what is written last would be all that is left
        found = Finding(flag, f"must not be the file of {other}", str(path), "Name another file.")
    if found:
        meta.setdefault(_IN_THE_WAY, []).append(found)
    return path


def free_outputs() -> None:
    """Refuse files that are there, or meant twice, of all options of the call; for when inputs are checked.

    Raises
    ------
    ConfigError
        With a finding for each such file.
    """
    if found := click.get_current_context().meta.get(_IN_THE_WAY):
        raise ConfigError(*found)


def free_files(paths: Iterable[Path], flag: str) -> None:
    """Refuse files that are there, unless they are pages or charts of ours or ``--force`` was given.

    Parameters
    ----------
    paths : iterable of Path
    flag : str
        The option that names them.

    Raises
    ------
    ConfigError
        With a finding for each such file.
    """
    if found := [one for path in paths if (one := _in_the_way(path, flag))]:
        raise ConfigError(*found)


def _in_the_way(path: Path, flag: str) -> Finding | None:
    from ..charts.images import is_own_image
    from ..pages.page import is_own_page

    if click.get_current_context().meta.get(_FORCE) or not path.is_file():
        return None
    if is_own_image(path) or is_own_page(path):
        return None
    rule = "must not be there yet: nothing is replaced unasked"
    return Finding(flag, rule, str(path), f"Give --force to replace it, or {flag} with another name.")


def named_after(source: Path, ending: str, flag: str = "--output") -> Path:
    """Name a file in this folder after what it is made from: two names give two files. It is noted.

    Parameters
    ----------
    source : Path
        A file or a folder.
    ending : str
        What follows its name.
    flag : str
        The option that would name it.
    """
    return note_output(Path(f"{plain_name(source)}{ending}"), flag)


def plain_name(source: Path) -> str:
    """Return the name of a file without what tells its kind, or that of a folder.

    Examples
    --------
    >>> plain_name(Path("logs/qwen3-1.7B.csv.gz"))
    'qwen3-1.7B'
    """
    if source.name in ("", ".."):  # a folder that is not called by its name
        source = Path(os.path.realpath(source))
    unpacked = source.with_suffix("") if source.suffix in _PACKED else source
    return (source.name if source.is_dir() else unpacked.stem)[:_LONGEST_NAME]
