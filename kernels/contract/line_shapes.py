"""Cut bytes into lines and say of each what its JSON is made of, without building any value.

The shape of a line is a 64-bit number of its keys in their order and of the kinds of their values: whole
number, other number, text, true, false, null, object, list (of which kinds, not how many). Two lines of one
shape differ in nothing but their values, so what follows from keys and kinds is found once for all of them.
Shape 0 means "look at this line by itself": it is no JSON object, or has something rare in it (an escaped
key, a surrogate, a number of many digits, lists of unlike members, deep nesting).

Of one key of each record, whose value is an object that most records have alike (how they were decoded), the
few different values are told too, byte for byte, so that they need not be read line by line.

The grammar is that of RFC 8259, in bytes; whether they are UTF-8 is not looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import jit

_DEPTH = 32
# Places are unsigned: of a signed one the compiled code asks at each byte whether it counts from the end.
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_MOST_DIGITS = np.uint64(18)  # every integer of so many digits fits int64
_MOST_NUMBER = np.uint64(40)
BLANK = np.uint64(1)  # the shape of a line with nothing but spaces
# Bytes at which a text's plain run ends: control bytes, the quote and the backslash.
_TEXT_BYTES = np.array([byte < 32 or byte in b'"\\' for byte in range(256)])
_ESCAPES = np.array([byte in b'"\\/bfnrt' for byte in range(256)])
_PRIME = np.uint64(0x100000001B3)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0xCBF29CE484222325)
_HALF = np.uint64(29)
_INT, _FLOAT, _TEXT, _TRUE, _FALSE, _NULL = 1, 2, 4, 8, 16, 32
_MEMBER = 64
_LINE_FEED = 10
_MOST_KEYS = 64  # of a line that are remembered for the next one
MOST_SETTINGS = 16  # of one piece that are told apart
OTHER = np.uint8(MOST_SETTINGS)  # the settings of a line that has none, or others than the first ones


@jit(inline=True)
def _mixed(state, value):
    """Stir a value into a state, both uint64."""
    state = (state ^ value) * _ODD
    return state ^ (state >> _HALF)


@jit(counted=False)
def _text_end(data, at, end):
    """Return the place of the closing quote of a text that begins at ``at``; one behind ``end`` if none."""
    none = end + _ONE
    while at < end:
        if not _TEXT_BYTES[data[at]]:
            at += _ONE
            continue
        byte = data[at]
        if byte == 34:
            return at
        if byte < 32:
            return none
        at += _ONE  # what follows a backslash
        if at >= end:
            return none
        escape = data[at]
        if escape == 117:  # \uXXXX
            if at + _FOUR >= end:
                return none
            for k in range(1, 5):
                digit = data[at + np.uint64(k)]
                if not (48 <= digit <= 57 or 97 <= (digit | 32) <= 102):
                    return none
            # A surrogate may stand alone, which readers treat differently.
            if (data[at + _ONE] | 32) == 100 and data[at + _TWO] >= 56:
                return none
            at += _FOUR
        elif not _ESCAPES[escape]:
            return none
        at += _ONE
    return none


@jit(counted=False)
def _digits_end(data, at, end):
    while at < end and 48 <= data[at] <= 57:
        at += _ONE
    return at


@jit(counted=False)
def _number_end(data, at, end):
    """Return the place behind a number and its kind; kind 0 where it is none, or a rare one."""
    start = at
    if data[at] == 45:
        at += _ONE
    digits = at
    at = _digits_end(data, at, end)
    if at == digits or (at > digits + _ONE and data[digits] == 48) or at > digits + _MOST_DIGITS:
        return at, 0
    kind = _INT
    if at < end and data[at] == 46:
        kind = _FLOAT
        digits = at + _ONE
        at = _digits_end(data, digits, end)
        if at == digits:
            return at, 0
    if at < end and (data[at] | 32) == 101:
        kind = _FLOAT
        at += _ONE
        if at < end and (data[at] == 43 or data[at] == 45):
            at += _ONE
        digits = at
        at = _digits_end(data, digits, end)
        if at == digits or at > digits + _TWO:
            return at, 0
    if at > start + _MOST_NUMBER:
        return at, 0
    return at, kind


@jit(counted=False)
def _word_end(data, at, end):
    """Return the place behind true, false or null, and its kind; kind 0 for any other word."""
    if at + _FOUR <= end:
        a, b, c, d = data[at], data[at + _ONE], data[at + _TWO], data[at + _THREE]
        if a == 116 and b == 114 and c == 117 and d == 101:
            return at + _FOUR, _TRUE
        if a == 110 and b == 117 and c == 108 and d == 108:
            return at + _FOUR, _NULL
        if a == 102 and b == 97 and c == 108 and d == 115 and at + _FOUR < end and data[at + _FOUR] == 101:
            return at + _FOUR + _ONE, _FALSE
    return at, 0


@jit(inline=True)
def _spaces_end(data, at, end):
    while at < end and (data[at] == 32 or data[at] == 9 or data[at] == 13):
        at += _ONE
    return at


@jit(inline=True)
def _equal(data, at, other, start, size):
    """Say whether data[at:] and other[start:] begin with the same bytes."""
    for k in range(size):  # noqa: SIM110  (compiled: no generators)
        if data[at + np.uint64(k)] != other[start + np.uint64(k)]:
            return False
    return True


@jit(counted=False)
def _line_shape(data, at, end, wanted, found_at, keys, states, kinds, members, objects):
    """Return the shape of the line that begins at ``at`` (0: it has none) and the place of its line feed.

    Where the wanted key's object begins and ends is written into ``found_at``. ``keys`` has the place, size
    and digest of the keys of a line before.
    """
    none = np.uint64(0)
    at = _spaces_end(data, at, end)
    if at >= end or data[at] == _LINE_FEED:
        return BLANK, at
    if data[at] != 123:
        return none, at
    depth = -1
    settings = False
    ordinal = 0
    value_wanted = True
    while True:
        # Here a value begins, or (after an opening bracket) the bracket may close at once.
        found = none
        if value_wanted:
            if at >= end:
                return none, at
            byte = data[at]
            if byte == 123 or byte == 91:
                depth += 1
                if depth >= _DEPTH:
                    return none, at
                states[depth] = _SEED
                kinds[depth] = 0
                members[depth] = none
                objects[depth] = byte == 123
                if depth == 1 and settings:
                    found_at[0] = at
                at = _spaces_end(data, at + _ONE, end)
                if at >= end:
                    return none, at
                if data[at] != (125 if objects[depth] else 93):
                    if objects[depth]:
                        value_wanted = False
                    continue
                # An empty object or list: it closes below.
            else:
                if byte == 34:
                    at = _text_end(data, at + _ONE, end)
                    if at > end:
                        return none, at
                    at += _ONE
                    kind = _TEXT
                elif byte == 45 or 48 <= byte <= 57:
                    at, kind = _number_end(data, at, end)
                else:
                    at, kind = _word_end(data, at, end)
                if kind == 0:
                    return none, at
                if objects[depth]:
                    states[depth] = _mixed(states[depth], np.uint64(kind))
                else:
                    kinds[depth] |= kind
        else:
            # A key, a colon, and then a value.
            if at >= end or data[at] != 34:
                return none, at
            at += _ONE
            key, begin = _SEED, at
            # Most lines have the keys of the line before them: comparing bytes is cheaper than stirring them.
            size = keys[ordinal, 1]
            if at + size < end and data[at + size] == 34 and _equal(data, at, data, keys[ordinal, 0], size):
                key = keys[ordinal, 2]
                at += size
            else:
                while at < end and not _TEXT_BYTES[data[at]]:
                    key = (key ^ np.uint64(data[at])) * _PRIME
                    at += _ONE
                if at >= end or data[at] != 34:
                    return none, at
                keys[ordinal, 0], keys[ordinal, 1], keys[ordinal, 2] = begin, at - begin, key
            if ordinal < _MOST_KEYS - 1:
                ordinal += 1
            if depth == 0:
                settings = at - begin == np.uint64(wanted.size) and _equal(
                    data, begin, wanted, none, wanted.size
                )
            at = _spaces_end(data, at + _ONE, end)
            if at >= end or data[at] != 58:
                return none, at
            states[depth] = _mixed(states[depth], key)
            at = _spaces_end(data, at + _ONE, end)
            value_wanted = True
            continue
        # A value has ended: what follows closes brackets, or goes on behind a comma.
        while True:
            at = _spaces_end(data, at, end)
            if at >= end:
                return none, at
            byte = data[at]
            if byte == 44:
                at = _spaces_end(data, at + _ONE, end)
                value_wanted = not objects[depth]
                break
            if byte != (125 if objects[depth] else 93):
                return none, at
            at += _ONE
            found = _mixed(states[depth], np.uint64(125 if objects[depth] else 93))
            if not objects[depth]:
                found = _mixed(_mixed(found, np.uint64(kinds[depth])), members[depth])
            depth -= 1
            if depth < 0:
                at = _spaces_end(data, at, end)
                if at < end and data[at] != _LINE_FEED:
                    return none, at
                return (found if found > BLANK else BLANK + _ONE), at
            if depth == 0 and settings and objects[1]:
                found_at[1] = at
            if objects[depth]:
                states[depth] = _mixed(states[depth], found)
            else:
                kinds[depth] |= _MEMBER
                if members[depth] == none:
                    members[depth] = found
                elif members[depth] != found:
                    return none, at


@jit(inline=True)
def _settings_code(data, begin, end, places, known, last):
    """Return which of the known settings data[begin:end] is, and how many are known then."""
    size = end - begin
    for k in range(-1, known):
        # Most lines have what the line before them has.
        code = last if k < 0 else k
        if code < known and places[code, 1] - places[code, 0] == size:
            if _equal(data, begin, data, places[code, 0], size):
                return code, known
    if known == MOST_SETTINGS:
        return MOST_SETTINGS, known
    places[known, 0], places[known, 1] = begin, end
    return known, known + 1


@jit(counted=False)
def _scan(
    data, wanted, ends, shapes, settings, places, found_at, keys, high, states, kinds, members, objects
):
    """Fill what is told of each line; return how many settings there are."""
    start, size = np.uint64(0), np.uint64(data.size)
    known, last = 0, 0
    for line in range(ends.size):
        found_at[1] = 0
        shape, at = _line_shape(data, start, size, wanted, found_at, keys, states, kinds, members, objects)
        if shape < BLANK:
            at = start
            while at < size and data[at] != _LINE_FEED:
                at += _ONE
        elif found_at[1] > 0:
            last, known = _settings_code(data, found_at[0], found_at[1], places, known, last)
            settings[line] = last
        shapes[line] = shape
        start = at + _ONE if at < size else size
        ends[line] = start
    if high.size:
        first = 0
        for line in range(ends.size):
            bits = np.uint8(0)
            for place in range(first, ends[line]):
                bits |= data[place]
            high[line] = bits > 127
            first = ends[line]
    return known


class LineShapes(NamedTuple):
    """What is told of the lines of some bytes.

    Attributes
    ----------
    ends : int64 (lines,)
        The place behind each line and its line feed.
    shapes : uint64 (lines,)
        Each line's shape; 0 for a line that is to be looked at by itself, 1 for a blank one.
    high : bool (lines,) or (0,)
        Whether a line has bytes above 127; empty where none has.
    settings : uint8 (lines,)
        Which of `kinds` the wanted key's object is, byte for byte; ``OTHER`` where it is none of them.
    kinds : list of bytes
        The first different values of the wanted key.
    """

    ends: NDArray[np.int64]
    shapes: NDArray[np.uint64]
    high: NDArray[np.bool_]
    settings: NDArray[np.uint8]
    kinds: list[bytes]


def line_shapes(content: bytes, wanted: str = "") -> LineShapes:
    """Cut bytes at line feeds and give each line's end and shape.

    Parameters
    ----------
    content : bytes
        Whole lines; the last one may lack its line feed.
    wanted : str
        The key of an object whose different values are told.

    Returns
    -------
    LineShapes

    Examples
    --------
    >>> found = line_shapes(b'{"a": 1}\\n{"a": 22}\\n{"a": 2.5}\\n{"a": 01}\\n')
    >>> shapes = found.shapes
    >>> found.ends.tolist(), bool(shapes[0] == shapes[1]), bool(shapes[1] == shapes[2]), int(shapes[3])
    ([9, 19, 30, 40], True, False, 0)
    >>> found = line_shapes(b'{"a": {"b": 1}}\\n{"a": {"b": 2}}\\n{"a": {"b": 1}}\\n', "a")
    >>> found.settings.tolist(), found.kinds
    ([0, 1, 0], [b'{"b": 1}', b'{"b": 2}'])
    """
    data = np.frombuffer(content, dtype=np.uint8)
    lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    ends, shapes = np.empty(lines, dtype=np.int64), np.empty(lines, dtype=np.uint64)
    settings = np.full(lines, OTHER, dtype=np.uint8)
    places, found_at = np.zeros((MOST_SETTINGS, 2), dtype=np.uint64), np.zeros(2, dtype=np.uint64)
    keys = np.zeros((_MOST_KEYS, 3), dtype=np.uint64)
    keys[:, 2] = _SEED  # of a key of no bytes
    high = np.empty(0 if content.isascii() else lines, dtype=np.bool_)
    states, members = np.empty(_DEPTH, dtype=np.uint64), np.empty(_DEPTH, dtype=np.uint64)
    kinds, objects = np.empty(_DEPTH, dtype=np.int64), np.empty(_DEPTH, dtype=np.bool_)
    key = np.frombuffer(wanted.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    known = _scan(
        data, key, ends, shapes, settings, places, found_at, keys, high, states, kinds, members, objects
    )
    values = [content[begin:end] for begin, end in places[:known].tolist()]
    return LineShapes(ends, shapes, high, settings, values)
