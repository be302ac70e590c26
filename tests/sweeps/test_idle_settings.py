"""A value of the base without an effect in a cell is left out there, and refused if it has one in none."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import lagsweep as ls
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.cli.trace_command import command as trace_command
from lagsweep.sweeps.config import rules
from lagsweep.sweeps.spec.cells import configs_of

SHORT = {"duration_seconds": 60.0, "rollout_workers": 8, "batch_tokens": 1000}
ENGINE = {"step_seconds": 0.02}
DRIFT = {"law": "from_log_ratios", "lags": [2], "log_ratios": [[-0.1, 0.1]], "level": "token"}
# A value of the base, and an axis that lets it have an effect, then none.
PAIRS = [
    ({"resume_seconds": 0.5}, "publication", ["abort", "pause"]),
    ({"reprefill_tokens_per_second": 900.0}, "publication", ["abort", "background"]),
    ({"reprefill_tokens_per_second": 900.0, "publication": "abort"}, "engine", ["none", ENGINE]),
    ({"decode_tokens_per_second": 40.0}, "engine", ["none", ENGINE]),
    ({"decode_slowdown_per_rollout": 0.01}, "engine", ["none", ENGINE]),
    ({"evaluation_seconds": 3.0}, "evaluation_every_updates", [2, "none"]),
    (
        {"evaluation_stops_generation": True, "evaluation_seconds": 3.0},
        "evaluation_every_updates",
        [2, "none"],
    ),
    ({"max_queue_groups": 5, "batch_groups": 2}, "queue_overflow", ["drop_oldest", "block"]),
    ({"admit": "batch"}, "batch_groups", [2, "none"]),
    ({"queue_order": "started"}, "batch_groups", [2, "none"]),
    ({"one_batch_at_a_time": True, "batch_groups": 2}, "admit", ["batch", "group"]),
    ({"redraw_on_requeue": True, "batch_groups": 2}, "stale_action", ["requeue", "drop"]),
    ({"drift_per_version": 0.4}, "drift", ["none", DRIFT]),
]
IDS = [f"{next(iter(given))}-{axis}" for given, axis, _ in PAIRS]


def written(folder, given, axis, values):
    """A spec file with some base and one axis."""
    base = {**SHORT, **given}
    if "batch_groups" in (*given, axis):
        base.pop("batch_tokens")
    plain = lambda value: (  # noqa: E731
        "{ " + ", ".join(f"{key} = {json.dumps(part)}" for key, part in value.items()) + " }"
        if isinstance(value, dict)
        else json.dumps(value)
    )
    lines = ["seeds = 1", "baseline = false", "[base]"]
    lines += [f"{name} = {plain(value)}" for name, value in base.items()]
    lines += ["[axes]", f"{axis} = [{', '.join(map(plain, values))}]"]
    (folder / "s.toml").write_text("\n".join(lines))
    return folder / "s.toml"


@pytest.mark.parametrize(("given", "axis", "values"), PAIRS, ids=IDS)
def test_it_is_left_out_where_it_has_no_effect_and_kept_where_it_has(tmp_path, given, axis, values):
    spec = ls.load_spec(written(tmp_path, given, axis, values))
    used, idle = configs_of(spec.base, spec.design, range(2))
    fields = ls.PipelineConfig.model_fields
    name = next(iter(given))

    assert getattr(used, name) == given[name]
    assert getattr(idle, name) == fields[name].default
    assert [spec.config(0), spec.config(1)] == [used, idle]
    assert spec.run()["status"].values.tolist() == [[1], [1]]
    again = type(idle).from_dict(idle.to_dict())
    assert again == idle


@pytest.mark.parametrize(("given", "axis", "values"), PAIRS, ids=IDS)
def test_it_is_refused_where_it_has_an_effect_in_no_cell(tmp_path, given, axis, values):
    path = written(tmp_path, given, axis, values[1:])
    with pytest.raises(ls.ConfigError) as caught:
        ls.load_spec(path)

    assert any(
        finding.field.endswith(f"base.{next(iter(given))}") and "no effect in any cell" in finding.rule
        for finding in caught.value.findings
    )


def test_a_single_configuration_refuses_each_of_them():
    values = {name: value for given, _, _ in PAIRS for name, value in given.items()}
    for name in rules._MAY_BE_IDLE:
        fields = {**SHORT, name: values[name]}
        if name in rules.REPLACED_BY_ENGINE:
            fields |= {"engine": ENGINE, "publication": "abort"}
        if name == "drift_per_version":
            fields |= {"drift": DRIFT}
        with pytest.raises(ls.ConfigError, match=f"{name}: (has an effect with|has no effect|belongs to)"):
            ls.PipelineConfig(**fields)


def test_everything_that_can_be_without_an_effect_is_looked_for():
    """A finding of this kind on a field that is not in the list would never be asked for."""
    fields = ls.PipelineConfig.model_fields
    found = set()
    for given, axis, _ in PAIRS:
        plain = {name: None if value == "none" else value for name, value in given.items()}
        base = ls.PipelineConfig(duration_seconds=60.0)
        instead = {"engine": ls.Engine(**ENGINE), "drift": ls.DriftLaw.from_dict(DRIFT)}
        off = {axis: instead.get(axis, fields[axis].default)}
        made = base.model_copy(update={**plain, "batch_groups": None, "batch_tokens": 9, **off})
        findings = [one for one in rules.contradictions(made) if isinstance(one, rules.NoEffect)]
        found |= {one.field for one in findings}
    assert found == set(rules._MAY_BE_IDLE)


def test_systems_with_and_without_an_engine_leave_out_what_it_replaces():
    base = {"decode_tokens_per_second": 40.0, "batch_groups": 2, "group_size": 2, "duration_seconds": 60.0}
    workload = ls.PipelineConfig(**base)
    axes = {"system": ["areal", "miles"], "engine": [None, ls.Engine(**ENGINE)]}
    ds = ls.run_sweep(workload, axes, 1)

    assert (ds["status"].values == 1).all()
    speeds = {
        (one.engine is None, one.decode_tokens_per_second)
        for one in (ls.config_at(ds, int(cell)) for cell in ds.cell.values.ravel())
    }
    assert speeds == {(True, 40.0), (False, 50.0)}


def test_a_stored_run_of_an_axis_of_engines_is_traced(tmp_path):
    base = ls.PipelineConfig(decode_tokens_per_second=40, **SHORT)
    axes = {"engine": [None, ls.Engine(step_seconds=0.02, kv_cache_tokens=4000)]}
    ds = ls.run_sweep(base, axes, 1, store=tmp_path / "st")
    arguments = [
        str(tmp_path / "st"),
        "--cell",
        str(int(ds.cell[1])),
        "-o",
        str(tmp_path / "t.json"),
        "--json",
    ]
    outcome = CliRunner().invoke(trace_command, arguments, standalone_mode=False)

    assert outcome.return_value == 0
    assert json.loads(outcome.stdout)["replay"].startswith("replayed bit for bit")
    names = {
        event.get("args", {}).get("name")
        for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    }
    assert "engine 0" in names


def test_why_cells_are_left_out_is_said_everywhere(tmp_path, capsys):
    base = ls.PipelineConfig(engine=ls.Engine(**ENGINE, kv_cache_tokens=9000), prompt_tokens=100, **SHORT)
    axes = {"engine.kv_cache_tokens": [1000, 2000, 4000], "max_lag": [0, 1]}
    reasons = [
        "2 cells: engine.kv_cache_tokens is 148 tokens short of one rollout (prompt and longest response)",
        "2 cells: engine.kv_cache_tokens is 1,148 tokens short of one rollout (prompt and longest response)",
    ]
    ds = ls.run_sweep(base, axes, 1, store=tmp_path / "st")
    assert (ds["status"].values == 3).sum() == 4

    with pytest.raises(SystemExit):
        main(["show", str(tmp_path / "st")])
    assert all(f"note: left out: {reason}" in capsys.readouterr().err for reason in reasons[:1])
    page = ls.write_report(ds, tmp_path / "r.html", images=False).page.read_text()
    assert all(f"Left out: {reason}." in page for reason in reasons)
    flags = ["--duration-seconds", "60", "--engine-step-seconds", "0.02", "--prompt-tokens", "100"]
    sweep = ["--axis", "engine.kv_cache_tokens=1000,2000,4000", "--axis", "max_lag=0,1", "--no-baseline"]
    for more in (["--dry-run"], ["--dry-run", "--json"], ["--quiet", "--store", str(tmp_path / "other")]):
        with pytest.raises(SystemExit):
            main(["run", *flags, *sweep, "--seeds", "1", "--where", "max_lag < 1", *more])
        said = " ".join("".join(capsys.readouterr()).split())
        assert (
            "1 cell: engine.kv_cache_tokens is 148 tokens short" in said or "2 cells: engine.kv_cache" in said
        )
        assert ("1 cell breaks a constraint: max_lag < 1" in said) == ("--dry-run" in more)


def test_a_preset_says_the_same(tmp_path):
    base = ls.preset_config("areal", engine=ls.Engine(**ENGINE, kv_cache_tokens=9000), duration_seconds=60.0)
    ds = ls.run_sweep(base, {"engine.kv_cache_tokens": [1000, 4000]}, 1)
    from lagsweep.sweeps.spec.carried import spec_of
    from lagsweep.sweeps.spec.exclusions import exclusion_reasons

    assert exclusion_reasons(spec_of(ds)) == [
        "1 cell: engine.kv_cache_tokens is 1,048 tokens short of one rollout (prompt and longest response)"
    ]


def test_a_store_with_such_axes_is_verified_and_grows(tmp_path):
    base = ls.PipelineConfig(publication="abort", resume_seconds=0.5, decode_tokens_per_second=40, **SHORT)
    engine = ls.Engine(step_seconds=0.02, kv_cache_tokens=4000)
    axes = {"engine": [None, engine], "publication": ["abort", "pause"]}
    ls.run_sweep(base, axes, 2, store=tmp_path / "st")
    assert ls.verify_store(tmp_path / "st").sound
    ds = ls.run_sweep(base, axes | {"publication": ["abort", "pause", "drain"]}, 3, store=tmp_path / "st")

    assert (ds["status"].values == 1).all()
    assert ls.verify_store(tmp_path / "st").sound
    fresh = ls.run_sweep(base, axes | {"publication": ["abort", "pause", "drain"]}, 3)
    assert ds["trained_tokens"].equals(fresh["trained_tokens"])


def test_kernels_are_compiled_first_with_a_base_that_has_values_for_other_cells(monkeypatch, tmp_path):
    from lagsweep.sweeps.execute import compiling

    told = []
    monkeypatch.setattr(compiling, "kernels_are_kept", lambda level_1: False)
    spec = tmp_path / "spec.toml"
    spec.write_text(
        '[base]\nresume_seconds = 0.5\nduration_seconds = 30\n[axes]\npublication = ["background", "abort"]\n'
    )
    ds = ls.load_spec(spec).run(progress=lambda done, total: told.append((done, total)))

    assert dict(ds.sizes)["publication"] == 2
    assert told[-1] == (2, 2)
