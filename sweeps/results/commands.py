"""The commands that add to a sweep, resume it or run one of its runs again, ready to be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.status import NOT_RUN

if TYPE_CHECKING:
    import xarray

    from ..spec.spec import SweepSpec


class Commands:
    """The commands that add to a sweep: in the shell for a stored one, in Python for one in memory."""

    def __init__(self, spec: SweepSpec, ds: xarray.Dataset, store: str | Path | None) -> None:
        self.spec = spec
        self.unfinished = bool((ds["status"].values == NOT_RUN).any())
        source = ds.encoding.get("source")
        self.store = str(store) if store is not None else None
        if self.store is None and source:
            self.store = str(Path(source).parent if Path(source).name == "cells.zarr" else source)

    def run(self, *flags: str) -> str:
        """Run the stored sweep again, extended."""
        store = self.store or "STORE"
        parts = ["lagsweep", "run", f"{store}/spec.toml", "--store", store, *flags, *self._custom()]
        return shlex.join(parts)

    def resume(self) -> str:
        """Go on with an interrupted run."""
        return self.run()

    def seeds(self, count: int) -> str:
        """Add seeds; where some of the sweep's own are missing and they are enough, go on."""
        if self.unfinished and count <= len(self.spec.seeds):
            if self.store:
                return self.resume()
            count = len(self.spec.seeds)
        return self.run("--seeds", str(count)) if self.store else f"run_sweep(base, axes, seeds={count})"

    def values(self, axis: str, values: Sequence[Any]) -> str:
        """Add values to an axis; numbers are listed in order."""
        values = _in_order(values)
        if self.store:
            return self.run("--axis", f"{axis}={','.join(_flag_text(value) for value in values)}")
        return f"run_sweep(base, {{..., {axis!r}: {list(values)!r}}}, seeds={len(self.spec.seeds)})"

    def verify(self) -> str:
        """Check the store's data."""
        return shlex.join(["lagsweep", "verify", self.store or "STORE", *self._custom()])

    def trace(self, cell: int, seed: int) -> str:
        """Run one run again, held against the store, and look at it in Perfetto."""
        parts = ["lagsweep", "trace", self.store or "STORE", "--cell", str(cell), "--seed", str(seed)]
        return shlex.join([*parts, *self._custom()])

    def _custom(self) -> list[str]:
        """Say where rules of the user's own go: which file they are in, no store knows."""
        return ["--custom", "FILE.py:NAME"] if self.spec.custom else []

    def replay_in_python(self, cell: int, seed: int) -> str:
        """Run one run again, in Python."""
        run = "simulate_custom" if self.spec.custom else "simulate_pipeline"
        return (
            "import lagsweep as ls\n"
            f"ds = ls.open_sweep({self.store or 'STORE'!r})\n"
            f"run = ls.{run}(ls.config_at(ds, {cell}, seed={seed}){', ...' if self.spec.custom else ''})\n"
            "run.batches_frame()"
        )


def _in_order(values: Sequence[Any]) -> list[Any]:
    """Sort numbers, as a person would type them; anything else stays as it is.

    Examples
    --------
    >>> _in_order([1, 4, 0]), _in_order(["b", "a"])
    ([0, 1, 4], ['b', 'a'])
    """
    return sorted(values) if all(isinstance(value, int | float) for value in values) else list(values)


def _flag_text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
