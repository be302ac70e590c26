"""The fenced blocks of a page, and how each kind is run: Python, transcripts, commands, TOML.

A comment above a block may say what is done otherwise: ``<!-- not run: REASON -->`` or, for commands,
``<!-- run smaller: [COMMAND] FLAGS -->``: flags that are added, to one of the commands if it is named, so
that it takes seconds. Then no output is compared.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>not run|run smaller|from):? (?P<words>.+?) -->\n+)?"
    r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.S | re.M,
)
GAPS = ("…", "...")
_STORE = re.compile(r"^(?P<name>results/[\w-]+)-[0-9a-f]{8}(?P<rest>/.*)?$")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes
    ----------
    line : int
        Of the opening fence.
    kind : str
        python, console, toml, text, or nothing.
    mark, words : str
        What the comment above it says, if there is one.
    """

    page: str
    line: int
    kind: str
    body: str
    mark: str = ""
    words: str = ""

    @property
    def role(self) -> str:
        """What it is to a test: code, transcript, commands, toml, output, or not run."""
        if self.mark:  # "from" a published file, which another test holds it to
            found = {"not run": "not run", "from": "output"}.get(self.mark)
            if found:
                return found
        if self.body.startswith(">>>"):
            return "transcript"
        if re.match(r"\$ ", self.body):
            return "commands"
        return {"python": "code", "toml": "toml", "text": "output"}.get(self.kind, "unknown")


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page.name,
            text.count("\n", 0, found.start("indent")) + 1,
            found["kind"],
            textwrap.dedent(found["body"]),
            found["mark"] or "",
            found["words"] or "",
        )
        for found in FENCE.finditer(text)
    ]


def commands_of(block: Block) -> list[tuple[list[str], list[str]]]:
    """Return the words of each command of a block, and the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in re.sub(r"\\\n\s*", " ", block.body).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return [(shlex.split(line, comments=True), shown) for line, shown in found]


def run_code(block: Block, names: dict[str, Any], shown: Block | None = None) -> None:
    """Execute a block of Python; what it printed must be what the block after it shows, if that is output."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.body, block.page, "exec"), names)
    if shown is not None and shown.role == "output" and not shown.mark and printed.getvalue():
        gone = _missing_line(shown.body.splitlines(), printed.getvalue().splitlines())
        assert gone is None, f"{block.page}:{shown.line}: not printed: {gone!r}\n{printed.getvalue()}"


def run_transcript(block: Block, names: dict[str, Any]) -> None:
    """Run a transcript as a doctest, in which an ellipsis leaves something out."""
    names.setdefault("__name__", "page")
    test = doctest.DocTestParser().get_doctest(block.body, names, block.page, block.page, block.line)
    told: list[str] = []
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    outcome = doctest.DocTestRunner(optionflags=options).run(test, out=told.append, clear_globs=False)
    assert outcome.attempted, f"{block.page}:{block.line}: a transcript without an example"
    assert not outcome.failed, "".join(told)
    names.update(test.globs)


def run_commands(block: Block, read: Any) -> int:
    """Run the commands of a block in this process and hold what they print against the page.

    `read` returns what was written since it was called last, stdout and stderr.
    """
    from lagsweep.sweeps.cli.main import main

    count = 0
    for words, shown in commands_of(block):
        if words[0] != "lagsweep":
            raise AssertionError(f"{block.page}:{block.line}: {words[0]} is no command of ours; mark it")
        arguments = [_store_that_is_there(word) for word in words[1:]]
        if block.mark == "run smaller":
            *whose, flags = block.words.partition("--")[::2]
            if whose[0].strip() in ("", words[1]):
                arguments += shlex.split(f"--{flags}")
        fails = any(line.startswith("error: ") for line in shown)
        findings = words[1] in ("validate", "simulate", "recommend")  # 1: there are some, or no answer
        try:
            main(arguments)
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
        out, err = (text.splitlines() for text in read())
        told = "\n".join([*out, *err])
        assert (code != 0) == fails or (code == 1 and findings), (
            f"{block.page}:{block.line}: exit code {code}\n{told}"
        )
        if block.mark != "run smaller":
            ways = [_missing_line(shown, printed) for printed in ([*err, *out], [*out, *err])]
            assert None in ways, f"{block.page}:{block.line}: not printed: {ways[0]!r}\n{told}"
        count += 1
    return count


def _missing_line(shown: list[str], printed: list[str]) -> str | None:
    """Return the first shown line that was not printed, in order; dots leave out lines, or a line's end."""
    place = 0
    for line in shown:
        if line.strip() in GAPS or not line.strip():
            continue
        start, dots, _ = line.partition("...")
        fits = [
            k for k in range(place, len(printed)) if _fits(printed[k], start if dots else line, bool(dots))
        ]
        if not fits:
            return line
        place = fits[0] + 1
    return None


def _fits(printed: str, line: str, begins: bool) -> bool:
    return printed.startswith(line) if begins else printed.rstrip() == line.rstrip()


def _store_that_is_there(word: str) -> str:
    """Name the store that a smaller run made: its fingerprint is another."""
    found = _STORE.match(word)
    if found is None or Path(word).exists():
        return word
    there = sorted(Path().glob(f"{found['name']}-????????"))
    return f"{there[0]}{found['rest'] or ''}" if len(there) == 1 else word


def run_toml(block: Block, folder: Path) -> int:
    """Train with a table: as a spec, a spec's base, or a law; returns the updates of all runs."""
    import lagsweep as ls

    table = tomllib.loads(block.body)
    if set(table) == {"response_length"}:
        law = ls.LengthLaw.from_dict(table["response_length"])
        base = ls.PipelineConfig(
            response_length=law, duration_seconds=2000, batch_tokens=20_000, max_queue_tokens=60_000
        )
        return int(ls.simulate_pipeline(base).updates)
    file = folder / "my.toml"  # what a page's commands call it
    file.write_text(re.sub(r"^seeds = \d+", "seeds = 2", block.body, flags=re.M), encoding="utf-8")
    spec = ls.load_spec(file).replace(seeds=(0,))
    ds = spec.run(progress=False)
    ran = ds["status"] == 1
    assert bool((ds["updates"].where(ran, 1) > 0).all()), (
        f"{block.page}:{block.line}: some cells train nothing"
    )
    return int(ds["updates"].where(ran, 0).sum())
