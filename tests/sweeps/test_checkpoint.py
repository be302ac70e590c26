"""Manifests: what they hold, what they refuse, and that a resume never starts from half a checkpoint."""

from __future__ import annotations

import ast
import copy
import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lagsweep.sweeps
from lagsweep.errors import CheckpointError, ConfigError
from lagsweep.sweeps import files as atomic_files
from lagsweep.sweeps.checkpoint.checkpoint import (
    CheckpointWarning,
    checkpoint_as_dict,
    latest_checkpoint,
    load_checkpoint,
    make_checkpoint,
    read_manifest,
    restore_python_random,
    restore_rng,
    save_checkpoint,
)
from lagsweep.sweeps.checkpoint.manifest import DamagedCheckpointError, content_digest, manifest_from_dict


def _checkpoint(step=3, cursor=8, **more):
    counters = {"optimizer_step": step, "current_version": step, "published_version": step}
    settings = {**counters, "dataset_cursor": cursor, "rng": np.random.default_rng(12016), **more}
    return make_checkpoint(**settings)


def _full(step=3, **more):
    return _checkpoint(
        step,
        queue=[{"number": 4, "lp": [-0.5, -1.25]}],
        in_flight=[{"number": 7, "tokens": 2**60}],
        counters={"accepted_rollouts": 400},
        state={"weights": np.arange(6.0).reshape(2, 3), "loss": float("nan")},
        components={"workers": 2},
        **more,
    )


# What is held


def test_a_manifest_shows_the_four_counters_and_its_digest():
    manifest = make_checkpoint(
        optimizer_step=np.int64(9),
        current_version=8,
        published_version=6,
        dataset_cursor=40,
        rng=np.random.default_rng(0),
    )

    assert repr(manifest) == (
        "Manifest(optimizer_step=9, current_version=8, published_version=6, dataset_cursor=40, "
        f"digest='{manifest.digest[:12]}…')"
    )
    assert (manifest.optimizer_step, manifest.current_version) == (9, 8)
    assert (manifest.published_version, manifest.dataset_cursor) == (6, 40)


def test_its_dict_is_exact_json():
    row = checkpoint_as_dict(_full())

    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert set(row["rng_state"]) == {"numpy", "python"}
    assert manifest_from_dict(row) == _full_with_digest(row)


def _full_with_digest(row):
    return manifest_from_dict(json.loads(json.dumps(row)))


def test_nobody_can_alter_a_manifest_through_what_it_gives_out():
    manifest = _full()
    checkpoint_as_dict(manifest)["counters"]["accepted_rollouts"] = 0
    manifest.queue.clear()
    manifest.state["weights"][:] = 0
    manifest.components.clear()

    assert manifest.counters == {"accepted_rollouts": 400}
    assert content_digest(manifest.payload) == manifest.digest
    assert manifest.state["weights"].sum() == 15.0
    assert len(manifest.queue) == 1


def test_not_given_and_empty_are_different():
    assert _checkpoint().queue is None
    assert _checkpoint(queue=[], in_flight=[]).in_flight == []


def test_equal_state_gives_equal_digests_and_any_difference_another():
    random.seed(1)
    first, again = _full(), _full()
    others = [_full(step=4), _checkpoint(), _checkpoint(queue=[]), _full(python_random=False)]

    assert first.digest == again.digest
    assert len({first.digest, *(other.digest for other in others)}) == 5


