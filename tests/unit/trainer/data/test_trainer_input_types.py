"""Faults of a provider's declarations: input types, their order, and the parameters of the init_hook."""

import re

import pytest

from paddle_base.runtime.errors import ConfigError
from trainer.data.input_types import dense_vector, integer_value
from trainer.data.loading import check_sizes
from trainer.data.provider2 import provider


def settle(types=None, hook=None, order=("x", "y"), **args):
    """Return the input types of a provider after its init_hook."""

    @provider(input_types=types, init_hook=hook)
    def process(settings, name):
        yield name

    return process(["f"], is_train=True, input_order=list(order), **args).slots


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("dense", "the type of slot y is 'dense'; it must be an input type with a size"),
        (dense_vector, "the type of slot y is the function dense_slot, without its size; it must be an input type"),
        (None, "the type of slot y is None; it must be an input type with a size"),
        (dense_vector("4"), "the size in the type of slot y is '4'; it must be a whole number"),
        (dense_vector(5 / 2), "the size in the type of slot y is 2.5; it must be a whole number"),
        (integer_value(-1), "the size in the type of slot y is -1; it must not be negative"),
    ],
)
def test_what_is_no_input_type_is_refused_with_the_name_of_its_slot(given, message):
    """A text or a type function without its size ended in a traceback, a size as text in two equal sizes."""
    for types in ([dense_vector(4), given], {"x": dense_vector(4), "y": given}):
        with pytest.raises(TypeError, match=re.escape(message)):
            settle(types)


def test_a_quotient_of_python_2_is_a_size():
    assert settle([dense_vector(784 / 2), integer_value(3)]) == [dense_vector(392), integer_value(3)]


def test_a_slot_without_a_type_is_told_to_take_the_name_of_its_data_layer():
    with pytest.raises(ValueError, match=r"input_types has no y; .* input_types has x, label: give the slot the name"):
        settle({"x": dense_vector(4), "label": integer_value(2)})


def test_the_order_of_a_list_is_named_where_sizes_differ():
    """The line named only two sizes, which are equal as soon as the list has the order of the network's inputs."""
    types = [integer_value(3), dense_vector(4)]
    with pytest.raises(ConfigError, match=r"data_layer y has size 3, .*dense_vector\(4\); a list .* which is x, y"):
        check_sizes({"x": 4, "y": 3}, types, is_by_name=False)
    with pytest.raises(ConfigError, match=r"dense_vector\(4\)$"):
        check_sizes({"x": 4, "y": 3}, types, is_by_name=True)


def test_a_hook_that_does_not_take_the_args_is_named_with_what_it_gets():
    """Python's error named neither the hook's line nor the args of the config."""

    def hook(settings, dictionary, **more):
        raise AssertionError

    with pytest.raises(TypeError) as caught:
        settle(hook=hook, words=3)
    line = hook.__code__.co_firstlineno
    assert str(caught.value) == (
        f"init_hook hook (test_trainer_input_types.py:{line}): missing a required argument: 'dictionary'; it gets the "
        "settings, and by name file_list, input_order, is_train, words, among them args of define_py_data_sources2: "
        "give it these parameters, or **kwargs for those that it does not need"
    )


def test_a_hook_without_parameters_to_inspect_is_called():
    assert settle(
        hook=type("Hook", (), {"__call__": lambda *args, **more: setattr(args[1], "slots", [dense_vector(1)])})(),
        order=["x"],
    )
