"""A client's requests for checkpoints.

The requests transfer the states of all services, and the data that trainers store on services.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, LostPeerError
from paddle_base.runtime.number_types import number_type
from paddle_base.runtime.schema import Integer, Items, Maybe, Row, Text
from pserver.client.membership import ModelSetup
from pserver.client.server_channel import FetchArrays, SendArrays, SendVector, ServerChannel, ServiceRequest
from pserver.optim.settings import Array, Optimization
from pserver.store.model_setup import as_bytes
from pserver.store.resharding import reshard
from pserver.store.snapshot import CheckpointState, Part
from pserver.wire import checkpoint_blobs, notes, protocol
from pserver.wire.protocol import Fetch, Message, Op

# maximum bytes of one array of a service's state, for each element of the model
MAX_STATE_PER_ELEMENT = 64
_PARTS = Items(Maybe(notes.OBJECT), notes.MAX_VALUES)  # the trainers' parts of a checkpoint


class SendInitialValues(SendVector):
    """Send the initial values and the setup of the model to every service.

    If trainer 0 resumes from a checkpoint, the request also describes the service's state in this checkpoint.

    Args: parts: the state of each service in the checkpoint; empty without a checkpoint. trainers: the trainers' parts
        of the checkpoint.
    """

    def __init__(
        self,
        setup: Mapping[str, Any],
        values: Array,
        parts: Mapping[ServerChannel, Part],
        trainers: Sequence[Any] = (),
    ) -> None:
        super().__init__(Op.INITIALISE, "send the initial values", values)
        self._setup, self._parts, self._trainers = setup, parts, trainers

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the setup and the description of the state for the first piece, and {} for any other piece."""
        if piece:
            return {}
        part = self._parts.get(channel)
        if part is None:
            return self._setup
        state = {"counters": part.counters, "arrays": sorted(part.arrays), "trainers": list(self._trainers)}
        return {**self._setup, **state, "blobs": checkpoint_blobs.describe(part.arrays)}


class GatherCheckpoint(ServiceRequest):
    """Send a trainer's part of a checkpoint to the first service; the answers of all services describe their states."""

    def __init__(self, first: ServerChannel, own: Any) -> None:
        super().__init__(Op.CHECKPOINT, "make a checkpoint", note={"own": own})
        self._first = first

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the trainer's part for the first service, and an empty note for any other service."""
        return self.note if channel is self._first else {}


class LeaveBlob(SendArrays):
    """Store a trainer's binary data for the next checkpoint on one service; other services receive an empty array."""

    def __init__(self, arrays: Mapping[ServerChannel, memoryview]) -> None:
        super().__init__(Op.CHECKPOINT_BLOB, "leave its state", arrays)

    def note_for(self, channel: ServerChannel, piece: int) -> Mapping[str, Any]:
        """Return the note of a piece: the length of the whole array for the first piece, an empty note for any other
        piece.
        """
        return {} if piece else {"bytes": len(self._arrays[channel])}


class FetchBlob(FetchArrays):
    """Fetch a trainer's stored binary data from one service; the answers of all other services are ignored."""

    def __init__(self, own: ServerChannel, arrays: Mapping[ServerChannel, memoryview]) -> None:
        super().__init__("fetch its checkpoint blob", Fetch.CHECKPOINT_BLOB, arrays)
        self._own = own

    def take(self, channel: ServerChannel, answer: Message, payload: memoryview) -> None:
        """Copy a piece into the array of the service that stores the data."""
        if channel is self._own:
            super().take(channel, answer, payload)


