"""The lab, end to end: ten sections on memory, queues, staleness and recovery of asynchronous training.

:func:`run_lab` gives the sections, :func:`.pages.lab.write_lab` writes them, and the command
``lagsweep lab`` shows them. The tenth section measures a real model, in the profile ``real-model`` alone.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import version

from ...kernels.errors import ConfigError, nearest
from .model import PROFILES, REAL_MODEL, Column, Profile, Section, Table
from .real_model import Tell, not_measured_section, real_model_section
from .records import records_section


def lab_profile(name: str) -> Profile:
    """Find a profile by name.

    Parameters
    ----------
    name : {"smoke", "full", "real-model"}
        How much to simulate, and whether a real model is measured.

    Returns
    -------
    Profile
        Its durations and numbers of seeds.

    Raises
    ------
    ConfigError
        For an unknown name.

    Examples
    --------
    >>> lab_profile("smoke").duration_seconds
    120.0
    """
    if name not in PROFILES:
        way_out = nearest(str(name), PROFILES) or "Choose smoke, full or real-model."
        raise ConfigError("profile", f"must be one of {', '.join(PROFILES)}", name, way_out)
    return PROFILES[name]


def run_lab(
    profile: Profile | str = "smoke", *, model: str = "smollm2", tell: Tell | None = None
) -> Iterator[Section]:
    """Work through the lab, one section after another.

    Parameters
    ----------
    profile : Profile or str
        How much to simulate, and whether a real model is measured.
    model : str
        Of the profile ``real-model``: ``smollm2``, ``tiny-qwen3``, or ``OWNER/NAME@COMMIT``.
    tell : callable, optional
        Gets a line as each part of a measurement begins.

    Yields
    ------
    Section
        Ten of them, in order; the last one measures a model in the profile ``real-model`` alone.

    Raises
    ------
    ConfigError
        For an unknown profile or model, and where a model's packages are missing; before the first section.
    """
    from ..real_model.needs import require_packages
    from ..real_model.workloads import model_choice
    from .loops import loops_section, queue_section, run_loops, staleness_section
    from .memory import memory_section, overlap_section
    from .recovery import checkpoint_section, sync_section

    profile = lab_profile(profile) if isinstance(profile, str) else profile
    choice = model_choice(model)
    if profile.name == REAL_MODEL:
        require_packages(choice)
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
    yield real_model_section(choice, tell) if profile.name == REAL_MODEL else not_measured_section()


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
            "Every figure of sections 2 to 9 is a function of this profile: the same seeds give the same "
            "runs on any number of threads. The full profile simulates longer and more seeds; nothing else "
            "changes.",
        ),
        (Table("profile", "Profile", (Column("setting", "setting"), Column("value", "value")), rows),),
    )
