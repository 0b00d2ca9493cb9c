"""The fixture of a service without sockets."""

import pytest
from pserver_wire import Wire


@pytest.fixture
def wire():
    return Wire
