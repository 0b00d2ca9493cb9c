"""The trainer's side of dense services: the client pushes gradients and receives the new values.

    client = Client([("10.0.0.1", 7164), ("10.0.0.2", 7164)], trainer_id=1, num_trainers=2)
    client.join(parameters, optimization)
    client.initialise(values)
    for each pass:
        client.start_pass()
        client.push_pull(gradient, values, samples)      # once per batch
        client.finish_pass(values)
    client.goodbye()

Each call is one request to every service and returns when all services have answered. Gradients and values are flat
float32 arrays of all non-static parameters in order; each service gets its elements in pieces. Values are received in
place: they are written into the array that the caller passes.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from paddle_base.runtime.environment import JobEnvironment, read_environment
from pserver.client.connection import ServerConnection
from pserver.client.fan_out import FanOut
from pserver.client.membership import ClientOptions, JobMember, JoinRequest, ModelSetup
from pserver.client.request import FetchVector, PushVector, SendVector
from pserver.client.server_channel import ServerChannel
from pserver.client.vector_layout import VectorLayout
from pserver.optim.settings import Array, Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.model_setup import describe_setup
from pserver.store.snapshot import CheckpointState
from pserver.wire import notes, protocol
from pserver.wire.authentication import PROBE, TOKEN_BYTES
from pserver.wire.protocol import NOTHING, Fetch, MessageFlag, Op

__all__ = ["Client", "JobEnvironment", "count_trainers", "read_environment"]


def count_trainers(service: tuple[str, int], **options: Any) -> int:
    """Return the number of trainers that a service was started for, without joining it; 0 if trainers come and go.

    Args: service: host and port. options: the fields of `ClientOptions`; `num_trainers` has no effect.
    Raises: PeerUnreachableError: the server does not answer, or belongs to another job or attempt.
    """
    one = ClientOptions(**options)
    name = secrets.token_bytes(TOKEN_BYTES) + PROBE
    connection = ServerConnection(*service, name, one.secret, source=one.source)
    channel = ServerChannel(connection, VectorLayout([]), protocol.session_of(one.job, one.attempt))
    fan_out = FanOut(
        [channel],
        one.trainer_id,
        first=0,
        peer_timeout=one.peer_timeout,
        wait_timeout=one.wait_timeout,
        failure=lambda: None,
    )
    request = JoinRequest(one, ModelSetup((), {}), [channel])
    try:
        fan_out.request(request, one.connect_timeout)
    finally:
        channel.close()
    return notes.get_integer(request.notes[channel], "num_trainers")


class Client(JobMember):
    """A trainer's connection to all dense services of a job.

    Args: see `JobMember`.
    Raises (every call): LostPeerError: a server or another trainer is lost, hangs or has given up; the message names
        this server or trainer.
    Thread safety: all calls must come from one thread. Every call blocks, except `close` and `abort`.
    """

    def join(self, parameters: Sequence[ParameterSpec], optimization: Optimization) -> None:
        """Connect to every service and register as this trainer.

        Raises: PeerUnreachableError: a server does not answer, or belongs to another job or attempt. ConfigError: a
            server and this trainer, or two trainers, have different settings; the message names the settings.
        """
        ranges = partition.layout(parameters, len(self._services))
        model = ModelSetup(list(parameters), describe_setup(parameters, optimization))
        self._join(model, optimization, [partition.find_runs(parameters, one) for one in ranges])

    def initialise(self, values: Array, restored: CheckpointState | None = None) -> Any:
        """Send trainer 0's values to the servers; the other trainers wait for these values and receive them in place.

        Args: restored: the checkpoint that trainer 0 resumes from, or None. Its values replace `values`.
        Returns: this trainer's own part of the checkpoint, or None if the job does not resume from a checkpoint.
        Raises: ConfigError: the optimization is not supported, or the checkpoint does not fit the model.  DamagedError:
            the checkpoint comes from another number of services, and cannot be divided among the present services.
        """
        self._check_vector(values)
        if self._options.trainer_id != 0:
            note = self._fetch(Fetch.INITIAL, "fetch the initial values", values)
            return note.get("own")
        self._send_initial_values(values, restored)
        if restored is None:
            return None
        self._fetch(Fetch.CURRENT, "fetch the restored values", values)
        return restored.trainers[0]

    def push_pull(self, gradient: Array, values: Array, samples: int, *, checkpoint: bool = False) -> bool:
        """Push this batch's summed gradient, wait for the step of all trainers, and receive the new values in place.

        Args: samples: samples of this trainer's batch.  checkpoint: whether this trainer requests a checkpoint.
        Returns: whether a checkpoint is due. If it is due, all trainers call `gather_checkpoint`.
        """
        self.begin_push(gradient, values, samples)
        return self.finish_push(checkpoint=checkpoint)

    def begin_push(self, gradient: Array, values: Array, samples: int) -> None:
        """Begin a `push_pull` while its gradient is still being computed."""
        self._check_vector(gradient)
        self._check_vector(values)
        self._batch += 1
        self._require_fan_out().begin(PushVector(self._describe_push(), gradient, values, samples))

    def push_from(self, start: int) -> None:
        """Push the pieces whose elements are all at position `start` of the gradient or later, without blocking.

        The caller has computed the gradient from `start` to its end. Some new values may already have been received
        when this method returns.
        """
        self._require_fan_out().send_early(lambda channel, piece: channel.layout.lowest(piece) >= start)

    def finish_push(self, *, checkpoint: bool = False) -> bool:
        """Push the remaining pieces, wait for the step of all trainers, and receive the new values in place; see
        `push_pull`.
        """
        fan_out = self._require_fan_out()
        fan_out.send_rest(MessageFlag.CHECKPOINT if checkpoint else MessageFlag.NONE)
        return bool(fan_out.collect() & MessageFlag.CHECKPOINT)

    def push(self, gradient: Array, samples: int, *, checkpoint: bool = False) -> bool:
        """Push as `push_pull` does, but receive no values: the answer only confirms the step."""
        self._check_vector(gradient)
        self._batch += 1
        flags = MessageFlag.KEEP | (MessageFlag.CHECKPOINT if checkpoint else MessageFlag.NONE)
        request = SendVector(Op.PUSH, self._describe_push(), gradient, samples=samples, flags=flags)
        return bool(self._request(request) & MessageFlag.CHECKPOINT)

    def fetch_values(self, values: Array) -> None:
        """Receive the values after the last step, in place."""
        self._check_vector(values)
        self._fetch(Fetch.CURRENT, "fetch the values", values)

    def fetch_averages(self, averages: Array) -> None:
        """Receive in place the averages of the values over the last steps; the config sets the number of steps."""
        self._check_vector(averages)
        self._fetch(Fetch.AVERAGES, "fetch the averages", averages)

    def finish_pass(self, values: Array, own: Any = None) -> None:
        """Wait for the trainers that still have batches, then receive the values after the pass in place.

        Args: own: this trainer's part of checkpoints that other trainers may make before they finish the pass.
        """
        self._check_vector(values)
        note = {} if own is None else {"own": own}
        self._request(FetchVector(Op.FINISH_PASS, f"finish pass {self._passes}", values, note=note))
        self._passes += 1

    def _fetch(self, kind: int, doing: str, values: Array) -> Mapping[str, Any]:
        """Receive the values, or an array of their size, in place; return the note of the first service's answer."""
        request = FetchVector(Op.FETCH, doing, values, kind)
        self._request(request)
        return request.notes.get(self._channels[0], NOTHING)

    def _describe_push(self) -> str:
        return f"push batch {self._batch} of pass {self._passes}"
