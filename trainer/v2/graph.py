"""Layers that remember their arguments. A topology calls the layer functions of the config language with them.

A `LayerCall` is one call of a function of `trainer.config`. A walk from the wanted layers to the data visits what they
need, and the functions are called in the order of this walk. Layers that nothing needs are never made.

The walk is iterative, because networks can be deeper than Python's recursion limit.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from paddle_base.runtime.errors import BugError, ConfigError
from trainer.config.building.argument_errors import is_number
from trainer.config.building.log import new_warnings_only
from trainer.config.building.state import Parse, current, parsing
from trainer.v2.errors import WrongTypeError, WrongValueError
from trainer.v2.python2_dict import iteration_order


class Made(dict["LayerCall", Any]):
    """What the config language returned for each layer in one parse.

    Attributes: settled: the layers whose names became final, with the numbers that their names had before.
        shapes: data layers whose pictures have another shape than the program says.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        super().__init__()
        self.shapes = shapes or {}
        self.settled: list[tuple[LayerCall, int]] = []


# the automatic names since the last topology; as in v0.10, counting begins again after each topology
COUNTS: Counter[str] = Counter()


# the latest layer of each name, for `get_layer`
_LATEST: WeakValueDictionary[str, LayerCall] = WeakValueDictionary()


_OWN = frozenset({"paddle", "trainer"})  # the packages whose lines are no lines of the program
_CALLED_AT = "; called at "


PROGRAM_NAMES: dict[str, str] = {}  # name of a function of the config language -> such as "layer.fc"


def program_name(function: Callable[..., Any]) -> str:
    """Return the name that programs use for a function of the config language, such as "layer.fc"."""
    name = getattr(function, "__name__", "the program")
    return PROGRAM_NAMES.get(name, name)


class OpenGroup(NamedTuple):
    """A recurrent group whose step function runs at the moment, and the layers that it has made so far."""

    group: LayerCall
    members: list[LayerCall]


OPEN_GROUPS: list[OpenGroup] = []  # the innermost last


