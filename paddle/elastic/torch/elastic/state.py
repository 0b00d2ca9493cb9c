"""The state of a worker that trains a model of torch; names are those of Horovod's `horovod.torch.elastic.state`.

A handler saves, restores and sends one attribute of a state. The registry of handlers says which types have which
handler. A handler keeps the object of the script, e.g. the model, and writes into it.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from paddle.elastic.torch.elastic.plain_data import take_apart
from paddle.elastic.torch.elastic.sending import copy_into, loading, sync_value
from paddle_base.runtime.errors import ConfigError
from paddle_cluster.elastic.process import operations
from paddle_cluster.elastic.process.objects import drop_advice
from paddle_cluster.elastic.sampler import ElasticSampler
from paddle_cluster.elastic.state import SYNC_NAME, ObjectState


class StateHandler:
    """Saves, restores and sends one attribute of a state; the base of all handlers.

    Attributes: value: the attribute.  name: its name in the state, for messages and collectives.
    """

    name = "state"

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Save the present state of the value."""
        raise NotImplementedError

    def restore(self) -> None:
        """Return to the saved state of the value."""
        raise NotImplementedError

    def sync(self) -> None:
        """Take the state of rank 0's value, and save it."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Take another value in place of the present one, and save it."""
        self.value = value
        self.save()


class PartHandler(StateHandler):
    """A handler of values whose state can be read and written as a whole, for example as a `state_dict`.

    It saves into the memory of the earlier save. An error in the middle of a save leaves a mixture of both.
    """

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: Any = None
        self.save()

    def read(self) -> Any:
        """Return the state; its tensors may be those of the value itself."""
        return self.value.state_dict()

    def write(self, state: Any) -> None:
        """Set the state; the value may keep parts of the argument."""
        self.value.load_state_dict(state)

    def save(self) -> None:
        """Save a copy of the state."""
        self._saved = copy_into(self._saved, self.read())

    def restore(self) -> None:
        """Write a copy of the saved state into the value, and into its tensors where they still fit."""
        self.write(copy_into(self.read(), self._saved))

    def receive(self) -> None:
        """Write the state of rank 0 into the value on all ranks, and do not save it.

        Rank 0 writes its own state, too, because a value may convert what is written into it.

        Raises: see `sync_value`.  ConfigError: the state does not fit the value.
        """
        self._take(sync_value(self.read(), self.name, is_compared=True))

    def sync(self) -> None:
        """Write the state of rank 0 into the value on all ranks, and save it."""
        self.receive()
        self.save()

    def _take(self, state: Any) -> None:
        with loading(self.name):
            self.write(state)


class ModelStateHandler(PartHandler):
    """A handler of a `torch.nn.Module`; the tensors of rank 0 arrive in those of the model."""

    def write(self, state: Any) -> None:
        """Set the parameters, the buffers and the extra state; the tensors are copied."""
        own = self.value.state_dict()
        named = collections.OrderedDict(state)
        if hasattr(own, "_metadata"):  # the versions of the modules, which are the same on all ranks
            named._metadata = own._metadata  # type: ignore[attr-defined]
        self.value.load_state_dict(named)

    def restore(self) -> None:
        """Write the saved parameters and buffers into the model."""
        saved = self._saved.items()
        self.write({key: one if isinstance(one, torch.Tensor) else copy_into(None, one) for key, one in saved})

    def receive(self) -> None:
        """Write the parameters and buffers of rank 0 into the model, and do not save them."""
        own = self.read()
        found = sync_value(own, self.name, into=True, is_compared=True)
        if found is not own:
            self._take(found)


class OptimizerStateHandler(PartHandler):
    """A handler of a `torch.optim.Optimizer`. No step is taken, so that no parameter changes."""


class SamplerStateHandler(PartHandler):
    """A handler of an `ElasticSampler`; after a sync every rank has its share of rank 0's unprocessed samples."""


