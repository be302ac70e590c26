"""Which cell of a stored sweep is meant: ``--cell ID`` or ``--cell max_lag=2,sync_cadence=1``."""

from __future__ import annotations

from typing import Any

from ...kernels.errors import ConfigError


def read_cell(text: str, flag: str = "--cell") -> int | dict[str, Any]:
    """Read a cell from text.

    Raises
    ------
    ConfigError
        If it is neither an id nor axis values.

    Examples
    --------
    >>> read_cell("7643353998165111"), read_cell("queue_cap=300_000,max_lag=2")
    (7643353998165111, {'queue_cap': 300000, 'max_lag': 2})
    """
    from ..spec.axes import field_of_axis
    from .config_flags import read_text

    text = text.strip()
    if "=" not in text:
        try:
            return int(text.replace(",", ""))
        except ValueError:
            raise ConfigError(
                flag, "must be a cell's id or AXIS=VALUE,…", text, "lagsweep show lists the cells."
            ) from None
    cell: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not value.strip():
            raise ConfigError(flag, "must read AXIS=VALUE,…", part, "Write max_lag=2,sync_cadence=1.")
        field = field_of_axis(name, flag)
        value = value.strip()
        # A law is named by its label in the sweep.
        is_label = (field == "response_length" and ":" not in value) or (
            field == "drift" and not value.startswith(("{", "from_records:"))
        )
        cell[name] = value if is_label else read_text(field, value, flag)
    return cell