class LayerCall:
    """A layer, projection, operator or network of a program, which has not been made yet.

    Args: function: the function of the config language. arguments: its arguments; layers may be in lists. name: the
        name that the user gave; "" if the layer gets an automatic one. prefix: the prefix of the automatic name; "" if
        the function takes no name.

    Attributes: group: the recurrent group in whose step function the layer was made; None outside of groups.
        has_own_name: whether the name is that of this layer alone.
        children: evaluators and print layers, which are made if all layers that they read are made.
    """

    is_network = False  # whether the function counts names of its own, for its inner layers

    def __init__(
        self, function: Callable[..., Any], arguments: Mapping[str, Any], *, name: str = "", prefix: str = ""
    ) -> None:
        self.function = function
        self.arguments = dict(arguments)
        self.group = OPEN_GROUPS[-1].group if OPEN_GROUPS else None
        if OPEN_GROUPS:
            OPEN_GROUPS[-1].members.append(self)
        self.children: list[LayerCall] = []
        self._place = _find_program()
        self.has_own_name = bool(name or prefix)
        self._prefix = "" if name else prefix
        self._number = 0
        self._is_final = not self._prefix
        self._given = name
        self._counts: Counter[str] | None = None
        if self._prefix:
            self._number = COUNTS[prefix]
            COUNTS[prefix] += 1
        if self.has_own_name:
            _LATEST[self.name] = self

    @property
    def name(self) -> str:
        """The name, such as `__fc_layer_0__`. An automatic name may change until the first topology with the layer."""
        return f"__{self._prefix}_{self._number}__" if self._prefix else self._given

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""  # a projection, and a step's sum of layers, have none
        return f"<layer{name} of {program_name(self.function)}>"

    def replaces(self, other: LayerCall) -> bool:
        """Return whether the other layer is an earlier call of the same function with the same arguments."""
        return (self.function, self.arguments, self._given) == (other.function, other.arguments, other._given)

    def parents(self) -> list[LayerCall]:
        """Return the layers that must be made before this layer, in the order of the walk."""
        return [layer for key in iteration_order(self.arguments) for layer in find_layers(self.arguments[key])]

    def settle_name(self, taken: set[str]) -> int:
        """Choose an automatic name that is not taken, and keep it from now on. Return the number that it had before."""
        before = self._number
        while not self._is_final and self.name in taken:
            self._number += 1
        self._is_final = True
        taken.add(self.name)
        return before

    def unsettle_name(self, number: int) -> None:
        """Undo `settle_name`."""
        self._number, self._is_final, self._counts = number, False, None

    @property
    def is_final(self) -> bool:
        """Whether the name will not change any more."""
        return self._is_final

    def locate(self, error: ConfigError) -> None:
        """Add the line of the program that called the layer to an error, unless an inner layer has added its line.

        The function of the config language with which the text begins gets its name for programs.
        """
        function, opens, rest = str(error).partition("(")
        if function in PROGRAM_NAMES:
            error.args = (f"{PROGRAM_NAMES[function]}{opens}{rest}",)
        if self._place and _CALLED_AT not in str(error):
            error.args = (f"{error}{_CALLED_AT}{self._place}",)

    def make(self, made: Made, counts: Counter[str]) -> Any:
        """Call the function, and return what it returns.

        The names of the layers in a network are counted by `counts`. A network that is made again has the same names as
        the first time, also if the networks before it are not made.
        """
        if not self.is_network:
            return self._call(made)
        before = Counter(counts)
        if self._counts is None:
            self._counts = before
        else:
            counts.clear()
            counts.update(self._counts)
        result = self._call(made)
        counts |= before
        return result

    def _call(self, made: Made) -> Any:
        arguments = {key: replace_layers(value, made) for key, value in self.arguments.items()}
        if self.has_own_name:
            arguments["name"] = self.name
        return self.function(**arguments)

    # ----- Facts that the config language knows

    @property
    def size(self) -> int:
        """The number of columns."""
        return int(self._look_up("size"))

    @property
    def num_filters(self) -> int | None:
        """The number of channels of a map, or None."""
        found = self._look_up("num_filters")
        return None if found is None else int(found)

    @property
    def height(self) -> int:
        """The height of a map; 0 if the layer has no map."""
        return int(self._look_up("height"))

    @property
    def width(self) -> int:
        """The width of a map; 0 if the layer has no map."""
        return int(self._look_up("width"))

    def _look_up(self, fact: str) -> Any:
        """Make this layer, and what it needs, in a parse of its own. Return a fact about it.

        Raises: ConfigError: a layer has wrong arguments.
        """
        made = Made()
        groups: list[LayerCall] = []
        group = self.group
        while group is not None:
            groups.append(group)
            group = group.group
        try:
            with job_parse():
                _make_inside(groups[::-1], self, made, fact)
        except _Found as found:
            return found.fact
        finally:
            for layer, number in made.settled:
                layer.unsettle_name(number)
        raise BugError(f"{self} was not made")

    def enter(self, made: Made, make_step: Callable[[], list[Any]]) -> Any:
        """Make a recurrent group with the step that `make_step` makes; for groups only."""
        raise BugError(f"{self} is no recurrent group")

    # ----- Arithmetic

    def __add__(self, other: Any) -> LayerCall:
        return _Arithmetic("+", self, other)

    def __radd__(self, other: Any) -> LayerCall:
        return _Arithmetic("+", self, other)

    def __sub__(self, other: Any) -> LayerCall:
        return _Arithmetic("-", self, other)

    def __rsub__(self, other: Any) -> LayerCall:
        return _Arithmetic("reversed -", self, other)

    def __mul__(self, other: Any) -> LayerCall:
        return _Arithmetic("*", self, other)

    def __rmul__(self, other: Any) -> LayerCall:
        return _Arithmetic("*", self, other)

    def __neg__(self) -> LayerCall:
        return _Arithmetic("*", self, -1.0)


_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "reversed -": lambda a, b: b - a,
    "*": lambda a, b: a * b,
}


class _Arithmetic(LayerCall):
    """`layer + x` and the like; the layers that compute it have names that are counted within the topology.

    Raises: TypeError: x is neither a layer nor a number.
    """

    is_network = True

    def __init__(self, sign: str, layer: LayerCall, other: Any) -> None:
        if not isinstance(other, LayerCall) and not is_number(other):
            raise WrongTypeError(f"a layer {sign} {other!r}: only layers and numbers can be combined with a layer")
        super().__init__(_OPERATIONS[sign], {"a": layer, "b": other})


class _Found(Exception):
    """A fact about a layer is known, and the parse is of no use any more."""

    def __init__(self, fact: Any) -> None:
        self.fact = fact


def _make_inside(groups: Sequence[LayerCall], layer: LayerCall, made: Made, fact: str) -> None:
    """Make a layer inside of nested groups, and raise _Found with a fact about it."""
    if not groups:
        make_layers([layer], made, layer.group)
        raise _Found(getattr(made[layer], fact))
    make_layers(groups[0].parents(), made, groups[0].group)

    def make_step() -> list[Any]:
        _make_inside(groups[1:], layer, made, fact)
        return []

    groups[0].enter(made, make_step)


