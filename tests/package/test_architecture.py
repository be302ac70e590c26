"""The page for those who carry on is true: rooms, a run's way down, the files that an addition touches."""

from __future__ import annotations

import re

import pytest
from package.import_graph import FLOOR_OF, HERE, graph, modules, room_of

PAGE = (HERE / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES = modules(HERE)
IMPORTS = graph()
MOST_STOPS = 25
MOST_FILES_OF_A_METRIC = 3


def part(mark: str) -> str:
    """Return what stands between ``<!-- mark -->`` and the next ``<!-- end -->``."""
    return PAGE.split(f"<!-- {mark} -->")[1].split("<!-- end -->")[0]


def module_of(file: str) -> str:
    """Return the module that a file on the page is."""
    return file.removesuffix(".py").replace("/", ".")


def files_with(word: str) -> set[str]:
    """Return the source files in which a word stands."""
    found = set()
    for path in MODULES.values():
        if re.search(rf"\b{re.escape(word)}\b", path.read_text(encoding="utf-8")):
            found.add(path.relative_to(HERE).as_posix())
    return found


STOPS = re.findall(r"^\d+\. `([\w/]+\.py)`", part("way"), flags=re.M)


def test_every_room_stands_on_the_page_once():
    rows = PAGE.split("## The rooms, from the ground up")[1].split("## A run's way")[0]
    named = re.findall(r"`((?:kernels|sweeps)/\w+|public)`", rows)
    rooms = {room.replace(".", "/") for room in FLOOR_OF} - {"kernels", "sweeps"}

    assert sorted(named) == sorted(rooms)


def test_the_rooms_stand_in_the_order_of_their_floors():
    rows = re.findall(r"^\| `([\w/]+)`", PAGE.split("## The rooms")[1].split("## A run's way")[0], flags=re.M)
    heights = [FLOOR_OF[row.replace("/", ".")] for row in rows]

    assert heights == sorted(heights)


def test_a_run_goes_down_in_few_stops():
    rooms = [room_of(module_of(file)) for file in STOPS]
    climbs = [
        f"{STOPS[k]} -> {STOPS[k + 1]}"
        for k in range(len(STOPS) - 1)
        if rooms[k] != rooms[k + 1] and FLOOR_OF[rooms[k + 1]] >= FLOOR_OF[rooms[k]]
    ]

    assert all((HERE / file).exists() for file in STOPS)
    assert 10 < len(STOPS) <= MOST_STOPS
    assert climbs == []


def test_each_stop_is_called_from_one_above_it():
    lost = []
    for place, file in enumerate(STOPS[1:], start=1):
        if not any(module_of(file) in IMPORTS[module_of(above)] for above in STOPS[:place]):
            lost.append(file)

    # The root finds a command by its name.
    assert lost == ["sweeps/cli/run_command.py"]


def _row(what: str) -> tuple[set[str], str]:
    row = next(line for line in part("add").splitlines() if line.startswith(f"| {what} |"))
    return set(re.findall(r"`((?:kernels|sweeps)/[\w/<>]+(?:\.py)?)/?`", row)), row.rsplit("`", 2)[1]


@pytest.mark.parametrize("what", ["a metric", "a setting"])
def test_an_addition_touches_the_files_that_the_page_says(what):
    said, like = _row(what)
    touched = files_with(like)
    loop = {file for file in touched if file.startswith("kernels/pipeline/")} - said

    assert said <= touched
    assert touched == said | loop  # the rest is in the loop, where it happens
    assert loop


def test_a_new_metric_touches_at_most_three_files():
    _, like = _row("a metric")

    assert len(files_with(like)) <= MOST_FILES_OF_A_METRIC


def test_a_preset_stands_in_one_module():
    _, like = _row("a preset")
    (file,) = files_with(like)

    assert file.startswith("sweeps/presets/")


def test_a_command_is_a_module_and_a_line():
    said, like = _row("a command")
    main = (HERE / "sweeps" / "cli" / "main.py").read_text(encoding="utf-8")

    assert said == {"sweeps/cli/<name>_command.py", "sweeps/cli/main.py"}
    assert (HERE / "sweeps" / "cli" / f"{like}_command.py").exists()
    assert main.count(f'"{like}":') == 1