class CheckpointRequests:
    """The checkpoint requests of one trainer.

    Args: request: the function that sends a request to all services and waits for the answers. channels: the channel
        of each service, in the order of the services. trainer: number of this trainer. elements: number of elements of
        the model, which limits the size of a service's state.
    """

    def __init__(
        self,
        request: Callable[[ServiceRequest], int],
        channels: Sequence[ServerChannel],
        trainer: int,
        elements: int,
    ) -> None:
        self._request, self._channels, self._trainer = request, channels, trainer
        self._max_bytes = MAX_STATE_PER_ELEMENT * elements + protocol.PIECE_BYTES

    def gather_checkpoint(self, own: Any) -> CheckpointState | None:
        """Send this trainer's part of a checkpoint. Trainer 0 gets the parts of all trainers and the states of all
        services; other trainers get None.
        """
        request = GatherCheckpoint(self._channels[0], own)
        self._request(request)
        if self._trainer != 0:
            return None
        said = [request.notes.get(channel, {}) for channel in self._channels]
        parts = [_make_part(channel, note, self._max_bytes) for channel, note in zip(self._channels, said, strict=True)]
        for number in range(max(len(part.arrays) for part in parts)):
            arrays = self._list_arrays(parts, [list(part.arrays) for part in parts], number)
            self._request(FetchArrays("fetch the state", Fetch.STATE + number, arrays))
        return CheckpointState(parts, notes.get(said[0], "trainers", _PARTS))

    def restore(
        self, model: ModelSetup, optimization: Optimization, values: Array, restored: CheckpointState | None
    ) -> None:
        """Send the initial values to every service, and the service's state if trainer 0 resumes from a checkpoint.

        The state is divided again if the checkpoint has another number of services.

        Args: restored: the checkpoint that trainer 0 resumes from, or None.
        Raises: ConfigError: the checkpoint does not fit the model.  DamagedError: the checkpoint cannot be divided.
        """
        setup = model.note
        if restored is not None and (restored.origins is not None or len(restored.services) != len(self._channels)):
            restored = _divide_anew(restored, model, optimization, len(self._channels))
        if restored is None:
            self._request(SendInitialValues(setup, values, {}))
            return
        parts = dict(zip(self._channels, restored.services, strict=True))
        self._request(SendInitialValues(setup, values, parts, restored.trainers))
        for number in range(max(len(part.arrays) for part in restored.services)):
            arrays = self._list_arrays(restored.services, [sorted(part.arrays) for part in restored.services], number)
            self._request(SendArrays(Op.RESTORE, "send the state of the checkpoint", arrays, number))

    def leave_blob(self, data: memoryview) -> None:
        """Store this trainer's binary data for the next checkpoints."""
        self._request(LeaveBlob({channel: data[:0] for channel in self._channels} | {self._own: data}))

    def fetch_blob(self, size: int) -> memoryview:
        """Return this trainer's binary data from the checkpoint that the job resumes from."""
        data = memoryview(bytearray(size))
        arrays = {channel: data[:0] for channel in self._channels} | {self._own: data}
        self._request(FetchBlob(self._own, arrays))
        return data

    @property
    def _own(self) -> ServerChannel:
        """The service that stores this trainer's binary data."""
        return self._channels[self._trainer % len(self._channels)]

    def _list_arrays(
        self, parts: Sequence[Part], names: Sequence[Sequence[str]], number: int
    ) -> dict[ServerChannel, memoryview]:
        """Return the array with this number from every service's state; the array is empty if the state has fewer
        arrays.
        """
        arrays = [
            as_bytes(part.arrays[some[number]]) if number < len(some) else memoryview(bytearray())
            for part, some in zip(parts, names, strict=True)
        ]
        return dict(zip(self._channels, arrays, strict=True))


def _divide_anew(
    restored: CheckpointState, model: ModelSetup, optimization: Optimization, services: int
) -> CheckpointState:
    origins = restored.origins
    parts = reshard(
        restored.services,
        model.parameters,
        optimization,
        services,
        by_rows=bool(model.note.get("by_rows")),
        origins=range(len(restored.trainers)) if origins is None else origins,
        begins_pass=origins is not None,
    )
    return dataclasses.replace(restored, services=parts)


def _make_part(channel: ServerChannel, note: Mapping[str, Any], max_bytes: int) -> Part:
    """Return the state that a service announced; its arrays have the announced sizes, but no values yet.

    Raises: LostPeerError: the note does not describe a state.
    """
    try:
        counters, arrays = notes.get(note, "counters", notes.OBJECT), {}
        row = Row((Text(notes.MAX_TEXT), Text(notes.MAX_TEXT), Integer(0, max_bytes)))
        for name, kind, size in notes.get(note, "arrays", Items(row, notes.MAX_VALUES)):
            dtype = number_type(kind)
            arrays[name] = np.empty(size // dtype.itemsize, dtype)
    except (BugError, TypeError, ValueError, MemoryError) as exc:
        raise LostPeerError(
            f"{channel.name} announces an invalid state ({type(exc).__name__}: {glog.clean(exc, 200)})"
        ) from exc
    return Part(counters, arrays)
