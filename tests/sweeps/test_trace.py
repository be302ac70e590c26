"""The trace keeps the rules of its format and tells the run as the independent twin saw it."""

from __future__ import annotations

import collections
import gzip
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from oracle.level1 import Run
from oracle.trace_rules import check_rules
from strategies.pipeline_configs import pipeline_settings, to_config, to_twin

from lagsweep import LengthLaw, PipelineConfig, open_sweep, run_sweep, simulate_pipeline
from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.trace_command import command
from lagsweep.sweeps.store.replay import replay
from lagsweep.sweeps.trace.events import (
    PUBLICATIONS,
    QUEUE,
    SLOTS,
    STEPS,
    TRAINER,
    trace_events,
    unfinished_step,
)
from lagsweep.sweeps.trace.trace import check_size_before, write_trace
from lagsweep.sweeps.trace.tracks import free_tracks, tracks_of

SMALL = {
    "response_length": LengthLaw.uniform(100, 400),
    "rollout_workers": 4,
    "batch_tokens": 1500,
    "max_queue_tokens": 4000,
    "max_policy_lag": 1,
    "duration_seconds": 200.0,
}


def events_of(result, **options):
    return list(trace_events(result, tracks_of(result), **options))


@settings(max_examples=80)
@given(pipeline_settings())
def test_every_rule_holds_and_slots_steps_and_discards_are_those_of_the_twin(drawn):
    twin = Run(to_twin(drawn))
    twin.run()
    result = simulate_pipeline(to_config(drawn), rollouts=True)
    tracks = tracks_of(result)
    events = list(trace_events(result, tracks))

    check_rules(events)
    assert tracks.slot.tolist() == [rollout.slot for rollout in twin.rollouts]
    arrows = collections.defaultdict(set)
    by_start = {step["start"]: number for number, step in enumerate(twin.batches)}
    for event in events:
        if event["ph"] == "f":
            arrows[round(event["ts"] - 0.5) if event["ts"] % 1 else event["ts"]].add(event["id"])
    if len(by_start) == len(twin.batches):  # steps that take no time may begin together
        assert [arrows[round(batch["start"] * 1e6)] for batch in twin.batches] == [
            set(batch["numbers"]) for batch in twin.batches
        ]
    dropped = sorted((row[0], row[1], row[2]) for row in twin.discarded)
    told = sorted(
        (event["ts"], event["args"]["tokens"], event["args"]["behaviour_version"])
        for event in events
        if event["ph"] == "i" and event["pid"] == QUEUE
    )
    assert told == dropped
    assert unfinished_step(result, tracks) == (None if twin.step is None else twin.step[0])
    assert [end for _, _, end in tracks.publications if end is not None] == twin.synced
    lasts = round(drawn["sync_seconds"] * 1e6)
    assert all(end - start == lasts for _, start, end in tracks.publications if end is not None)


def test_a_trace_has_every_part():
    result = simulate_pipeline(PipelineConfig(**SMALL, warmup_seconds=50), rollouts=True)
    events = events_of(result)

    count = collections.Counter((event["ph"], event["pid"], event["tid"]) for event in events)
    assert count["X", TRAINER, STEPS] == result.final_version + (result.in_training_tokens > 0)
    assert count["X", TRAINER, PUBLICATIONS] >= result.syncs
    assert sum(n for (ph, pid, _), n in count.items() if (ph, pid) == ("X", SLOTS)) == len(result.rollouts)
    assert {event["name"] for event in events if event["ph"] == "C"} == {
        "queue tokens",
        "rollouts in flight",
        "lag of new rollouts",
        "mean lag of the batch",
    }
    assert [event["ts"] for event in events if event["name"] == "warm-up ends"] == [50e6]
    assert any(event["name"].endswith(" discarded") for event in events)


def test_the_queue_counter_is_the_timeline():
    result = simulate_pipeline(PipelineConfig(**SMALL), rollouts=True)
    levels = {row.time: row.queue_tokens for row in result.timeline}
    told = [event for event in events_of(result) if event["name"] == "queue tokens"]

    assert len(told) > 20
    assert all(event["args"]["tokens"] == levels[event["ts"] / 1e6] for event in told)


def test_a_window_keeps_what_touches_it_and_stays_whole():
    result = simulate_pipeline(PipelineConfig(**SMALL), rollouts=True)
    events = events_of(result, window=(50e6, 60e6))

    check_rules(events)
    slices = [event for event in events if event["ph"] == "X"]
    assert 0 < len(slices) < len([event for event in events_of(result) if event["ph"] == "X"])
    assert all(event["ts"] <= 60e6 and event["ts"] + event["dur"] >= 50e6 for event in slices)


