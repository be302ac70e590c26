"""The rules of the Trace Event Format that a viewer relies on."""

from __future__ import annotations

import collections
import itertools
import json


def check_rules(events, numbers=None):
    """Every rule that a viewer relies on; `numbers`: of the rows of rollouts, where some run again."""
    for event in events:
        assert {"name", "ph", "ts", "pid", "tid"} <= event.keys()
        assert event["ph"] in {"X", "M", "C", "i", "s", "f"}
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
        if event["ph"] == "M":
            assert event["name"] in {
                "process_name",
                "process_sort_index",
                "thread_name",
                "thread_sort_index",
            }
    _check_nesting(events)
    _check_names(events)
    _check_flows(events, numbers)
    json.dumps(events, allow_nan=False)


def _slices(events):
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def _check_nesting(events):
    for slices in _slices(events).values():
        ordered = sorted(slices, key=lambda event: (event["ts"], event["dur"]))
        for before, after in itertools.pairwise(ordered):
            assert after["ts"] >= before["ts"] + before["dur"]


def _check_names(events):
    named = [(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"]
    assert len(named) == len(set(named))
    threads = {(pid, tid) for name, pid, tid in named if name == "thread_name"}
    processes = {pid for name, pid, _ in named if name == "process_name"}
    for event in events:
        if event["ph"] in "Xisf":
            assert (event["pid"], event["tid"]) in threads
        assert event["pid"] in processes


def _check_flows(events, numbers):
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(starts) == sum(event["ph"] == "s" for event in events)
    assert len(ends) == sum(event["ph"] == "f" for event in events)
    assert starts.keys() == ends.keys()
    tracks = _slices(events)
    for number, start in starts.items():
        end = ends[number]
        assert (start["cat"], start["name"]) == (end["cat"], end["name"])
        assert start["ts"] <= end["ts"]
        assert end["bp"] == "e"
        for event, within in ((start, numbers[number] if numbers else number), (end, None)):
            around = [
                one
                for one in tracks[event["pid"], event["tid"]]
                if one["ts"] <= event["ts"] <= one["ts"] + one["dur"]
            ]
            assert around
            if within is not None:
                assert within in [one["args"]["rollout"] for one in around]
