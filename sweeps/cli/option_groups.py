"""Help by theme: a command's own options, and the fields of a pipeline with units and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import click

from ..config.help_text import unit_of

# Every field of a pipeline, by what a user is busy with; what has no place here comes last.
FIELD_THEMES: dict[str, tuple[str, ...]] = {
    "The run": ("mode", "duration_seconds", "warmup_seconds", "stop_after_updates", "seed"),
    "Generation": (
        "rollout_workers", "response_length", "decode_tokens_per_second", "rollout_overhead_seconds",
        "group_size", "prompt_tokens", "prompt_sigma", "decode_slowdown_per_rollout", "environment_seconds",
    ),
    "Queue": ("max_queue_tokens", "admission", "max_queue_groups", "queue_overflow", "queue_order"),
    "Training": (
        "batch_tokens", "batch_groups", "updates_per_batch", "train_tokens_per_second",
        "train_overhead_seconds", "train_spread", "train_slowdown_when_generating",
        "generation_while_training", "prefetch_batches", "fetch_seconds", "evaluation_every_updates",
        "evaluation_seconds", "evaluation_stops_generation", "filter_probability",
    ),
    "Publication of weights": (
        "sync_every_updates", "sync_seconds", "publication", "resume_seconds", "reprefill_tokens_per_second",
        "publication_blocks_trainer",
    ),
    "Lag, and what is too old": (
        "max_policy_lag", "drift_per_version", "drift", "drift_length_exponent", "stale_check",
        "stale_action", "redraw_on_requeue", "cancel_in_flight",
    ),
    "Which groups may start": ("limits", "max_running_groups", "admit", "one_batch_at_a_time"),
}  # fmt: skip
ENGINE_THEME = "Inference engines, in place of one decode speed"
REST = "Other settings of a pipeline"
OWN = "Options"
OPTION_MARK = "+"
_FLAG_COLUMN = 34  # characters, the same in all groups
FIELD_NOTE = (
    "Settings of the pipeline. In brackets the default and its unit; with --preset the system's rules come "
    f"first. {OPTION_MARK} marks an option beyond the core: with one in use a sweep has no sequential "
    "baseline."
)
Themes: TypeAlias = Mapping[str, tuple[str, ...]]


class FieldOption(click.Option):
    """A flag that sets a field of a pipeline; its help ends with the field's default and unit."""

    def __init__(self, *args: Any, field: str, default_text: str, beyond_core: bool, **more: Any) -> None:
        super().__init__(*args, **more)
        self.field, self.default_text, self.beyond_core = field, default_text, beyond_core

    def record(self, ctx: click.Context, defaults: Mapping[str, str]) -> tuple[str, str] | None:
        """Return the flag and its help, with the default that holds for the command."""
        found = self.get_help_record(ctx)
        if found is None:
            return None
        flag, text = found
        default = defaults.get(self.field, self.default_text)
        mark = f" {OPTION_MARK}" if self.beyond_core else ""
        facts = _default_in_unit(default, unit_of(self.field))
        return flag, f"{text} [{facts}]{mark}" if facts else f"{text}{mark}"


def _default_in_unit(default: str, unit: str) -> str:
    """Write a default with its unit: a number before it, a word with the unit after.

    Examples
    --------
    >>> [_default_in_unit(*pair) for pair in (("50", "tokens/s"), ("none", "groups"), ("", "s"))]
    ['50 tokens/s', 'none; in groups', 'in s']
    """
    if not unit:
        return default
    if not default:
        return f"in {unit}"
    return f"{default} {unit}" if default[0].isdigit() else f"{default}; in {unit}"


class GroupedCommand(click.Command):
    """A command whose help is in groups.

    Attributes
    ----------
    themes : mapping
        Head -> names of the command's own options; those in no group stand under ``Options``.
    field_note : str
        What is said before the fields.
    """

    themes: ClassVar[Themes] = {}
    field_note: ClassVar[str] = FIELD_NOTE

    @property
    def field_defaults(self) -> Mapping[str, str]:
        """Defaults of fields where the command has its own."""
        return {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each group under its head."""
        defaults = self.field_defaults
        own: dict[str, list[tuple[str, str]]] = {head: [] for head in (*self.themes, OWN)}
        fields: dict[str, list[tuple[str, str]]] = {head: [] for head in (*FIELD_THEMES, ENGINE_THEME, REST)}
        heads = {name: head for head, names in self.themes.items() for name in names}
        places = {field: head for head, names in FIELD_THEMES.items() for field in names}
        order = [field for names in FIELD_THEMES.values() for field in names]
        flags = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        of_fields = [one for one in flags if isinstance(one, FieldOption)]
        of_fields.sort(key=lambda one: order.index(one.field) if one.field in order else len(order))
        for field in of_fields:
            record = field.record(ctx, defaults)
            head = ENGINE_THEME if field.field.startswith("engine") else places.get(field.field, REST)
            fields[head] += [record] if record else []
        for option in flags:
            record = None if isinstance(option, FieldOption) else option.get_help_record(ctx)
            name = "help" if "--help" in option.opts else str(option.name)
            own[heads.get(name, OWN)] += [record] if record else []
        widest = min(_FLAG_COLUMN, formatter.width // 2)
        for head, records in own.items():
            _write(formatter, head, records, widest)
        formatter.write_paragraph()
        formatter.write_text(self.field_note)
        for head, records in fields.items():
            _write(formatter, head, records, widest)


def _write(formatter: click.HelpFormatter, head: str, records: list[tuple[str, str]], widest: int) -> None:
    if records:
        with formatter.section(head):
            formatter.write_dl(records, col_max=widest)
