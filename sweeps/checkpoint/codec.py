"""Any training state as plain JSON, exactly: arrays, big integers, odd floats, generators of random numbers.

JSON alone is lossy for what a checkpoint holds: readers turn integers above 2**53 into floats (a PCG64
state is two 128-bit integers), NaN and infinity are not JSON, tuples become lists, keys become text, and
arrays do not exist. Here each of these is a one-key object whose key starts with ``$``:

``{"$int": "304…"}`` · ``{"$float": "nan"}`` · ``{"$bytes": base64}`` · ``{"$tuple": […]}`` ·
``{"$array": {"dtype": "<f8", "shape": [2, 3], "data": base64}}`` · ``{"$pairs": [[key, value], …]}``

Arrays keep dtype, shape and every bit (NaN payloads and minus zero too); data are little-endian and in C
order. NumPy scalars come back as Python numbers. Nothing is ever pickled, so loading runs no code; what
cannot be written exactly (an object array, a function) is refused by name.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...kernels.errors import CheckpointError, ConfigError

# Booleans, integers of 8 to 64 bits, floats of 16 to 64, complex of 64 and 128: no platform changes these.
ARRAY_DTYPES: frozenset[str] = frozenset(np.dtype(code).name for code in "?bhilqBHILQefdFD")
_EXACT_INTEGER_LIMIT = 2**53
_DEEPEST = 64
_DTYPE = re.compile(r"[<|][biufc]\d{1,2}")
_USUAL_NAN = struct.pack(">d", math.nan)


def encode(value: Any, field: str = "state") -> Any:
    """Turn a state into what JSON holds exactly.

    Parameters
    ----------
    value : object
        None, bool, int, float, str, bytes, list, tuple, mapping, NumPy scalar or array, nested at will.
    field : str
        What errors call it.

    Returns
    -------
    object
        Only dict, list, str, int below 2**53, finite float, bool and None; it shares nothing with `value`.

    Raises
    ------
    ConfigError
        If something in it cannot be written exactly; the text names the place.

    Examples
    --------
    >>> encode({"step": 3, "key": 2**100})
    {'step': 3, 'key': {'$int': '1267650600228229401496703205376'}}
    >>> decode(encode((1, float("inf"))))
    (1, inf)
    """
    return _encode(value, field, 0)


def decode(node: Any, field: str = "state") -> Any:
    """Turn :func:`encode`'s output, possibly read from a file, back into the state.

    Parameters
    ----------
    node : object
        What `encode` gave.
    field : str
        What errors call it.

    Returns
    -------
    object
        The state; arrays are new, writable and in native byte order.

    Raises
    ------
    CheckpointError
        If it is not something that `encode` writes.
    """
    return _decode(node, field, 0)


def _decode(node: Any, field: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise CheckpointError(
            field,
            f"must be nested at most {_DEEPEST} deep",
            "...",
            "The file was not written by save_checkpoint.",
        )
    if isinstance(node, list):
        return [_decode(item, f"{field}[{index}]", depth + 1) for index, item in enumerate(node)]
    if isinstance(node, dict):
        if len(node) == 1:
            (tag, body) = next(iter(node.items()))
            if tag.startswith("$"):
                return _decode_tagged(tag, body, field, depth + 1)
        return {key: _decode(item, f"{field}.{key}", depth + 1) for key, item in node.items()}
    return node


def _encode(value: Any, field: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ConfigError(
            field, f"must be nested at most {_DEEPEST} deep", "...", "Flatten it, or break the cycle."
        )
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.generic):
        return _encode(_python_scalar(value, field), field, depth)
    if isinstance(value, int):
        return int(value) if abs(value) < _EXACT_INTEGER_LIMIT else {"$int": str(int(value))}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": _float_text(float(value))}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, np.ndarray):
        return {"$array": _encode_array(value, field)}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{field}[{index}]", depth + 1) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        return _encode_mapping(value, field, depth)
    raise ConfigError(
        field,
        "must be made of numbers, text, bytes, lists, mappings and arrays",
        type(value).__name__,
        "Checkpoints are never pickled; convert it to one of these first.",
    )


def _encode_mapping(value: Mapping[Any, Any], field: str, depth: int) -> Any:
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _encode(item, f"{field}.{key}", depth + 1) for key, item in value.items()}
    pairs = []
    for key, item in value.items():
        if not isinstance(key, str | int | np.integer):
            raise ConfigError(field, "must have text or whole numbers as keys", key, "Convert its keys.")
        pairs.append([_encode(key, field, depth + 1), _encode(item, f"{field}[{key!r}]", depth + 1)])
    return {"$pairs": pairs}


def _python_scalar(value: np.generic, field: str) -> Any:
    if isinstance(value, np.bool_ | np.integer | np.float64 | np.float32 | np.float16):
        return value.item()
    raise ConfigError(
        field, "must be a NumPy bool, integer or float of at most 64 bits", value, "Convert it."
    )


def _float_text(value: float) -> str:
    """Name an infinity, or a NaN with its bits where they are not the usual ones (sign, payload)."""
    bits = struct.pack(">d", value)
    return repr(value) if value == value or bits == _USUAL_NAN else f"nan:{bits.hex()}"


def _encode_array(array: np.ndarray, field: str) -> dict[str, Any]:
    if array.dtype.name not in ARRAY_DTYPES:
        raise ConfigError(
            field,
            "must be an array of booleans, whole or floating-point numbers of at most 64 bits a part",
            array.dtype.name,
            "Checkpoints are never pickled; convert it with astype, or store it as a list.",
        )
    # ascontiguousarray would make a 0-d array 1-d; order="C" does not.
    ordered = np.asarray(array.astype(array.dtype.newbyteorder("<"), copy=False), order="C")
    return {
        "dtype": ordered.dtype.str,
        "shape": list(array.shape),
        "data": base64.b64encode(ordered.tobytes()).decode("ascii"),
    }


def _decode_tagged(tag: str, body: Any, field: str, depth: int) -> Any:
    try:
        if tag == "$int" and isinstance(body, str):
            return int(body)
        if tag == "$float" and body in ("nan", "inf", "-inf"):
            return float(body)
        if tag == "$float" and body.startswith("nan:"):
            return struct.unpack(">d", bytes.fromhex(body[4:]))[0]
        if tag == "$bytes" and isinstance(body, str):
            return base64.b64decode(body, validate=True)
        if tag == "$tuple" and isinstance(body, list):
            return tuple(_decode(item, f"{field}[{index}]", depth) for index, item in enumerate(body))
        if tag == "$pairs" and isinstance(body, list):
            return {
                _decode(key, field, depth): _decode(item, f"{field}[{key!r}]", depth) for key, item in body
            }
        if tag == "$array" and isinstance(body, dict):
            return _decode_array(body)
    except (ArithmeticError, ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
        raise _malformed(tag, body, field) from error
    raise _malformed(tag, body, field)


def _decode_array(body: dict[str, Any]) -> np.ndarray:
    if not _DTYPE.fullmatch(body["dtype"]):  # np.dtype also reads lists of fields, sub-arrays and None
        raise ValueError(body["dtype"])
    dtype = np.dtype(body["dtype"])
    if dtype.name not in ARRAY_DTYPES:
        raise ValueError(dtype.name)
    shape = body["shape"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(shape)  # reshape fits negative sizes itself
    data = base64.b64decode(body["data"], validate=True)
    array = np.frombuffer(data, dtype=dtype).reshape(shape)
    # frombuffer is a read-only view of the bytes.
    return array.astype(dtype.newbyteorder("="), copy=True)


def _malformed(tag: str, body: Any, field: str) -> CheckpointError:
    return CheckpointError(
        field, f"must hold a well-formed {tag} value", body, "The file was not written by save_checkpoint."
    )
