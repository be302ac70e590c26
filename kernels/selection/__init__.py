"""Which of several systems is best, by paired runs, with a stated probability."""

from __future__ import annotations

from .._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