def test_all_of_it_survives_the_file(tmp_path):
    saved = _full()
    loaded = load_checkpoint(save_checkpoint(saved, tmp_path / "step-3.json"), components={"workers": 2})

    assert loaded == saved
    assert loaded.queue == [{"number": 4, "lp": [-0.5, -1.25]}]
    assert loaded.in_flight == [{"number": 7, "tokens": 2**60}]
    assert loaded.state["weights"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert np.isnan(loaded.state["loss"])


def test_several_generators_are_saved_under_their_names():
    streams = {
        "sampler": np.random.default_rng(1),
        "shuffle": random.Random(2),
        "old": np.random.RandomState(3),
    }
    manifest = _checkpoint(rng=streams, python_random=False)

    assert set(manifest.payload["rng_state"]) == set(streams)
    assert restore_rng(manifest, "sampler").random() == streams["sampler"].random()
    assert restore_rng(checkpoint_as_dict(manifest), "shuffle").random() == streams["shuffle"].random()
    assert restore_rng(manifest, "old").random_sample() == streams["old"].random_sample()
    with pytest.raises(CheckpointError) as caught:
        restore_rng(manifest)
    assert str(caught.value) == (
        "name: must be one of the saved generators: sampler, shuffle, old (got None). Name one."
    )


def test_pythons_global_generator_goes_on_too():
    before = random.getstate()
    try:
        random.seed(12016)
        random.gauss(0.0, 1.0)
        manifest = _checkpoint()
        expected = [random.gauss(0.0, 1.0), random.random()]
        random.seed(99)
        restore_python_random(manifest)
        resumed = [random.gauss(0.0, 1.0), random.random()]
    finally:
        random.setstate(before)

    assert resumed == expected
    with pytest.raises(CheckpointError, match=r"rng_state\.python: must have been saved \(got \['numpy'\]\)"):
        restore_python_random(_checkpoint(python_random=False))


def test_the_streams_go_on_in_another_process(tmp_path):
    rng, own = np.random.default_rng(7), random.Random(7)
    rng.integers(0, 9, dtype=np.int32)
    own.gauss(0, 1)
    path = save_checkpoint(_checkpoint(rng=rng, python_random=own), tmp_path / "step-1.json")
    program = (
        "import json, random, sys, numpy as np\n"
        "from lagsweep import load_checkpoint, restore_rng\n"
        "from lagsweep.sweeps.checkpoint.checkpoint import restore_python_random\n"
        "manifest = load_checkpoint(sys.argv[1])\n"
        "rng = restore_rng(manifest); restore_python_random(manifest)\n"
        "draws = [int(rng.integers(0, 2**31 - 1, dtype=np.int32)) for _ in range(4)]\n"
        "print(json.dumps([draws, random.gauss(0, 1)]))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )

    assert json.loads(answer.stdout) == [
        [int(rng.integers(0, 2**31 - 1, dtype=np.int32)) for _ in range(4)],
        own.gauss(0, 1),
    ]


# What is refused when it is made


@pytest.mark.parametrize(
    "field", ["optimizer_step", "current_version", "published_version", "dataset_cursor"]
)
@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (True, "must be a whole number"),
        (np.bool_(False), "must be a whole number"),
        (float("nan"), "must be a whole number"),
        (3.0, "must be a whole number"),
        ("3", "must be a whole number"),
        (None, "must be a whole number"),
        (-1, "must be at least 0 and below 2**53"),
        (2**53, "must be at least 0 and below 2**53"),
    ],
)
def test_a_counter_that_is_no_count_is_refused_by_name(field, value, rule):
    numbers = {
        "optimizer_step": 9,
        "current_version": 9,
        "published_version": 9,
        "dataset_cursor": 9,
        field: value,
    }
    with pytest.raises(ConfigError) as caught:
        make_checkpoint(**numbers, rng=np.random.default_rng(0))

    assert str(caught.value) == f"{field}: {rule} (got {value!r}). Give a count."


def test_a_version_cannot_be_published_before_it_is_trained():
    with pytest.raises(ConfigError) as caught:
        _checkpoint(published_version=4)

    assert str(caught.value) == (
        "published_version: must be at most the trainer's version, 3 (got 4). "
        "A version is published after it was trained."
    )


_COUNTERS = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)).map(
    lambda parts: {
        "optimizer_step": parts[0],
        "current_version": parts[1] + parts[2],
        "published_version": parts[1],
        "dataset_cursor": parts[3],
    }
)


@given(_COUNTERS, _COUNTERS)
def test_no_counter_ever_falls_from_one_checkpoint_to_the_next(first, second):
    rng = np.random.default_rng(0)
    previous = make_checkpoint(**first, rng=rng)
    falling = [name for name in first if second[name] < first[name]]
    if falling:
        with pytest.raises(ConfigError, match=f"^{falling[0]}: must be absolute and never fall"):
            make_checkpoint(**second, rng=rng, previous=previous)
    else:
        assert (
            make_checkpoint(**second, rng=rng, previous=previous).payload["previous_digest"]
            == previous.digest
        )


