"""Lagsweep: simulate asynchronous RL pipelines of language models and sweep their settings.

This module is a facade: every public name is loaded on first use, so that ``import lagsweep`` and the
command's ``--help`` stay fast. The pure functions live in :mod:`lagsweep.kernels`, everything that touches
files, clocks or terminals in :mod:`lagsweep.sweeps`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ._public_names import PUBLIC_NAMES

try:
    __version__ = version("lagsweep")
except PackageNotFoundError:  # a bare checkout on the path, never installed
    __version__ = "0+unknown"

__all__ = ["__version__", *sorted(PUBLIC_NAMES)]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562) and keep it."""
    try:
        module_name = PUBLIC_NAMES[name]
    except KeyError:
        raise AttributeError(f"module 'lagsweep' has no attribute {name!r}") from None
    value = getattr(import_module(module_name), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *PUBLIC_NAMES})
