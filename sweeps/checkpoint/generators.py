"""The complete state of a generator of random numbers, as JSON, and the generator made again from it.

Three parts are forgotten most often, and each one silently shifts the stream after a resume:

- the half word that 32-bit draws leave behind (``has_uint32``, ``uinteger``; numpy/numpy#14213), and the
  second normal that ``random.gauss`` and ``RandomState.normal`` keep back;
- the seed sequence: without its count of spawned children a resumed generator spawns the same children
  again, whose streams repeat those of the first run;
- integers of 128 bits, which most JSON readers round; :mod:`.checkpoint.codec` makes them text.

NumPy does not promise that a ``Generator`` draws the same numbers in every version, so a checkpoint also
records NumPy's version and is refused under another one.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from ...kernels.errors import CheckpointError, ConfigError
from .codec import decode, encode

AnyGenerator = np.random.Generator | np.random.RandomState | random.Random

_BIT_GENERATORS: dict[str, type[np.random.BitGenerator]] = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937,
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.Philox,
        np.random.SFC64,
    )
}

_MT_WORDS = 624
_LARGEST_POOL = 2**12


def encode_generator(generator: AnyGenerator, field: str = "rng") -> dict[str, Any]:
    """Write a generator's complete state as JSON.

    Parameters
    ----------
    generator : numpy.random.Generator, numpy.random.RandomState or random.Random
        The generator; it is not advanced.
    field : str
        What errors call it.

    Returns
    -------
    dict
        Plain JSON: kind, state, and for a ``Generator`` the seed sequence that its children come from.

    Raises
    ------
    ConfigError
        If it is none of these, or has a bit generator that NumPy does not ship.

    Examples
    --------
    >>> rng = np.random.default_rng(7)
    >>> saved = encode_generator(rng)
    >>> expected = rng.integers(0, 100, size=3).tolist()
    >>> decode_generator(saved).integers(0, 100, size=3).tolist() == expected
    True
    """
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        name = _shipped_name(bits, field)
        return {
            "kind": "numpy.random.Generator",
            "bit_generator": name,
            "state": encode(bits.state, field),
            "seed_sequence": _encode_seed_sequence(bits, name, field),
        }
    if isinstance(generator, np.random.RandomState):
        state = generator.get_state(legacy=False)
        if state["bit_generator"] not in _BIT_GENERATORS:
            raise _foreign(state["bit_generator"], field)
        return {"kind": "numpy.random.RandomState", "state": encode(state, field)}
    if isinstance(generator, random.Random) and not isinstance(generator, random.SystemRandom):
        return _encode_python_state(generator.getstate())
    raise ConfigError(
        field,
        "must be a numpy.random.Generator, numpy.random.RandomState or random.Random",
        type(generator).__name__,
        "Pass the generator itself, not a seed.",
    )


def encode_python_random() -> dict[str, Any]:
    """Write the state of Python's global ``random`` module as JSON.

    Returns
    -------
    dict
        As :func:`encode_generator` gives for a ``random.Random``.
    """
    return _encode_python_state(random.getstate())


def decode_generator(encoded: Any, field: str = "rng") -> AnyGenerator:
    """Make a generator that goes on exactly where the saved one stood.

    Parameters
    ----------
    encoded : dict
        What :func:`encode_generator` gave, possibly read from a file.
    field : str
        What errors call it.

    Returns
    -------
    numpy.random.Generator, numpy.random.RandomState or random.Random
        A new object of the kind that was saved; no global state is touched.

    Raises
    ------
    CheckpointError
        If it is not the state of a generator.
    """
    try:
        kind = encoded["kind"]
        if kind == "numpy.random.Generator":
            return np.random.Generator(_decode_bit_generator(encoded))
        if kind == "numpy.random.RandomState":
            state = decode(encoded["state"])
            legacy = np.random.RandomState(_BIT_GENERATORS[state["bit_generator"]](0))
            legacy.set_state(state)
            _refuse_bad_state(state, legacy.get_state(legacy=False))
            return legacy
        if kind == "random.Random":
            generator = random.Random()
            generator.setstate(python_state(encoded))
            return generator
    # OverflowError, from a word of too many bits, is an ArithmeticError.
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(encoded, field) from error
    raise _unreadable(encoded, field)


def python_state(encoded: dict[str, Any]) -> tuple[Any, ...]:
    """Return the tuple that ``random.setstate`` takes.

    Parameters
    ----------
    encoded : dict
        The state of kind ``random.Random``.

    Returns
    -------
    tuple
        Version, words, and the normal that ``gauss`` kept back.
    """
    version, words, kept_back = decode(encoded["state"])
    if not any(words[:_MT_WORDS]) or not math.isfinite(kept_back or 0.0):
        raise ValueError("the state is none that a generator can have")
    return (version, tuple(int(word) for word in words), kept_back)


def _encode_python_state(state: tuple[Any, ...]) -> dict[str, Any]:
    version, words, kept_back = state
    # 625 words of 32 bits: an array is a third of the size of a list of numbers.
    packed = [version, np.array(words, dtype=np.uint32), kept_back]
    return {"kind": "random.Random", "state": encode(packed)}


def _encode_seed_sequence(bits: np.random.BitGenerator, name: str, field: str) -> Any:
    sequence = bits.seed_seq
    if sequence is None and name == "Philox":
        return None  # made from a key: it never could spawn
    if type(sequence) is not np.random.SeedSequence:
        raise ConfigError(
            field,
            "must have been seeded through numpy.random.SeedSequence",
            type(sequence).__name__,
            "Otherwise its spawned children could not be made again.",
        )
    return encode(sequence.state, field)


def _decode_bit_generator(encoded: dict[str, Any]) -> np.random.BitGenerator:
    kind = _BIT_GENERATORS[encoded["bit_generator"]]
    if encoded["seed_sequence"] is None:
        bits: np.random.BitGenerator = np.random.Philox(key=0)
    else:
        bits = kind(_seed_sequence(decode(encoded["seed_sequence"])))
    state = decode(encoded["state"])
    bits.state = state
    _refuse_bad_state(state, bits.state)
    return bits


def _seed_sequence(saved: dict[str, Any]) -> np.random.SeedSequence:
    """Make the seed sequence again; its pool is no larger than anybody made one."""
    if not 4 <= saved["pool_size"] <= _LARGEST_POOL or saved["n_children_spawned"] < 0:
        raise ValueError("the seed sequence is none that a generator can have")
    return np.random.SeedSequence(**saved)


def _refuse_bad_state(given: Any, taken: Any) -> None:
    """Refuse a state that NumPy took but that makes it read past its arrays, or draw for ever.

    NumPy checks types and sizes when a state is set, but not the position in a block of draws.
    """
    if encode(given) != encode(taken):
        raise ValueError("NumPy did not take the state as it is")
    inner = given["state"]
    position_is_bad = not 0 <= inner.get("pos", 0) <= _MT_WORDS or not 0 <= given.get("buffer_pos", 0) <= 4
    # Twister words of 0 give 0 for ever, and the polar method of a normal then never ends; an even
    # increment takes half of PCG's states out of reach.
    stands_still = inner.get("inc", 1) % 2 == 0 or ("pos" in inner and not inner["key"].any())
    flags_are_bad = any(given.get(name, 0) not in (0, 1) for name in ("has_uint32", "has_gauss"))
    if position_is_bad or stands_still or flags_are_bad or not math.isfinite(given.get("gauss", 0.0)):
        raise ValueError("the state is none that a generator can have")


def _shipped_name(bits: np.random.BitGenerator, field: str) -> str:
    name = type(bits).__name__
    if _BIT_GENERATORS.get(name) is not type(bits):
        raise _foreign(name, field)
    return name


def _foreign(name: str, field: str) -> ConfigError:
    return ConfigError(
        field, f"must use one of NumPy's bit generators: {', '.join(_BIT_GENERATORS)}", name, "Use PCG64."
    )


def _unreadable(encoded: Any, field: str) -> CheckpointError:
    return CheckpointError(
        field, "must hold the state of a generator", encoded, "The file was not written by save_checkpoint."
    )
