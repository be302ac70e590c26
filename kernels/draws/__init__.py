"""Random numbers by address (Philox blocks) and lengths drawn from a table."""

from __future__ import annotations

from .._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
