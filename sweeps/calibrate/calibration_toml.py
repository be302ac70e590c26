"""A calibrated configuration as the file that ``lagsweep run`` takes, with where each figure is from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checks import text_of
from ..spec.make import make_spec
from ..spec.writing import spec_to_toml
from .text import amount, doubts, verdict

if TYPE_CHECKING:
    from .calibration import Calibration

SEEDS = 4


def calibration_toml(found: Calibration, name: str) -> str:
    """Write a calibration as a spec; what was fitted stands above it as comments.

    Parameters
    ----------
    found : Calibration
    name : str
        What the file will be called.
    """
    name = text_of("name", name, "Name the file, as run.toml.")
    lines = [
        f"A run calibrated on {found.source}: {found.fitted:,} steps fitted, {found.held:,} held.",
        f"Use: lagsweep run {name} --axis NAME=VALUES",
        *doubts(found),
        "",
        *(f"{one.name}: {amount(one)} ({one.rows:,} steps; {one.how})" for one in found.fits),
    ]
    if found.tests:
        lines += ["", "On the held steps:", *(f"{one.name}: {verdict(one)}" for one in found.tests)]
    lines += ["", *(f"assumed: {one}" for one in found.assumed)]
    head = "\n".join(f"# {line}".rstrip() for line in lines)
    return f"{head}\n\n{spec_to_toml(make_spec(found.config, {}, seeds=SEEDS))}"
