"""The shipped laws hold the counts of their sources and say where they are from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.laws.shipped import shipped_index

_AIME = Path(__file__).parents[1] / "data" / "lengths" / "aime_baseline_step_1000.csv"

# Rollouts, sum of tokens, shortest and longest, taken from the source files by another program.
_FACTS = {
    "aime-rl-100": (960, 2523135, 2, 6496),
    "aime-rl-500": (960, 1000798, 7, 6212),
    "aime-rl-1000": (960, 1766787, 11, 7121),
    "aime-rl-1000-grouped": (960, 1766787, 11, 7121),
    "aime-rl-shaped-100": (960, 927015, 1, 5647),
    "aime-rl-shaped-300": (960, 7768, 6, 74),
    "aime-rl-shaped-1000": (960, 7070, 4, 12),
    "azure-2023-conversation": (19366, 4088665, 7, 1000),
    "mooncake-conversation": (12031, 4122048, 1, 2000),
    "nemo-gym-agents": (560, 6516355, 1360, 76550),
    "nemo-gym-agents-grouped": (560, 6516355, 1360, 76550),
}


def test_the_index_lists_exactly_the_laws_known_here():
    assert set(shipped_index()) == set(_FACTS)


@pytest.mark.parametrize("name", _FACTS)
def test_counts_are_those_of_the_source(name):
    rollouts, tokens, shortest, longest = _FACTS[name]
    law = LengthLaw.shipped(name)
    counts = np.rint(np.diff(law.cdf, prepend=0.0) * rollouts).astype(int)
    lengths = np.arange(law.minimum, law.maximum + 1)

    assert shipped_index()[name]["rollouts"] == rollouts == counts.sum()
    assert np.array_equal(law.cdf, np.cumsum(counts) / rollouts)
    assert int((counts * lengths).sum()) == tokens
    assert (law.minimum, law.maximum) == (shortest, longest)
    assert law.mean_tokens == pytest.approx(tokens / rollouts, rel=1e-12)
    assert not law.cut_at_maximum


def test_the_law_of_step_1000_is_that_of_the_source_rows():
    assert LengthLaw.shipped("aime-rl-1000") == LengthLaw.from_file(_AIME, column="output_tokens")
    assert LengthLaw.shipped("aime-rl-1000-grouped") == LengthLaw.grouped_from_file(
        _AIME, column="output_tokens", group_column="item"
    )


@pytest.mark.parametrize("name", _FACTS)
def test_the_source_gives_attribution_and_license(name):
    law = LengthLaw.shipped(name)

    assert "License: CC-BY-4.0" in law.source or "License: Apache-2.0" in law.source
    assert "https://github.com/" in law.source
    assert law.name == name
    assert LengthLaw.from_dict({"law": "shipped", "name": name}) == law
    assert law.to_dict() == {"law": "shipped", "name": name}


def test_the_collapsed_run_says_so():
    for name in _FACTS:
        assert ("collapse to about 8 tokens by step 300" in LengthLaw.shipped(name).source) == (
            "shaped" in name
        )


def test_azure_is_attributed_as_its_license_asks():
    source = LengthLaw.shipped("azure-2023-conversation").source

    assert "Microsoft Azure" in source
    assert "Splitwise" in source
    assert "ISCA 2024" in source


def test_the_sources_page_lies_beside_the_data_and_names_every_law():
    page = (files("lagsweep.sweeps.laws") / "shipped_laws" / "SOURCES.md").read_text(encoding="utf-8")

    for name in _FACTS:
        assert f"`{name}`" in page


def test_agents_seconds_and_prompts_are_kept():
    law = LengthLaw.shipped("nemo-gym-agents")
    grouped = LengthLaw.shipped("nemo-gym-agents-grouped")

    assert law.paired_seconds.sum() == pytest.approx(218026.025, abs=1e-6)
    assert (law.paired_seconds.min(), law.paired_seconds.max()) == (150.029, 1226.391)
    assert np.diff(grouped.group_starts).tolist() == [8] * 70
    assert 0.4 < grouped.within_group_correlation() < 0.7
    assert law.digest == grouped.digest


def test_items_of_one_prompt_are_alike():
    law = LengthLaw.shipped("aime-rl-1000-grouped")

    assert np.diff(law.group_starts).tolist() == [32] * 30
    assert law.within_group_correlation() > 0.1
