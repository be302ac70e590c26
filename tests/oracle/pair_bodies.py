"""What the two processes of a test do in place of a model: sleep, learn nothing, die."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from lagsweep.sweeps.real_model.handover import WeightFolder
from lagsweep.sweeps.real_model.loop import generate, train


class Sampler:
    """Samples in no time; notes which weights it had for each group."""

    def __init__(self):
        self.weights, self.log = None, []

    def load(self, path):
        self.weights = int(path.read_text())

    def sample(self, number, version):
        self.log.append((number, version, self.weights))
        record = {"response_tokens": [7] * (1 + number % 3), "prompt_tokens": [1, 2], "stop_reason": "eos"}
        return [{**record, "sample_id": f"{number}-{member}"} for member in range(2)]


class Learner:
    """Learns nothing; its weights are its version."""

    def __init__(self):
        self.version, self.seen = 0, []

    def train(self, records):
        self.seen.append(records[0]["sample_id"])
        self.version += 1
        return {"loss": 1.0}

    def save(self, path):
        path.write_text(str(self.version))


def note(settings, name):
    """Write down this process's id, in one step."""
    target = Path(settings["notes"]) / name
    target.with_suffix(".tmp").write_text(str(os.getpid()))
    target.with_suffix(".tmp").replace(target)


def generator(settings, channel):
    note(settings, "generator")
    generate(channel, WeightFolder(Path(settings["weights"])), Sampler())


def trainer(settings, channel):
    note(settings, "trainer")
    return train(channel, WeightFolder(Path(settings["weights"])), Learner(), settings["phases"])


def killed(settings, channel):
    """Die as from lack of memory, once the other side has spoken or listens."""
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def fails(settings, channel):
    raise RuntimeError("no room for the weights")


def waits(settings, channel):
    """Wait for a message that never comes."""
    note(settings, f"waits-{os.getpid()}")
    channel.take()


def sleeps(settings, channel):
    """Go on whatever the other side does."""
    note(settings, f"sleeps-{os.getpid()}")
    time.sleep(600)
