"""Generators: the complete state goes into JSON, and the stream goes on as if nothing had happened."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.errors import CheckpointError, ConfigError
from lagsweep.sweeps.checkpoint.generators import decode_generator, encode_generator

BIT_GENERATORS = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]
DRAWS = {
    "half word": lambda rng: rng.integers(0, 2**31 - 1, dtype=np.int32),
    "byte": lambda rng: rng.integers(0, 200, dtype=np.uint8),
    "word": lambda rng: rng.integers(0, 2**63),
    "normal": lambda rng: rng.standard_normal(),
    "float32": lambda rng: rng.random(dtype=np.float32),
    "permutation": lambda rng: tuple(rng.permutation(5)),
    "child": lambda rng: rng.spawn(1)[0].integers(0, 2**62),
}


def _through_json(generator):
    return decode_generator(json.loads(json.dumps(encode_generator(generator), allow_nan=False)))


@given(
    st.sampled_from(BIT_GENERATORS),
    st.integers(0, 2**130),
    st.lists(st.sampled_from(sorted(DRAWS)), max_size=7),
    st.lists(st.sampled_from(sorted(DRAWS)), min_size=1, max_size=7),
)
def test_a_generator_goes_on_exactly_after_any_draws(name, seed, before, after):
    rng = np.random.Generator(getattr(np.random, name)(seed))
    for draw in before:
        DRAWS[draw](rng)
    resumed = _through_json(rng)

    assert [DRAWS[draw](resumed) for draw in after] == [DRAWS[draw](rng) for draw in after]


def test_saving_does_not_advance_the_generator():
    rng = np.random.default_rng(3)
    encode_generator(rng)

    assert rng.integers(0, 2**60) == np.random.default_rng(3).integers(0, 2**60)


def _thirty_two_bit(rng, count=4):
    return [int(rng.integers(0, 2**31 - 1, dtype=np.int32)) for _ in range(count)]


@pytest.mark.parametrize("draws_before", [1, 2, 3])
def test_the_half_word_left_by_32_bit_draws_is_kept(draws_before):
    rng = np.random.default_rng(7)
    _thirty_two_bit(rng, draws_before)
    encoded = encode_generator(rng)
    resumed = decode_generator(encoded)
    forgetful = decode_generator({**encoded, "state": {**encoded["state"], "has_uint32": 0, "uinteger": 0}})
    expected = _thirty_two_bit(rng)

    assert _thirty_two_bit(resumed) == expected
    # Without the half word the stream is shifted after an odd number of draws only: easily overlooked.
    assert (_thirty_two_bit(forgetful) == expected) == (draws_before % 2 == 0)


def test_the_stream_goes_on_in_another_process():
    rng = np.random.default_rng(7)
    _thirty_two_bit(rng, 1)
    program = (
        "import json, sys, numpy as np\n"
        "from lagsweep.sweeps.checkpoint.generators import decode_generator\n"
        "rng = decode_generator(json.load(sys.stdin))\n"
        "print(json.dumps([int(rng.integers(0, 2**31 - 1, dtype=np.int32)) for _ in range(4)]))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(encode_generator(rng)),
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(answer.stdout) == _thirty_two_bit(rng)


def test_big_integers_of_the_state_are_text():
    state = encode_generator(np.random.default_rng(12016))["state"]["state"]

    assert set(state) == {"state", "inc"}
    assert all(set(value) == {"$int"} and int(value["$int"]) > 2**64 for value in state.values())


def test_children_spawned_after_a_resume_are_not_the_first_ones_again():
    rng = np.random.default_rng(5)
    first = rng.spawn(2)[0].integers(0, 2**62)
    resumed = _through_json(rng)

    assert resumed.spawn(1)[0].integers(0, 2**62) not in (
        first,
        np.random.default_rng(5).spawn(1)[0].integers(0, 2**62),
    )


def test_a_philox_made_from_a_key_goes_on():
    rng = np.random.Generator(np.random.Philox(key=2**100 + 1))
    rng.integers(0, 9, size=3, dtype=np.int32)
    resumed = _through_json(rng)

    assert resumed.random(5).tolist() == rng.random(5).tolist()


@pytest.mark.parametrize("bits", ["MT19937", "PCG64"])
def test_a_random_state_keeps_the_second_normal(bits):
    legacy = np.random.RandomState(getattr(np.random, bits)(11))
    legacy.normal()
    resumed = _through_json(legacy)

    assert resumed.normal(size=5).tolist() == legacy.normal(size=5).tolist()


def test_pythons_generator_keeps_the_second_normal():
    generator = random.Random(11)
    generator.gauss(0.0, 1.0)
    resumed = _through_json(generator)

    assert [resumed.gauss(0.0, 1.0), resumed.random()] == [generator.gauss(0.0, 1.0), generator.random()]


@pytest.mark.parametrize(
    ("generator", "text"),
    [
        (
            7,
            "rng: must be a numpy.random.Generator, numpy.random.RandomState or random.Random (got 'int'). "
            "Pass the generator itself, not a seed.",
        ),
        (
            random.SystemRandom(),
            "rng: must be a numpy.random.Generator, numpy.random.RandomState or random.Random "
            "(got 'SystemRandom'). Pass the generator itself, not a seed.",
        ),
    ],
)
def test_what_has_no_state_to_save_is_refused(generator, text):
    with pytest.raises(ConfigError) as caught:
        encode_generator(generator)

    assert str(caught.value) == text


def test_a_foreign_bit_generator_is_refused():
    class Mine(np.random.PCG64):
        pass

    with pytest.raises(
        ConfigError, match=r"must use one of NumPy's bit generators: MT19937, PCG64.*got 'Mine'"
    ):
        encode_generator(np.random.Generator(Mine(1)))


def test_a_foreign_seed_sequence_is_refused():
    class Mine(np.random.bit_generator.ISeedSequence):
        def generate_state(self, n_words, dtype=np.uint32):
            return np.arange(n_words, dtype=dtype)

    with pytest.raises(ConfigError, match=r"must have been seeded through numpy\.random\.SeedSequence"):
        encode_generator(np.random.Generator(np.random.PCG64(Mine())))


@pytest.mark.parametrize(
    "encoded",
    [
        None,
        {},
        {"kind": "builtins.eval"},
        {"kind": "numpy.random.Generator", "bit_generator": "Foo", "state": {}, "seed_sequence": None},
        {"kind": "random.Random", "state": [3, [1, 2], None]},
    ],
)
def test_what_is_no_state_of_a_generator_is_refused_on_reading(encoded):
    with pytest.raises(CheckpointError, match=r"rng_state\.numpy: must hold the state of a generator"):
        decode_generator(encoded, "rng_state.numpy")
