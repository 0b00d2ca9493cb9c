"""The smallest job of training: one weight, batches of two samples, an updater that counts steps, a stopper."""

import contextlib
import signal

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from pserver.store.snapshot import CheckpointState, Part
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.flags import parse_flags
from trainer.network.network import Network
from trainer.session import Session
from trainer.training.parts import Parts
from trainer.training.stopping import Stopper

BATCH = {"x": Argument(value=np.ones((2, 1), np.float32)), "y": Argument(value=np.zeros((2, 1), np.float32))}


class CountingUpdater:
    """Adds 1 to all values in every step; in the step number `stop`, a signal arrives."""

    prefetches = looks_ahead = False

    def __init__(self, table, stopper, stop=0):
        self.table, self.stopper, self.stop = table, stopper, stop
        self.steps = 0

    def connect(self, restored=None):
        pass

    def start_pass(self, batch=0):
        pass

    def prefetch(self, slots):
        pass

    def begin_step(self, samples):
        return None

    def step(self, samples, checkpoint=False):
        self.steps += 1
        if self.steps == self.stop:
            self.stopper.arrive()
        self.table.values += 1
        return checkpoint

    def gather_checkpoint(self, own):
        return CheckpointState([Part({}, {"values": self.table.values})], [own])

    @contextlib.contextmanager
    def averaged(self):
        yield

    def rates(self, parameter):
        return None

    def finish_pass(self, own=None):
        pass

    def finish(self):
        pass


class SignalledStopper(Stopper):
    def arrive(self):
        self._handle(signal.SIGTERM, None)


def make_parts(folder, *flags, **sources):
    config = ModelConfig(type="nn", output_layer_names=["cost"], input_layer_names=["x", "y"])
    for name in ("x", "y"):
        config.layers.add(name=name, type="data", size=1)
    config.layers.add(name="out", type="fc", size=1).inputs.add(input_layer_name="x", input_parameter_name="w")
    cost = config.layers.add(name="cost", type="square_error", size=1)
    for name in ("out", "y"):
        cost.inputs.add(input_layer_name=name)
    config.parameters.add(name="w", size=1, dims=[1, 1])
    table = ParameterTable(config.parameters)
    return Parts(
        flags=parse_flags(["--num_passes=3", *flags]),
        batch_size=2,
        session=Session(Network(config, table), [], Stream(1)),
        train=sources.get("train"),
        test=sources.get("test"),
        configs={},
        save_dir=str(folder),
    )
