"""Flags of the command line: what they mean, and what a slip is answered with."""

from __future__ import annotations

import pytest

from lagsweep import ConfigError, PipelineConfig, config_at, run_sweep
from lagsweep.sweeps.cli.config_flags import read_text
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.spec.axes import field_of_axis


def test_the_bare_name_of_a_shipped_law_is_told_its_short_form():
    with pytest.raises(ConfigError, match=r"Write shipped:aime-rl-1000\."):
        read_text("response_length", "aime-rl-1000", "--law")


def test_the_bare_name_of_a_knob_is_told_its_axis():
    with pytest.raises(ConfigError, match=r"A preset's knob is swept as preset\.max_head_offpolicyness\."):
        field_of_axis("max_head_offpolicyness")


def test_help_shows_the_choices_of_a_field(capsys):
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])

    shown = "".join(capsys.readouterr().out.split())
    assert "[background|drain|pause|abort]" in shown
    assert "[fifo|started|oldest_version|freshest|random]" in shown


def test_batches_in_groups_need_no_word_about_tokens():
    config = PipelineConfig(batch_groups=4, group_size=2)

    assert config.batch_tokens is None
    assert PipelineConfig().replace(batch_groups=4) == PipelineConfig(batch_groups=4)
    with pytest.raises(ConfigError, match=r"batch_tokens: must be none when batch_groups is given"):
        PipelineConfig(batch_groups=4, batch_tokens=10)


def test_batches_in_groups_can_be_swept():
    base = PipelineConfig(duration_seconds=30, group_size=2, rollout_workers=8)
    ds = run_sweep(base, {"batch_groups": [1, 2]}, seeds=1, progress=False)

    assert config_at(ds, {"batch_groups": 2}, seed=0) == base.replace(batch_groups=2, seed=0)
