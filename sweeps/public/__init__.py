"""Lagsweep: simulate asynchronous RL pipelines of language models and sweep their settings.

This module is a facade: every public name is loaded on first use, so that ``import lagsweep`` and the
command's ``--help`` stay fast; ``__init__.pyi`` lists them all. The pure functions live in
:mod:`lagsweep.kernels`, everything that touches files, clocks or terminals in :mod:`lagsweep.sweeps`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from .kernels._lazy import attach_stub

try:
    __version__ = version("lagsweep")
except PackageNotFoundError:  # a bare checkout on the path, never installed
    __version__ = "0+unknown"

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__, "__version__")