def test_a_cursor_counted_since_the_last_resume_is_refused_at_the_second_save(tmp_path):
    first = _checkpoint(step=30, cursor=30)
    resumed = load_checkpoint(save_checkpoint(first, tmp_path / "step-30.json"))
    with pytest.raises(ConfigError) as caught:
        _checkpoint(step=40, cursor=10, previous=resumed)
    second = _checkpoint(step=40, cursor=30 + 10, previous=resumed)

    assert str(caught.value) == (
        "dataset_cursor: must be absolute and never fall: the checkpoint before has 30 (got 10). "
        "Count over all resumes, not since the last one."
    )
    assert second.dataset_cursor == 40
    assert second.payload["previous_digest"] == first.digest


@pytest.mark.parametrize("value", [None, [2], {"a": 1}, float("inf"), float("nan"), 2**53])
def test_a_component_is_text_a_number_or_a_flag(value):
    with pytest.raises(ConfigError, match=r"components\.workers: must be text, a flag or a number"):
        _checkpoint(components={"workers": value})


# What is refused when it is read


@pytest.fixture(scope="module")
def good_bytes(tmp_path_factory):
    return save_checkpoint(_full(), tmp_path_factory.mktemp("good") / "step-3.json").read_bytes()


@given(st.data())
def test_a_file_cut_anywhere_is_refused(good_bytes, tmp_path_factory, data):
    # The last byte is the line's end after the closing brace; without it the content is still whole.
    length = data.draw(st.integers(0, len(good_bytes) - 2))
    path = tmp_path_factory.mktemp("cut") / "step-3.json"
    path.write_bytes(good_bytes[:length])

    with pytest.raises(DamagedCheckpointError, match=r"must be whole JSON \(got .\d+ bytes, "):
        load_checkpoint(path, components={"workers": 2})


@given(st.data())
def test_a_flipped_bit_is_refused_or_changes_nothing(good_bytes, tmp_path_factory, data):
    place = data.draw(st.integers(0, len(good_bytes) - 1))
    altered = bytearray(good_bytes)
    altered[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("flip") / "step-3.json"
    path.write_bytes(bytes(altered))
    try:
        loaded = load_checkpoint(path, components={"workers": 2})
    except CheckpointError:
        return

    assert loaded.payload == json.loads(good_bytes)


def _leaves(node, path=()):
    if isinstance(node, dict):
        for key, item in node.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _leaves(item, (*path, index))
    else:
        yield path


def test_every_altered_value_is_refused(good_bytes):
    good = json.loads(good_bytes)
    for place in _leaves(good):
        bad = copy.deepcopy(good)
        *parents, last = place
        inner = bad
        for step in parents:
            inner = inner[step]
        inner[last] = "altered" if inner[last] != "altered" else "again"
        with pytest.raises(CheckpointError):
            manifest_from_dict(bad)


@pytest.mark.parametrize("change", ["remove", "add"])
def test_a_field_removed_or_added_is_refused_even_with_a_new_digest(good_bytes, change):
    bad = json.loads(good_bytes)
    if change == "remove":
        del bad["queue"]
    else:
        bad["weights"] = 1
    bad["digest"] = content_digest(bad)

    with pytest.raises(CheckpointError) as caught:
        manifest_from_dict(bad)
    assert str(caught.value) == (
        "checkpoint: must have exactly the fields of its schema (got "
        + (
            "\"missing ['queue'], unknown []\""
            if change == "remove"
            else "\"missing [], unknown ['weights']\""
        )
        + "). Give a file that save_checkpoint wrote."
    )


def test_a_counter_altered_under_a_new_digest_still_has_to_be_a_count(good_bytes):
    bad = {**json.loads(good_bytes), "dataset_cursor": -8}
    bad["digest"] = content_digest(bad)

    with pytest.raises(CheckpointError, match="checkpoint: dataset_cursor: must be at least 0"):
        manifest_from_dict(bad)


@pytest.mark.parametrize("version", [0, 2, "1", True, None])
def test_another_schema_is_refused_before_anything_of_it_is_read(good_bytes, version):
    bad = {**json.loads(good_bytes), "schema_version": version}
    bad["digest"] = content_digest(bad)

    with pytest.raises(CheckpointError) as caught:
        manifest_from_dict(bad, "step-3.json")
    assert str(caught.value) == (
        f"step-3.json: schema_version: must be 1, the one that this lagsweep reads (got {version!r}). "
        "Load it with the lagsweep named in its components."
    )
    assert not isinstance(caught.value, DamagedCheckpointError)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "other"}', "3", "null"])
