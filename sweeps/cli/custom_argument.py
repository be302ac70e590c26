"""Rules of the user's own on the command line: ``--custom FILE:NAME``, a file of Python and a name in it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from ...kernels.errors import ConfigError

custom_option = click.option(
    "--custom",
    metavar="FILE.py:NAME",
    help="Rules of your own: a Custom called NAME in a Python file, which is run.",
)


def read_custom(text: str | None) -> Any:
    """Run a file of Python and return the rules that it holds; None where none is named.

    The file is imported by its name, so that processes find its classes too.

    Raises
    ------
    ConfigError
        If there is no such file or name, or it cannot be run.
    """
    if text is None:
        return None
    from ..custom.custom import Custom

    file, _, name = text.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or path.suffix != ".py" or not path.stem.isidentifier():
        raise ConfigError("--custom", "must read FILE.py:NAME", text, "Write rules.py:custom.")
    if not path.is_file():
        raise ConfigError("--custom", "must name a file that is there", str(path), "Check the path.")
    sys.path.insert(0, str(path.resolve().parent))
    try:
        module = importlib.import_module(path.stem)
    except Exception as error:  # the user's code may raise anything
        rule = f"must be a file that can be run: {type(error).__name__}: {error}"
        raise ConfigError("--custom", rule, str(path), "Mend it.") from error
    if Path(getattr(module, "__file__", None) or "").resolve() != path.resolve():
        rule = "must not have the name of a module that is loaded already"
        raise ConfigError("--custom", rule, str(path), "Rename the file.")
    found = getattr(module, name, None)
    if not isinstance(found, Custom):
        raise ConfigError(
            "--custom", f"must name a Custom in {path.name}", name, f"Write {name} = Custom(...)."
        )
    return found
