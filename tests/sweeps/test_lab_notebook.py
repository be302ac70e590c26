"""The stored notebook of the lab: ten sections, and cells that still print what is stored."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "lab.ipynb"
PUBLISHED = ROOT / "results" / "published" / "lab.ipynb"


def _cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def _code(path):
    return [cell for cell in _cells(path) if cell["cell_type"] == "code"]


def _printed(cell):
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


@pytest.fixture(scope="module")
def printed_again():
    """Run the cells in one namespace, as a kernel does, and keep what each prints."""
    import altair

    namespace, texts = {"__name__": "lab"}, []
    renderer = altair.renderers.active
    try:
        for place, cell in enumerate(_code(PUBLISHED)):
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile("".join(cell["source"]), f"<cell {place}>", "exec"), namespace)
            texts.append(stream.getvalue())
    finally:
        altair.renderers.enable(renderer)
    return texts


def test_every_cell_prints_what_is_stored(printed_again):
    assert printed_again == [_printed(cell) for cell in _code(PUBLISHED)]


def test_the_stored_notebook_is_the_example_as_it_ran():
    def sources(path):
        return [(cell["id"], cell["cell_type"], "".join(cell["source"])) for cell in _cells(path)]

    assert sources(PUBLISHED) == sources(SOURCE)
    assert all(cell["outputs"] == [] for cell in _code(SOURCE))


def test_it_ran_from_top_to_bottom_without_errors_or_warnings():
    cells = _code(PUBLISHED)

    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert all(output["output_type"] != "error" for output in cell["outputs"])
        assert all(output.get("name", "stdout") == "stdout" for output in cell["outputs"])


def test_it_has_the_ten_sections_in_order():
    text = "\n".join("".join(cell["source"]) for cell in _cells(SOURCE) if cell["cell_type"] == "markdown")

    assert re.findall(r"^## (\d+)\.", text, flags=re.MULTILINE) == [str(number) for number in range(1, 11)]


def test_it_shows_its_charts_without_a_network_and_names_no_machine():
    stored = PUBLISHED.read_text(encoding="utf-8")
    pictures = [
        output["data"]["image/svg+xml"]
        for cell in _code(PUBLISHED)
        for output in cell["outputs"]
        if "image/svg+xml" in output.get("data", {})
    ]

    assert len(pictures) == 2
    assert "<script" not in stored
    assert not re.search(r"/(home|root|work|tmp|Users)/", stored)
