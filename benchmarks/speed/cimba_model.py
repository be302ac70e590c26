"""The M/M/1 queue for cimba's Python package, which reads a model's annotations as it defines the class."""

import cimba as cb
from cimba import inputs


class Queue(cb.Model):
    """Arrivals at 0.8 a second, a server that needs a second on average; sums of the moments of both."""

    interarrival: cb.Input[float] = inputs.dist.exponential(mean=1 / 0.8)
    service_time: cb.Input[float] = inputs.dist.exponential(mean=1)
    queue: cb.Container
    came: cb.Output[float]
    left: cb.Output[float]
    arrivals: cb.Output[float]
    departures: cb.Output[float]

    @cb.on_start
    def clear(self):
        """Put the sums at 0."""
        self.came = 0.0
        self.left = 0.0
        self.arrivals = 0.0
        self.departures = 0.0

    @cb.process
    def source(self):
        """Let customers come."""
        while True:
            cb.hold(self.interarrival.next())
            self.came = self.came + 1.0
            self.arrivals = self.arrivals + cb.now()
            self.queue.put(1)

    @cb.process
    def server(self):
        """Serve them one by one."""
        while True:
            self.queue.get(1)
            cb.hold(self.service_time.next())
            self.left = self.left + 1.0
            self.departures = self.departures + cb.now()
