"""The lab, end to end: ten sections on memory, queues, staleness and recovery of asynchronous training.

:func:`run_lab` gives the sections, :func:`.pages.lab.write_lab` writes them, and the command
``lagsweep lab`` shows them. The tenth section measures a real model and is not part of this package yet.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version

from ...kernels.errors import ConfigError, nearest
from .model import PROFILES, Column, Profile, Section, Table
from .records import records_section

REAL_MODEL = "real-model"
REAL_MODEL_TEXT = (
    "Section 10 measures a real open model (generation and a forward pass over the same tokens). "
    "It is not part of this version and comes later; the other nine sections need no model."
)


def lab_profile(name: str) -> Profile:
    """Find a profile by name.

    Parameters
    ----------
    name : {"smoke", "full"}
        How much to simulate.

    Returns
    -------
    Profile
        Its durations and numbers of seeds.

    Raises
    ------
    ConfigError
        For an unknown name, and for ``real-model``, which comes later.

    Examples
    --------
    >>> lab_profile("smoke").duration_seconds
    120.0
    """
    if name == REAL_MODEL:
        raise ConfigError("profile", "must be smoke or full for now", name, REAL_MODEL_TEXT)
    if name not in PROFILES:
        way_out = nearest(str(name), [*PROFILES, REAL_MODEL]) or "Choose smoke or full."
        raise ConfigError("profile", f"must be one of {', '.join(PROFILES)}", name, way_out)
    return PROFILES[name]


def run_lab(profile: Profile | str = "smoke") -> Iterator[Section]:
    """Work through the lab, one section after another.

    Parameters
    ----------
    profile : Profile or str
        How much to simulate.

    Yields
    ------
    Section
        Ten of them, in order; the last one says that it comes later.
    """
    from .loops import loops_section, queue_section, run_loops, staleness_section
    from .memory import memory_section, overlap_section
    from .recovery import checkpoint_section, sync_section

    profile = lab_profile(profile) if isinstance(profile, str) else profile
    yield profile_section(profile)
    yield memory_section(profile)
    yield overlap_section(profile)
    loops = run_loops(profile)
    simulated: tuple[Callable[..., Section], ...] = (loops_section, queue_section, staleness_section)
    for section in simulated:
        yield section(profile, loops)
    yield records_section(profile)
    yield sync_section(profile)
    yield checkpoint_section(profile)
    yield Section(10, "A real model", (REAL_MODEL_TEXT,))


def profile_section(profile: Profile) -> Section:
    """Section 1: what is run, and by which versions."""
    rows = [
        {"setting": "profile", "value": profile.name},
        {"setting": "simulated seconds of each loop", "value": f"{profile.duration_seconds:.0f}"},
        {
            "setting": "seeds",
            "value": f"{profile.first_seed} to {profile.first_seed + profile.seeds - 1}",
        },
        {"setting": "lagsweep", "value": version("lagsweep")},
        {"setting": "Python", "value": platform.python_version()},
        *({"setting": name, "value": version(name.lower())} for name in ("NumPy", "Numba", "SciPy")),
    ]
    return Section(
        1,
        "A profile that can be run again",
        (
            "Every figure below is a function of this profile: the same seeds give the same runs on any "
            "number of threads. The full profile simulates longer and more seeds; nothing else changes.",
        ),
        (Table("profile", "Profile", (Column("setting", "setting"), Column("value", "value")), rows),),
    )
