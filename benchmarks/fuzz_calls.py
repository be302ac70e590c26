"""Call every public function with odd values drawn by the tests' own tables, many thousand times.

Prints how many calls answered, were refused with one of our errors, raised another one, or hung; the longest
call; and the peak of memory. Each call replaces one to three arguments of a valid call.
"""

from __future__ import annotations

import argparse
import collections
import os
import platform
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from strategies.odd_calls import Outcome, odd_call
from strategies.public_calls import odd_values, public_callables, valid_calls

# These draw charts, write pages or run whole sweeps and checks: seconds instead of microseconds a call.
SLOW = ("write_report", "verify_store", "VerifyReport", "Frontier.on_frontier", "compare_systems")
SLOW += ("fit_engine", "plan", "Plan.sweep", "write_plan_page")


def fuzz(calls: int, seed: int) -> list[Outcome]:
    """Make so many calls; the slow functions get one in two hundred of them."""
    stream = random.Random(seed)
    functions, valid, values = public_callables(), valid_calls(), odd_values()
    names = [name for name in functions if valid[name].places()]
    fast = [name for name in names if not name.startswith(SLOW)]
    slow = [name for name in names if name.startswith(SLOW)]
    for name in names:  # what is compiled or simulated once is no part of a call's time
        valid[name].make(functions[name])
    outcomes = []
    for number in range(calls):
        name = stream.choice(slow if number % 200 == 199 else fast)
        places = valid[name].places()
        chosen = stream.sample(places, min(len(places), stream.choice((1, 1, 2, 3))))
        replaced = {place: stream.choice(values) for place in chosen}
        outcomes.append(odd_call(name, functions[name], valid[name], replaced))
    return outcomes


def report(outcomes: list[Outcome], seconds: float, seed: int) -> str:
    """Write what came of the calls as a page."""
    kinds = collections.Counter(outcome.kind for outcome in outcomes)
    longest = max(outcomes, key=lambda outcome: outcome.seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lines = [
        "# Odd calls of every public function",
        "",
        f"`make fuzz-calls`: {len(outcomes):,} calls of {len({o.name for o in outcomes})} functions, "
        f"seed {seed}, {seconds:.0f} s, Python {platform.python_version()}.",
        "",
        "| what came of a call | calls |",
        "|---|---:|",
        f"| an answer | {kinds['answer']:,} |",
        f"| one of our errors | {kinds['refused']:,} |",
        f"| another exception | {kinds['raw']:,} |",
        f"| nothing for 10 s | {kinds['hang']:,} |",
        "",
        f"Longest call: {longest.seconds:.1f} s ({longest.name}). Peak memory: {peak:.2f} GiB.",
    ]
    faults = [outcome for outcome in outcomes if outcome.is_fault]
    lines += ["", "## Faults", ""] if faults else []
    lines += [f"- {fault.name}({fault.replaced}): {fault.text} [{fault.where}]" for fault in faults[:100]]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    output = options.output.resolve() if options.output else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        start = time.monotonic()
        outcomes = fuzz(options.calls, options.seed)
        text = report(outcomes, time.monotonic() - start, options.seed)
        os.chdir("/")
    print(text)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    return int(any(outcome.is_fault for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