def test_another_json_file_is_refused(tmp_path, text):
    (tmp_path / "config-1.json").write_text(text)

    with pytest.raises(CheckpointError, match="must be a checkpoint manifest"):
        load_checkpoint(tmp_path / "config-1.json")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": Infinity}', "[" * 5000, "\x80"])
def test_what_is_not_strict_json_is_refused(tmp_path, text):
    (tmp_path / "step-1.json").write_bytes(text.encode("latin-1"))

    with pytest.raises(DamagedCheckpointError, match="must be whole JSON"):
        read_manifest(tmp_path / "step-1.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "step-9.json")

    assert str(caught.value) == (
        f"{tmp_path / 'step-9.json'}: must be a readable file (got 'No such file or directory'). "
        "Check the path."
    )


def test_nothing_is_ever_pickled():
    with pytest.raises(ConfigError, match="never pickled"):
        _checkpoint(state={"policy": np.array([{}], dtype=object)})

    folder = Path(lagsweep.sweeps.__file__).parent
    for file in [*sorted((folder / "checkpoint").glob("*.py")), folder / "files.py"]:
        tree = ast.parse(file.read_text())
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not {"pickle", "dill", "cloudpickle", "marshal", "shelve"} & imported
        assert not {"eval", "exec"} & used


# Components


def test_every_changed_component_is_named_with_both_values_and_the_way_to_allow_it(tmp_path):
    saved = {"workers": 2, "lagsweep": "0.1.0", "numpy": "2.1.0"}
    path = save_checkpoint(_checkpoint(components=saved), tmp_path / "step-3.json")

    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, components={"workers": 1, "lagsweep": "0.1.0", "numpy": "2.4.6"})
    assert str(caught.value) == (
        f"{path}: components must be those of the save (got numpy: '2.1.0' -> '2.4.6'; workers: 2 -> 1). "
        "Resume with the saved ones, or pass allow_changed=['numpy', 'workers'] to go on; "
        "the change is then recorded."
    )


def test_allowing_one_change_does_not_allow_another(tmp_path):
    path = save_checkpoint(_checkpoint(components={"workers": 2, "numpy": "2.1.0"}), tmp_path / "step-3.json")

    with pytest.raises(CheckpointError, match=r"\(got workers: 2 -> 1\)"):
        load_checkpoint(path, components={"workers": 1}, allow_changed=["numpy"])


def test_an_allowed_change_warns_and_is_written_into_every_later_checkpoint(tmp_path):
    path = save_checkpoint(_checkpoint(components={"workers": 2}), tmp_path / "step-3.json")
    with pytest.warns(CheckpointWarning, match="workers was 2 at the save and is now 1; allowed by name"):
        resumed = load_checkpoint(path, components={"workers": 1}, allow_changed=["workers"])
    second = _checkpoint(step=4, components={"workers": 1}, previous=resumed)
    third = _checkpoint(step=5, components={"workers": 1}, previous=second)
    change = {"component": "workers", "saved": 2, "current": 1}

    assert resumed.accepted_changes == (change,)
    assert second.payload["component_changes"] == third.payload["component_changes"] == [change]


@pytest.mark.parametrize(
    ("saved", "current", "shown"),
    [
        ({"workers": 2}, {}, "workers: 2 -> not given"),
        ({}, {"workers": 2}, "workers: not given -> 2"),
        ({"sharded": True}, {"sharded": 1}, "sharded: True -> 1"),
        ({"numpy": "1.0"}, {}, f"numpy: '1.0' -> '{np.__version__}'"),
        ({"lagsweep": "0.0.1"}, {}, "lagsweep: '0.0.1' -> '"),
    ],
)
def test_a_component_that_appears_disappears_or_changes_its_kind_is_a_change(tmp_path, saved, current, shown):
    path = save_checkpoint(_checkpoint(components=saved), tmp_path / "step-3.json")

    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, components=current)
    assert f"(got {shown}" in str(caught.value)


