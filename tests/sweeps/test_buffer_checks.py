"""The check of buffers finds what is broken, names the rule, and leaves right buffers alone."""

from __future__ import annotations

import pickle
import random
from collections import deque

import pytest
from hypothesis import given, seed, settings

from lagsweep.errors import ConfigError
from lagsweep.sweeps.testing.broken_rules import RULE_NAMES
from lagsweep.testing import (
    BufferMachine,
    BufferRuleBroken,
    BufferRules,
    Item,
    Publish,
    Put,
    Restore,
    Save,
    Take,
    check_buffer,
    histories,
)


class Right:
    """A bounded queue without a mistake: the others change one thing each."""

    capacity, max_lag = 3, 1

    def __init__(self):
        self.items, self.version = deque(), 0

    def put(self, item):
        self.drop_stale()
        if len(self.items) >= self.capacity:
            return False
        self.items.append(item)
        return True

    def take(self, n):
        self.drop_stale()
        return [self.items.popleft() for _ in range(n)] if len(self.items) >= n else None

    def drop_stale(self):
        self.items = deque(item for item in self.items if self.version - item.version <= self.max_lag)

    def publish(self, version):
        self.version = version

    def save(self):
        return self.version, list(self.items)

    def restore(self, state):
        self.version, self.items = state[0], deque(state[1])


class HoldsOneMore(Right):
    capacity = 4


class HoldsOneLess(Right):
    capacity = 2


class LagOneTooLarge(Right):
    max_lag = 2


class LagOneTooSmall(Right):
    max_lag = 0


class TakesTheNewest(Right):
    def take(self, n):
        self.drop_stale()
        return [self.items.pop() for _ in range(n)] if len(self.items) >= n else None


class LosesWhatIsTooFew(Right):
    def take(self, n):
        self.drop_stale()
        found = [self.items.popleft() for _ in range(min(n, len(self.items)))]
        return found if len(found) == n else None


class KeepsTheLast(Right):
    def take(self, n):
        found = super().take(n)
        if found:
            self.items.appendleft(found[-1])
        return found


class MakesOneUp(Right):
    def take(self, n):
        found = super().take(n)
        return [Item(99, 0), *found[1:]] if found else found


class GivesFewer(Right):
    def take(self, n):
        return super().take(min(n, max(1, len(self.items))))


class SharesItsState(Right):
    def save(self):
        self.state = [self.version, self.items]
        return self.state

    def drop_stale(self):
        for item in [one for one in self.items if self.version - one.version > self.max_lag]:
            self.items.remove(item)


class ForgetsTheVersion(Right):
    def restore(self, state):
        self.items = deque(state[1])


class ForgetsTheNewest(Right):
    def restore(self, state):
        self.version, self.items = state[0], deque(state[1][:-1])


class Raises(Right):
    def put(self, item):
        return item.nonsense


