"""Sweeps as data: from Python, from TOML, back again; identities; and every way to get one wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.small_sweeps import small_base

import lagsweep
from lagsweep.errors import ConfigError
from lagsweep.sweeps.config.config import Limit, PipelineConfig
from lagsweep.sweeps.config.rules import contradictions
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.spec.cells import RULE_FREE
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.spec.reading import read_spec_file, spec_from_sections
from lagsweep.sweeps.spec.writing import spec_to_toml
from lagsweep.sweeps.sweep.run import load_spec

EXAMPLE = """
name = "cap-lag-cadence"
seeds = 1000
[base]
rollout_workers = 64
batch_tokens = 120_000
train_tokens_per_second = 2_000
duration_seconds = 3600
warmup_seconds = 600
[base.response_length]
law = "shipped"
name = "aime-rl-1000"
[axes]
queue_cap = [150_000, 300_000, 600_000]
max_lag = [0, 1, 2, 4, 8]
sync_cadence = { from = 1, to = 4 }
"""


def written(tmp_path, text):
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return path


def test_the_documented_file_is_read(tmp_path):
    spec = load_spec(written(tmp_path, EXAMPLE))

    assert spec.name == "cap-lag-cadence"
    assert spec.design.dims == ("queue_cap", "max_lag", "sync_cadence")
    assert spec.design.shape == (3, 5, 4)
    assert spec.seeds == tuple(range(1000))
    assert spec.base.response_length == LengthLaw.shipped("aime-rl-1000")
    assert spec.config(7).max_policy_lag == 1
    assert spec.config(7).sync_every_updates == 4
    assert spec.config(7).max_queue_tokens == 150_000


def test_file_and_arguments_give_the_same_sweep(tmp_path):
    base = PipelineConfig(
        rollout_workers=64,
        batch_tokens=120_000,
        train_tokens_per_second=2_000,
        duration_seconds=3600,
        warmup_seconds=600,
        response_length=LengthLaw.shipped("aime-rl-1000"),
    )
    axes = {"queue_cap": [150_000, 300_000, 600_000], "max_lag": [0, 1, 2, 4, 8], "sync_cadence": range(1, 5)}

    here = make_spec(base, axes, 1000, baseline=True)

    assert load_spec(written(tmp_path, EXAMPLE)).fingerprint == here.fingerprint


def test_fingerprints_are_pinned_so_that_stores_are_found_again():
    spec = make_spec(PipelineConfig(batch_tokens=3000), {"max_lag": [0, 2], "sync_cadence": [1, 2]}, 5)

    assert spec.fingerprint == "66360c106bf80b0f837b2e254e8f60a5"
    assert spec.cell_ids.tolist() == [
        [8239350013070318, 8989365532314059],
        [4409964450981184, 1463115364834101],
    ]


def test_fingerprint_is_blind_to_defaults_name_and_order():
    spec = make_spec(PipelineConfig(), {"max_lag": [0, 2]}, [0, 1])

    same = [
        make_spec(PipelineConfig(batch_tokens=2500), {"max_lag": [0, 2]}, [0, 1]),
        make_spec(PipelineConfig(), {"max_lag": [2, 0]}, [1, 0], name="other"),
        make_spec(PipelineConfig(), {"max_policy_lag": [0, 2.0]}, 2),
    ]

    assert {other.fingerprint for other in same} == {spec.fingerprint}


@pytest.mark.parametrize(
    "change",
    [
        {"base": PipelineConfig(batch_tokens=2501)},
        {"axes": {"max_lag": [0, 2, 3]}},
        {"axes": {"sync_cadence": [1], "max_lag": [0, 2]}},
        {"axes": [{"max_lag": [0, 2], "sync_cadence": [1, 1]}]},
        {"seeds": 3},
        {"constraints": ["max_lag >= 0"]},
        {"masks": True},
        {"tables": ["batches"]},
        {"baseline": True},
        {"until": "updates within 1%"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_fingerprint_tells_real_changes(change):
    plain = {"base": PipelineConfig(), "axes": {"max_lag": [0, 2]}, "seeds": 2}

    assert make_spec(**(plain | change)).fingerprint != make_spec(**plain).fingerprint


def test_a_cell_keeps_its_id_when_the_sweep_grows():
    small = make_spec(PipelineConfig(), {"max_lag": [0, 2]}, 1).cell_ids
    values = make_spec(PipelineConfig(), {"max_lag": [1, 2, 0]}, 9).cell_ids
    axis = make_spec(PipelineConfig(), {"sync_cadence": [1, 2], "max_lag": [0, 2]}, 1).cell_ids
    written_out = make_spec(PipelineConfig(max_policy_lag=2), {}, 1).cell_ids

    assert values[[2, 1]].tolist() == small.tolist()
    assert axis[0].tolist() == small.tolist()
    assert int(written_out) == small[1]
    assert len(set(axis.reshape(-1).tolist())) == 4


def test_cell_ids_stay_exact_in_a_float():
    ids = make_spec(PipelineConfig(), {"max_lag": range(200), "sync_cadence": range(1, 50)}, 1).cell_ids

    assert ids.dtype == np.int64
    assert np.array_equal(ids.astype(float).astype(np.int64), ids)
    assert len(np.unique(ids)) == ids.size


def full_spec():
    base = small_base(limits=(Limit(done="popped", groups=3),), max_queue_tokens=None)
    laws = [LengthLaw.fixed(50), LengthLaw.lognormal(60, 0.5, 10, 200)]
    return make_spec(
        base,
        [{"response_length": laws}, {"max_lag": [0, 1]}, {"admission": ["threshold"]}],
        [5, 2**64 - 1, 0],
        constraints=["max_lag >= 0"],
        tables=["rollouts", "batches"],
        masks=True,
        name="full one",
    )


def test_plain_form_and_toml_read_back_to_the_same_sweep(tmp_path):
    spec = full_spec()

    by_json = spec_from_sections(json.loads(spec.to_json()))
    by_toml = read_spec_file(written(tmp_path, spec_to_toml(spec)))

    assert by_json.to_json() == by_toml.to_json() == spec.to_json()
    assert by_json.fingerprint == spec.fingerprint
    assert np.array_equal(by_toml.cell_ids, spec.cell_ids)
    assert spec.tables == ("batches", "rollouts")


@given(
    lags=st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True),
    drifts=st.lists(st.floats(0, 10, allow_nan=False), min_size=1, max_size=3, unique=True),
    seeds=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4, unique=True),
    batch=st.integers(1, 2**52),
    zipped=st.booleans(),
)
def test_any_sweep_survives_json_and_toml(tmp_path_factory, lags, drifts, seeds, batch, zipped):
    count = min(len(lags), len(drifts))
    axes = (
        [{"max_lag": lags[:count], "drift_per_version": drifts[:count]}]
        if zipped
        else {"max_lag": lags, "drift_per_version": drifts}
    )
    spec = make_spec(PipelineConfig(batch_tokens=batch), axes, seeds)
    path = tmp_path_factory.mktemp("spec") / "sweep.toml"
    path.write_text(spec_to_toml(spec))

    assert spec_from_sections(json.loads(spec.to_json())).to_plain() == spec.to_plain()
    assert read_spec_file(path).to_plain() == spec.to_plain()


def test_a_file_of_lengths_becomes_part_of_the_spec(tmp_path):
    (tmp_path / "lengths.csv").write_text("tokens\n10\n20\n20\n")
    text = '[base.response_length]\nlaw = "from_file"\npath = "lengths.csv"\ncolumn = "tokens"\n'

    spec = load_spec(written(tmp_path, text))
    stored = json.loads(spec.to_json())
    (tmp_path / "lengths.csv").unlink()

    assert spec_from_sections(stored).base.response_length == LengthLaw.empirical([10, 20, 20])


def test_seeds_number_counts_from_the_bases_seed():
    assert make_spec(PipelineConfig(seed=7), {}, 3).seeds == (7, 8, 9)
    assert make_spec(PipelineConfig(seed=7), {}, [3, 1]).seeds == (3, 1)
    assert make_spec(PipelineConfig(seed=2**64 - 1), {}, 1).seeds == (2**64 - 1,)


BAD_FILES = {
    "misspelt field": (
        "[base]\nmax_lagg = 4\n",
        ["base.max_lagg", "is not a known field", "max_lag", "sweep.toml"],
    ),
    "axis name in base": ("[base]\nmax_lag = 4\n", ["base.max_lag", "In [base] it is max_policy_lag."]),
    "field at the top": ("batch_tokens = 4\n", ["batch_tokens", "Move it under [base]."]),
    "axis at the top": ("max_lag = [1]\n", ["max_lag", "Move it under [axes]."]),
    "unknown section": ("[axis]\nmax_lag = [1]\n", ["axis: is not a key", "Did you mean 'axes'?"]),
    "text for a number": ('[base]\nmax_policy_lag = "4x"\n', ["base.max_policy_lag", "whole number", "'4x'"]),
    "zero in an axis": (
        "[axes]\nbatch_tokens = [64, 128, 0]\n",
        ["axes.batch_tokens", "at least 1", "got 0"],
    ),
    "misspelt axis": ("[axes]\nmax_lagg = [1]\n", ["axes", "'max_lagg'", "Did you mean 'max_lag'?"]),
    "empty axis": ("[axes]\nmax_lag = []\n", ["axes.max_lag: must have at least one value (got [])."]),
    "repeated value": ("[axes]\nmax_lag = [1, 2, 1]\n", ["axes.max_lag: must not repeat a value (got 1)."]),
    "a number as axis": (
        "[axes]\nmax_lag = 3\n",
        ["axes.max_lag: must be a list of values or a range (got 3)."],
    ),
    "twice the same field": (
        "[axes]\nmax_lag = [1]\nmax_policy_lag = [2]\n",
        ["sets the field of axis 'max_lag'"],
    ),
    "seed as axis": ("[axes]\nseed = [1]\n", ["axes.seed: is always swept"]),
    "no seeds": ("seeds = 0\n", ["seeds: must be from 1"]),
    "repeated seed": ("seeds = [1, 1]\n", ["seeds: must not repeat a seed (got 1)."]),
    "text as seeds": ('seeds = "many"\n', ["seeds: must be a number or a list"]),
    "bad law": ('[base.response_length]\nlaw = "lognromal"\n', ["base.response_length", "'lognormal'"]),
    "law without its key": ('[base.response_length]\nlaw = "fixed"\n', ["base.response_length", "n"]),
    "not TOML": ("[base\n", ["must be valid TOML", "line 1"]),
    "unknown table": ('tables = ["batchs"]\n', ["tables", "Did you mean 'batches'?"]),
    "bad flag": ("masks = 1\n", ["masks: must be true or false (got 1)."]),
    "bad name": ('name = "a/b"\n', ["name: must be usable as a folder's name"]),
    "newer version": ("version = 9\n", ["version: must be 1 (got 9). Use a newer lagsweep."]),
    "range key": ("[axes]\nmax_lag = { from = 1, too = 4 }\n", ["axes.max_lag.too", "Did you mean 'to'?"]),
    "range backwards": ("[axes]\nmax_lag = { from = 4, to = 1 }\n", ["axes.max_lag.to", "at least from"]),
    "log without count": ("[axes]\nmax_lag={from=1,to=4,scale='log'}\n", ["axes.max_lag.count", "required"]),
    "log from zero": (
        "[axes]\nmax_lag={from=0,to=4,count=2,scale='log'}\n",
        ["axes.max_lag.from", "above 0"],
    ),
    "constraint name": ('constraints = ["max_lagg > 1"]\n', ["constraints", "Did you mean 'max_lag'?"]),
    "constraint text": ('constraints = ["max_lag >"]\n', ["constraints: must be a comparison"]),
    "constraint call": ('constraints = ["open(1, 2) > 1"]\n', ["may use names, numbers, arithmetic"]),
    "nothing left": ('constraints = ["max_lag > 99"]\n', ["constraints: must leave at least one cell"]),
    "odd points": ("[[points]]\nmax_lag = 1\n[[points]]\nmax_lga = 1\n", ["points: must all set max_lag"]),
    "uneven zip": ("[[zip]]\nmax_lag = [1]\nsync_cadence = [1, 2]\n", ["equally many values"]),
    "sampling method": ('[sample]\nmethod = "sobl"\n[axes]\nmax_lag=[1]\n', ["sample.method", "'sobol'"]),
    "rule": ('until = "updates wthin 1%"\n', ["until: must read"]),
    "rule's metric": ('until = "update within 1%"\n', ["until: must name a metric", "'updates'"]),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_with_file_section_and_key(tmp_path, case):
    text, mentions = BAD_FILES[case]
    path = written(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        load_spec(path)

    assert str(path) in str(caught.value)
    for mention in mentions:
        assert mention in str(caught.value)


SHORT_FORMS = {
    "response_length": "lognormal:300:0.6",
    "environment_seconds": "fixed:2",
    "drift": "from_records:rollouts.jsonl:token",
    "engine": "engine.toml",
}


@pytest.mark.parametrize(
    ("section", "field"),
    [("base", field) for field in SHORT_FORMS]
    + [("axes", field) for field in SHORT_FORMS if field != "engine"],
)
def test_the_short_form_of_a_flag_in_a_file_is_refused_with_the_form_of_a_file(tmp_path, section, field):
    value = json.dumps(SHORT_FORMS[field] if section == "base" else [SHORT_FORMS[field]])
    path = written(tmp_path, f"[{section}]\n{field} = {value}\n")
    with pytest.raises(ConfigError) as caught:
        load_spec(path)

    (finding,) = caught.value.findings
    assert finding.field.endswith(f"{section}.{field}")
    assert finding.value == SHORT_FORMS[field]
    table, _, call = finding.way_out.removeprefix("In TOML: ").removesuffix(".").partition("; in Python: ")
    if field == "drift":  # both read a file
        assert table == '{ law = "from_records", path = "rollouts.jsonl", level = "token" }'
        return
    meant = load_spec(written(tmp_path, f"[base]\n{field} = {table.partition(' or ')[0]}\n")).base
    made = eval(call, {name: getattr(lagsweep, name) for name in ("LengthLaw", "SecondsLaw", "Engine")})
    assert getattr(meant, field) == made


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="spec: must be a readable file: No such file"):
        load_spec(tmp_path / "absent.toml")


def test_every_bad_value_is_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        make_spec(PipelineConfig(), {"batch_tokens": [0, 5, -1], "admission": ["reserv"]}, 1)

    assert str(caught.value).count("\n") == 2
    assert "Did you mean 'reserve'?" in str(caught.value)


def test_laws_and_misplaced_names_of_a_base_are_listed_at_once(tmp_path):
    path = written(
        tmp_path,
        '[base]\nmax_lag = 4\nresponse_length = { law = "fxed" }\nenvironment_seconds = { law = "no" }\n',
    )
    with pytest.raises(ConfigError) as caught:
        load_spec(path)

    for place in ("base.max_lag", "base.response_length", "base.environment_seconds"):
        assert any(place in finding.field for finding in caught.value.findings)


@pytest.mark.parametrize(
    ("axes", "value"),
    [
        ({"max_lag": [1, 1]}, 1),
        ({"drift_per_version": [0.5, 0.5]}, 0.5),
        ({"queue_cap": [None, None]}, "none"),
        ({"admission": ["reserve", "reserve"]}, "reserve"),
    ],
)
def test_a_repeated_value_is_shown_as_what_it_is(axes, value):
    with pytest.raises(ConfigError) as caught:
        make_spec(PipelineConfig(), axes, 1)
    (finding,) = caught.value.findings
    assert (finding.value, type(finding.value)) == (value, type(value))


def test_cells_that_contradict_themselves_are_named_before_anything_runs():
    base = small_base(max_queue_tokens=100)
    axes = {"admission": ["threshold", "reserve"], "queue_cap": [50, 80]}

    with pytest.raises(ConfigError) as caught:
        make_spec(base, axes, 1)

    assert "max_queue_tokens: with admission 'reserve' must be at least 80" in str(caught.value)
    assert "admission=reserve queue_cap=50" in str(caught.value)
    assert (
        make_spec(base, axes, 1, constraints=["admission == 'threshold' or queue_cap >= 80"]).excluded.sum()
        == 1
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (({}, {}, 1), "base: must be a PipelineConfig"),
        ((PipelineConfig(), 5, 1), "axes: must map axes to values"),
        ((PipelineConfig(), {"max_lag": [float("nan")]}, 1), "axes.max_lag: must be a whole number"),
        (
            (PipelineConfig(), {"drift_per_version": [float("inf")]}, 1),
            "axes.drift_per_version: must be finite",
        ),
        ((PipelineConfig(), {"max_lag": [True]}, 1), "axes.max_lag: must be a whole number"),
        ((PipelineConfig(), {}, True), "seeds: must be a number"),
        ((PipelineConfig(), {}, -1), "seeds: must be from 0"),
        ((PipelineConfig(), {}, [1.5]), "seeds: must be whole numbers"),
        ((PipelineConfig(seed=2**64 - 1), {}, 2), r"seeds: must stay below 2\*\*64"),
    ],
)
def test_bad_arguments_are_refused(arguments, text):
    with pytest.raises(ConfigError, match=text):
        make_spec(*arguments)


def test_no_rule_looks_at_the_fields_that_are_taken_to_be_free_of_rules():
    """Cells that differ in these alone are checked once."""
    seen = set()

    class Spy:
        model_fields = PipelineConfig.model_fields

        def __init__(self, config):
            self._config = config

        def __getattr__(self, name):
            seen.add(name)
            return getattr(self._config, name)

    for changes in ({}, {"mode": "sequential"}, {"admission": "reserve", "max_queue_tokens": 10_000}):
        contradictions(Spy(PipelineConfig(**changes)))

    assert "batch_tokens" in seen
    assert not seen & set(RULE_FREE)


def test_a_contradiction_behind_an_excluded_cell_is_still_found():
    base = small_base(admission="reserve")
    axes = {"max_lag": [0, 1], "queue_cap": [50, 400]}

    with pytest.raises(ConfigError, match="queue_cap=50"):
        make_spec(base, axes, 1, constraints=["max_lag == 1"])
    assert make_spec(base, axes, 1, constraints=["queue_cap > 100"]).excluded.sum() == 2
