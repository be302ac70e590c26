"""What ``calibrate`` and ``whatif`` share: the log, how it is read, what is known of the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...kernels.errors import ConfigError
from ..presets.systems import read_scalar
from .config_flags import changes_from_flags, config_options, preset_from_flags
from .option_groups import Themes
from .outputs import free_outputs
from .shared import tell_compiling, with_engine_fields

KNOWN_NOTE = (
    "Settings of the pipeline that are known of the run: what is given is not fitted. In brackets what holds "
    "where neither the log nor a flag says it."
)
# Heads of the options, for their help.
LOG_THEMES: Themes = {
    "How the log is read": ("framework", "columns", "units", "held", "fit_steps"),
    "What is known of the run": (
        "preset", "knobs", "lengths", "samples", "rollout_gpus", "trainer_gpus", "other_size",
    ),
}  # fmt: skip


def calibrate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a log is read and what is known of its run."""
    for option in reversed(
        (
            click.option("--framework", metavar="NAME", help="Who wrote the log; found by its columns."),
            click.option(
                "--column", "columns", multiple=True, metavar="NAME=COLUMN",
                help="What a column is: step_seconds, wait_seconds, training_seconds, ...; repeatable.",
            ),
            click.option(
                "--unit", "units", multiple=True, metavar="NAME=UNIT",
                help="A column's unit: s, ms, min, ...; repeatable.",
            ),
            click.option(
                "--lengths", type=click.Path(path_type=Path), metavar="FILE",
                help="Single responses with their prompts: the spread of lengths.",
            ),
            click.option(
                "--samples", type=click.Path(path_type=Path), metavar="FILE",
                help="Samples of the engines (vLLM, SGLang): the engine is fitted to them.",
            ),
            click.option("--rollout-gpus", type=float, metavar="N", help="GPUs that generate."),
            click.option("--trainer-gpus", type=float, metavar="N", help="GPUs that train."),
            click.option(
                "--other-size", multiple=True, metavar="GPUS=LOG",
                help="A log of the same training on other GPUs of the trainer; repeatable.",
            ),
            click.option("--preset", metavar="NAME", help="Whose rules the run follows."),
            click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="One of its knobs."),
            click.option(
                "--held", type=click.FloatRange(0, 0.9), default=0.3, show_default=True, metavar="SHARE",
                help="Last steps that are predicted and not fitted on.",
            ),
            click.option(
                "--fit-steps", type=click.IntRange(min=20), metavar="N",
                help="Fit on the first N steps instead.",
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return config_options(function)


def calibrated(logs: tuple[Path, ...], options: dict[str, Any]) -> Any:
    """Calibrate on logs with what the options say.

    Raises
    ------
    ConfigError
        For what is wrong with the log or an option, and then for files in the way of what will be written.
    """
    from ..calibrate.calibrate import fitted_to, read_given

    fields = changes_from_flags(options) | preset_from_flags(options["preset"], options["knobs"])
    fields = with_engine_fields({}, fields)
    given = read_given(
        list(logs),
        preset=fields.pop("preset", None),
        lengths=options["lengths"],
        samples=options["samples"],
        rollout_gpus=options["rollout_gpus"],
        trainer_gpus=options["trainer_gpus"],
        other_sizes=_sizes(options["other_size"]),
        held=options["held"],
        fit_steps=options["fit_steps"],
        framework=options["framework"],
        columns=named("--column", options["columns"]),
        units=named("--unit", options["units"]),
        fields=fields,
    )
    free_outputs()
    tell_compiling(None, options["quiet"])
    return fitted_to(given)


def checked_calibration_page(path: Path | None) -> Path | None:
    """Refuse a page's name before any work is done; None is no page.

    Raises
    ------
    ConfigError
    """
    if path is None:
        return None
    from ..pages.calibration import checked_calibration_page as checked

    return checked(path)


def _sizes(given: tuple[str, ...]) -> dict[float, str]:
    """Read GPUS=LOG options."""
    found: dict[float, str] = {}
    for gpus, path in named("--other-size", given).items():
        number = read_scalar(gpus)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError("--other-size", "must be GPUS=LOG", gpus, "Write --other-size 64=log.csv.")
        found[number] = path
    return found


def named(flag: str, given: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=TEXT options.

    Raises
    ------
    ConfigError
        For one without an equals sign, or a name given twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise ConfigError(flag, "must be NAME=TEXT", text, f"Write {flag} NAME=TEXT.")
        if name in found:
            raise ConfigError(f"{flag} {name}", "must be given once", value, "Leave one out.")
        found[name] = value
    return found
