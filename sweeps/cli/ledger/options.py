"""Kinds of options that the ledger's commands share: sizes with a unit, lists, KV formats."""

from __future__ import annotations

from typing import Any

import click

from ....kernels.errors import ConfigError

# Bytes per element, and bytes of one scale per token and head (keys and values have one each).
KV_FORMATS: dict[str, tuple[float, int]] = {
    "bf16": (2, 0),
    "fp8": (1, 0),
    "int8-scaled": (1, 4),
    "int4": (0.5, 0),
}


def _flag_name(param: click.Parameter | None) -> str:
    return "size" if param is None else param.opts[0]


class ByteSize(click.ParamType):
    """A size with its unit, such as 80GB or 80GiB; one without a unit is refused, not guessed."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the text as bytes."""
        from ....kernels.memory.units import parse_bytes

        return value if isinstance(value, int) else parse_bytes(value, field=_flag_name(param))


class ListOf(click.ParamType):
    """Values separated by commas, such as 16,32 or 3.18GiB,12GiB."""

    def __init__(self, item: click.ParamType) -> None:
        self.item = item
        self.name = f"{item.name},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """Read each item."""
        if isinstance(value, list):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            way_out = "Separate values by single commas."
            raise ConfigError(_flag_name(param), "must list values", value, way_out)
        return [self.item.convert(part, param, ctx) for part in parts]
