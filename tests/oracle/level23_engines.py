"""The level 2 and 3 twin with inference engines: one step, so one token of each rollout, at a time.

Written from the page of engines alone, in whole numbers of u = 2**-20 ticks. It shares the pipeline with the
twin without engines and no line with the kernels. Between two boundaries nothing is skipped: an engine's next
step is taken, and what happens at its end is done in the order of the page.
"""

from __future__ import annotations

import math

from oracle.level1 import NAN, ticks
from oracle.level23 import Run
from oracle.level23_parts import ceil_div

TICK = 2**20  # u
ENGINE_DEFAULTS = {
    "count": 1,
    "step_seconds_per_rollout": 0.0,
    "step_seconds_per_context_token": 0.0,
    "prefill_seconds_per_token": 0.0,
    "kv_cache_tokens": None,
    "max_running": None,
    "routing": "least_loaded",
}


def units(seconds):
    """Whole u, half up."""
    return math.floor(seconds * 1e6 * TICK + 0.5)


class Request:
    """A rollout from the start to the end of its decode, on one engine."""

    def __init__(self, member, prompt, clock):
        self.member = member
        self.prompt = prompt
        self.decoded = 0
        self.admissions = 0
        self.cancelled = False
        self.prefill = 0  # tokens to prefill in its next step
        self.admissible = 0  # u: not before
        self.waits_since = clock

    def context(self):
        return self.prompt + self.decoded


class Engine:
    """One engine. Between two steps it stands still; `step` is the one under way."""

    def __init__(self, place, settings):
        self.place = place
        self.s = settings
        self.queue, self.running = [], []  # in the order of service, in the order of admission
        self.step = None
        self.abort_until = None  # u: end of a publication that aborts at the next boundary
        self.steps, self.preemptions, self.waits = [], [], []

    def assigned(self):
        return sum(not request.cancelled for request in self.queue + self.running)

    def context(self):
        return sum(request.context() for request in self.running)

    def fits(self, tokens):
        cache = self.s["kv_cache_tokens"]
        return cache is None or tokens <= cache

    def may_run_another(self):
        most = self.s["max_running"]
        return most is None or len(self.running) < most

    def wakes_at(self):
        """The clock value at which an engine with nothing running may admit its head, else None."""
        if self.step is None and not self.running and self.queue:
            return self.queue[0].admissible
        return None

    def leave_queue(self, request, clock):
        self.queue.remove(request)
        self.waits.append((request.waits_since, clock))

    def wait_in_front(self, requests, clock):
        for request in requests:
            self.running.remove(request)
            request.waits_since = clock
        self.queue[:0] = requests