def test_a_misspelt_component_to_allow_is_refused(tmp_path):
    path = save_checkpoint(_checkpoint(components={"workers": 2}), tmp_path / "step-3.json")

    with pytest.raises(ConfigError) as caught:
        load_checkpoint(path, components={"workers": 2}, allow_changed=["worker"])
    assert str(caught.value) == (
        "allow_changed: must name components of the checkpoint: lagsweep, numpy, python, workers "
        "(got 'worker'). Did you mean 'workers'?"
    )
    with pytest.raises(ConfigError, match=r"allow_changed: must be a list of names \(got 'numpy'\)"):
        load_checkpoint(path, components={"workers": 2}, allow_changed="numpy")


def test_looking_at_a_manifest_compares_no_component(tmp_path):
    path = save_checkpoint(_checkpoint(components={"numpy": "1.0"}), tmp_path / "step-3.json")

    assert read_manifest(path).components["numpy"] == "1.0"


# Writing


def test_the_file_is_flushed_before_it_gets_its_name_and_the_folder_after(tmp_path, monkeypatch):
    happened = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        happened.append(
            "fsync of the folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync of a file"
        )
        real_fsync(descriptor)

    def replace(source, target):
        happened.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    save_checkpoint(_checkpoint(), tmp_path / "step-3.json")

    assert happened == ["fsync of a file", "rename", "fsync of the folder"]


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_file_whole_and_nothing_else(tmp_path, monkeypatch, failing):
    path = save_checkpoint(_checkpoint(step=3), tmp_path / "last-1.json")
    old = path.read_bytes()

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    if failing == "write":
        real = os.fdopen

        def fdopen(descriptor, mode):
            file = real(descriptor, mode, buffering=0)
            return _Full(file)

        monkeypatch.setattr(os, "fdopen", fdopen)
    else:
        monkeypatch.setattr(os, failing, full)
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(_checkpoint(step=4), path)
    monkeypatch.undo()

    assert str(caught.value) == (
        f"{path}: must be writable (got 'No space left on device'). Free space, or name another path."
    )
    assert path.read_bytes() == old
    assert [item.name for item in tmp_path.iterdir()] == ["last-1.json"]


