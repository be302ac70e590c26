"""The command ``lagsweep``: one small module per sub-command, loaded only when it is called."""

from __future__ import annotations

from .main import main

__all__ = ["main"]
