"""What a preset is made of: a system's knobs, the workload it may look at, its rules and its lag bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...kernels.errors import ConfigError, nearest
from ..checks import Flag, RealNumber, checked, mapping_of
from ..config.engine import Engine

LARGEST_KNOB = 2**52  # rules multiply knobs; what comes out must be a number that a field takes or refuses
KnobValue = int | float | bool | str | None


@dataclass(frozen=True)
class Knob:
    """One setting of a system, under that system's own name.

    Parameters
    ----------
    name : str
    default : int, float, bool, str or None
        The system's default; its type is the knob's type, and a knob that may be left open is whole.
    text : str
        What it does there.
    minimum, maximum : float, optional
        Smallest and largest legal value.
    choices : tuple of str
        The legal words, for a knob that takes one.
    """

    name: str
    default: KnobValue
    text: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def checked(self, value: object) -> KnobValue:
        """Return the value in the knob's type.

        Raises
        ------
        ConfigError
            For a value of another type or out of range.

        Examples
        --------
        >>> Knob("async_steps", 8, "batches outstanding", 1).checked(4.0)
        4
        """
        if self.choices:
            if value not in self.choices:
                rule = f"must be one of {', '.join(self.choices)}"
                way_out = nearest(str(value), self.choices) or f"The default is {self.default}."
                raise ConfigError(self.name, rule, value, way_out)
            return value
        if isinstance(self.default, bool):
            return checked(Flag, self.name, value)
        if value is None and self.default is None:
            return None
        return self._number(value)

    def _number(self, value: Any) -> Any:
        whole = not isinstance(self.default, float)
        way_out = "Leave it out." if self.default is None else f"The default is {self.default}."
        number = checked(RealNumber, self.name, value, rule="must be a finite number", way_out=way_out)
        if abs(number) > LARGEST_KNOB:
            raise ConfigError(self.name, "must be at most 2**52", value, way_out)
        if whole and number != int(number):
            raise ConfigError(self.name, "must be a whole number", value, way_out)
        if self.minimum is not None and number < self.minimum:
            raise ConfigError(self.name, f"must be at least {self.minimum:g}", value, way_out)
        if self.maximum is not None and number > self.maximum:
            raise ConfigError(self.name, f"must be at most {self.maximum:g}", value, way_out)
        return int(number) if whole else number


@dataclass(frozen=True)
class Workload:
    """What a preset may look at: the batch in groups, and the hardware it is set beside."""

    batch_groups: int
    group_size: int
    rollout_workers: int
    train_tokens_per_second: float
    decode_slowdown_per_rollout: float
    engine: Engine | None = None


@dataclass(frozen=True)
class Alias:
    """Another preset that gives the very same configuration.

    Attributes
    ----------
    preset : str
    when : str
        At which knobs of the two; ``"always"`` if the two differ in names only.
    """

    preset: str
    when: str


@dataclass(frozen=True)
class Preset:
    """A real system's rules.

    Attributes
    ----------
    name, title : str
    repository, commit, date : str
        Where the rules were read, and of which day they are.
    knobs : tuple of Knob
    rules : callable
        ``rules(workload, **knobs) -> dict`` of configuration fields.
    lag_bound : str
        What bounds the lag of what is trained, in the system's own knobs and unit.
    largest_lag : callable
        ``largest_lag(workload, **knobs)``: that bound in versions (updates); None if there is none.
    bound_kind : {"exact", "hard", "typical", "none"}
        ``exact``: the lag is this, from the second batch on, however long the rollouts; ``hard``: it can be
        proved for every trained sample; ``typical``: an aggregate is bounded, a straggler may exceed it.
    leaves_out : tuple of str
        What the system does and the preset does not.
    aliases : tuple of Alias
        Presets that give the same configuration, and when. Declared at one of the two.
    needs : tuple of str
        Fields of the workload that the rules replace by others of their own.
    """

    name: str
    title: str
    repository: str
    commit: str
    date: str
    knobs: tuple[Knob, ...]
    rules: Callable[..., dict[str, Any]]
    lag_bound: str
    largest_lag: Callable[..., int | None]
    bound_kind: str
    leaves_out: tuple[str, ...]
    aliases: tuple[Alias, ...] = ()
    needs: tuple[str, ...] = ()

    def checked_knobs(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Return every knob's value; those left out are at the system's defaults.

        Raises
        ------
        ConfigError
            For an unknown knob or a bad value.
        """
        by_name = {knob.name: knob for knob in self.knobs}
        knobs = mapping_of(self.name, knobs, "Give knob names and values.")
        for name in knobs:
            if name not in by_name:
                hint = nearest(name, by_name) or f"Its knobs: {', '.join(by_name) or 'none'}."
                raise ConfigError(f"{self.name}.{name}", "is not a knob of this preset", knobs[name], hint)
        return {name: knob.checked(knobs.get(name, knob.default)) for name, knob in by_name.items()}


def limit(count: str, done: str, groups: int) -> list[dict[str, Any]]:
    """Return a ledger of one line."""
    return [{"count": count, "done": done, "groups": groups}]
