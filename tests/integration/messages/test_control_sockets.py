"""Server and members over real sockets of this machine."""

import queue
import socket
import threading
from collections.abc import Iterator

import pytest
import zmq
from control_programs import AddingMember, AddingServer, client_core, server_core
from waiting import until

from paddle_base.messages.client import ControlClient
from paddle_base.messages.client_core import Caller
from paddle_base.messages.envelope import MAX_BYTES, MemberId
from paddle_base.messages.errors import NoAnswerError, RequestRefusedError
from paddle_base.messages.gate import GateLimits
from paddle_base.messages.keys import CurveKeys, derive_keys
from paddle_base.messages.server import ControlServer
from paddle_base.messages.server_core import Dispatcher, ServerCore
from paddle_base.runtime.schema import SchemaError

SECRET = "0123456789abcdef"
SOON = 20.0  # seconds, for what takes milliseconds on a quiet machine


class Listener(AddingMember):
    """Passes on what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: queue.Queue[str] = queue.Queue()
        self.heard = self  # type: ignore[assignment]

    def append(self, what: str) -> None:
        self.queue.put(what)

    def next(self) -> str:
        return self.queue.get(timeout=SOON)


class Losing(AddingServer):
    """Passes on who is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: queue.Queue[str] = queue.Queue()

    def lost(self, member: MemberId, reason: str) -> None:
        self.losses.put(f"{member}: {reason}")


@pytest.fixture(params=["", SECRET], ids=["NULL", "CURVE"])
def keys(request: pytest.FixtureRequest) -> CurveKeys | None:
    return derive_keys(request.param)


@pytest.fixture
def adding() -> Losing:
    return Losing()


@pytest.fixture
def server(keys: CurveKeys | None, adding: Losing) -> Iterator[ControlServer]:
    with serve(adding, keys) as server:
        yield server


def serve(adding: AddingServer, keys: CurveKeys | None, port: int = 0, **options: float) -> ControlServer:
    dispatcher = Dispatcher(server_core(**options), adding, print)
    return ControlServer("127.0.0.1", port, dispatcher, keys)


def join(port: int, keys: CurveKeys | None, uid: str = "a", **options: float) -> tuple[ControlClient, Listener]:
    member = Listener()
    return ControlClient("127.0.0.1", port, Caller(client_core(uid, **options), member, print), keys), member


def test_a_member_asks_and_hears(server: ControlServer, keys: CurveKeys | None) -> None:
    client, member = join(server.port, keys)
    with client:
        assert member.next() == "welcome of server.1: 0"
        assert client.caller.submit("add", {"number": 4}, SOON).result() == {"total": 4}
        with pytest.raises(RequestRefusedError, match="13 is not added"):
            client.caller.submit("add", {"number": 13}, SOON).result()
        server.dispatcher.call(ServerCore.push, "tell", {"text": "all"})
        assert member.next() == "tell: all"
        assert (client.caller.trouble, server.dispatcher.core.joined) == ("", [MemberId("a", 1)])


def test_a_member_that_leaves_is_lost_at_once(server: ControlServer, keys: CurveKeys | None, adding: Losing) -> None:
    client, member = join(server.port, keys)
    member.next()
    client.close()
    assert adding.losses.get(timeout=SOON) == "a.1: it has left"


