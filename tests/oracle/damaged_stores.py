"""Faults of stored sweeps: each takes a store's folder, random numbers and another store, and damages it.

A fault that finds nothing to damage (an unfinished store may lack what it wants) raises ``NothingToDamage``.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from lagsweep.sweeps.results.dataset import variable_table
from lagsweep.sweeps.store.arrays import DIGEST_BYTES, digest_of_file
from lagsweep.sweeps.store.journal import journal_line, read_line


class NothingToDamage(Exception):
    """The store lacks what the fault would damage."""


FAULTS = {}


def fault(function):
    FAULTS[function.__name__] = function
    return function


def pick(rng, paths):
    found = sorted(path for path in paths if path.is_file())
    if not found:
        raise NothingToDamage
    return found[int(rng.integers(len(found)))]


def chunks(store, name="*"):
    coordinates = {"max_lag", "sync_cadence", "seed", "lag", "cell"}
    return [
        path
        for path in (store / "cells.zarr").glob(f"{name}/c/**/*")
        if path.is_file() and path.relative_to(store / "cells.zarr").parts[0] not in coordinates
    ]


def packs(store):
    return list((store / "packs").glob("*.pack"))


def parts(store):
    return list((store / "tables").glob("*/*.parquet"))


def flip(path, rng):
    content = bytearray(path.read_bytes())
    if not content:
        raise NothingToDamage
    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def swap(one, two):
    a, b = one.read_bytes(), two.read_bytes()
    if a == b:
        raise NothingToDamage
    one.write_bytes(b)
    two.write_bytes(a)


def change_json(path, change):
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found, indent=2))


def lines(store):
    return (store / "journal.jsonl").read_bytes().splitlines(keepends=True)


def write_lines(store, found):
    (store / "journal.jsonl").write_bytes(b"".join(found))


@fault
def a_chunk_is_deleted(store, rng, other):
    pick(rng, chunks(store)).unlink()


@fault
def the_chunk_of_a_lag_is_deleted(store, rng, other):
    pick(rng, chunks(store, "max_lag_observed")).unlink()


@fault
def a_status_chunk_is_deleted(store, rng, other):
    pick(rng, chunks(store, "status")).unlink()


@fault
def all_chunks_of_an_array_are_deleted(store, rng, other):
    name = pick(rng, chunks(store)).relative_to(store / "cells.zarr").parts[0]
    shutil.rmtree(store / "cells.zarr" / name / "c")


@fault
def an_array_is_deleted(store, rng, other):
    name = pick(rng, chunks(store)).relative_to(store / "cells.zarr").parts[0]
    shutil.rmtree(store / "cells.zarr" / name)


@fault
def a_coordinates_chunk_is_deleted(store, rng, other):
    pick(rng, (store / "cells.zarr/max_lag/c").rglob("*")).unlink()


@fault
def a_chunk_is_cut_short(store, rng, other):
    path = pick(rng, chunks(store))
    path.write_bytes(path.read_bytes()[: int(rng.integers(path.stat().st_size))])


@fault
def a_bit_of_a_chunk_flips(store, rng, other):
    flip(pick(rng, chunks(store)), rng)


@fault
def two_units_of_an_array_are_swapped(store, rng, other):
    found = sorted(chunks(store, "trained_tokens"))
    if len(found) < 2:
        raise NothingToDamage
    swap(found[0], found[1])


@fault
def two_arrays_are_swapped(store, rng, other):
    swap(pick(rng, chunks(store, "generated_tokens")), pick(rng, chunks(store, "trained_tokens")))


@fault
def a_chunk_is_that_of_another_store(store, rng, other):
    path = pick(rng, chunks(store, "mean_lag"))
    theirs = other / path.relative_to(store)
    if not theirs.exists() or theirs.read_bytes() == path.read_bytes():
        raise NothingToDamage
    shutil.copyfile(theirs, path)


@fault
def a_coordinate_is_that_of_another_store(store, rng, other):
    for path in (store / "cells.zarr/cell/c").rglob("*"):
        if path.is_file():
            shutil.copyfile(other / path.relative_to(store), path)


@fault
def a_chunk_is_a_folder(store, rng, other):
    path = pick(rng, chunks(store))
    path.unlink()
    path.mkdir()


@fault
def a_chunk_is_a_link(store, rng, other):
    path = pick(rng, chunks(store))
    elsewhere = store.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@fault
def a_pack_is_deleted(store, rng, other):
    pick(rng, packs(store)).unlink()


@fault
def a_pack_is_cut_short(store, rng, other):
    path = pick(rng, packs(store))
    path.write_bytes(path.read_bytes()[: int(rng.integers(path.stat().st_size))])


@fault
def a_bit_of_a_pack_flips(store, rng, other):
    flip(pick(rng, packs(store)), rng)


@fault
def two_packs_are_swapped(store, rng, other):
    found = sorted(packs(store))
    if len(found) < 2:
        raise NothingToDamage
    swap(found[0], found[-1])


@fault
def a_pack_is_a_folder(store, rng, other):
    path = pick(rng, packs(store))
    path.unlink()
    path.mkdir()


@fault
def a_pack_is_there_that_nobody_told_of(store, rng, other):
    path = pick(rng, packs(store))
    shutil.copyfile(path, path.with_name("unit-9.9.9.pack"))


@fault
def all_packs_are_deleted(store, rng, other):
    pick(rng, packs(store))
    shutil.rmtree(store / "packs")


@fault
def the_sizes_in_a_pack_are_altered_in_the_journal(store, rng, other):
    found = [read_line(line) for line in lines(store)]
    packed = [record for record in found if record and "sizes" in record]
    if not packed:
        raise NothingToDamage
    sizes = packed[int(rng.integers(len(packed)))]["sizes"]
    sizes[0], sizes[1] = sizes[0] + 3, sizes[1] - 3
    write_lines(store, map(journal_line, found))


@fault
def the_journal_tells_of_units_never_done(store, rng, other):
    """As that of a finished copy over an unfinished store."""
    finished = store.with_name("finished-journal")
    if not finished.exists():
        raise NothingToDamage
    shutil.copyfile(finished, store / "journal.jsonl")


@fault
def the_journal_is_that_of_another_sweep(store, rng, other):
    shutil.copyfile(other / "journal.jsonl", store / "journal.jsonl")


@fault
def the_journal_is_deleted(store, rng, other):
    (store / "journal.jsonl").unlink()


@fault
def the_journal_lacks_a_line(store, rng, other):
    found = lines(store)
    del found[int(rng.integers(1, len(found)))]
    write_lines(store, found)


@fault
def a_bit_of_the_journal_flips(store, rng, other):
    flip(store / "journal.jsonl", rng)


@fault
def the_journal_is_torn(store, rng, other):
    content = (store / "journal.jsonl").read_bytes()
    (store / "journal.jsonl").write_bytes(content[: int(rng.integers(1, len(content)))])


@fault
def two_units_digests_are_swapped_in_the_journal(store, rng, other):
    found = [read_line(line) for line in lines(store)]
    units = [place for place, record in enumerate(found) if record and record.get("part") == "cells"]
    if len(units) < 2 or found[units[0]]["digest"] == found[units[1]]["digest"]:
        raise NothingToDamage
    a, b = found[units[0]], found[units[1]]
    a["digest"], b["digest"] = b["digest"], a["digest"]
    write_lines(store, map(journal_line, found))


@fault
def the_consolidated_metadata_are_altered(store, rng, other):
    def change(root):
        if "consolidated_metadata" not in root:
            raise NothingToDamage
        root["consolidated_metadata"]["metadata"]["max_lag_observed"]["shape"][-1] -= 1

    change_json(store / "cells.zarr/zarr.json", change)


@fault
def the_consolidated_metadata_are_removed(store, rng, other):
    def change(root):
        if root.pop("consolidated_metadata", None) is None:
            raise NothingToDamage

    change_json(store / "cells.zarr/zarr.json", change)


@fault
def an_arrays_fill_value_is_altered(store, rng, other):
    change_json(store / "cells.zarr/trained_tokens/zarr.json", lambda meta: meta.update(fill_value=7))


@fault
def an_array_gets_a_scale_factor(store, rng, other):
    change_json(
        store / "cells.zarr/trained_tokens/zarr.json",
        lambda meta: meta["attributes"].update(scale_factor=2.0),
    )


@fault
def an_array_has_other_chunks(store, rng, other):
    def change(meta):
        meta["chunk_grid"]["configuration"]["chunk_shape"][-1] += 1

    change_json(store / "cells.zarr/status/zarr.json", change)


@fault
def an_array_has_another_type(store, rng, other):
    change_json(store / "cells.zarr/mean_lag/zarr.json", lambda meta: meta.update(data_type="int64"))


@fault
def a_bit_of_an_arrays_metadata_flips(store, rng, other):
    flip(pick(rng, (store / "cells.zarr").glob("*/zarr.json")), rng)


@fault
def a_bit_of_the_groups_metadata_flips(store, rng, other):
    flip(store / "cells.zarr/zarr.json", rng)


@fault
def the_groups_metadata_are_deleted(store, rng, other):
    (store / "cells.zarr/zarr.json").unlink()


@fault
def the_groups_metadata_are_emptied(store, rng, other):
    (store / "cells.zarr/zarr.json").write_bytes(b"")


@fault
def the_groups_metadata_are_those_of_another_store(store, rng, other):
    shutil.copyfile(other / "cells.zarr/zarr.json", store / "cells.zarr/zarr.json")


@fault
def complete_is_turned_round(store, rng, other):
    def change(root):
        root["attributes"]["complete"] = not root["attributes"]["complete"]

    change_json(store / "cells.zarr/zarr.json", change)


@fault
def a_bit_of_a_part_flips(store, rng, other):
    flip(pick(rng, parts(store)), rng)


@fault
def a_part_is_deleted(store, rng, other):
    pick(rng, parts(store)).unlink()


@fault
def two_parts_are_swapped(store, rng, other):
    found = sorted(parts(store))
    if len(found) < 2:
        raise NothingToDamage
    swap(found[0], found[1])


@fault
def a_part_is_that_of_another_store(store, rng, other):
    path = pick(rng, parts(store))
    theirs = other / path.relative_to(store)
    if not theirs.exists():
        raise NothingToDamage
    shutil.copyfile(theirs, path)


@fault
def a_part_is_there_that_nobody_told_of(store, rng, other):
    path = pick(rng, parts(store))
    shutil.copyfile(path, path.with_name("unit-9.9.9.parquet"))


@fault
def all_tables_are_deleted(store, rng, other):
    shutil.rmtree(store / "tables")


@fault
def foreign_and_unfinished_files_lie_about(store, rng, other):
    (store / "cells.zarr/notes.txt").write_text("mine")
    (store / "cells.zarr/status/x.partial").write_bytes(b"torn")
    (store / "tables/batches/unit-0.0.1.parquet.tmp").write_bytes(b"torn")


@fault
def old_files_lie_among_the_kept(store, rng, other):
    path = pick(rng, chunks(store, "mean_lag"))
    kept = store / "kept" / path.relative_to(store)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(b"old")
    path.unlink()


@fault
def the_spec_file_is_altered(store, rng, other):
    path = store / "spec.toml"
    path.write_text(path.read_text().replace("batch_tokens = 150", "batch_tokens = 151"))


@fault
def the_lock_is_a_link(store, rng, other):
    precious = store.parent / "precious.txt"
    precious.write_text("keep me")
    (store / "lock").unlink(missing_ok=True)
    (store / "lock").symlink_to(precious)


@fault
def the_lock_is_a_pipe(store, rng, other):
    (store / "lock").unlink(missing_ok=True)
    os.mkfifo(store / "lock")


@fault
def a_bit_anywhere_flips(store, rng, other):
    flip(pick(rng, (path for path in Path(store).rglob("*") if path.name not in ("run.json", "lock"))), rng)


def unit_digest(store, part, unit):
    """The digests of a unit's chunks, in the order of the variables."""
    return "".join(
        digest_of_file(store.files.chunk_file(name, unit), DIGEST_BYTES) for name in variable_table(part)
    )
