"""The text of an error that an etcd, or whatever answers at its address, has sent."""

import json

from each import each
from etcd3gw.exceptions import Etcd3Exception

from registry.endpoints import _describe


@each(
    "body", ['{"message": 5}', '["a"]', "null", "{}", "5", "[" * 200_000, '{"message": null}'], ids=lambda one: one[:20]
)
def test_a_body_without_a_message_is_shown_as_it_is(body):
    assert _describe(Etcd3Exception(detail_text=body))[:5] == body[:5]


def test_the_message_of_a_body_is_shown():
    body = json.dumps({"code": 5, "message": "etcdserver: no leader", "details": []})
    assert _describe(Etcd3Exception(detail_text=body)) == "etcdserver: no leader"
