"""What became of a run: the codes that datasets and stores keep, and their names."""

from __future__ import annotations

NOT_RUN, DONE, FAILED, EXCLUDED = range(4)
STATUS_NAMES = ("not run", "done", "failed", "excluded")
