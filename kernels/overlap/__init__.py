"""Phases that overlap, their makespan, and the cost of the slowest."""

from __future__ import annotations

from .._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
