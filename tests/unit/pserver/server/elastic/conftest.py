"""The fixture of a service of an elastic job without sockets."""

import pytest
from elastic_wire import ElasticWire


@pytest.fixture
def elastic():
    return ElasticWire
