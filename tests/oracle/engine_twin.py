"""Engines one token at a time, in plain Python integers: the slow reading of the rule, for comparison only.

Clock values count 2**-20 microseconds. Every step is taken by itself and every list is searched.
"""

from __future__ import annotations

U = 2**20


class Request:
    def __init__(self, number, prompt, tokens):
        self.number, self.prompt, self.tokens = number, prompt, tokens
        self.decoded = 0
        self.admitted = self.first = self.end = None
        self.times_admitted = self.preemptions = 0


class EngineTwin:
    """One engine; `step_end` is None while it stands still."""

    def __init__(self, a, b, c, p, cache, most):
        self.a, self.b, self.c, self.p, self.cache, self.most = a, b, c, p, cache, most
        self.queue, self.running, self.joining = [], [], []
        self.clock, self.step_end = 0, None
        self.steps = self.decoded = self.prefilled = self.reprefilled = self.preemptions = 0
        self.busy = self.running_sum = self.context_sum = 0
        self.largest = 0
        self.assigned = 0

    def context(self, request):
        return request.prompt + request.decoded

    def whole_context(self):
        return sum(self.context(request) for request in self.running)

    def begin_step(self):
        """At the clock: memory, admission, and a step if anything runs."""
        preempted = False
        self.joining = []
        while self.cache is not None and self.whole_context() + len(self.running) > self.cache:
            victim = self.running.pop()  # admitted last
            victim.preemptions += 1
            self.preemptions += 1
            self.queue.insert(0, victim)
            preempted = True
        while not preempted and self.queue and (self.most is None or len(self.running) < self.most):
            head = self.queue[0]
            needed = self.whole_context() + self.context(head) + len(self.running) + 1
            if self.cache is not None and needed > self.cache:
                break
            self.queue.pop(0)
            self.running.append(head)
            self.joining.append(head)
            head.times_admitted += 1
            if head.admitted is None:
                head.admitted = self.clock
        self.step_end = None
        if self.running:
            prefill = sum(self.context(request) for request in self.joining)
            length = self.a + self.b * len(self.running) + self.c * self.whole_context() + self.p * prefill
            self.step_end = self.clock + length

    def end_step(self):
        """The step under way comes to its boundary; gives those that have all their tokens."""
        n, context = len(self.running), self.whole_context()
        assert self.cache is None or context + n <= self.cache
        self.steps += 1
        self.decoded += n
        self.running_sum += n
        self.context_sum += context
        self.largest = max(self.largest, context + n)
        self.busy += self.step_end - self.clock
        for request in self.joining:
            self.prefilled += self.context(request)
            if request.times_admitted > 1:
                self.reprefilled += self.context(request)
        self.clock = self.step_end
        done = []
        for request in list(self.running):
            request.decoded += 1
            if request.decoded == 1:
                request.first = self.clock
            if request.decoded == request.tokens:
                request.end = self.clock
                self.running.remove(request)
                self.assigned -= 1
                done.append(request)
        return done


def run_requests(engine, count, routing, requests):
    """Run (prompt, tokens, tick) triples; `engine` holds (a, b, c, p, cache, most) in u and tokens.

    Returns
    -------
    engines, requests
        With times in u.
    """
    engines = [EngineTwin(*engine) for _ in range(count)]
    made = [Request(number, prompt, tokens) for number, (prompt, tokens, _) in enumerate(requests)]
    arrivals = sorted((tick, number) for number, (_, _, tick) in enumerate(requests))
    while True:
        ends = [one.step_end for one in engines if one.step_end is not None]
        tick = arrivals[0][0] if arrivals else None
        if not ends and tick is None:
            return engines, made
        # Boundaries up to the tick hold before what happens in it.
        if ends and (tick is None or min(ends) <= tick * U):
            one = min((one for one in engines if one.step_end is not None), key=lambda one: one.step_end)
            one.end_step()
            one.begin_step()
            continue
        touched = []
        while arrivals and arrivals[0][0] == tick:
            request = made[arrivals.pop(0)[1]]
            if routing == "round_robin":
                place = request.number % count
            else:
                place = min(range(count), key=lambda k: (engines[k].assigned, k))
            request.engine = place
            engines[place].assigned += 1
            engines[place].queue.append(request)
            touched.append(place)
        for place in sorted(set(touched)):
            if engines[place].step_end is None:
                engines[place].clock = tick * U
                engines[place].begin_step()
