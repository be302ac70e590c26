"""The M/M/1 queue, which every simulator of discrete events can do: ours, SimPy, salabim, ciw and cimba.

Customers come by a Poisson process at 0.8 a second to one server that needs an exponential time, a second on
average; they leave in the order they came. The mean time in the system is 1 / (1 - 0.8) = 5 s. Every tool
gives it as the area below the number of customers over the customers that came, so that it is one quantity.

Ours is the general loop as it is, told a pipeline that is this queue: one slot whose rollouts take the time
of a tool that is exponential (so rollouts land as a Poisson process), no cap on the queue, and a trainer that
takes one rollout a step, whose length is exponential and independent of the tool's time. No loop is written
for it.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from random import Random

import numpy as np
from loops import general_run, run_general
from measuring import Section, in_turn, ranged, ratios, scaled, table

from lagsweep import LengthLaw, PipelineConfig, SecondsLaw
from lagsweep.sweeps.runs.general import GeneralRun

LOAD = 0.8
THEORY = 1 / (1 - LOAD)
TOKENS = 1_000  # a second of service
_QUANTILES = 1 << 16
Result = tuple[int, float]  # customers that came, mean seconds in the system


def standard_error(customers: int) -> float:
    """Return the standard error of the mean time in an M/M/1 system over so many customers in a row.

    The asymptotic variance of the mean wait, ``rho (2 + 5 rho - 4 rho² + rho³) / (1 - rho)⁴`` for a service
    of mean 1 (Daley 1968), of which the time in the system differs by the service alone.
    """
    rho = LOAD
    return math.sqrt(rho * (2 + 5 * rho - 4 * rho**2 + rho**3) / (1 - rho) ** 4 / customers)


def pipeline(customers: int) -> PipelineConfig:
    """Return the pipeline that is this queue."""
    middles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return PipelineConfig(
        rollout_workers=1,
        decode_tokens_per_second=1e12,  # a rollout takes its tool's time alone
        rollout_overhead_seconds=0.0,
        environment_seconds=SecondsLaw.empirical(-np.log1p(-middles) / LOAD),
        response_length=LengthLaw.from_scipy("expon", scale=TOKENS, minimum=1, maximum=20 * TOKENS),
        max_queue_tokens=None,
        batch_tokens=1,
        train_overhead_seconds=0.0,
        train_tokens_per_second=float(TOKENS),
        stale_check="never",
        sync_every_updates=10**9,
        duration_seconds=customers / LOAD,
    )


def ours_in_detail(customers: int) -> Result:
    """Run the pipeline with its rows recorded, and add up the customers' times."""
    run = GeneralRun(pipeline(customers), batches=True, rollouts=True)
    run.advance()
    tables, end = run.tables(), run.config.duration_seconds
    landed = np.array([moment for moment in tables["rollouts"]["end"] if moment is not None])
    trained = tables["batches"]["end"]  # a step each, in the order of the queue
    return _area(landed.size, landed.sum(), np.minimum(trained, end).sum(), trained.size, end)


def ours(customers: int) -> Callable[[], int]:
    """Return the timed run: no rows, draws and all."""
    run = general_run(pipeline(customers))
    return lambda: int(run_general(run).summary().generated_rollouts)


def _area(came: int, arrivals: float, departures: float, left: int, end: float) -> Result:
    return came, (departures + (came - left) * end - arrivals) / came


def simpy_queue(customers: int, seed: int = 1) -> Result:
    """A process for arrivals and one for the server, over a store."""
    import simpy

    env, random = simpy.Environment(), Random(seed)
    store, end = simpy.Store(env), customers / LOAD
    sums = [0.0, 0.0]
    counts = [0, 0]

    def arrivals():  # type: ignore[no-untyped-def]
        while True:
            yield env.timeout(random.expovariate(LOAD))
            sums[0] += env.now
            counts[0] += 1
            store.put(None)

    def server():  # type: ignore[no-untyped-def]
        while True:
            yield store.get()
            yield env.timeout(random.expovariate(1.0))
            sums[1] += env.now
            counts[1] += 1

    env.process(arrivals())
    env.process(server())
    env.run(until=end)
    return _area(counts[0], sums[0], sums[1], counts[1], end)


def salabim_queue(customers: int, seed: int = 1) -> Result:
    """Two components and a plain deque: the fastest form that its manual shows."""
    import salabim as sim

    sim.yieldless(False)
    env, random, end = sim.Environment(trace=False), Random(seed), customers / LOAD
    waiting: deque[float] = deque()
    sums = [0.0, 0.0]
    counts = [0, 0]

    class Arrivals(sim.Component):  # type: ignore[misc]
        def process(self):  # type: ignore[no-untyped-def]
            while True:
                yield self.hold(random.expovariate(LOAD))
                sums[0] += env.now()
                counts[0] += 1
                waiting.append(0.0)
                if server.ispassive():
                    server.activate()

    class Server(sim.Component):  # type: ignore[misc]
        def process(self):  # type: ignore[no-untyped-def]
            while True:
                while not waiting:
                    yield self.passivate()
                waiting.popleft()
                yield self.hold(random.expovariate(1.0))
                sums[1] += env.now()
                counts[1] += 1

    server = Server()
    Arrivals()
    env.run(till=end)
    return _area(counts[0], sums[0], sums[1], counts[1], end)


