"""What ``help()`` shows of a model: every field with its default, unit, layer and line."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

# Units by the last words of a field's name.
_UNITS = {
    "tokens_per_second": "tokens/s",
    "seconds": "s",
    "tokens": "tokens",
    "length": "tokens",
    "lag": "versions",
    "groups": "groups",
    "updates": "updates",
    "batches": "batches",
    "workers": "slots",
}


class _DefaultLaw:
    """Stands for the default law: making the law itself at import would load SciPy."""

    def __repr__(self) -> str:
        return "LengthLaw.lognormal()"


LAYERS = {
    1: "core",
    2: "generation",
    3: "rules",
    4: "failures",
}  # what the model's levels are called for people


def level_of(field: FieldInfo) -> int:
    """Tell which level of the model a field belongs to (1 to 4)."""
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    return int(str(extra["level"]))


def unit_of(field: str) -> str:
    """Return the unit of a field by the end of its name; empty where it has none.

    Examples
    --------
    >>> unit_of("train_tokens_per_second"), unit_of("max_policy_lag"), unit_of("mode")
    ('tokens/s', 'versions', '')
    """
    return next((unit for ending, unit in _UNITS.items() if field.endswith(ending)), "")


def show_fields(model: type[BaseModel]) -> None:
    """Write the fields into the model's docstring, before what it raises, and into its signature."""
    shown = {
        name: field.default if field.default_factory is None else _DefaultLaw()
        for name, field in model.model_fields.items()
    }
    lines = ["Parameters", "----------"]
    for name, field in model.model_fields.items():
        unit = unit_of(name)
        facts = [f"default {shown[name]!r}", *([unit] if unit else []), LAYERS[level_of(field)]]
        lines += [f"{name} : {', '.join(facts)}", f"    {field.description}"]
    section = "\n".join(f"    {line}" for line in lines)
    model.__doc__ = (model.__doc__ or "").replace("\n    Raises\n", f"\n{section}\n\n    Raises\n", 1)
    model.__signature__ = _signature(shown)  # without the validators, which fill pages


def _signature(defaults: dict[str, Any]) -> Signature:
    return Signature([Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name]) for name in defaults])
