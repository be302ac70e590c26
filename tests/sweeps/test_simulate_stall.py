"""A run that cannot go on says why, and the command does not call it done."""

from __future__ import annotations

import json

import pytest

from lagsweep.sweeps.cli.main import main

SHORT = ["simulate", "--duration-seconds", "200", "--quiet"]


def _run(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return stop.value.code, capsys.readouterr().out


def test_a_stall_names_the_settings_in_conflict_and_exits_with_1(capsys):
    code, out = _run([*SHORT, "--max-queue-tokens", "1000", "--batch-tokens", "9000"], capsys)

    assert code == 1
    words = " ".join(out.split())
    assert "Stalled, last progress at" in words
    assert "max_queue_tokens (1000) closes admission before the queue holds batch_tokens (9000)." in words


def test_starvation_by_a_slow_cadence_exits_with_1(capsys):
    code, out = _run([*SHORT, "--max-policy-lag", "0", "--sync-every-updates", "5"], capsys)

    assert code == 1
    assert "Starved, last progress at" in " ".join(out.split())


def test_a_run_that_goes_on_exits_with_0(capsys):
    code, out = _run([*SHORT, "--json"], capsys)

    assert code == 0
    assert json.loads(out)["metrics"]["updates"] > 0


def test_a_knob_of_a_preset_is_a_flag(capsys):
    flags = ["--preset", "areal", "--knob", "max_head_offpolicyness=2", "--batch-groups", "2", "--json"]
    code, out = _run([*SHORT, *flags], capsys)

    assert code == 0
    assert json.loads(out)["config"]["limits"] == [{"count": "started", "done": "published", "groups": 6}]