@contextmanager
def job_parse() -> Iterator[Parse]:
    """A parse with the defaults of jobs of v0.10, without its lines of INFO."""
    parse = Parse()
    parse.config.data_config.type = "py2"
    with parsing(parse), new_warnings_only():
        yield parse


def make_layers(wanted: Iterable[LayerCall], made: Made, group: LayerCall | None = None) -> None:
    """Make layers and what they need, in the order of the walk, and the evaluators whose inputs are all made.

    Args: group: the recurrent group whose step is made; None outside of groups.
    Raises: ConfigError: a layer has wrong arguments; the text names the function and the layer.
    """
    parse = current()
    layers = walk(wanted, made, group)
    _name_layers(layers, parse.reserved, made)
    for layer in layers:
        _make(layer, made, parse.names)
        for child in layer.children:
            if child not in made and all(one in made for one in child.parents()):
                _name_layers([child], parse.reserved, made)
                _make(child, made, parse.names)


def _make(layer: LayerCall, made: Made, counts: Counter[str]) -> None:
    try:
        made[layer] = layer.make(made, counts)
    except ConfigError as error:
        layer.locate(error)
        raise


def _find_program() -> str:
    """Return `file.py:12` for the line of the program that runs at the moment, or "" outside of a program."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OWN:
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def get_layer(name: str) -> LayerCall | None:
    """Return the layer that the program has called last under this name, or None."""
    return _LATEST.get(name)


def find_layers(value: Any) -> Iterator[LayerCall]:
    """Yield the layers in an argument: itself, or the items of a list or tuple, in order."""
    if isinstance(value, LayerCall):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_layers(item)


def replace_layers(value: Any, made: Made) -> Any:
    """Return an argument with what was made for its layers in their places."""
    if isinstance(value, LayerCall):
        return made[value]
    if isinstance(value, list | tuple):
        return [replace_layers(item, made) for item in value]
    return value


def walk(wanted: Iterable[LayerCall], made: Made, group: LayerCall | None) -> list[LayerCall]:
    """Return the layers that must still be made for `wanted`, each after the layers that it needs.

    Args: made: what exists already. group: the recurrent group whose step is made; None outside of groups.
    Raises: ConfigError: a layer outside the group is read inside of it without being its input, or the other way round.
    """
    found: dict[LayerCall, None] = {}
    for layer in wanted:
        waiting = [(layer, iter(_inputs_of(layer, group)))] if layer not in made and layer not in found else []
        entered = {layer}
        while waiting:
            top, parents = waiting[-1]
            parent = next((one for one in parents if one not in made and one not in found), None)
            if parent is None:
                waiting.pop()
                entered.discard(top)
                found[top] = None
            elif parent in entered:
                raise ConfigError(f"the layer {parent.name!r} needs itself")
            else:
                entered.add(parent)
                waiting.append((parent, iter(_inputs_of(parent, group))))
    return list(found)


def _inputs_of(layer: LayerCall, group: LayerCall | None) -> list[LayerCall]:
    parents = layer.parents()
    for one in (layer, *parents):
        if one.group is not group:
            raise ConfigError(_crossing(one, layer, group))
    return parents


def _crossing(layer: LayerCall, reader: LayerCall, group: LayerCall | None) -> str:
    if group is not None and (layer.group is None or _is_around(layer.group, group)):
        return (
            f"the layer {layer.name!r} is not in the recurrent group {group.name!r}, whose layer {reader.name!r} reads "
            "it; make it an input of the group, and use StaticInput(...) if it is no sequence to be read step by step"
        )
    return f"the layer {layer.name!r} is inside of a recurrent group; let its step function return this layer"


def _is_around(outer: LayerCall, inner: LayerCall | None) -> bool:
    return inner is not None and (inner.group is outer or _is_around(outer, inner.group))


def _name_layers(layers: Iterable[LayerCall], taken: set[str], made: Made) -> None:
    """Choose the names of layers that are made for the first time."""
    layers = [one for one in layers if one.has_own_name]
    taken |= {one.name for one in layers if one.is_final}
    for one in layers:
        if not one.is_final:
            made.settled.append((one, one.settle_name(taken)))


def check_layers(value: Any, what: str) -> list[LayerCall]:
    """Return the layers of an argument as a list.

    Raises: ValueError: it is no layer, or no list of layers.
    """
    given = list(value) if isinstance(value, list | tuple) else [value]
    for one in given:
        if not isinstance(one, LayerCall):
            raise WrongValueError(
                f"{what}: layer should have type paddle.v2.config_base.Layer, not {type(one).__name__}"
            )
    return given