class _Full:
    """A file on a full disk: half the content goes in, then it fails."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, content):
        self._file.write(content[: len(content) // 2])
        raise OSError(28, "No space left on device")


def test_a_save_keeps_the_permissions_of_the_file_that_it_replaces(tmp_path):
    path = save_checkpoint(_checkpoint(), tmp_path / "step-3.json")
    fresh = path.stat().st_mode & 0o777
    path.chmod(0o640)
    save_checkpoint(_checkpoint(), path)
    (tmp_path / "plain").write_text("")

    assert path.stat().st_mode & 0o777 == 0o640
    assert fresh == (tmp_path / "plain").stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("path", "named", "folder", "way_out"),
    [
        ("new/step-3.json", "new/step-3.json", "new", "Make new first."),
        ("new/step-10", "new/step-10/manifest.json", "new", "Make new first."),
        ("./new/at/step-10/", "new/at/step-10/manifest.json", "new/at", "Make new/at first."),
        ("notes/step-10", "notes/step-10/manifest.json", "notes", "notes is a file: name another path."),
        ("notes/at/3.json", "notes/at/3.json", "notes/at", "notes is a file: name another path."),
    ],
)
def test_a_missing_folder_is_named_with_the_way_out(tmp_path, monkeypatch, path, named, folder, way_out):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(_checkpoint(), path)

    assert str(caught.value) == f"{named}: must lie in a folder that exists (got '{folder}'). {way_out}"
    assert [each.name for each in tmp_path.iterdir()] == ["notes"]


def test_a_missing_folder_is_said_before_the_files_that_are_not_in_it(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"w")
    manifest = _checkpoint(files={"weights.bin": tmp_path / "weights.bin"})
    with pytest.raises(CheckpointError, match=r"must lie in a folder that exists .* Make .*new first\.$"):
        save_checkpoint(manifest, tmp_path / "new" / "step-10")


def _folder_checkpoint(folder, step):
    folder.mkdir()
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 8)
    return save_checkpoint(_checkpoint(step, files={"weights.bin": folder / "weights.bin"}), folder)


def test_big_files_beside_the_manifest_are_checked_by_size_and_content(tmp_path):
    manifest = _folder_checkpoint(tmp_path / "step-10", 10)
    weights = tmp_path / "step-10" / "weights.bin"

    assert manifest.name == "manifest.json"
    assert load_checkpoint(tmp_path / "step-10").payload["files"]["weights.bin"]["bytes"] == 2048
    weights.write_bytes(weights.read_bytes()[:1024])
    with pytest.raises(
        DamagedCheckpointError, match=r"weights\.bin: must be the saved file of 2048 bytes.*'1024 bytes"
    ):
        load_checkpoint(tmp_path / "step-10")
    weights.write_bytes(bytes(2048))
    with pytest.raises(DamagedCheckpointError, match=r"got '2048 bytes"):
        load_checkpoint(manifest)
    weights.unlink()
    with pytest.raises(DamagedCheckpointError, match="got 'no such file'"):
        load_checkpoint(manifest)


def test_a_manifest_is_not_written_before_its_files_are_there(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"1234")
    manifest = _checkpoint(files={"weights.bin": tmp_path / "weights.bin"})
    (tmp_path / "weights.bin").write_bytes(b"12")

    with pytest.raises(CheckpointError, match=r"weights\.bin: must be the saved file of 4 bytes"):
        save_checkpoint(manifest, tmp_path)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("name", ["../weights.bin", "a/b", "", "manifest.json", ".."])
def test_a_recorded_file_lies_beside_the_manifest(tmp_path, name):
    (tmp_path / "x").write_bytes(b"")

    with pytest.raises(ConfigError, match="files: must have plain file names as keys"):
        _checkpoint(files={name: tmp_path / "x"})


# The newest of a folder


def test_resume_takes_the_newest_whole_checkpoint_and_names_the_torn_ones(tmp_path):
    for step in (10, 20, 30):
        _folder_checkpoint(tmp_path / f"step-{step}", step)
    (tmp_path / "step-20" / "manifest.json").unlink()
    weights = tmp_path / "step-30" / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:1024])

    with pytest.warns(CheckpointWarning) as caught:
        found = latest_checkpoint(tmp_path)
    assert found.manifest.optimizer_step == 10
    assert [item.path.name for item in found.skipped] == ["step-30", "step-20"]
    assert "must be the saved file of 2048 bytes" in found.skipped[0].reason
    assert "must have a manifest.json, which is written last" in found.skipped[1].reason
    assert len(caught) == 1
    assert all(name in str(caught[0].message) for name in ("resuming from", "step-10", "step-20", "step-30"))


@given(steps=st.sets(st.integers(1, 2000), min_size=1, max_size=6), data=st.data())
def test_whichever_checkpoints_are_torn_the_newest_whole_one_is_found(
    tmp_path_factory, good_bytes, steps, data
):
    folder = tmp_path_factory.mktemp("run")
    torn = data.draw(st.sets(st.sampled_from(sorted(steps))))
    for step in steps:
        content = good_bytes[: len(good_bytes) // 2] if step in torn else good_bytes
        (folder / f"step-{step}.json").write_bytes(content)
    whole = steps - torn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        if not whole:
            with pytest.raises(CheckpointError, match="must hold at least one whole checkpoint"):
                latest_checkpoint(folder, components={"workers": 2})
            return
        found = latest_checkpoint(folder, components={"workers": 2})

    assert found.path.name == f"step-{max(whole)}.json"
    assert {item.path.name for item in found.skipped} == {f"step-{s}.json" for s in torn if s > max(whole)}


def test_an_empty_or_missing_folder_is_a_fresh_start(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "notes-3.txt").write_text("")
    (tmp_path / "config.json").write_text("{}")

    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "nowhere") is None


def test_only_damaged_checkpoints_are_an_error_not_a_fresh_start(tmp_path):
    path = save_checkpoint(_checkpoint(), tmp_path / "step-3.json")
    path.write_bytes(path.read_bytes()[:99])
    (tmp_path / "step-10").mkdir()

    with pytest.raises(CheckpointError, match=r"at least one whole checkpoint.*step-10.*step-3.*start again"):
        latest_checkpoint(tmp_path)


def test_a_first_save_that_was_never_finished_is_a_fresh_start_that_is_named(tmp_path):
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / "weights.bin").write_bytes(b"half")

    with pytest.warns(CheckpointWarning, match=r"holds no finished checkpoint; passed over: .*step-10"):
        assert latest_checkpoint(tmp_path) is None


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (9, 10, 100):
        save_checkpoint(_checkpoint(step), tmp_path / f"step-{step}.json")

    assert latest_checkpoint(tmp_path).manifest.optimizer_step == 100


def test_what_an_interrupted_save_left_is_named(tmp_path):
    good = save_checkpoint(_checkpoint(3), tmp_path / "step-3.json")
    leftover = tmp_path / f".step-4.json.99-abcd{atomic_files.TEMPORARY_SUFFIX}"
    leftover.write_bytes(good.read_bytes()[:100])

    with pytest.warns(CheckpointWarning, match="must be a finished checkpoint"):
        found = latest_checkpoint(tmp_path)
    assert found.path == good
    assert [item.path for item in found.skipped] == [leftover]


def test_a_folder_that_is_itself_a_checkpoint_is_found(tmp_path):
    save_checkpoint(_checkpoint(3), tmp_path)

    assert latest_checkpoint(tmp_path).manifest.optimizer_step == 3


def test_a_changed_component_is_not_evaded_by_an_older_checkpoint(tmp_path):
    save_checkpoint(_checkpoint(10, components={"workers": 1}), tmp_path / "step-10.json")
    save_checkpoint(_checkpoint(20, components={"workers": 2}), tmp_path / "step-20.json")

    with pytest.raises(CheckpointError, match=r"step-20\.json: components must be those of the save"):
        latest_checkpoint(tmp_path, components={"workers": 1})


KILLED_SAVER = """
import os, random, signal, sys, time
import numpy as np
from lagsweep.sweeps.checkpoint.checkpoint import latest_checkpoint, make_checkpoint, save_checkpoint

