"""Checkpoints that somebody else made, with a right digest: refused by name, no crash, no hang, no wait."""

from __future__ import annotations

import copy
import json
import os
import random

import numpy as np
import pytest

from lagsweep.errors import CheckpointError
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
from lagsweep.sweeps.checkpoint.codec import decode, encode
from lagsweep.sweeps.checkpoint.generators import decode_generator, encode_generator
from lagsweep.sweeps.checkpoint.manifest import content_digest, manifest_from_dict


def _payload(**changes):
    """A sound manifest as a dict, with some fields replaced and the digest made again."""
    rng = np.random.default_rng(7)
    made = make_checkpoint(
        optimizer_step=3, current_version=3, published_version=2, dataset_cursor=8, rng=rng
    )
    payload = checkpoint_as_dict(made) | changes
    payload["digest"] = content_digest(payload)
    return payload


def _write(folder, payload, name="step-3.json"):
    path = folder / name
    path.write_text(json.dumps(payload))
    return path


RECORD = {"bytes": 3, "sha256": "0" * 64}


@pytest.mark.parametrize("name", ["../x", "/dev/zero", "sub/x", "", "..", "manifest.json", "a\\b", "a\nb"])
def test_a_manifest_that_names_a_file_outside_its_folder_is_refused(name):
    with pytest.raises(CheckpointError, match="files: must have plain file names as keys"):
        manifest_from_dict(_payload(files={name: RECORD}))


@pytest.mark.parametrize(
    "record",
    [
        None,
        3,
        {},
        {"bytes": 3},
        RECORD | {"bytes": -1},
        RECORD | {"bytes": 1.5},
        RECORD | {"sha256": "0" * 63},
        RECORD | {"sha256": 5},
        RECORD | {"more": 1},
    ],
)
def test_a_record_of_a_file_that_no_save_writes_is_refused_by_name(record):
    with pytest.raises(CheckpointError, match=r"files\.weights\.bin"):
        manifest_from_dict(_payload(files={"weights.bin": record}))


@pytest.mark.parametrize("field", ["files", "counters", "components", "rng_state", "component_changes"])
@pytest.mark.parametrize("value", [None, 3, "text", [1]])
def test_a_field_of_another_kind_is_refused_by_name(field, value):
    with pytest.raises(CheckpointError, match=field):
        manifest_from_dict(_payload(**{field: value}))


def test_a_file_beside_the_manifest_that_is_a_pipe_or_a_device_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "zero.bin").symlink_to("/dev/zero")
    for name in ("pipe.bin", "zero.bin"):
        path = _write(tmp_path, _payload(files={name: RECORD}))
        with pytest.raises(CheckpointError, match="not a regular file"):
            load_checkpoint(path)


def test_a_file_of_another_size_is_refused_without_reading_it(tmp_path):
    with open(tmp_path / "weights.bin", "wb") as file:
        file.truncate(2**40)  # a hole: reading it would take an hour
    path = _write(tmp_path, _payload(files={"weights.bin": RECORD}))
    with pytest.raises(CheckpointError, match="1099511627776 bytes"):
        load_checkpoint(path)


def test_a_manifest_that_is_a_pipe_or_a_device_is_passed_over(tmp_path):
    save_checkpoint(manifest_from_dict(_payload()), tmp_path / "step-3.json")
    os.mkfifo(tmp_path / "step-4.json")
    (tmp_path / "step-5.json").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_manifest(tmp_path / "step-5.json")
    with pytest.warns(CheckpointWarning, match="not a regular file"):
        found = latest_checkpoint(tmp_path)
    assert found.path == tmp_path / "step-3.json"


def test_a_manifest_larger_than_a_save_writes_is_refused(tmp_path, monkeypatch):
    from lagsweep.sweeps.checkpoint import files

    manifest = manifest_from_dict(_payload())
    path = save_checkpoint(manifest, tmp_path / "step-3.json")
    monkeypatch.setattr(files, "MOST_MANIFEST_BYTES", path.stat().st_size - 1)
    with pytest.raises(CheckpointError, match="must be at most"):
        read_manifest(path)
    with pytest.raises(CheckpointError, match="must be at most"):
        save_checkpoint(manifest, tmp_path / "step-4.json")


@pytest.mark.parametrize("text", ["1e999", "-1e999", "[1e999]"])
def test_a_number_that_overflows_is_damage(tmp_path, text):
    path = tmp_path / "step-3.json"
    path.write_text(json.dumps(_payload()).replace('"queue": null', f'"queue": {text}'))
    with pytest.raises(CheckpointError, match="no finite number"):
        read_manifest(path)


@pytest.mark.parametrize("value", [float("inf"), {1, 2}, {"a": {1: 2, "b": 3}}, b"x"])
def test_a_dict_that_is_no_json_is_refused(value):
    payload = _payload() | {"state": value}
    with pytest.raises(CheckpointError, match="plain JSON"):
        manifest_from_dict(payload)


def _nested(depth, make):
    node = 1
    for _ in range(depth):
        node = make(node)
    return node


