"""Pure functions: numbers and arrays in, numbers and arrays out.

No files, clock, environment, printing or global random state. Each module has a thin public layer (checks,
dtypes, broadcasting, units, errors) over jitted kernels (arrays and scalars only). Names are loaded on
first use, so importing this package does not load Numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ._names import KERNEL_NAMES

__all__ = sorted(KERNEL_NAMES)


def __getattr__(name: str) -> Any:
    """Load a public kernel function on first use (PEP 562) and keep it."""
    try:
        module_name = KERNEL_NAMES[name]
    except KeyError:
        raise AttributeError(f"module 'lagsweep.kernels' has no attribute {name!r}") from None
    value = getattr(import_module(module_name), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public functions, loaded or not."""
    return sorted({*globals(), *KERNEL_NAMES})