class GeneratorStateHandler(PartHandler):
    """A handler of a `torch.Generator`; after a sync all ranks draw the same numbers."""

    def read(self) -> torch.Tensor:
        """Return the state of the generator."""
        state: torch.Tensor = self.value.get_state()
        return state

    def write(self, state: torch.Tensor) -> None:
        """Set the state of the generator."""
        self.value.set_state(state)


class RandomStateHandler(PartHandler):
    """A handler of a generator of numpy or of `random`; after a sync all ranks draw the same numbers."""

    def read(self) -> Any:
        """Return the state of the generator."""
        if isinstance(self.value, random.Random):
            return self.value.getstate()
        return self.value.get_state() if isinstance(self.value, np.random.RandomState) else self._bits.state

    def write(self, state: Any) -> None:
        """Set the state of the generator."""
        if isinstance(self.value, random.Random):
            self.value.setstate(state)
        elif isinstance(self.value, np.random.RandomState):
            self.value.set_state(state)
        else:
            self._bits.state = state

    @property
    def _bits(self) -> Any:
        return self.value.bit_generator


Registry = list[tuple[type, type[StateHandler]]]
_REGISTRY: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (torch.Generator, GeneratorStateHandler),
    (np.random.RandomState, RandomStateHandler),
    (np.random.Generator, RandomStateHandler),
    (random.Random, RandomStateHandler),
]


def get_handler_registry() -> Registry:
    """Return the list of types and their handlers; the first type that fits a value counts."""
    return _REGISTRY


def set_handler_registry(registry: Sequence[tuple[type, type[StateHandler]]]) -> None:
    """Replace the list of types and their handlers."""
    global _REGISTRY
    _REGISTRY = list(registry)


def _find_handler(value: object) -> type[StateHandler] | None:
    """Return the handler of a value; None: the value is plain data.

    A value that is of no registered type, and that has both methods of a `state_dict`, has a handler, too: learning
    rate schedulers and a `torch.amp.GradScaler` for example.
    """
    if isinstance(value, type):
        return None
    for of_type, kind in _REGISTRY:
        if isinstance(value, of_type):
            return kind
    has_state = all(callable(getattr(value, one, None)) for one in ("state_dict", "load_state_dict"))
    return PartHandler if has_state else None


