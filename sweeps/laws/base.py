"""What laws of lengths and laws of seconds have in common: they are values, told apart by their content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Self


class FrozenLaw(ABC):
    """Equality, hash, copies and pickles of a frozen law, a dataclass; the content decides, not the name."""

    @abstractmethod
    def _identity(self) -> tuple[Any, ...]:
        """Return what makes two laws of one class equal."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> Any:
        # Built anew, because NumPy's pickles forget that an array is read-only.
        arguments = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        return _rebuilt, (type(self), arguments)


def _rebuilt(law_class: type, arguments: dict[str, Any]) -> Any:
    return law_class(**arguments)
