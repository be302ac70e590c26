"""Policy lag, importance weights and effective sample size."""

from __future__ import annotations

from .._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