def test_a_member_waits_for_a_server_that_is_not_there_yet(keys: CurveKeys | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client, member = join(port, keys)
    with client:
        with pytest.raises(NoAnswerError, match="no connection to the server can be made"):
            client.caller.submit("add", {"number": 1}, 0.5).result()
        with serve(AddingServer(), keys, port):
            assert member.next() == "welcome of server.1: 0"


def test_a_member_comes_back_to_a_server_that_was_started_again(keys: CurveKeys | None) -> None:
    adding = AddingServer()
    first = serve(adding, keys)
    client, member = join(first.port, keys)
    with client:
        assert member.next() == "welcome of server.1: 0"
        client.caller.submit("add", {"number": 4}, SOON).result()
        first.close()
        assert member.next() == "disconnected: the server has closed the connection"
        answer = client.caller.submit("add", {"number": 3}, SOON)
        with serve(adding, keys, first.port):
            assert member.next() == "welcome of server.1: 4"
            assert answer.result() == {"total": 7}


def test_what_is_said_before_the_end_arrives(keys: CurveKeys | None) -> None:
    server = serve(AddingServer(), keys)
    client, member = join(server.port, keys)
    with client:
        member.next()
        for number in range(500):
            server.dispatcher.call(ServerCore.push, "tell", {"text": str(number)})
        server.close()
        assert [member.next() for _ in range(500)] == [f"tell: {number}" for number in range(500)]


def test_a_long_message_passes_and_a_longer_one_is_not_sent(server: ControlServer, keys: CurveKeys | None) -> None:
    client, member = join(server.port, keys)
    with client:
        member.next()
        text = "x" * (MAX_BYTES - 200)
        server.dispatcher.call(ServerCore.push, "tell", {"text": text})
        assert member.next() == f"tell: {text}"
        with pytest.raises(SchemaError, match="at most 1048576 are accepted"):
            server.dispatcher.call(ServerCore.push, "tell", {"text": text + "x" * 200})


def test_another_secret_is_named() -> None:
    with serve(AddingServer(), derive_keys(SECRET)) as server:
        client, _ = join(server.port, derive_keys("another secret.."))
        with client, pytest.raises(NoAnswerError, match="within 1 s: the server has another secret; PADDLE_"):
            client.caller.submit("add", {"number": 1}, 1.0).result()


@pytest.mark.parametrize(("ours", "theirs"), [("", SECRET), (SECRET, "")])
def test_a_secret_on_one_side_only_is_named(ours: str, theirs: str) -> None:
    with serve(AddingServer(), derive_keys(ours)) as server:
        client, _ = join(server.port, derive_keys(theirs))
        with client, pytest.raises(NoAnswerError, match="within 1 s: one side has a secret, the other has none"):
            client.caller.submit("add", {"number": 1}, 1.0).result()
        assert server.counts["mechanism"] >= 1
        assert server.dispatcher.core.joined == []


def test_a_message_of_many_frames_of_a_program_with_the_secret_is_counted_and_dropped() -> None:
    """CURVE hides from the gate which frames form a message."""
    keys = derive_keys(SECRET)
    assert keys
    with serve(AddingServer(), keys) as server, zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.curve_serverkey = keys.server_public
        peer.curve_publickey, peer.curve_secretkey = keys.client_public, keys.client_private
        peer.linger = 0
        peer.connect(f"tcp://127.0.0.1:{server.port}")
        peer.send_multipart([b"{}"] * 1000)
        until(lambda: server.counts.get("frames"), "the message")
        assert server.counts == {"frames": 1}
        client, member = join(server.port, keys)
        with client:
            assert member.next() == "welcome of server.1: 0"


def test_one_more_than_may_be_connected_is_refused_and_the_others_stay(keys: CurveKeys | None) -> None:
    limits = GateLimits(peers=1)
    with ControlServer("127.0.0.1", 0, Dispatcher(server_core(), AddingServer(), print), keys, limits=limits) as server:
        client, member = join(server.port, keys)
        with client:
            assert member.next() == "welcome of server.1: 0"
            second, _ = join(server.port, keys, "b")
            with second:
                until(lambda: server.counts.get("full"), "the refusal")
            assert client.caller.submit("add", {"number": 4}, SOON).result() == {"total": 4}
            assert (client.caller.trouble, server.dispatcher.core.joined) == ("", [MemberId("a", 1)])


def test_without_a_secret_other_addresses_are_refused() -> None:
    core = server_core()
    admitted: set[str] = set()
    dispatcher = Dispatcher(core, AddingServer(), print)
    with ControlServer("127.0.0.1", 0, dispatcher, None, admitted.__contains__) as server:
        client, member = join(server.port, None)
        with client:
            with pytest.raises(NoAnswerError):
                client.caller.submit("add", {"number": 1}, 0.5).result()
            assert server.counts["address"] >= 1
            admitted.add("127.0.0.1")  # the set may change at any time
            assert member.next() == "welcome of server.1: 0"


def test_requests_of_many_threads_are_all_answered(
    server: ControlServer, keys: CurveKeys | None, adding: Losing
) -> None:
    client, member = join(server.port, keys)
    with client:
        member.next()

        def ask() -> None:
            for _ in range(50):
                client.caller.submit("add", {"number": 1}, SOON).result()

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert adding.total == 400


def test_many_members_hear_a_push(server: ControlServer, keys: CurveKeys | None) -> None:
    members = [join(server.port, keys, f"m{number}") for number in range(20)]
    for _, member in members:
        assert member.next().startswith("welcome")
    server.dispatcher.call(ServerCore.push, "tell", {"text": "all"})
    for client, member in members:
        assert member.next() == "tell: all"
        client.close()
