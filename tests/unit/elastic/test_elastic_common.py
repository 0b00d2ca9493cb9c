"""`paddle.elastic.common`: what scripts import from `horovod.common`."""

from __future__ import annotations

from paddle import elastic
from paddle.elastic.common import exceptions, util


def test_the_errors_of_common_are_those_that_the_loop_catches() -> None:
    """`except HorovodInternalError` of a moved script would catch nothing if there were two."""
    for name in exceptions.__all__:
        assert getattr(exceptions, name) is getattr(elastic, name)


def test_a_script_may_ask_what_was_built() -> None:
    for name in util.__all__:
        assert bool(getattr(util, name)()) == (name == "gloo_built")
