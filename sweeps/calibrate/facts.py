"""A calibration and a sweep around it as plain data, for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..json_text import plain_data
from .sentences import what_if_said
from .text import sentences

if TYPE_CHECKING:
    from .calibration import Calibration
    from .what_if import WhatIf


def calibration_facts(found: Calibration) -> dict[str, Any]:
    """Return a calibration as plain data.

    Parameters
    ----------
    found : Calibration

    Returns
    -------
    dict
        ``source``, ``steps`` (fitted, held), ``preset``, ``fits_log``, ``said``, ``config``, ``fits``,
        ``backtest``, ``predictions``, ``assumed``, ``columns``, ``log``.
    """
    misses = found.misses
    facts: dict[str, Any] = plain_data(
        {
            "source": found.source,
            "steps": {"fitted": found.fitted, "held": found.held},
            "preset": found.setup.preset,
            "fits_log": found.fits_log,
            "said": sentences(found),
            "config": found.config.to_dict(),
            "fits": [one.as_dict() for one in found.fits],
            "backtest": [{**one.as_dict(), "missed": one in misses} for one in found.tests],
            "predictions": found.predictions_frame().to_dicts(),
            "assumed": [one._asdict() | {"value": None} for one in found.assumed],
            "columns": dict(found.columns),
            "log": [str(one) for one in found.read],
        }
    )
    return facts


def what_if_facts(found: WhatIf) -> dict[str, Any]:
    """Return a sweep around a run as plain data: the sentence, the cells, the calibration."""
    facts: dict[str, Any] = plain_data(
        {
            "fits_log": found.calibration.fits_log,
            "said": what_if_said(found),
            "sentence": found.sentence,
            "causes": list(found.causes),
            "axes": {axis.name: list(axis.values) for axis in found.axes},
            "cells": found.frame().to_dicts(),
            "calibration": calibration_facts(found.calibration),
        }
    )
    return facts
