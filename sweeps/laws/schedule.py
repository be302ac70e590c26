"""A law by version: segments that begin at published versions, each with a law of its own.

A rollout's law is that of the published version it starts with, read with the rollout's own uniform. The
schedule's own table, which sizes and bounds are read from, gives every segment the same weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...kernels._arguments import one_whole
from ...kernels.draws.length_table import mix_tables
from ...kernels.errors import ConfigError
from .mapping import keyed_laws

_WAY_OUT = "Give pairs, as [(0, LengthLaw.fixed(100)), (50, LengthLaw.fixed(200))]."


def checked_segments(law_class: Any, segments: Any) -> tuple[tuple[int, Any], ...]:
    """Check the segments of a schedule: pairs of a first version and a law; the first 0, then rising.

    Raises
    ------
    ConfigError
        If there is no segment, one is something else, or its law is a schedule or a trace of whole groups.
    """
    if isinstance(segments, str | bytes | Mapping) or not isinstance(segments, Sequence) or not segments:
        raise ConfigError("segments", "must be a list of pairs of version and law", segments, _WAY_OUT)
    checked: list[tuple[int, Any]] = []
    for place, segment in enumerate(segments):
        where = f"segments, position {place}"
        if not isinstance(segment, Sequence) or len(segment) != 2 or not isinstance(segment[1], law_class):
            raise ConfigError(where, "must be a pair of version and law", segment, _WAY_OUT)
        version, law = one_whole(f"{where}, from", segment[0], minimum=0, maximum=2**52), segment[1]
        if not checked and version != 0:
            raise ConfigError(f"{where}, from", "must be 0: the first rollouts need a law", version, _WAY_OUT)
        if checked and version <= checked[-1][0]:
            rule = f"must be above that of the segment before, {checked[-1][0]}"
            raise ConfigError(f"{where}, from", rule, version, "Put the segments in order.")
        if law.segments or law.group_starts is not None:
            rule = "must be neither a schedule nor a trace of whole groups"
            raise ConfigError(where, rule, law.name, "Take its lengths alone, as LengthLaw.empirical does.")
        checked.append((version, law))
    return tuple(checked)


def segments_from_data(law_class: Any, segments: Any, folder: Any) -> list[tuple[Any, Any]]:
    """Turn segments as data, laws with the version they hold from, into pairs of version and law."""
    return keyed_laws(law_class, segments, folder, "segments", ("from", "version", 0))


def pooled_table(laws: Sequence[Any]) -> tuple[int, np.ndarray]:
    """Return minimum and cdf of laws in equal parts; those of a single law are its own."""
    if len(laws) == 1:
        return laws[0].minimum, laws[0].cdf
    return mix_tables([(1.0, law.minimum, law.cdf) for law in laws])
