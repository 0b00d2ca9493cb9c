"""The text of an error that an etcd, or whatever answers at its address, has sent."""

import json

import pytest
import requests
import responses
from each import each
from etcd3gw.exceptions import Etcd3Exception

from paddle_base.registry.endpoints import EtcdEndpoints, _describe
from paddle_base.registry.etcd_access import EtcdAccess
from paddle_base.runtime.errors import PeerUnreachableError
from paddle_base.runtime.network.redaction import Secrets


@each(
    "body", ['{"message": 5}', '["a"]', "null", "{}", "5", "[" * 200_000, '{"message": null}'], ids=lambda one: one[:20]
)
def test_a_body_without_a_message_is_shown_as_it_is(body):
    assert _describe(Etcd3Exception(detail_text=body), Secrets())[:5] == body[:5]


def test_the_message_of_a_body_is_shown():
    body = json.dumps({"code": 5, "message": "etcdserver: no leader", "details": []})
    assert _describe(Etcd3Exception(detail_text=body), Secrets()) == "etcdserver: no leader"


# ----- What this program proves to etcd, in the answer of whatever stands in etcd's place

PASSWORD, TOKEN = 'a "password" of the test', "a-token-of-the-test.16"
ACCESS = EtcdAccess(user="root", password=PASSWORD)
LOGIN, RANGE = "https://etcd.test:2379/v3/auth/authenticate", "https://etcd.test:2379/v3/kv/range"
ECHOES = {
    "the message of a body": lambda said: json.dumps({"error": "x", "message": f"invalid: {said}"}),
    "another key of a body": lambda said: json.dumps({"error": {said: [said]}}),
    "a body with escapes": lambda said: '{"error": "' + "".join(f"\\u{ord(one):04x}" for one in said) + '"}',
    "a body that is no JSON": lambda said: f"bad body: {said}",
    "a body that is cut off inside": lambda said: f"{'x' * 190}{said}",
}


def ask(access=ACCESS):
    """Return the text of the error of a request."""
    with pytest.raises(PeerUnreachableError) as caught:
        EtcdEndpoints(["https://etcd.test:2379"], access).call(lambda client: client.get("x"))
    return str(caught.value)


@pytest.mark.parametrize("form", ECHOES.values(), ids=ECHOES)
@responses.activate
def test_a_password_that_comes_back_is_not_shown(form):
    def answer(request):
        assert json.loads(request.body)["password"] == PASSWORD
        return 400, {}, form(PASSWORD)

    responses.add_callback(responses.POST, LOGIN, answer)
    assert "password" not in ask() and "of the test" not in ask()


@responses.activate
def test_a_request_that_comes_back_is_shown_without_its_password():
    responses.add_callback(responses.POST, LOGIN, lambda request: (400, {}, b"bad body: " + request.body))
    assert 'bad body: {"name": "root", "password": "<token>"}' in ask()


@pytest.mark.parametrize("form", ECHOES.values(), ids=ECHOES)
@responses.activate
def test_a_token_that_comes_back_is_not_shown(form):
    responses.add(responses.POST, LOGIN, json.dumps({"token": TOKEN}))
    responses.add_callback(responses.POST, RANGE, lambda request: (400, {}, form(request.headers["Authorization"])))
    said = ask()
    assert "a-token" not in said and "test.16" not in said and "no etcd answers" in said


@each("token", [f"{TOKEN}\nx", f"{TOKEN}\r", "", f"{TOKEN}\u4e2d", 5, None, [TOKEN]])
@responses.activate
def test_a_token_that_cannot_be_sent_is_named_and_not_shown(token):
    """It stood in the error about the header."""
    responses.add(responses.POST, LOGIN, json.dumps({"token": token}))
    said = ask()
    assert "the answer to the password has no token that can be sent" in said and "a-token" not in said


@responses.activate
def test_a_short_password_that_comes_back_hides_the_whole_text():
    """To replace a few letters would damage other texts, and show which letters they are."""
    responses.add(responses.POST, LOGIN, "no access for root with pw123", status=400)
    said = ask(EtcdAccess(user="root", password="pw123"))
    assert "Etcd3Exception, whose text is not shown because it has the password" in said and "pw123" not in said


@responses.activate
def test_a_short_password_does_not_hide_why_nothing_answers():
    error = requests.ConnectionError("[Errno 111] Connection refused")
    responses.add(responses.POST, LOGIN, body=error)
    assert "[Errno 111] Connection refused" in ask(EtcdAccess(user="root", password="on"))
