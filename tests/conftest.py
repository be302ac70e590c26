"""Settings shared by all tests: helper folders on the path, and Hypothesis profiles."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("dev", max_examples=60, **_COMMON)
settings.register_profile("ci", max_examples=100, derandomize=True, database=None, print_blob=True, **_COMMON)
# Kernels as plain Python are hundreds of times slower: fewer examples, the same checks.
settings.register_profile("nojit", max_examples=6, derandomize=True, database=None, **_COMMON)
settings.register_profile("nightly", max_examples=1000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="module")
def speed():
    """Import a module of the benchmarks on speed by name."""
    folder = str(TESTS.parent / "benchmarks" / "speed")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(folder)
