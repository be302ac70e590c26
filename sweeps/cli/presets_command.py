"""``lagsweep presets``: list the configurations of real systems, or explain one."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command("presets")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, as_json: bool) -> None:
    """List the presets, or explain NAME: its knobs, its rules, its lag bound and what it leaves out."""
    from lagsweep.sweeps.presets import all_presets, find_preset

    if name is None:
        rows = [_summary(preset) for preset in all_presets().values()]
        click.echo(json.dumps(rows, indent=1) if as_json else _list(rows))
        return
    preset = find_preset(name)
    click.echo(json.dumps(_details(preset), indent=1) if as_json else _explained(preset))


def _summary(preset: Any) -> dict[str, Any]:
    return {
        "name": preset.name,
        "title": preset.title,
        "lag_bound": preset.lag_bound,
        "bound_kind": preset.bound_kind,
        "alias_of": preset.alias_of,
    }


def _details(preset: Any) -> dict[str, Any]:
    from lagsweep.sweeps.presets import preset_settings

    rules = preset_settings(preset.name, {})
    return {
        **_summary(preset),
        "repository": preset.repository,
        "commit": preset.commit,
        "date": preset.date,
        "knobs": [
            {"name": knob.name, "default": knob.default, "text": knob.text, "choices": list(knob.choices)}
            for knob in preset.knobs
        ],
        "leaves_out": list(preset.leaves_out),
        "rules_at_defaults": rules,
    }


def _list(rows: list[dict[str, Any]]) -> str:
    width = max(len(row["name"]) for row in rows)
    kind = max(len(row["bound_kind"]) for row in rows)
    lines = [f"{'preset'.ljust(width)}  {'bound'.ljust(kind)}  what it follows"]
    for row in rows:
        alias = f" (same rules as {row['alias_of']})" if row["alias_of"] else ""
        text = f"{row['title']}{alias}"
        room = 80 - width - kind - 4
        lines.append(
            f"{row['name'].ljust(width)}  {row['bound_kind'].ljust(kind)}  "
            f"{text if len(text) <= room else text[: room - 1] + '…'}"
        )
    return "\n".join([*lines, "", "lagsweep presets NAME explains one."])


def _explained(preset: Any) -> str:
    import textwrap

    details = _details(preset)

    def block(title: str, lines: list[str]) -> list[str]:
        wrapped = [
            part
            for line in lines
            for part in textwrap.wrap(line, 78, initial_indent="  ", subsequent_indent="    ")
        ]
        return [title, *wrapped, ""]

    source = preset.repository + (f" at {preset.commit} ({preset.date})" if preset.commit else "")
    out = [f"{preset.name}: {preset.title}", f"  rules read from {source}", ""]
    if preset.alias_of:
        out += [f"  the same rules as {preset.alias_of}, under this system's names", ""]
    knobs = [f"{knob.name} = {_shown(knob.default)}: {knob.text}" for knob in preset.knobs]
    out += block("Knobs and the system's defaults", knobs or ["none"])
    out += block("Lag bound", [f"{preset.lag_bound} ({preset.bound_kind})"])
    rules = details["rules_at_defaults"]
    out += block(
        f"Rules at the defaults, for batches of {rules['batch_groups']} groups of {rules['group_size']}",
        [
            f"{key} = {_shown(value)}"
            for key, value in rules.items()
            if key not in ("batch_groups", "group_size")
        ],
    )
    out += block("Left out", list(preset.leaves_out) or ["nothing that we know of"])
    return "\n".join(out).rstrip()


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return json.dumps(value) if isinstance(value, list | dict | bool) else str(value)
