"""Every example in a docstring of the package is run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import lagsweep
import lagsweep.kernels
import lagsweep.sweeps


def _module_names() -> list[str]:
    names = ["lagsweep.errors"]
    for package in (lagsweep.kernels, lagsweep.sweeps):
        found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        # In a checkout the facade lies in a folder of the upper room; it is ``lagsweep`` itself.
        inside = (info.name for info in found if not info.name.startswith("lagsweep.sweeps.public"))
        names += [package.__name__, *inside]
    return sorted(set(names))


def test_the_walk_finds_both_rooms():
    names = _module_names()

    assert "lagsweep.kernels._lazy" in names
    assert "lagsweep.sweeps.cli.main" in names


@pytest.mark.parametrize("name", _module_names())
def test_examples_run(name):
    module = importlib.import_module(name)

    outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)

    assert outcome.failed == 0