LAGGED = BufferRules(capacity_items=3, max_lag=1, drops_stale=True)
BROKEN = {
    HoldsOneMore: ("queue bound", [Put()] * 4),
    HoldsOneLess: ("queue bound", [Put()] * 3),
    LagOneTooLarge: ("lag bound", [Put(), Publish(2), Take()]),
    LagOneTooSmall: ("conservation", [Put(), Publish()]),
    TakesTheNewest: ("order", [Put(), Put(), Take()]),
    LosesWhatIsTooFew: ("conservation", [Put(), Take(2)]),
    KeepsTheLast: ("conservation", [Put(), Take(), Take()]),
    MakesOneUp: ("conservation", [Put(), Take()]),
    GivesFewer: ("size of a take", [Put(), Take(2)]),
    SharesItsState: ("exact resume", [Put(), Save(), Take(), Restore(), Take()]),
    ForgetsTheVersion: ("exact resume", [Put(), Publish(2), Save(), Restore(), Take()]),
    ForgetsTheNewest: ("exact resume", [Put(), Save(), Restore(), Take()]),
    Raises: ("no other exception", [Put()]),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_history_by_hand_names_the_rule(broken):
    rule, steps = BROKEN[broken]
    BufferMachine(Right, LAGGED).run(steps)

    with pytest.raises(BufferRuleBroken) as caught:
        BufferMachine(broken, LAGGED).run(steps)

    assert caught.value.rule == rule
    assert rule in RULE_NAMES
    assert (
        pickle.loads(pickle.dumps(caught.value)).rule == rule
    )  # as a worker sends it, or tblib with its context


def test_a_resume_that_differs_says_what_both_answered():
    with pytest.raises(BufferRuleBroken) as caught:
        BufferMachine(ForgetsTheVersion, LAGGED).run(BROKEN[ForgetsTheVersion][1])

    assert caught.value.expected == "the restored buffer answers take(1) as the other does: nothing"
    assert caught.value.came == "[item 0]"


@pytest.mark.parametrize(
    "broken", [HoldsOneMore, LagOneTooSmall, KeepsTheLast, SharesItsState, TakesTheNewest]
)
def test_a_search_finds_it_and_shows_a_short_history(broken):
    with pytest.raises(BufferRuleBroken) as caught:
        check_buffer(broken, LAGGED, max_examples=500)

    text = str(caught.value)
    assert text.startswith(f"rule broken: {caught.value.rule}\n  expected: ")
    assert "\n  came:     " in text
    assert len(text.splitlines()) <= 14
    assert max(map(len, text.splitlines())) <= 100
    assert text.endswith("declared: BufferRules(capacity_items=3, max_lag=1, drops_stale=True)")
    assert not getattr(caught.value, "__notes__", [])
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_a_right_one_passes():
    check_buffer(Right, LAGGED)


# --- other declarations ------------------------------------------------------------------------------------


class Stack(Right):
    def take(self, n):
        self.drop_stale()
        return [self.items.pop() for _ in range(n)] if len(self.items) >= n else None


class Freshest(Right):
    def take(self, n):
        self.drop_stale()
        if len(self.items) < n:
            return None
        chosen = sorted(self.items, key=lambda item: -item.version)[:n]
        self.items = deque(item for item in self.items if item not in chosen)
        return chosen


class AtRandom(Right):
    """Forgets its generator, unless told to keep it."""

    keeps = True

    def __init__(self):
        super().__init__()
        self.random = random.Random(3)

    def take(self, n):
        self.drop_stale()
        if len(self.items) < n:
            return None
        chosen = self.random.sample(list(self.items), n)
        self.items = deque(item for item in self.items if item not in chosen)
        return chosen

    def save(self):
        return *super().save(), self.random.getstate()

    def restore(self, state):
        super().restore(state)
        if self.keeps:
            self.random.setstate(state[2])


class ForgetsItsGenerator(AtRandom):
    keeps = False


class PopsThenFilters(Right):
    """Takes n from the head and drops the stale among them: fewer may come out than there are."""

    def drop_stale(self):
        pass

    def take(self, n):
        found = [self.items.popleft() for _ in range(min(n, len(self.items)))]
        return [item for item in found if self.version - item.version <= self.max_lag]


class UpTo(Right):
    def take(self, n):
        self.drop_stale()
        return [self.items.popleft() for _ in range(min(n, len(self.items)))]


class Tokens(Right):
    """Holds ten tokens, threshold: the last item may pass them."""

    whole = False

    def put(self, item):
        held = sum(one.tokens for one in self.items)
        if held + item.tokens > 10 if self.whole else held >= 10:
            return False
        self.items.append(item)
        return None

    def drop_stale(self):
        pass


class WholeTokens(Tokens):
    whole = True


TOKENS = {"capacity_tokens": 10, "item_tokens": (1, 6)}
OTHERS = {
    Stack: {"order": "lifo"},
    Freshest: {"order": "freshest"},
    AtRandom: {"order": "any"},
    PopsThenFilters: {"takes": "any"},
    UpTo: {"takes": "rest"},
}


@pytest.mark.parametrize("buffer", OTHERS)
def test_a_right_one_of_other_rules_passes(buffer):
    check_buffer(buffer, BufferRules(capacity_items=3, max_lag=1, drops_stale=True, **OTHERS[buffer]))


def test_tokens_with_and_without_overshoot():
    check_buffer(Tokens, BufferRules(**TOKENS, token_overshoot=True))
    check_buffer(WholeTokens, BufferRules(**TOKENS))
    for buffer, overshoot in ((Tokens, False), (WholeTokens, True)):
        with pytest.raises(BufferRuleBroken) as caught:
            BufferMachine(buffer, BufferRules(**TOKENS, token_overshoot=overshoot)).run([Put(tokens=6)] * 2)
        assert caught.value.rule == "queue bound"
        assert "it holds 6 of 10 tokens" in caught.value.expected


def test_a_generator_that_a_restore_forgets_is_found():
    rules = BufferRules(capacity_items=3, max_lag=1, drops_stale=True, order="any")
    # One draw before the save: the new buffer's generator is one draw behind in the takes that follow.
    steps = [Put(), Put(), Put(), Take(), Save(), Restore(), Put(), *[Take(), Put()] * 8]
    BufferMachine(AtRandom, rules).run(steps)

    with pytest.raises(BufferRuleBroken) as caught:
        BufferMachine(ForgetsItsGenerator, rules).run(steps)

    assert caught.value.rule == "exact resume"


class Groups(Right):
    """Hands out groups of two that are complete."""

    capacity = 100

    def ready(self):
        groups = {}
        for item in self.items:
            groups.setdefault(item.group, []).append(item)
        # In the order in which they became complete.
        found = [group for group in groups.values() if len(group) == 2]
        return sorted(found, key=lambda group: max(item.number for item in group))

    def drop_stale(self):
        stale = {item.group for item in self.items if self.version - item.version > self.max_lag}
        self.items = deque(item for item in self.items if item.group not in stale)

    def take(self, n):
        self.drop_stale()
        ready = self.ready()
        if len(ready) < n:
            return None
        taken = {group[0].group for group in ready[:n]}
        self.items = deque(item for item in self.items if item.group not in taken)
        return ready[:n]


class ByTheNewestMember(Groups):
    def drop_stale(self):
        young = {item.group for item in self.items if self.version - item.version <= self.max_lag}
        self.items = deque(item for item in self.items if item.group in young)


class InPieces(Groups):
    def ready(self):
        items = list(self.items)
        return [items[k : k + 2] for k in range(0, len(items) - 1, 2)]


GROUPS = BufferRules(group_size=2, max_lag=1, drops_stale=True)


def test_groups_come_out_whole_and_by_their_oldest_member():
    check_buffer(Groups, GROUPS)
    two_ages = [Put(), Publish(), Put(), Publish(), Take()]
    two_groups = [Put(), Put(group=1), Take()]
    for buffer, steps, rule in (
        (ByTheNewestMember, two_ages, "lag bound"),
        (InPieces, two_groups, "whole groups"),
    ):
        with pytest.raises(BufferRuleBroken) as caught:
            BufferMachine(buffer, GROUPS).run(steps)
        assert caught.value.rule == rule


# --- every declared bound is met ---------------------------------------------------------------------------


def bounded(items=10**9, tokens=10**9, lag=10**9, *, overshoot=False, drops=False, leaks=0):
    """Return a class whose real bounds are these."""

    class Bounded(Right):
        capacity, max_lag = items, lag

        def is_full(self, item):
            held = sum(one.tokens for one in self.items)
            too_many = held >= tokens if overshoot else held + item.tokens > tokens
            return too_many or len(self.items) >= self.capacity

        def put(self, item):
            while drops and self.items and self.is_full(item):
                self.items.popleft()
            if self.is_full(item):
                return False
            self.items.append(item)
            return True

        def take(self, n):
            found = super().take(n)
            self.capacity -= leaks * bool(found)
            return found

    return Bounded


_LAG = {"drops_stale": True}
BOUNDS = [  # declared and real, rules besides
    ({"items": 8}, {}),
    ({"items": 60}, {}),
    ({"items": 8}, {"take_sizes": (3,)}),
    ({"items": 8, "drops": True}, {"overflow": "drop_oldest"}),
    ({"tokens": 16}, {}),
    ({"tokens": 1000}, {}),
    ({"tokens": 1000}, {"item_tokens": (3, 90)}),
    ({"tokens": 1000, "overshoot": True}, {"token_overshoot": True}),
    ({"tokens": 1000, "items": 8}, {}),
    ({"lag": 0}, _LAG),
    ({"lag": 8}, _LAG),
    ({"lag": 8}, {**_LAG, "take_sizes": (4,)}),
    ({"lag": 3, "items": 5, "tokens": 40}, _LAG),
]
_DECLARED = {"items": "capacity_items", "tokens": "capacity_tokens", "lag": "max_lag"}


def _rules_of(real, others):
    return BufferRules(**{_DECLARED[name]: real[name] for name in real if name in _DECLARED}, **others)


@pytest.mark.parametrize(("real", "others"), BOUNDS, ids=repr)
def test_a_bound_that_is_off_or_missing_is_found_whatever_is_drawn(real, others):
    rules = _rules_of(real, others)
    check_buffer(bounded(**real), rules, max_examples=20)
    for name in _DECLARED.keys() & real.keys():
        for wrong in (real[name] - 1, real[name] + 1, 10**9):
            if wrong < 0:
                continue
            with pytest.raises(BufferRuleBroken) as caught:
                # The one that is drawn is of a new seed every time, and does not matter.
                check_buffer(bounded(**{**real, name: wrong}), rules, max_examples=1)
            assert caught.value.rule in (
                "queue bound",
                "lag bound",
                "conservation",
                "order",
                "size of a take",
            )


@pytest.mark.parametrize("draws", range(4))
def test_drawn_histories_alone_fill_a_queue_at_the_defaults(draws):
    rules = BufferRules(capacity_items=8)

    @settings(max_examples=200, deadline=None, database=None)
    @seed(draws)
    @given(histories(rules))
    def search(steps):
        BufferMachine(bounded(), rules).run(steps)

    with pytest.raises(BufferRuleBroken):
        search()


def test_a_place_that_is_never_given_back_is_found():
    with pytest.raises(BufferRuleBroken) as caught:
        check_buffer(bounded(items=6, leaks=1), BufferRules(capacity_items=6), max_examples=1)

    assert caught.value.rule == "queue bound"
    assert len(caught.value.history) == 8  # six puts, a take, and a put that is refused


def test_a_failing_history_to_a_bound_is_made_short():
    with pytest.raises(BufferRuleBroken) as caught:
        check_buffer(TakesTheNewest, LAGGED)

    assert (caught.value.rule, len(caught.value.history)) == ("order", 3)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"capacity_items": 10**6}, ["capacity_items"]),
        ({"capacity_tokens": 10**9}, ["capacity_tokens"]),
        ({"capacity_items": 100, "capacity_tokens": 50}, ["capacity_items"]),
        ({"max_lag": 10**6, "drops_stale": True}, ["max_lag"]),
        ({"capacity_items": 3, "max_lag": 1, "drops_stale": True, "take_sizes": (4,)}, ["max_lag"]),
    ],
)
def test_a_bound_that_no_history_meets_is_told(fields, named):
    rules = BufferRules(**fields)
    real = {name: getattr(rules, field) for name, field in _DECLARED.items() if field in fields}

    with pytest.raises(ConfigError, match="Build the buffer with a smaller bound") as caught:
        check_buffer(bounded(**real), rules)

    assert [finding.field for finding in caught.value.findings] == named


