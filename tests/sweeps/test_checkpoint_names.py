"""The newest checkpoint is the one of the largest step in its manifest, whatever it is called."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.errors import CheckpointError
from lagsweep.sweeps.checkpoint.checkpoint import (
    checkpoint_as_dict,
    latest_checkpoint,
    make_checkpoint,
    save_checkpoint,
)


def at(step, **more):
    numbers = {"optimizer_step": step, "current_version": step, "published_version": step}
    return make_checkpoint(**numbers, dataset_cursor=step, rng=np.random.default_rng(1), **more)


CASES = [
    ({"step-100-loss-0.75": 100, "step-200-loss-0.25": 200}, "step-200-loss-0.25"),
    ({"step-900-of-1000": 900, "step-1000-of-1000": 1000, "step-99-of-1000": 99}, "step-1000-of-1000"),
    ({"epoch-2-step-10": 110, "epoch-1-step-90": 90}, "epoch-2-step-10"),
    ({"step-40": 40, "step-30-bak-2026": 30}, "step-40"),
    ({"step-50-try-1": 50, "step-40-try-2": 40}, "step-50-try-1"),
    ({"100000": 100_000, "0900000": 900_000}, "0900000"),
    ({"000100": 100, "handpicked": 50}, "000100"),
    ({"step-9": 9, "step-10": 10}, "step-10"),
    # Neighbours
    ({"000100": 100, "handpicked": 150}, "handpicked"),
    ({"best": 7, "last": 8}, "last"),
    ({"2026-11-30": 5, "2025-01-01": 6}, "2025-01-01"),
    ({"loss-0.75": 2, "loss-0.25": 3}, "loss-0.25"),
]


@pytest.mark.parametrize("suffix", ["", ".json"])
@pytest.mark.parametrize(("steps", "newest"), CASES)
def test_the_manifests_step_decides(steps, newest, suffix, tmp_path):
    for name, step in steps.items():
        save_checkpoint(at(step), tmp_path / f"{name}{suffix}")

    found = latest_checkpoint(tmp_path)
    assert found.path.name == f"{newest}{suffix}"
    assert found.manifest.optimizer_step == max(steps.values())
    assert found.skipped == ()


@given(steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True), data=st.data())
def test_under_any_names_the_largest_step_is_the_newest(steps, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    letters = st.text("ab0123456789-.", min_size=1, max_size=9)
    usable = letters.filter(lambda name: name.strip(".") and not name.endswith(".tmp"))
    names = data.draw(st.lists(usable, min_size=len(steps), max_size=len(steps), unique=True))
    for name, step in zip(names, steps, strict=True):
        save_checkpoint(at(step), folder / name)

    assert latest_checkpoint(folder).manifest.optimizer_step == max(steps)


@pytest.mark.parametrize("order", ["as saved", "sorted", "state first"])
def test_the_step_is_found_in_a_manifest_of_any_layout(order, tmp_path):
    for step in (10, 20):
        payload = checkpoint_as_dict(at(step, state={"optimizer_step": 99 - step}))
        keys = list(payload) if order == "as saved" else sorted(payload, reverse=order == "state first")
        text = json.dumps({key: payload[key] for key in keys}, indent=None if order == "sorted" else 4)
        (tmp_path / f"copy-{99 - step}.json").write_text(text)

    assert latest_checkpoint(tmp_path).manifest.optimizer_step == 20


def test_a_save_into_a_folder_that_is_not_there_makes_it_and_is_found(tmp_path):
    (tmp_path / "run").mkdir()
    for name, step in (("step-10", 10), ("step-20", 20), ("step-3.5", 3)):
        path = save_checkpoint(at(step), tmp_path / "run" / name)
        assert path == tmp_path / "run" / name / "manifest.json"

    assert latest_checkpoint(tmp_path / "run").path == tmp_path / "run" / "step-20"


def test_a_save_that_would_never_be_found_is_refused(tmp_path):
    (tmp_path / "step-10").write_bytes(b"an old file")
    for path in (tmp_path / "step-10", tmp_path / "step-20.tmp", tmp_path / "step-20.json.tmp"):
        with pytest.raises(CheckpointError, match=r"must be a folder, or end in \.json"):
            save_checkpoint(at(3), path)
    with pytest.raises(CheckpointError, match="must lie in a folder that exists"):
        save_checkpoint(at(3), tmp_path / "nowhere" / "step-10")

    assert sorted(os.listdir(tmp_path)) == ["step-10"]
    assert latest_checkpoint(tmp_path) is None