class TorchState(ObjectState):
    """A state with a model and its optimizer, such as `TorchState(model, optimizer, sampler=sampler, epoch=0)`.

    Models, optimizers, samplers, learning rate schedulers and random generators keep their identity; `restore` and
    `sync` write into them. A name that the script assigns, as in `state.model = other`, gets the new object, whose
    state is saved at once. Any other attribute is plain data, which may contain tensors and arrays.

    `sync` sends attributes without handlers last, and of the others the model and the optimizer last. Nothing is
    pickled, except the attributes that need it if `unsafe_pickle` is true.

    Args: unsafe_pickle: send attributes that are no plain data by pickle. Rank 0 can then run any code on every rank.
    Raises: TypeError: an attribute cannot be sent; the message names it.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, *, unsafe_pickle: bool = False, **kwargs: Any) -> None:
        self._handlers: dict[str, StateHandler] = {}
        self._unsafe_pickle = unsafe_pickle
        named = {**kwargs, "model": model, "optimizer": optimizer}
        for name, value in named.items():
            self._check_name(name)
            if handler := self._make_handler(name, value):
                self._handlers[name] = handler
                object.__setattr__(self, name, value)
        super().__init__(**{name: value for name, value in named.items() if name not in self._handlers})

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_handlers", ()) or name in self.__dict__.get("_saved_state", ()):
            self._declare(name, value)
        object.__setattr__(self, name, value)

    def _in_order(self) -> list[StateHandler]:
        """Return the handlers in Horovod's order: the model and the optimizer come last."""
        last = [name for name in ("model", "optimizer") if name in self._handlers]
        return [self._handlers[name] for name in [*(one for one in self._handlers if one not in last), *last]]

    def save(self) -> None:
        """Save copies of all attributes, in the memory of the earlier copies."""
        for handler in self._handlers.values():
            handler.save()
        self._saved_state = {name: copy_into(kept, getattr(self, name)) for name, kept in self._saved_state.items()}

    def restore(self) -> None:
        """Return to the saved attributes."""
        for handler in self._handlers.values():
            handler.restore()
        self._set_attrs()

    def sync(self) -> None:
        """Take the attributes of rank 0, and save them.

        A rank that fails in between still has all parts of its earlier commit, to which it returns.
        """
        own = [handler for handler in self._in_order() if isinstance(handler, PartHandler)]
        for handler in self._in_order():
            (handler.receive if isinstance(handler, PartHandler) else handler.sync)()
        found = self._sync_attributes() if self._saved_state else {}
        for handler in own:
            handler.save()
        for name, value in found.items():
            self._saved_state[name] = copy_into(self._saved_state.get(name), value)
            object.__setattr__(self, name, value)

    def reset(self) -> None:
        """Divide the unprocessed samples among the new ranks."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()

    def _declare(self, name: str, value: Any) -> None:
        """Take another value of an attribute, and save it if it has a handler."""
        handler = self._handlers.get(name)
        made = self._make_handler(name, value)
        if made is None:
            self._check_assigned(name, value)
        if handler is not None and made is not None and type(handler) is type(made):
            handler.set_value(value)
        elif made is not None:
            self._saved_state.pop(name, None)
            self._handlers[name] = made
        elif handler is not None:
            del self._handlers[name]
            self._saved_state[name] = copy_into(None, value)

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            object.__setattr__(self, name, copy_into(None, value))

    def _sync_attributes(self) -> dict[str, Any]:
        """Return the plain attributes of rank 0."""
        present = {name: getattr(self, name) for name in self._saved_state}
        pickled = [name for name, value in present.items() if self._unsafe_pickle and not _is_plain(value)]
        plain = {name: value for name, value in present.items() if name not in pickled}
        if operations.rank() == 0:
            for name, value in plain.items():
                self._check(name, value)
        pickled, values = sync_value((pickled, plain), "attributes")
        if not pickled:
            return dict(values)
        if not self._unsafe_pickle:
            raise ConfigError(
                f"rank 0 sends {', '.join(map(str, pickled))} by pickle: pass unsafe_pickle=True to TorchState on all "
                "ranks, or on none"
            )
        chosen = {name: present[name] for name in pickled} if operations.rank() == 0 else None
        more = operations.broadcast_object(chosen, 0, f"{SYNC_NAME}.pickled", unsafe_pickle=True)
        return {**values, **more}

    def _check(self, name: str, value: object) -> None:
        if self._unsafe_pickle:
            return
        try:
            take_apart(value, name)
        except TypeError as exc:
            advice = "" if drop_advice(exc) != str(exc) else "; or give TorchState(..., unsafe_pickle=True)"
            raise TypeError(f"TorchState({name}=...): {exc}{advice}") from exc

    def _make_handler(self, name: str, value: object) -> StateHandler | None:
        """Return the handler of an attribute; None: the attribute is sent as plain data, or by pickle.

        Raises: TypeError: the state of the attribute cannot be sent.
        """
        kind = _find_handler(value)
        if kind is None:
            return None
        handler = kind(value)
        handler.name = name
        if isinstance(handler, PartHandler):
            try:
                take_apart(handler.read(), name)
            except TypeError as exc:
                if kind is PartHandler and self._unsafe_pickle:
                    return None
                why = str(exc) if kind is PartHandler else drop_advice(exc)  # the other kinds are never pickled
                raise TypeError(f"TorchState({name}=...): {why}") from exc
        return handler


def _is_plain(value: object) -> bool:
    try:
        take_apart(value)
    except TypeError:
        return False
    return True