folder, kills = sys.argv[1], int(sys.argv[2])
arrays = {"weights": np.arange(40_000.0)}

def save_for_ever(step):
    while True:
        step += 1
        numbers = {"optimizer_step": step, "current_version": step, "published_version": step}
        rng = np.random.default_rng(step)
        manifest = make_checkpoint(**numbers, dataset_cursor=step, rng=rng, state=arrays)
        save_checkpoint(manifest, os.path.join(folder, f"step-{step:06d}.json"))

def saves():
    return sum(not name.startswith(".") for name in os.listdir(folder))

chance, step, left = random.Random(1), 0, 0
for _ in range(kills):
    finished = saves()
    child = os.fork()
    if child == 0:
        save_for_ever(step)
    deadline = time.monotonic() + 60
    while saves() == finished and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.03 * chance.random())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = latest_checkpoint(folder)
    if found is not None:
        assert found.manifest.optimizer_step >= step and found.manifest.state["weights"][-1] == 39_999.0
        step = found.manifest.optimizer_step
        left += len(found.skipped)
print(step, left)
"""


def test_a_process_killed_while_saving_always_leaves_a_whole_checkpoint(tmp_path):
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED_SAVER, str(tmp_path), "20"],
        capture_output=True,
        text=True,
    )

    assert answer.returncode == 0, answer.stderr
    step, _ = map(int, answer.stdout.split())
    assert step >= 20
    assert len(list(tmp_path.glob("step-*.json"))) >= step
