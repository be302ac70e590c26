"""Public names that are loaded on first use, listed in the ``__init__.pyi`` beside each ``__init__.py``.

Editors and type checkers read the stub; ``lazy_loader`` reads it too when the package is imported, so no
second table of names can fall behind. The words for an unknown name are Python's own, which ``lazy_loader``
does not use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lazy_loader


def attach_stub(
    package: str, file: str, *own: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose stub imports its public names.

    Parameters
    ----------
    package, file : str
        ``__name__`` and ``__file__`` of the package.
    *own : str
        Public names that the package defines itself.
    """
    load, _, listed = lazy_loader.attach_stub(package, file)
    public = sorted([*listed, *own])

    def load_name(name: str) -> Any:
        """Load a public name on first use (PEP 562); it is kept in the package."""
        if name not in listed:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load(name)

    return load_name, public.copy, public
