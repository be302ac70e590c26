"""The error of a check that found a buffer to break a rule, and the names of the rules."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.errors import LagsweepError


class BufferRuleBroken(LagsweepError, AssertionError):
    """A buffer broke one of its rules; the text has the shortest history that was found.

    Attributes
    ----------
    rule : str
    expected, came : str
    history : tuple of str
        The steps, one a line, with what the buffer answered.

    Examples
    --------
    >>> print(BufferRuleBroken("lag bound", "lag 0 to 2", "lag 3", ["take(1)  -> [item 0]"], "BufferRules()"))
    rule broken: lag bound
      expected: lag 0 to 2
      came:     lag 3
    history, 1 step:
      1  take(1)  -> [item 0]
    declared: BufferRules()
    """

    def __init__(
        self, rule: str, expected: str, came: str, history: Sequence[str] = (), declared: str = ""
    ) -> None:
        self.rule, self.expected, self.came = rule, expected, came
        self.history, self.declared = tuple(history), declared
        count = len(self.history)
        lines = [f"rule broken: {rule}", f"  expected: {expected}", f"  came:     {came}"]
        lines += [f"history, {count} step{'s' * (count != 1)}:"]
        lines += [f"{number:3}  {line}" for number, line in enumerate(self.history, 1)]
        super().__init__("\n".join([*lines, f"declared: {declared}"]))

    def again(self) -> BufferRuleBroken:
        """Return the same error without what a search has noted on it."""
        return BufferRuleBroken(self.rule, self.expected, self.came, self.history, self.declared)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        # Of the public class: those of single rules cannot be found by their name.
        return BufferRuleBroken, (self.rule, self.expected, self.came, self.history, self.declared)


# One class a rule, so that what shrinks a history stays with the rule that it found broken.
_CLASSES: dict[str, type[BufferRuleBroken]] = {
    name: type("BufferRuleBroken", (BufferRuleBroken,), {"__doc__": BufferRuleBroken.__doc__})
    for name in (
        "queue bound",
        "lag bound",
        "conservation",
        "order",
        "whole groups",
        "size of a take",
        "exact resume",
        "no other exception",
    )
}
RULE_NAMES = tuple(_CLASSES)


def broken(rule: str, expected: str, came: str, history: Sequence[str], declared: str) -> BufferRuleBroken:
    """Return the error of a rule."""
    return _CLASSES[rule](rule, expected, came, history, declared)
