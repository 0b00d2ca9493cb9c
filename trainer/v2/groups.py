"""Recurrent groups and beam searches of programs. The step function runs when the group is called.

Source: spec/v2.md section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paddle_base.runtime.errors import ConfigError
from trainer.config.language.layers import groups as language
from trainer.v2.functions import bind_arguments
from trainer.v2.graph import OPEN_GROUPS, LayerCall, Made, OpenGroup, find_layers, make_layers


class StaticGroupInput:
    """An input of a group that does not change between the steps.

    As in v0.11, the layer decides whether the input is a sequence, and `is_seq` has no effect.
    """

    def __init__(self, input: LayerCall, is_seq: bool = False, size: int | None = None) -> None:
        self.input = _check_input(input)
        self.is_seq, self.size = is_seq, size

    def make(self, made: Made) -> Any:
        """Return the input for the config language."""
        return language.StaticInput(made[self.input], is_seq=self.is_seq, size=self.size)


class NestedGroupInput:
    """An input of a group whose steps are sub-sequences."""

    def __init__(self, input: LayerCall) -> None:
        self.input = _check_input(input)

    def make(self, made: Made) -> Any:
        """Return the input for the config language."""
        return language.SubsequenceInput(made[self.input])


class BaseGeneratedGroupInput:
    """An input of a beam search, which reads what the step before has chosen."""

    def make(self, made: Made) -> Any:
        """Return the input for the config language."""
        raise ConfigError("BaseGeneratedInput is only a base class; use GeneratedInput")


class GeneratedGroupInput(BaseGeneratedGroupInput):
    """The embedding of the id that the step before has chosen."""

    def __init__(self, size: int, embedding_name: str, embedding_size: int) -> None:
        self.size, self.embedding_name, self.embedding_size = size, embedding_name, embedding_size

    def make(self, made: Made) -> Any:
        """Return the input for the config language."""
        return language.GeneratedInput(self.size, self.embedding_name, self.embedding_size)


_Wrapped = StaticGroupInput | NestedGroupInput | BaseGeneratedGroupInput


def _check_input(input: Any) -> LayerCall:
    if not isinstance(input, LayerCall):
        raise ConfigError(f"the input of a group is {input!r}; it must be a layer")
    return input


class StepArgument(LayerCall):
    """What the step function receives in place of an input of the group."""

    def __init__(self, group: RecurrentGroup, number: int) -> None:
        super().__init__(language.recurrent_group, {})
        self.group, self._shown = group, f"{group.name}, argument {number}"

    def __repr__(self) -> str:
        return f"<the argument of the step function of {self._shown}>"


class Memory(LayerCall):
    """The output of a layer of the step in the step before. The layer of its first value is an input of the group."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__(language.memory, arguments)
        if self.group is None:
            raise ConfigError("memory() can be used only inside of the step function of a recurrent_group")
        self.remembered: LayerCall | None = None

    @property
    def target(self) -> str:
        """The name of the layer that the memory remembers; "" if it is given by `set_input`."""
        return str(self.arguments.get("name") or "")

    def parents(self) -> list[LayerCall]:
        """Return []: the layer of the first value is made before the group."""
        return []

    def set_input(self, input: LayerCall) -> None:
        """Set the layer that a memory without a name remembers."""
        self.remembered = _check_input(input)


