"""Help of the commands with a flag for every field: by theme, each with its default and unit."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from lagsweep.sweeps.cli.config_flags import DEFAULT_LAW, default_text, read_text, written_value
from lagsweep.sweeps.cli.main import sub_command
from lagsweep.sweeps.cli.option_groups import FIELD_THEMES, OPTION_MARK, FieldOption
from lagsweep.sweeps.compare.systems import DEFAULT_WORKLOAD
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.config.engine import Engine
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.spec.axes import checked_value

FIELDS = PipelineConfig.model_fields
COMMANDS = ["run", "simulate", "compare"]


def help_of(name, columns=80):
    outcome = CliRunner().invoke(
        sub_command(name), ["--help"], terminal_width=columns, max_content_width=columns
    )
    assert outcome.exit_code == 0
    return outcome.output


def sections(text):
    """Return head -> what stands below it, spaces folded."""
    heads = re.split(r"^(\S.*):\n(?=  )", text, flags=re.M)
    return {head: " ".join(body.split()) for head, body in zip(heads[1::2], heads[2::2])}


def test_every_field_has_one_theme():
    placed = [field for names in FIELD_THEMES.values() for field in names]

    assert sorted([*placed, "engine"]) == sorted(FIELDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_stands_under_a_head_of_its_own(name):
    text, command = help_of(name), sub_command(name)
    found = sections(text)

    assert "Options" not in found
    assert set(FIELD_THEMES) < set(found)
    for option in command.params:
        if isinstance(option, FieldOption):
            heads = [head for head, body in found.items() if re.search(rf"{option.opts[0]}[ ,]", body)]
            assert heads, option.opts
    own = {name for names in command.themes.values() for name in names} - {"help"}
    assert own == {
        one.name
        for one in command.params
        if one.param_type_name == "option" and not isinstance(one, FieldOption)
    }


def test_defaults_and_units_are_those_of_the_configuration():
    found = sections(help_of("run", 200))

    assert "--decode-tokens-per-second VALUE decode speed of one slot. [50 tokens/s]" in found["Generation"]
    assert "--max-policy-lag N largest lag, in versions, that may be trained. [2 versions]" in " ".join(
        found.values()
    )
    assert f"[{DEFAULT_LAW}; in tokens]" in found["Generation"]
    assert "[none; in updates]" in found["The run"]
    assert "--group-size N rollouts per prompt. [1] +" in found["Generation"]
    assert LengthLaw.from_dict(read_text("response_length", DEFAULT_LAW, "--law")) == LengthLaw.lognormal()


@pytest.mark.parametrize("field", [name for name in FIELDS if name not in ("response_length", "engine")])
def test_a_default_as_it_is_shown_is_the_default_when_typed(field):
    typed = read_text(field, default_text(FIELDS[field]), f"--{field}")

    assert checked_value(field, typed, f"--{field}") == FIELDS[field].default


def test_defaults_of_a_comparison_are_its_workload():
    body = " ".join(help_of("compare", 200).split())

    for field, value in DEFAULT_WORKLOAD.items():
        flag = f"--{field.replace('_', '-')}"
        shown = re.search(rf"{flag}(?:, --law)? \S+ [^\[]*\[([^\]]*)\]", body)
        assert shown, field
        assert shown[1].startswith(written_value(value)), field
    assert "[7000 tokens]" not in body


def test_a_mark_says_what_lies_beyond_the_core():
    command = sub_command("simulate")

    for option in command.params:
        if isinstance(option, FieldOption):
            core = option.field in FIELDS and FIELDS[option.field].json_schema_extra["level"] == 1
            assert option.beyond_core != core
            assert option.record(command.make_context("simulate", []), {})[1].endswith(OPTION_MARK) != core


def test_an_engine_says_what_it_needs():
    assert default_text(Engine.model_fields["step_seconds"]) == "required"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_sixty_columns(name):
    assert max(map(len, help_of(name, 60).splitlines())) <= 62  # a choice of words is not broken