def test_more_steps_meet_a_larger_bound():
    rules = BufferRules(capacity_items=1100, saves=False)
    with pytest.raises(ConfigError, match=r"capacity_items: must be met .* up to 1000 steps"):
        check_buffer(bounded(items=1100), rules, max_examples=1)
    with pytest.raises(BufferRuleBroken):
        check_buffer(bounded(items=1099), rules, max_examples=1, max_steps=1102)


def test_items_are_sized_by_the_capacity_unless_given():
    assert BufferRules().token_range == (1, 4)
    assert BufferRules(capacity_tokens=3).token_range == (1, 3)
    assert BufferRules(capacity_tokens=1000).token_range == (1, 125)
    assert BufferRules(capacity_tokens=1000, capacity_items=4).token_range == (1, 251)
    assert BufferRules(capacity_tokens=1000, item_tokens=(2, 5)).token_range == (2, 5)


# --- declarations and histories ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_lag": 2}, "drops_stale: must be declared with max_lag"),
        ({"drops_stale": True}, "drops_stale: needs max_lag"),
        ({"capacity_items": 0}, "capacity_items: must be at least 1"),
        ({"capacity_items": True}, "capacity_items: must be a whole number"),
        ({"order": "filo"}, "order: must be one of fifo, lifo, oldest_version, freshest, any"),
        ({"takes": None}, "takes: must be one of whole, rest, any"),
        ({"overflow": "drop_oldest"}, "overflow: needs a capacity"),
        (
            {"overflow": "drop_oldest", "capacity_items": 3, "max_lag": 1, "drops_stale": True},
            "max_lag: cannot be checked beside overflow 'drop_oldest'",
        ),
        ({"token_overshoot": True}, "token_overshoot: needs capacity_tokens"),
        (
            {"capacity_tokens": 3, "item_tokens": (1, 4)},
            "item_tokens: must have items that fit into capacity_tokens, which is 3",
        ),
        ({"item_tokens": (3, 2)}, r"item_tokens: must be \(smallest, largest\)"),
        ({"take_sizes": ()}, "take_sizes: must be a tuple"),
        ({"group_size": 4, "capacity_items": 3}, "capacity_items: must hold one group, 4 items"),
        ({"refusals": (3,)}, "refusals: must be a tuple of exception classes"),
        ({"saves": 1}, "saves: must be true or false"),
    ],
)
def test_a_declaration_without_sense_is_refused(fields, said):
    with pytest.raises(ConfigError, match=said):
        BufferRules(**fields)