class RecurrentGroup(LayerCall):
    """A recurrent group or a beam search.

    Args: function: recurrent_group or beam_search of the config language. step: the user's step function, which is
        called at once. given: the inputs; values that are no inputs are handed to the step function. options: the
        further arguments of `function`.

    Attributes: members: the layers that the step function made. results: what the step function returned.
    """

    def __init__(
        self, function: Callable[..., Any], step: Callable[..., Any], given: Any, name: str, options: dict[str, Any]
    ) -> None:
        self.members: list[LayerCall] = []
        self._inputs: Sequence[Any] = list(given) if isinstance(given, list | tuple) else [given]
        super().__init__(function, options, name=name, prefix=function.__name__)
        if not callable(step):
            raise ConfigError(f"step is {step!r}; it must be a function that makes the layers of one step")
        self._stand_ins = [
            StepArgument(self, number) if isinstance(one, LayerCall | _Wrapped) else one
            for number, one in enumerate(self._inputs)
        ]
        with self._opened():
            returned = step(*self._stand_ins)
        self.results = list(returned) if isinstance(returned, list | tuple) else [returned]
        for one in self.results:
            if not isinstance(one, LayerCall):
                raise ConfigError(f"{self.name}: the step function returned {one!r}; it must return one or more layers")

    @property
    def memories(self) -> list[Memory]:
        """The memories that the step function made, in order."""
        return [one for one in self.members if isinstance(one, Memory)]

    def outputs(self) -> Any:
        """Return the layer, or the list of layers, that stands for the group's results."""
        if len(self.results) == 1:
            return GroupResult(self, 0)
        return [GroupResult(self, number) for number in range(len(self.results))]

    def parents(self) -> list[LayerCall]:
        """Return the layers of static inputs, those that start memories, and the other inputs."""
        static = [one.input for one in self._inputs if isinstance(one, StaticGroupInput)]
        boots = [layer for one in self.memories for layer in find_layers(one.arguments.get("boot_layer"))]
        others = [one.input if isinstance(one, NestedGroupInput) else one for one in self._inputs]
        return [*static, *boots, *(one for one in others if isinstance(one, LayerCall))]

    def make(self, made: Made, counts: Counter[str]) -> Any:
        """Make the group with its step, and return the list of its results."""

        def make_step() -> list[Any]:
            make_layers(self.results, made, self)
            self._make_remembered(made)
            return [made[one] for one in self.results]

        result = self.enter(made, make_step)
        return list(result) if isinstance(result, list | tuple) else [result]

    def enter(self, made: Made, make_step: Callable[[], list[Any]]) -> Any:
        """Make the group; `make_step` makes the layers of its step, and returns the results."""

        def step(*arguments: Any) -> list[Any]:
            pairs = zip(self._stand_ins, arguments, strict=True)
            made.update((stand_in, one) for stand_in, one in pairs if isinstance(stand_in, LayerCall))
            return make_step()

        given = [_make_input(one, made) for one in self._inputs]
        return self.function(step=step, input=given, name=self.name, **self.arguments)

    def _make_remembered(self, made: Made) -> None:
        """Make the layers that memories remember, if the results of the step do not need them."""
        while True:
            memories = [one for one in self.memories if one in made]
            names = {one.target for one in memories} - {"", *(one.name for one in self.members if one in made)}
            missing = [one for one in self.members if one.name in names and not isinstance(one, Memory)]
            missing += [one.remembered for one in memories if one.remembered and one.remembered not in made]
            if not missing:
                break
            make_layers(missing, made, self)
        for one in memories:
            if one.remembered is not None:
                made[one].set_input(made[one.remembered])

    @contextmanager
    def _opened(self) -> Iterator[None]:
        OPEN_GROUPS.append(OpenGroup(self, self.members))
        try:
            yield
        finally:
            OPEN_GROUPS.pop()


def _make_input(given: Any, made: Made) -> Any:
    if isinstance(given, LayerCall):
        return made[given]
    return given.make(made) if isinstance(given, _Wrapped) else given


class GroupResult(LayerCall):
    """One of the results of a group, for the layers outside of it."""

    def __init__(self, group: RecurrentGroup, number: int) -> None:
        super().__init__(group.function, {"group": group})
        self._number_in_group = number
        self._of = group

    @property
    def name(self) -> str:
        """The name of the layer of the step, which the result has in the message, too."""
        return str(self._of.results[self._number_in_group].name)

    def make(self, made: Made, counts: Counter[str]) -> Any:
        """Return the result that the group has made."""
        return made[self._of][self._number_in_group]


def memory(name: str | None, size: int, extra_input: Any = None, **more: Any) -> Memory:
    """Return the output of the layer `name` in the previous step; see `memory` of the config language.

    Args: extra_input: an argument of v0.10 without effect.
    """
    return Memory({"name": name, "size": size, **more})


def recurrent_group(
    step: Callable[..., Any],
    input: Any,
    reverse: bool | str = False,
    name: str | None = None,
    targetInlink: Any = None,
) -> Any:
    """For each item of the input sequences, compute the network that `step` builds; return its results outside.

    In v0.10 the name was the third argument.
    """
    if isinstance(reverse, str):
        name, reverse = reverse, False
    return RecurrentGroup(language.recurrent_group, step, input, name or "", {"reverse": reverse}).outputs()


def beam_search(step: Callable[..., Any], input: Any, *args: Any, **kwargs: Any) -> Any:
    """Generate sequences with a step function; the arguments are those of `beam_search` of the config language."""
    options = bind_arguments(language.beam_search, (step, input, *args), kwargs)
    name = options.pop("name", None) or ""
    return RecurrentGroup(language.beam_search, options.pop("step"), options.pop("input"), name, options).outputs()
