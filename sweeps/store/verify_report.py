"""What a verification of a stored sweep found, and what a repair did about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...kernels.errors import ConfigError
from ..execute.plan import Part
from ..execute.units import unit_name

Unit = tuple[Part, tuple[int, ...]]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it must be.

    Attributes
    ----------
    kind : str
        metadata, coordinate, foreign file, journal, chunk, table, status or value.
    where : str
    what : str
    """

    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.what}"


@dataclass
class VerifyReport:
    """What a verification found.

    Attributes
    ----------
    findings : list of Finding
    complete : bool
        Whether the store says that it is.
    notes : list of str
        What was not checked, and why.
    repairs : list of str
        What was done about findings.
    left : list of Finding
        What of the findings a repair left; all of them where none was asked for.
    wrong_units : set of (str, str)
        Part and name of the units that findings are about.
    stray_files : list of Path
        Files that findings say do not belong into the store.
    content : str
        Digest of the runs, the same for every store of the same ones; empty where a file does not hold.
    units, units_done, chunks, runs_checked : int
    """

    folder: Path
    complete: bool
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    wrong_units: set[tuple[str, str]] = field(default_factory=set)
    stray_files: list[Path] = field(default_factory=list)
    content: str = ""
    units: int = 0
    units_done: int = 0
    chunks: int = 0
    runs_checked: int = 0
    left: list[Finding] = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.findings

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def add(
        self, kind: str, where: str, what: str, unit: Unit | None = None, stray: Path | None = None
    ) -> None:
        """Note a finding; `unit` is the one that it is about, `stray` a file that is too much."""
        if unit is not None and not (
            isinstance(unit, tuple) and len(unit) == 2 and isinstance(unit[0], Part)
        ):
            raise ConfigError("unit", "must be a part and a place in it", unit, "Leave it out.")
        self.findings.append(Finding(kind, where, what))
        if unit is not None:
            self.wrong_units.add((unit[0].name, unit_name(unit[1])))
        if stray is not None:
            self.stray_files.append(stray)