@pytest.mark.parametrize("make", [lambda x: [x], lambda x: {"a": x}, lambda x: (x,), lambda x: {1: x}])
def test_what_can_be_written_can_be_read_and_nothing_deeper(make):
    deepest = _nested(64, make)
    assert decode(encode(deepest)) == deepest
    deeper = _nested(65, lambda x: {"$tuple": [x]})
    with pytest.raises(CheckpointError, match="nested at most 64"):
        decode(deeper)
    with pytest.raises(CheckpointError, match="nested at most 64"):
        decode(_nested(400, lambda x: [x]))


@pytest.mark.parametrize("dtype", [None, "i8,i8", "(9999999,)i8", "O", ["<i8"], "datetime64[s]", "<i999"])
@pytest.mark.parametrize("shape", [[1]])
def test_an_array_of_another_kind_is_malformed(dtype, shape):
    body = encode(np.zeros(1))["$array"]
    with pytest.raises(CheckpointError, match=r"\$array"):
        decode({"$array": body | {"dtype": dtype, "shape": shape}})


@pytest.mark.parametrize("shape", [[2**70], [-2], "x", [2], None])
def test_an_array_whose_shape_is_not_that_of_its_data_is_malformed(shape):
    body = encode(np.zeros(1))["$array"]
    if shape is None:
        body = {key: value for key, value in body.items() if key != "shape"}
    else:
        body = body | {"shape": shape}
    with pytest.raises(CheckpointError, match=r"\$array"):
        decode({"$array": body})


def _generators():
    return {
        "MT19937": np.random.Generator(np.random.MT19937(3)),
        "Philox": np.random.Generator(np.random.Philox(3)),
        "PCG64": np.random.default_rng(3),
        "legacy": np.random.RandomState(3),
        "python": random.Random(3),
    }


def _with(encoded, path, value):
    """The encoded generator with one place of its state replaced."""
    changed = copy.deepcopy(encoded)
    state = decode(changed["state"])
    *way, last = path
    inner = state
    for key in way:
        inner = inner[key]
    inner[last] = value
    return changed | {"state": encode(state)}


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("MT19937", ("state", "pos"), 625),
        ("MT19937", ("state", "pos"), -1),
        ("MT19937", ("state", "pos"), 2**31 - 1),
        ("MT19937", ("state", "pos"), 2**40),
        ("MT19937", ("state", "key"), np.zeros(624, np.uint32)),
        ("MT19937", ("state", "key"), np.ones(3, np.uint32)),
        ("legacy", ("state", "pos"), 625),
        ("legacy", ("state", "key"), np.zeros(624, np.uint32)),
        ("legacy", ("gauss",), float("nan")),
        ("legacy", ("has_gauss",), 7),
        ("Philox", ("buffer_pos",), 5),
        ("Philox", ("buffer_pos",), -1),
        ("Philox", ("buffer",), np.zeros(3, np.uint64)),
        ("Philox", ("state", "counter"), np.zeros(400, np.uint64)),
        ("PCG64", ("state", "inc"), 0),
        ("PCG64", ("state", "state"), 2**200),
        ("PCG64", ("has_uint32",), 2),
        ("PCG64", ("uinteger",), 2**40),
        ("python", (1,), np.zeros(625, np.uint32)),
        ("python", (1,), np.full(625, 2**40)),
        ("python", (1,), np.ones(3, np.uint32)),
        ("python", (2,), float("inf")),
        ("python", (2,), "text"),
    ],
)
def test_a_generator_in_a_state_that_it_cannot_have_is_refused(kind, path, value):
    encoded = encode_generator(_generators()[kind])
    with pytest.raises(CheckpointError, match="must hold the state of a generator"):
        decode_generator(_with(encoded, path, value))


@pytest.mark.parametrize(
    ("name", "value"), [("pool_size", 10**12), ("pool_size", 3), ("n_children_spawned", -1)]
)
def test_a_seed_sequence_that_nobody_made_is_refused(name, value):
    encoded = encode_generator(np.random.default_rng(3))
    sequence = decode(encoded["seed_sequence"]) | {name: value}
    with pytest.raises(CheckpointError, match="must hold the state of a generator"):
        decode_generator(encoded | {"seed_sequence": encode(sequence)})


def test_positions_at_both_ends_of_their_blocks_are_taken():
    for kind, generator in _generators().items():
        for _ in range(700):  # through whole blocks of 624 and of 4
            again = decode_generator(encode_generator(generator))
            assert again.random() == generator.random(), kind


def test_a_manifest_without_python_s_own_generator_cannot_set_it():
    rng = encode_generator(np.random.default_rng(3))
    with pytest.raises(CheckpointError, match="Python's random"):
        restore_python_random(_payload(rng_state={"python": rng}))
    for bad in (None, 5, [], {}, {"kind": "random.Random"}, {"kind": ["x"]}):
        with pytest.raises(CheckpointError, match="state of a generator"):
            restore_rng(_payload(rng_state={"numpy": bad}))
