"""``lagsweep presets``: list the configurations of real systems, or explain one."""

from __future__ import annotations

import json
from typing import Any

import click

from ..json_text import json_document


@click.command("presets", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, as_json: bool) -> int:
    """List the presets, or explain NAME: its knobs, its rules, its lag bound and what it leaves out."""
    from ..presets.registry import all_presets, find_preset

    if name is None:
        rows = [summary(preset) for preset in all_presets().values()]
        click.echo(json_document("presets", {"presets": rows}, indent=1) if as_json else _list(rows))
        return 0
    preset = find_preset(name)
    click.echo(json_document("preset", details(preset), indent=1) if as_json else _explained(preset))
    return 0


def summary(preset: Any) -> dict[str, Any]:
    """Return what the list shows of a preset."""
    from ..presets.registry import preset_bound_kind, preset_lag_bound

    return {
        "name": preset.name,
        "title": preset.title,
        "lag_bound": preset.lag_bound,
        "lag_bound_at_defaults": preset_lag_bound(preset.name),
        "bound_kind": preset.bound_kind,
        "bound_kind_at_defaults": preset_bound_kind(preset.name),
        "aliases": [{"preset": other, "when": when} for other, when in _aliases(preset.name)],
    }


def _aliases(name: str) -> list[tuple[str, str]]:
    """List the presets that can give the same configuration, declared on either side."""
    from ..presets.registry import all_presets

    found = [(alias.preset, alias.when) for alias in all_presets()[name].aliases]
    found += [
        (other.name, alias.when)
        for other in all_presets().values()
        for alias in other.aliases
        if alias.preset == name
    ]
    return found


def details(preset: Any) -> dict[str, Any]:
    """Return everything that is known of a preset, as plain data."""
    from ..presets.registry import preset_settings

    return {
        **summary(preset),
        "repository": preset.repository,
        "commit": preset.commit,
        "date": preset.date,
        "knobs": [
            {
                "name": knob.name,
                "default": knob.default,
                "text": knob.text,
                "minimum": knob.minimum,
                "maximum": knob.maximum,
                "choices": list(knob.choices),
            }
            for knob in preset.knobs
        ],
        "leaves_out": list(preset.leaves_out),
        "rules_at_defaults": preset_settings(preset.name, {}),
    }


def _list(rows: list[dict[str, Any]]) -> str:
    from ..results.text import grid, terminal_width, wrapped

    bounds = [(row["lag_bound_at_defaults"], row["bound_kind_at_defaults"]) for row in rows]
    shown = ["none" if bound is None else f"{bound} {kind}" for bound, kind in bounds]
    lines = [[row["name"], bound, row["title"]] for row, bound in zip(rows, shown)]
    notes = [
        wrapped(
            "Lag bound: in versions, with the system's defaults. hard: holds for every trained rollout; "
            "typical: a straggler may pass it; exact: the lag is this."
        ),
        "lagsweep presets NAME explains one.",
    ]
    table = grid(["preset", "lag bound", "what it follows"], lines, left=[0, 1, 2], width=terminal_width())
    return "\n".join([table, "", *notes])


def _explained(preset: Any) -> str:
    facts = details(preset)
    source = preset.repository
    if preset.commit != "none":
        source += f" at {preset.commit} ({preset.date})"
    bound = facts["lag_bound_at_defaults"]
    at_defaults = "none" if bound is None else f"{bound} versions, {facts['bound_kind_at_defaults']}"
    rules = facts["rules_at_defaults"]
    batch = f"batches of {rules['batch_groups']} groups of {rules['group_size']}"
    out = [f"{preset.name}: {preset.title}", *_wrapped([f"rules read from {source}"]), ""]
    knobs = [f"{knob.name} = {_shown(knob.default)}: {knob.text}" for knob in preset.knobs]
    out += _block("Knobs and the system's defaults", knobs or ["none"])
    out += _block(
        "Lag bound", [f"{preset.lag_bound} ({preset.bound_kind})", f"at the defaults: {at_defaults}"]
    )
    fields = [
        f"{key} = {_shown(value)}"
        for key, value in rules.items()
        if key not in ("batch_groups", "group_size")
    ]
    out += _block(f"Rules at the defaults, for {batch}", fields)
    same = [f"{other}: {when}" for other, when in _aliases(preset.name)]
    out += _block("The same configuration as", same) if same else []
    out += _block("Left out", list(preset.leaves_out))
    return "\n".join(out).rstrip()


def _block(title: str, lines: list[str]) -> list[str]:
    return [title, *_wrapped(lines), ""]


def _wrapped(lines: list[str]) -> list[str]:
    import textwrap

    from ..results.text import terminal_width

    return [
        part
        for line in lines
        for part in textwrap.wrap(line, terminal_width(), initial_indent="  ", subsequent_indent="    ")
    ]


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return " and ".join(
            f"{item['count']} < {item['done']} batches + {item['groups']} groups" for item in value
        )
    return json.dumps(value) if isinstance(value, bool) else str(value)
