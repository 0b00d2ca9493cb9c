"""The fixture of a service of a task job without sockets."""

import pytest
from tasks_wire import ElasticWire


@pytest.fixture
def elastic():
    return ElasticWire
