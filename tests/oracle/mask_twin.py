"""Slow twins of the mask kernels: one token at a time, plain lists."""

from __future__ import annotations


def mask(tokens, eos_ids, lengths=None):
    """Mark up to and including the first id of the set; nothing at or beyond the row's length."""
    result = []
    for index, row in enumerate(tokens):
        limit = len(row) if lengths is None else lengths[index]
        active, marks = True, []
        for position, token in enumerate(row):
            marks.append(active and position < limit)
            if token in eos_ids:
                active = False
        result.append(marks)
    return result


def ended(tokens, eos_ids, lengths=None):
    limits = [len(row) for row in tokens] if lengths is None else lengths
    return [any(token in eos_ids for token in row[:limit]) for row, limit in zip(tokens, limits)]


def numpy_form(tokens, eos_ids):
    """The usual vectorised form, ``cumsum(isin) - isin == 0``."""
    import numpy as np

    hit = np.isin(tokens, eos_ids)
    return (np.cumsum(hit, axis=1) - hit) == 0