GENERAL = [
    {"publication": "pause", "decode_slowdown_per_rollout": 0.1},
    {"publication": "abort", "resume_seconds": 0.5, "reprefill_tokens_per_second": 1000.0},
    {"group_size": 4, "batch_tokens": None, "batch_groups": 3, "publication": "drain"},
    {"group_size": 2, "batch_tokens": None, "batch_groups": 6, "updates_per_batch": 2},
    {"group_size": 2, "batch_tokens": None, "batch_groups": 6, "stale_check": "dequeue"},
    {
        "group_size": 2,
        "batch_tokens": None,
        "batch_groups": 4,
        "cancel_in_flight": True,
        "queue_order": "freshest",
        "max_queue_tokens": None,
        "max_running_groups": 3,
    },
]


@pytest.mark.parametrize("options", GENERAL, ids=lambda options: "-".join(options)[:40])
def test_runs_of_the_general_engine_keep_every_rule(options):
    result = simulate_pipeline(PipelineConfig(**(SMALL | options)), rollouts=True)
    events = events_of(result)

    check_rules(events)
    trained = [row for row in result.rollouts if row.outcome == "trained"]
    assert len(trained) > 0
    assert sum(event["ph"] == "s" for event in events) == len(trained)


def test_free_tracks_never_overlap():
    rng = np.random.default_rng(5)
    start = np.sort(rng.integers(0, 1000, 300))
    end = start + rng.integers(1, 60, 300)
    track = free_tracks(start, end)

    most_at_once = max(int(((start <= at) & (end > at)).sum()) for at in range(1060))
    assert track.max() + 1 == most_at_once
    for one in range(most_at_once):
        order = np.flatnonzero(track == one)
        assert (start[order][1:] >= end[order][:-1]).all()


# Files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_file_is_the_object_form_and_the_same_each_time(tmp_path, name):
    result = simulate_pipeline(PipelineConfig(**SMALL), rollouts=True)
    first = write_trace(result, tmp_path / name)
    content = first.path.read_bytes()
    write_trace(result, tmp_path / name)

    assert first.path.read_bytes() == content
    document = json.loads(gzip.decompress(content) if name.endswith("gz") else content)
    check_rules(document["traceEvents"])
    assert first.events == len(document["traceEvents"])
    assert first.bytes == len(content)
    assert document["displayTimeUnit"] == "ms"
    assert document["otherData"]["config"]["batch_tokens"] == 1500


def test_too_many_events_are_refused_with_their_number_and_nothing_is_written(tmp_path):
    result = simulate_pipeline(PipelineConfig(**SMALL), rollouts=True)
    total = len(events_of(result))

    with pytest.raises(ConfigError) as caught:
        write_trace(result, tmp_path / "trace.json", max_events=100)

    assert str(caught.value) == (
        f"max_events: must be at least {total} for this run (got 100). Shorten the run, keep a window of it "
        "(--from-seconds, --to-seconds), or raise --max-events."
    )
    assert list(tmp_path.iterdir()) == []
    assert write_trace(result, tmp_path / "trace.json", max_events=total).events == total


def test_a_run_far_too_large_is_refused_before_it_is_simulated():
    config = PipelineConfig(rollout_workers=10_000, duration_seconds=1e7)

    with pytest.raises(
        ConfigError, match=r"max_events: is far too small for this run, which may have 5.2e\+10"
    ):
        check_size_before(config, 1_000_000)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trace.txt", "output: must end in .json or .json.gz (got"),
        ("nowhere/trace.json", "output: must lie in a folder that exists (got"),
    ],
)
def test_a_bad_file_name_is_refused(tmp_path, name, text):
    result = simulate_pipeline(PipelineConfig(**SMALL), rollouts=True)

    with pytest.raises(ConfigError) as caught:
        write_trace(result, tmp_path / name)

    assert str(caught.value).startswith(text)


def test_a_run_without_its_rollouts_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"rollouts: must have been recorded .* rollouts=True"):
        write_trace(simulate_pipeline(PipelineConfig(**SMALL)), tmp_path / "trace.json")


# The command -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "sweep"
    axes = {"queue_cap": [2000, 4000], "max_lag": [0, 2]}
    run_sweep(PipelineConfig(**SMALL).replace(warmup_seconds=20), axes, seeds=[3, 2**63 + 5], store=folder)
    return folder


def _run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_a_stored_run_is_replayed_bit_for_bit(store, tmp_path):
    outcome = _run(
        store, "--cell", "queue_cap=4000,max_lag=2", "--seed", 2**63 + 5, "-o", tmp_path / "t.json", "--json"
    )
    facts = json.loads(outcome.stdout)
    stored = open_sweep(store).sel(queue_cap=4000, max_lag=2)

    assert outcome.exception is None
    assert outcome.return_value == 0
    assert facts["replay"] == "replayed bit for bit: all 29 numbers equal the stored ones"
    assert facts["cell"] == int(stored["cell"])
    document = json.loads((tmp_path / "t.json").read_text())
    check_rules(document["traceEvents"])
    assert document["otherData"]["seed"] == 2**63 + 5
    assert document["otherData"]["fingerprint"] == stored.attrs["fingerprint"]
    measured = [
        event
        for event in document["traceEvents"]
        if event["name"].startswith("update ") and event["ts"] + event["dur"] > 20e6
    ]
    assert len(measured) == int(stored["updates"].isel(seed=1))


