"""Everything that touches the world: configurations, files, stores, processes, terminals and pages.

Names that a user of the course's notebook imports are loaded on first use.
"""

from __future__ import annotations

from ..kernels._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
