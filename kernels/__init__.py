"""Pure functions: numbers and arrays in, numbers and arrays out.

No files, clock, environment, printing or global random state. Each module has a thin public layer (checks,
dtypes, broadcasting, units, errors) over jitted kernels (arrays and scalars only). The functions lie by
topic, in :mod:`lagsweep.kernels.memory`, ``sync``, ``staleness``, ``masks``, ``overlap``, ``recovery``,
``contract``, ``selection`` and ``draws``; every one is also a name of this package. Names are loaded on
first use, so importing this package does not load Numba.
"""

from __future__ import annotations

from ._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
