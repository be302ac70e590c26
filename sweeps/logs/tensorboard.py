"""TensorBoard's scalars as a table, where its package is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...kernels.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl


def read_scalars(path: Path) -> tuple[pl.DataFrame, str, str, list[int]]:
    """Read the scalars of an event file, or of a folder of some; a row a step.

    Raises
    ------
    ConfigError
        If TensorBoard's package is missing, or there are no scalars.
    """
    import polars as pl

    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        way_out = "Install it, as pip install 'lagsweep[tensorboard]', or export the run as CSV."
        raise ConfigError("path", "needs the package tensorboard", str(path), way_out) from None
    if not path.exists():
        raise ConfigError("path", "must name a file or folder that exists", str(path), "Check the path.")
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    columns: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            columns.setdefault(int(event.step), {})[tag] = float(event.value)
    if not columns:
        raise ConfigError("path", "must hold scalars of TensorBoard", str(path), "Name the run's own folder.")
    steps = sorted(columns)
    names = list(dict.fromkeys(tag for step in steps for tag in columns[step]))
    frame = pl.DataFrame(
        {"step": steps, **{name: [columns[step].get(name) for step in steps] for name in names}}
    )
    return frame, str(path), "tensorboard", list(range(1, len(steps) + 1))