def test_every_finding_of_a_declaration_is_told():
    with pytest.raises(ConfigError) as caught:
        BufferRules(capacity_items=-1, order="x", group_size=None)

    assert [finding.field for finding in caught.value.findings] == ["capacity_items", "order", "group_size"]


def test_a_buffer_without_a_method_is_told_which():
    class NoRestore(Right):
        restore = None

    with pytest.raises(ConfigError, match=r"buffer.restore: must be a method .*declare saves=False"):
        check_buffer(NoRestore, LAGGED)
    check_buffer(NoRestore, BufferRules(capacity_items=3, max_lag=1, drops_stale=True, saves=False))


class _Nameless:
    version = 0


def test_what_tells_no_number_is_told():
    with pytest.raises(ConfigError, match="number_of: must tell the number of an item"):
        check_buffer(UpTo, BufferRules(takes="rest", saves=False), item_of=lambda item: _Nameless())


@given(histories(GROUPS, max_steps=12))
def test_histories_are_steps_of_their_rules(steps):
    assert 1 <= len(steps) <= 12
    assert {type(step) for step in steps} <= {Put, Take, Publish, Save, Restore}
    assert all(step.age <= 2 for step in steps if isinstance(step, Put))
    assert all(step.size in GROUPS.take_sizes for step in steps if isinstance(step, Take))