def ciw_queue(customers: int, seed: int = 1) -> Result:
    """A network of one node; ciw keeps a record of every customer that left."""
    import ciw

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=LOAD)],
        service_distributions=[ciw.dists.Exponential(rate=1.0)],
        number_of_servers=[1],
    )
    ciw.seed(seed)
    simulation, end = ciw.Simulation(network), customers / LOAD
    simulation.simulate_until_max_time(end)
    records = simulation.get_all_records()
    gone = [one for one in records if one.exit_date <= end]
    still = [one.arrival_date for node in simulation.transitive_nodes for one in node.all_individuals]
    came = len(gone) + len(still)
    arrivals = math.fsum(one.arrival_date for one in gone) + math.fsum(still)
    return _area(came, arrivals, math.fsum(one.exit_date for one in gone), len(gone), end)


def cimba_queue(customers: int, seed: int = 1) -> Result:
    """Two processes over a container, as its README shows: compiled by Numba, run by its engine in C."""
    model = _cimba_model()
    import cimba as cb

    end = customers / LOAD
    experiment = cb.Experiment(model, replications=1, window=cb.Window(duration=end), seed=seed)
    found = experiment.run()[model]
    came, left, arrivals, departures = (
        float(np.ravel(np.asarray(getattr(found, name)))[0])
        for name in ("came", "left", "arrivals", "departures")
    )
    return _area(int(came), arrivals, departures, int(left), end)


def _cimba_model():  # type: ignore[no-untyped-def]
    if not _MODELS:
        import cimba_model  # type: ignore[import-not-found]

        _MODELS.append(cimba_model.Queue())
    return _MODELS[0]


_MODELS: list[object] = []
PEERS: dict[str, tuple[str, Callable[[int], Result]]] = {
    "cimba": ("processes, compiled, engine in C", cimba_queue),
    "salabim": ("two components and a deque", salabim_queue),
    "simpy": ("two processes and a store", simpy_queue),
    "ciw": ("a network of one node", ciw_queue),
}


def installed(name: str) -> str | None:
    """Return the version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def section(rounds: int, tiny: bool = False) -> Section:
    """Measure every tool that is installed."""
    customers = 2_000 if tiny else 100_000
    found = Section("The M/M/1 queue beside other simulators")
    detail = {"ours": ours_in_detail(customers)}
    run = ours(customers)
    if run() != detail["ours"][0]:
        raise SystemExit("the recorded and the timed run differ")
    forms: dict[str, Callable[[], object]] = {"ours": run}
    rows = {}
    for name, (form, work) in PEERS.items():
        rows[name] = [f"{name} {installed(name)}", form] if installed(name) else [name, form]
        if installed(name):
            work(1_000)  # compiles, imports
            detail[name] = work(customers)
            forms[name] = lambda work=work: work(customers)
    seconds = in_turn(forms, rounds)
    each = {name: scaled(samples, 1e9 / detail[name][0]) for name, samples in seconds.items()}
    lines = []
    for name, told in {
        "ours": ["Lagsweep", "the general loop, a pipeline that is this queue"],
        **rows,
    }.items():
        if name not in each:
            lines.append([*told, *["not installed"] * 4])
            continue
        rate = 1e3 / statistics.median(each[name])
        over = "" if name == "ours" else ranged(ratios(each, name, "ours"), 2)
        lines.append([*told, ranged(each[name], 0), f"{rate:,.2f}", over, f"{detail[name][1]:.2f}"])
    error = standard_error(customers)
    head = ["tool", "form", "ns a customer", "million customers/s", "/ ours", "mean time in system, s"]
    found.text += [
        f"{customers:,} customers, load {LOAD}, a run each; two events a customer. Every run draws its own "
        "numbers. Theory says that a customer is in the system for "
        f"{THEORY:.2f} s; two standard errors of so many customers are {2 * error:.2f} s.",
        table(head, lines, words=2),
        "Ours is not a loop for queues: it is the pipeline's general loop with one slot whose rollouts take "
        "an exponential time and a trainer that takes one rollout a step. A loop written for this queue "
        "alone would be faster than any of these, and is not compared.",
    ]
    near = {name: abs(mean - THEORY) <= 4 * error for name, (_, mean) in detail.items()}
    found.agrees("every mean lies within four standard errors of theory", all(near.values()))
    return found