def test_the_cell_can_be_named_by_its_id_and_the_first_seed_is_taken(store, tmp_path):
    cell = int(open_sweep(store)["cell"].values[1, 0])
    outcome = _run(store, "--cell", cell, "-o", tmp_path / "t.json.gz", "--timeline", tmp_path / "t.parquet")

    assert "replayed bit for bit" in outcome.stdout
    assert f"timeline: {tmp_path / 't.parquet'}" in outcome.stdout
    import polars

    frame = polars.read_parquet(tmp_path / "t.parquet")
    assert frame.columns[:3] == ["time", "queue_tokens", "in_flight"]


def test_a_run_that_is_not_stored_is_said_to_be_so(store, tmp_path):
    outcome = _run(store, "--cell", "queue_cap=4000,max_lag=2", "--seed", 77, "-o", tmp_path / "t.json")

    assert outcome.return_value == 0
    assert "the store does not hold this run yet" in outcome.stdout


def test_a_store_that_says_something_else_is_noticed():
    ds = run_sweep(PipelineConfig(**SMALL), {"max_lag": [0, 2]}, seeds=2)
    changed = ds.copy(deep=True)
    changed["updates"][0, 0] += 1
    nudged = ds.copy(deep=True)
    nudged["mean_lag"][1, 0] *= 1 + 1e-15

    assert replay(ds, {"max_lag": 0}).same
    wrong = replay(changed, {"max_lag": 0})
    assert not wrong.same
    assert wrong.verdict() == "NOT the stored run: 1 of 29 numbers differ (updates)"
    close = replay(nudged, {"max_lag": 2})
    assert close.same
    assert close.verdict().startswith("replayed to 1e-12")


def test_flags_make_a_trace_of_their_own(tmp_path):
    outcome = _run("--law", "fixed:200", "--duration-seconds", 60, "-o", tmp_path / "t.json")

    assert outcome.return_value == 0
    assert "arrows" in outcome.stdout
    assert max(len(line) for line in outcome.stdout.splitlines() if str(tmp_path) not in line) <= 80


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cell", "7"], "--cell: needs a store (got '7'). Write lagsweep trace STORE --cell …."),
        (["STORE"], "--cell: must be given with a store (got None). lagsweep show lists the cells."),
        (
            ["STORE", "--cell", "queue_cap=4000,max_lag=2", "--batch-tokens", "7"],
            "--batch-tokens: cannot change a stored run (got 7). Leave it out, or leave out STORE.",
        ),
        (["STORE", "--cell", "seven"], "--cell: must be a cell's id or AXIS=VALUE,… (got 'seven'). "),
        (["STORE", "--cell", "max_lagg=2"], "--cell: must name a field or queue_cap, max_lag, sync_cadence"),
        (["STORE", "--cell", "max_lag=2"], "cell: must fit exactly one cell, fits 2 (got {'max_lag': 2}). "),
        (["--from-seconds", "9", "--to-seconds", "3"], "window: must end after it begins (got (9.0, 3.0)). "),
        (["-o", "x.trace"], "output: must end in .json or .json.gz (got 'x.trace'). Name it trace.json.gz."),
        (["--timeline", "x.txt"], "--timeline: must end in .parquet or .csv (got 'x.txt'). "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_named(store, tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    outcome = _run(*[store if argument == "STORE" else argument for argument in arguments])

    assert isinstance(outcome.exception, ConfigError)
    assert str(outcome.exception).startswith(text)
    assert list(tmp_path.iterdir()) == []


def test_a_law_is_named_by_its_label(tmp_path):
    laws = [LengthLaw.uniform(100, 400), LengthLaw.fixed(200)]
    base = PipelineConfig(**(SMALL | {"duration_seconds": 60.0}))
    run_sweep(base, {"response_length": laws, "max_lag": [0, 1]}, 1, store=tmp_path / "sweep")
    outcome = _run(
        tmp_path / "sweep", "--cell", "response_length=fixed(200),max_lag=1", "-o", tmp_path / "t.json"
    )

    assert outcome.exception is None
    assert "replayed bit for bit" in outcome.stdout


def test_a_step_of_no_length_between_two_fetches_parts_their_slices():
    config = PipelineConfig(
        rollout_workers=3,
        batch_groups=1,
        train_overhead_seconds=0.0,
        train_tokens_per_second=1e12,
        fetch_seconds=0.5,
        duration_seconds=60.0,
        sync_seconds=0.0,
    )
    result = simulate_pipeline(config, rollouts=True)
    events = events_of(result)
    steps = [one for one in events if one.get("cat") == "training" and one["dur"] == 0]
    fetches = [one for one in events if one.get("cat") == "fetch"]

    assert len(steps) > 3
    assert any(one["ts"] + one["dur"] == step["ts"] for one in fetches for step in steps)
    check_rules(events, [row.number for row in result.rollouts])