class EngineRun(Run):
    """One simulated run with engines."""

    def __init__(self, settings):
        engine = {**ENGINE_DEFAULTS, **settings["engine"]}
        self.engine = engine
        self.fixed, self.each = units(engine["step_seconds"]), units(engine["step_seconds_per_rollout"])
        self.read = units(engine["step_seconds_per_context_token"])
        self.filled = units(engine["prefill_seconds_per_token"])
        self.engines = [Engine(place, engine) for place in range(engine["count"])]
        super().__init__(settings)
        self.resume = ticks(self.s["resume_seconds"]) * TICK

    # Time

    def next_time(self):
        time = super().next_time()
        if time is not None and time <= self.now:
            return time
        self.boundaries_of_those_that_stand()
        times = [super().next_time()]
        for engine in self.engines:
            if engine.step is not None:
                times.append(ceil_div(engine.step["end"], TICK))
            elif engine.wakes_at() is not None and not self.decoding_is_stopped():
                times.append(ceil_div(engine.wakes_at(), TICK))
        return min((time for time in times if time is not None), default=None)

    def pass_time(self, until):
        self.before = self.now
        super().pass_time(until)

    def end_decodes(self):
        """Do every boundary up to this tick; one that stands still on a tick comes after its events."""
        for engine in self.engines:
            while True:
                wakes = engine.wakes_at()
                if engine.step is not None:
                    if engine.step["end"] > self.now * TICK:
                        break
                    self.boundary(engine, engine.step["end"])
                elif wakes is None or self.decoding_is_stopped():
                    break
                elif self.before * TICK < wakes < self.now * TICK:
                    self.reached.add("admission_between_ticks")
                    self.boundary(engine, wakes)
                else:
                    break

    def boundaries_of_those_that_stand(self):
        if self.decoding_is_stopped():
            return
        for engine in self.engines:
            if engine.step is None and (engine.queue or engine.running):
                self.boundary(engine, self.now * TICK)

    def training_rate(self):
        if any(engine.step is not None for engine in self.engines):
            slow = self.s["train_slowdown_when_generating"]
            return math.floor(2**24 / (1 + slow) + 0.5)
        return 2**24

    def order_in_tick(self, member):
        return (member.end_clock if member.tail == 0 else self.now * TICK), member.slot

    # A boundary

    def boundary(self, engine, clock):
        self.end_step(engine, clock)
        if engine.abort_until is not None:
            self.abort(engine, clock)
        if self.decoding_is_stopped():
            self.reached.add("engine_stops")
            return
        if not self.make_room(engine, clock):
            self.admit_from_queue(engine, clock)
        if engine.running:
            self.begin_step_of(engine, clock)

    def end_step(self, engine, clock):
        step, engine.step = engine.step, None
        if step is None:
            return
        step["decoded"] = 0
        for request in list(engine.running):
            member = request.member
            if request.cancelled:
                engine.running.remove(request)
                continue
            step["decoded"] += 1
            request.decoded += 1
            version = step["version"] if self.stops_decoding else member.behaviour_version
            member.work_by_version[version] = member.work_by_version.get(version, 0) + 1
            if request.decoded == member.tokens:
                engine.running.remove(request)
                member.phase = "tail"
                member.end_version = version
                member.end_clock = clock
                member.tail_end = ceil_div(clock, TICK) + member.tail
        engine.steps.append(step)

    def abort(self, engine, clock):
        since = max(clock, engine.abort_until)
        engine.abort_until = None
        for request in engine.running:
            self.reached.add("abort")
            request.admissible = since + self.resume
        engine.wait_in_front(list(engine.running), clock)

    def make_room(self, engine, clock):
        preempted = False
        while not engine.fits(engine.context() + len(engine.running)):
            request = engine.running[-1]
            if request.decoded == 1:
                self.reached.add("preempted_after_its_first_step")
            request.admissible = 0
            engine.wait_in_front([request], clock)
            engine.preemptions.append(clock)
            self.reached.add("preemption")
            preempted = True
        return preempted

    def admit_from_queue(self, engine, clock):
        while engine.queue and engine.may_run_another():
            request = engine.queue[0]
            if request.admissible > clock:
                self.reached.add("head_not_yet_admissible")
                return
            if not engine.fits(engine.context() + request.context() + len(engine.running) + 1):
                self.reached.add("head_does_not_fit")
                return
            engine.leave_queue(request, clock)
            engine.running.append(request)
            request.prefill = request.context()
            request.admissions += 1
            if request.admissions > 1:
                self.reached.add("readmission")

    def begin_step_of(self, engine, clock):
        count, context = len(engine.running), engine.context()
        prefilled = sum(request.prefill for request in engine.running)
        again = sum(request.prefill for request in engine.running if request.admissions > 1)
        for request in engine.running:
            request.prefill = 0
        length = self.fixed + self.each * count + self.read * context + self.filled * prefilled
        assert length > 0
        assert engine.fits(context + count)
        engine.step = {
            "end": clock + length,
            "length": length,
            "running": count,
            "context": context,
            "prefilled": prefilled,
            "again": again,
            "version": self.published,
        }

    # What the pipeline does to engines

    def start_rollout(self, member):
        super().start_rollout(member)
        member.phase = "engine"
        member.engine = self.engine_of(member)
        request = Request(member, self.s["prompt_tokens"], self.now * TICK)
        member.engine.queue.append(request)

    def engine_of(self, member):
        routing = self.engine["routing"]
        if routing == "round_robin":
            return self.engines[member.number % len(self.engines)]
        first = member.group.members[0]
        if routing == "group" and member is not first:
            return first.engine
        return min(self.engines, key=lambda engine: (engine.assigned(), engine.place))

    def begin_publication(self, version):
        if self.s["publication"] == "abort":
            for engine in self.engines:
                until = (self.now + self.sync_ticks) * TICK
                engine.abort_until = max(engine.abort_until or 0, until)
                if engine.step is None:
                    self.abort(engine, self.now * TICK)
        super().begin_publication(version)

    def request_of(self, member):
        engine = member.engine
        return next(
            request
            for request in engine.queue + engine.running
            if request.member is member and not request.cancelled
        )

    def tokens_so_far(self, member):
        if member.phase == "engine":
            return self.request_of(member).decoded
        return super().tokens_so_far(member)

    def leave(self, group, reason, wasted):
        for member in group.members:
            if member.phase == "engine":
                self.cancel_request(member.engine, self.request_of(member))
        super().leave(group, reason, wasted)

    def cancel_request(self, engine, request):
        request.cancelled = True
        if request in engine.queue:
            self.reached.add("cancelled_while_waiting")
            engine.leave_queue(request, self.now * TICK)
        elif engine.step is None:
            engine.running.remove(request)
        else:
            self.reached.add("cancelled_in_a_step")

    # Reports

    def record(self, event):
        super().record(event)
        self.timeline[-1] |= {
            "running": sum(len(engine.running) for engine in self.engines),
            "engine_waiting": sum(len(engine.queue) for engine in self.engines),
            "kv_tokens": sum(engine.context() for engine in self.engines),
        }

    def engine_row(self, engines, end):
        """What some engines did after the warm-up and not later than the end."""
        after, until = self.warmup * TICK, end * TICK
        span = max(0, until - after)
        cache = self.engine["kv_cache_tokens"]
        steps = [step for engine in engines for step in engine.steps if after < step["end"] <= until]
        preempted = [clock for engine in engines for clock in engine.preemptions if after < clock <= until]
        waits = [row for engine in engines for row in engine.waits]
        waits += [(request.waits_since, until) for engine in engines for request in engine.queue]
        waited = sum(max(0, min(to, until) - max(since, after)) for since, to in waits)

        def total(name):
            return sum(step[name] for step in steps)

        def share(part, whole):
            return part / whole if whole else NAN

        held = [(step["context"] + step["running"]) / cache for step in steps] if cache else []
        busy = total("length") / TICK / 1e6
        return {
            "decode_steps": len(steps),
            "decoded_tokens": total("decoded"),
            "prefilled_tokens": total("prefilled"),
            "reprefilled_tokens": total("again"),
            "preemptions": len(preempted),
            "engine_busy_seconds": busy,
            "engine_idle_seconds": len(engines) * span / TICK / 1e6 - busy,
            "mean_engine_running": share(total("running"), len(steps)),
            "mean_engine_context_tokens": share(total("context"), len(steps)),
            "mean_engine_waiting": share(waited, len(engines) * span),
            "mean_kv_cache_share": share(math.fsum(held), len(held)),
            "max_kv_cache_share": max(held, default=NAN),
            "engine_tokens_per_second": share(total("decoded"), busy),
            "slots_engine_queue_seconds": waited / TICK / 1e6,
        }

    def report(self, end):
        found = super().report(end)
        found["engines"] = [self.engine_row([engine], end) for engine in self.engines]
        return found | self.engine_row(self.engines, end)


def run_engines(settings):
    """Simulate one run of settings that have an `engine`, a mapping of its fields."""
    return EngineRun(settings).run()
