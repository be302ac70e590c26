"""From a chart to a specification for a page, to SVG and to PNG: the same chart gives the same bytes.

Altair draws names of views at random and Vega counts clip paths through the whole process; both are numbered
anew for each chart here.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..results.shown import shown_everywhere
from .style import IN_PAGE, ON_PAPER

# Bytes that an image ends with, after its seal: a PNG with the chunk IEND.
_ENDS = {"svg": 0, "png": 12}


def specification(chart: Any) -> dict[str, Any]:
    """Take a chart's specification, without what says how text and axes look.

    Altair checks every value of every row unless told not to, which takes seconds.
    """
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        found: dict[str, Any] = _with_own_names(chart.to_dict(validate=False), {})
    found.pop("config", None)
    shown: dict[str, Any] = shown_everywhere(found)
    return shown


def _with_own_names(spec: Any, names: dict[str, str]) -> Any:
    if isinstance(spec, dict):
        return {key: value if key == "data" else _with_own_names(value, names) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_with_own_names(value, names) for value in spec]
    if isinstance(spec, str) and re.fullmatch(r"view_[0-9a-f_]+", spec):
        return names.setdefault(spec, f"view_{len(names) + 1}")
    return spec


def file_images(spec: Mapping[str, Any]) -> dict[str, bytes]:
    """Draw a specification for files, dark on white.

    Returns
    -------
    dict
        ``svg`` and ``png``, which has twice the size; each with a seal, see :func:`is_own_image`.
    """
    import vl_convert

    svg = _svg(spec, ON_PAPER, "")
    images = {"svg": svg.encode("utf-8"), "png": vl_convert.svg_to_png(svg, scale=2)}
    return {kind: _sealed(kind, image) for kind, image in images.items()}


def is_own_image(path: Path) -> bool:
    """Tell whether a file is a chart as :func:`file_images` drew it, which nobody has changed since.

    Its seal holds a digest of all other bytes, so a chart into which somebody wrote is told from its own.

    Parameters
    ----------
    path : Path
        Of a file that is there.
    """
    kind = path.suffix.removeprefix(".")
    if kind not in _ENDS:
        return False
    try:
        content = path.read_bytes()
    except OSError:
        return False
    end = len(content) - _ENDS[kind]
    seal = len(_sealed(kind, bytes(_ENDS[kind]))) - _ENDS[kind]
    return end >= seal and _sealed(kind, content[: end - seal] + content[end:]) == content


def _sealed(kind: str, image: bytes) -> bytes:
    """Add what viewers pass over: a comment to an SVG, a chunk of text to a PNG."""
    digest = hashlib.sha256(image).hexdigest().encode("ascii")
    if kind == "svg":
        return image + b"<!-- lagsweep " + digest + b" -->"
    text = b"lagsweep\0" + digest
    seal = struct.pack(">I", len(text)) + b"tEXt" + text + struct.pack(">I", zlib.crc32(b"tEXt" + text))
    end = len(image) - _ENDS[kind]
    return image[:end] + seal + image[end:]


def page_svg(spec: Mapping[str, Any], name: str) -> str:
    """Draw a specification as an SVG element whose text takes the page's colour; `name` begins its ids."""
    return _svg(spec, IN_PAGE, f"{name}-")


def _svg(spec: Mapping[str, Any], look: Mapping[str, Any], prefix: str) -> str:
    import vl_convert

    names: dict[str, str] = {}

    def own(found: re.Match[str]) -> str:
        kind = found[2].rstrip("0123456789")
        return found[1] + names.setdefault(found[2], f"{prefix}{kind}{len(names)}")

    drawn = vl_convert.vegalite_to_svg({**spec, "config": look})
    return re.sub(r'(id="|url\(#)((?:clip|gradient)_?\d+)', own, drawn)
