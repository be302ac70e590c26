"""What a table of means does not show is said beside it, and a failed baseline is not called done."""

from __future__ import annotations

import pytest

from lagsweep import LengthLaw, PipelineConfig, run_sweep
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.cli.shared import print_result, remarks

BASE = PipelineConfig(duration_seconds=200, rollout_workers=8)
RUN = ["run", "--quiet", "--seeds", "2", "--duration-seconds", "100"]


def test_stalled_settings_are_counted():
    ds = run_sweep(BASE, {"queue_cap": [500, 5000], "max_lag": [0, 1]}, seeds=2, progress=False)

    assert remarks(ds)[0].startswith("note: stalled in every run: 2 of 4 configurations;")


def test_a_sweep_that_trains_needs_no_remark():
    assert remarks(run_sweep(BASE, {"max_lag": [1, 2]}, seeds=2, progress=False)) == []


def test_a_baseline_that_has_no_meaning_is_said_to_be_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([*RUN, "--baseline", "--group-size", "2", "--axis", "max_lag=1,2"])

    assert stop.value.code == 0
    assert "note: no sequential baseline" in capsys.readouterr().err


def test_a_failed_baseline_exits_with_1(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main([*RUN, "--baseline", "--axis", "max_lag=1,2"])
    from lagsweep import open_sweep

    (folder,) = (tmp_path / "results").iterdir()
    ds = open_sweep(folder).load()
    ds["baseline_status"][0] = 2
    capsys.readouterr()

    assert print_result(ds, folder, as_json=False) == 1
    assert "failed: 0 runs, and 1 of the sequential baseline" in capsys.readouterr().err


def test_a_law_that_is_mostly_cut_is_said(capsys):
    cut, whole = LengthLaw.geometric(mean=9000, maximum=1000), LengthLaw.fixed(500)
    ds = run_sweep(BASE, {"response_length": [cut, whole], "max_lag": [1, 2]}, seeds=2, progress=False)

    assert [line for line in remarks(ds) if "cut" in line] == [
        "note: 89% of the responses of geometric(9000) are cut at its maximum, 1,000 tokens"
    ]
    with pytest.raises(SystemExit):
        main(["simulate", "--law", "geometric:9000:1000"])
    assert "89% of the responses" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["simulate", "--law", "lognormal:9000:0.8"])
    assert "would cut 97% of the responses" in capsys.readouterr().err


def test_a_run_too_short_for_one_update_says_what_an_update_takes(capsys):
    flags = ["--rollout-workers", "64", "--batch-tokens", "120000", "--law", "shipped:aime-rl-1000"]
    needs = "a batch takes 38 s to make and 344 s to train, and the run lasts 120 s"
    base = PipelineConfig(
        rollout_workers=64, batch_tokens=120_000, response_length=LengthLaw.shipped("aime-rl-1000")
    )

    assert f"note: the run is too short in the first of them: {needs}" in remarks(
        run_sweep(base, {"max_lag": [1, 2]}, seeds=2, progress=False)
    )
    with pytest.raises(SystemExit):
        main(["simulate", *flags])
    assert needs in " ".join(capsys.readouterr().out.split())


def test_a_long_run_without_an_update_is_not_called_too_short():
    base = BASE.replace(batch_tokens=9000, max_queue_tokens=500, duration_seconds=2000)
    lines = remarks(run_sweep(base, {"max_lag": [1, 2]}, seeds=2, progress=False))

    assert any("trained nothing in any run: 2 of 2" in line for line in lines)
    assert not any("too short" in line for line in lines)
