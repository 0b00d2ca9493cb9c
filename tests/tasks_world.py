"""A simulated task job: real services without sockets, trainers that use the real client code, and a master.

Every message waits in a queue until the test delivers it. So a test chooses the order of messages, and which messages
are lost, repeated or late. The client code is `pserver.client.tasks.pushes.AgreedPushes`. Each trainer has its own
thread, which runs only while the test waits for it.
"""

import threading
from collections import deque

import numpy as np
from pserver_wire import PARAMETERS, key_of
from tasks_wire import TABLE

from paddle_base.runtime.errors import LostPeerError, PaddleError
from pserver.client.heartbeat import error_of
from pserver.client.tasks.pushes import AgreedPushes
from pserver.client.tasks.services import BatchGradient, JoinedServices
from pserver.optim.settings import Optimization
from pserver.server.admission import Identity
from pserver.server.service_state import ServiceOptions
from pserver.server.tasks.service import TaskService
from pserver.store import partition
from pserver.store.model_setup import describe_setup
from pserver.wire import protocol, views
from pserver.wire.authentication import DATA, HEARTBEAT
from pserver.wire.protocol import Fetch, Message, Op
from pserver.wire.views import MembershipView

SETTINGS = Optimization("momentum", 1e-3)
DENSE, ROWS = [*PARAMETERS], [0, 2]
TURN_DEADLINE = 60.0  # seconds
BOOT = 1 << 20  # number of the trainer that gives the initial values


class NoMemberError(PaddleError):
    """The trainer is not a member of the view, because its task was taken away."""


class KilledError(BaseException):
    """The trainer is killed in the middle of its work."""


class FakeServer:
    """A service, and the rounds that it has applied.

    log: for each applied round its key and its gradients, as (trainer, batch).  values: the values after each round.
    """

    def __init__(self, number, *, by_rows):
        self.number, self.by_rows, self.incarnation = number, by_rows, 0
        self.log, self.values, self.crashes = [], {}, 0
        self.now = 1000.0
        self._start()
        self._give_values()
        self.kept = self.capture()

    def _start(self):
        self.incarnation += 1
        self.attempt = f"ps{self.number}.{self.incarnation}"
        self.session = protocol.session_of("job", self.attempt)
        identity = Identity(f"10.0.0.{self.number}:7164", 0, "job", self.attempt, "hush", is_task_job=True)
        self.service = TaskService(identity, ServiceOptions())

    def _give_values(self):
        setup = describe_setup(TABLE if self.by_rows else DENSE, SETTINGS) | ({"by_rows": True} if self.by_rows else {})
        name = b"boot" * 4 + DATA
        first = {"session": self.session, "trainer": BOOT}
        self.receive(name, Message(Op.HELLO, **first, sequence=1, note=self.hello(BOOT)))
        whole = memoryview(bytes(48 if self.by_rows else 28))
        for piece in range(protocol.count_pieces(len(whole))):
            part = Message(Op.INITIALISE, **first, sequence=2, note={} if piece else setup, piece=piece)
            self.receive(name, part._replace(payload=[protocol.cut(whole, piece)]))
        self.receive(name, Message(Op.GOODBYE, **first, sequence=3))
        self._watch()

    def receive(self, connection, message):
        self.now += 0.001
        key = key_of(connection)
        frames = [bytes(frame) for frame in protocol.encode(message, key)]
        out = self.service.handle(connection, "10.0.0.9", frames, self.now, key)
        assert self.service.sessions.complaints.failed == 0 and self.service.failure is None
        return out

    def hello(self, number):
        parameters = TABLE if self.by_rows else DENSE
        shape = [1, 12] if self.by_rows else [2, 7]
        return {
            "job": "job", "attempt": self.attempt, "num_trainers": 0, "elastic": True, "uid": f"pod-{number}",
            "incarnation": 0, "dtype": "float32", "service": 0, "services": 1, "settings": "s", "shape": shape,
            "parameters": partition.digest(parameters),
        }  # fmt: skip

    @property
    def counted(self):
        """The gradients of all rounds."""
        return {one for _, some in self.log for one in some}

    def capture(self):
        return self.service.take_snapshot(), len(self.log)

    def crash(self):
        """Restart from the last snapshot, as a new process would."""
        capture, rounds = self.kept
        self.crashes += 1
        self._start()
        self.service.restore(capture)
        del self.log[rounds:]
        self._watch()

    def _watch(self):
        """Log the gradients of every step."""
        two_phase = self.service._pushes.rounds
        rounds = two_phase.rounds
        step = rounds.step

        def log_step(pieces, trainers):
            counted = tuple(self._read(rounds, trainer) for trainer in trainers)
            assert sorted(trainers) == list(trainers)
            done = step(pieces, trainers)
            assert len(done) == rounds.pieces
            self.log.append((two_phase.prepared, counted))
            self.values[two_phase.prepared] = np.frombuffer(rounds.values, np.float32).tolist()
            return done

        rounds.step = log_step

    def _read(self, rounds, trainer):
        gradient = (
            rounds._gradients[trainer][0][1][0] if self.by_rows else np.frombuffer(rounds._sent[0][trainer], "f4")
        )
        assert gradient[0] == trainer
        return trainer, int(gradient[1])


class Link:
    """A trainer's data connection to a service, with the messages that are in transit in both directions."""

    def __init__(self, server, token, number):
        self.server, self.token, self.number = server, token, number
        self.incarnation, self.is_open = server.incarnation, True
        self.up, self.down, self.request = deque(), deque(), []

    @property
    def is_alive(self):
        return self.is_open and self.incarnation == self.server.incarnation


class FakeClient:
    """The requests of one trainer to all dense services, or to all sparse services, in one sequence."""

    def __init__(self, trainer, links):
        self.trainer, self.links = trainer, links
        self.sequence, self.pending = 0, {}
        self._interruption, self._op = None, Op.PING

    def begin(self, op, links, note, whole=None, *, answers=1, argument=0, take=None, interruption=None):
        """Send a request; `note` may be a function of the link."""
        self.sequence += 1
        self._interruption, self._op, self._take = interruption, op, take
        self.pending = {link: set(range(answers)) for link in links}
        for link in links:
            base = Message(op, link.server.session, self.trainer.number, self.sequence, argument, samples=1)
            view = memoryview(whole or b"")
            link.request = [
                base._replace(piece=piece, note=note(link), payload=[protocol.cut(view, piece)] if whole else ())
                for piece in range(protocol.count_pieces(len(view)))
            ]
            link.up.extend(link.request)

    def collect(self):
        while True:
            for link in self.links:
                while link.down:
                    self._receive(link, link.down.popleft())
            if not any(self.pending.values()):
                return
            self.check()
            if self._interruption is not None and not self._interruption():
                raise views.EpochChangedError("the view has changed")
            self.trainer.wait("answers")

    def _receive(self, link, answer):
        if answer.op == Op.ERROR and answer.sequence in (0, self.sequence):
            raise error_of(answer, "a server")
        if answer.sequence == self.sequence and answer.op == self._op and answer.piece in self.pending.get(link, ()):
            self.pending[link].discard(answer.piece)
            if self._take is not None:
                self._take(link, answer)

    def check(self):
        if not all(link.is_alive for link in self.links):
            raise LostPeerError("a server is lost")

    def request(self, *arguments, **more):
        self.begin(*arguments, **more)
        self.collect()

    # ----- The requests of `JoinedServices` -----

    def enter(self, view):
        found = {}
        take = lambda link, answer: found.__setitem__(link, views.read_answer(answer.note))  # noqa: E731
        self.request(Op.ENTER, self.links, lambda link: views.write_view(view), take=take)
        return [found[link] for link in self.links]

    def begin_round_push(self, gradient, samples, key, pass_number, is_current):
        note = views.write_push(key, pass_number)
        self.begin(Op.PUSH, self.links, lambda link: note, gradient.tobytes(), answers=2, interruption=is_current)

    def begin_round_rows(self, batch, key, pass_number, is_current):
        whole = np.array([len(ROWS), *ROWS], "u4").tobytes() + batch.row_gradients[0].tobytes()
        note = {**views.write_push(key, pass_number), "bytes": len(whole)}
        self.begin(Op.PUSH, self.links, lambda link: note, whole, interruption=is_current)

    def finish(self):
        self.collect()

    def begin_commit(self, key, view, services, values=None):
        note = views.write_commit(key, view)
        chosen = [link for link in self.links if link in services]
        answers, take = (1, None) if values is None else (2, self._into(values))
        self.begin(Op.COMMIT, chosen, lambda link: note, answers=answers, take=take)

    def fetch_now(self, values, pass_number):
        note = {"pass": pass_number}
        take = self._into(values)
        self.request(Op.FETCH, self.links, lambda link: note, answers=2, argument=Fetch.CURRENT, take=take)

    def _into(self, values):
        def take(link, answer):
            start = 4 * answer.piece
            part = np.frombuffer(answer.payload[0], np.float32)
            values[self.links.index(link), start : start + len(part)] = part

        return take


class FakeServices(JoinedServices):
    """All dense and sparse services of the job."""

    def __init__(self, trainer, links):
        self._links = links
        self.dense = FakeClient(trainer, [link for link in links if not link.server.by_rows])
        rows = [link for link in links if link.server.by_rows]
        self.sparse = FakeClient(trainer, rows) if rows else None
        for client in self._list():
            client.request(Op.HELLO, client.links, lambda link: link.server.hello(trainer.number))

    def begin_round_push(self, *given):
        self.dense.begin_round_push(*given)

    def begin_round_rows(self, *given):
        if self.sparse is not None:
            self.sparse.begin_round_rows(*given)

    def enter(self, view):
        return [answer for client in self._list() for answer in client.enter(view)]

    def commit(self, key, view, values, services=None):
        links = [link for client in self._list() for link in client.links]
        chosen = links if services is None else [links[number] for number in services]
        if self.sparse is not None:
            self.sparse.begin_commit(key, view, chosen)
        self.dense.begin_commit(key, view, chosen, values)
        for client in self._list():
            client.collect()

    def fetch(self, values, pass_number):
        self.dense.fetch_now(values, pass_number)

    def owner(self, link):
        return next(client for client in self._list() if link in client.links)


class FakeTrainer:
    """A trainer whose thread runs only when the test gives it a turn.

    known: the newest view that it has received.  done: its batches of which it knows that they were applied.
    """

    def __init__(self, world, number):
        self.world, self.number = world, number
        self.batch, self.done = 0, []
        self.known = MembershipView(0, ())
        self.services, self.links = None, []
        self.alive, self.waits_for = True, ""
        self._killed, self._error, self._joins = False, None, 0
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()
        assert self._theirs.acquire(timeout=TURN_DEADLINE)

    def turn(self):
        """Let the trainer run until it waits for a message."""
        if self.alive:
            self._mine.release()
            assert self._theirs.acquire(timeout=TURN_DEADLINE), f"trainer {self.number} does not come back"
            if self._error is not None:
                raise self._error

    def kill(self):
        self._killed = True
        self.turn()

    # ----- The following methods run in the trainer's thread -----

    def wait(self, what):
        self.waits_for = what
        self._theirs.release()
        self._mine.acquire()
        if self._killed:
            raise KilledError

    def _run(self):
        try:
            self.wait("its first turn")
            self._train()
        except KilledError:
            pass
        except BaseException as exc:
            self._error = exc
        self.alive = False
        self._theirs.release()

    def _train(self):
        """Train as `TaskUpdater` and the loop over tasks do."""
        pushes = AgreedPushes(FakeViews(self))
        dense = sum(not server.by_rows for server in self.world.servers)
        values = np.zeros((dense, 7), np.float32)
        while True:
            while self.number not in self.known.members:
                self.wait("a task")
            self.batch += 1
            gradient = np.array([self.number, self.batch, 1, 1, 1, 1, 1], np.float32)
            batch = BatchGradient(gradient, values, 1, (), [np.array([*gradient[:2], 1] * len(ROWS), np.float32)])
            pushes.open()
            try:
                self._persist(lambda services: pushes.prepare(services, values))
                self._check_values(pushes, values)
                self.wait("its computation")
                self._persist(lambda services, batch=batch: pushes.finish(services, batch, has_begun=False))
            except NoMemberError:
                self.services, self.links = None, []
                continue
            self.done.append(self.batch)
            self._check_values(pushes, values)

    def _persist(self, action):
        while True:
            try:
                if self.services is None:
                    self._join()
                action(self.services)
                return
            except LostPeerError:
                self.services, self.links = None, []
                self.wait("the servers")

    def _join(self):
        self._joins += 1
        token = self.number.to_bytes(4, "little") + self._joins.to_bytes(4, "little") + bytes(8)
        self.links = [Link(server, token, self.number) for server in self.world.servers]
        self.world.links += self.links
        self.services = FakeServices(self, self.links)

    def _check_values(self, pushes, values):
        """Check that the trainer's values are those of every service after the round that the answer names."""
        for number, server in enumerate(one for one in self.world.servers if not one.by_rows):
            if pushes._held in server.values and not server.crashes:
                assert values[number].tolist() == server.values[pushes._held]


class FakeViews:
    """The views that a trainer has received."""

    def __init__(self, trainer):
        self._trainer = trainer

    @property
    def newest(self):
        return self._trainer.known

    def wait(self, epoch):
        while self._trainer.known.epoch < max(epoch, 1):
            self._trainer.wait(f"a view of epoch {epoch}")
        if self._trainer.number not in self._trainer.known.members:
            raise NoMemberError("its task was taken away")
        return self._trainer.known


class World:
    """The job. `view` is the newest view of the master; `links` are all connections with messages in transit."""

    def __init__(self, dense=1, sparse=1):
        self.servers = [FakeServer(number, by_rows=number >= dense) for number in range(dense + sparse)]
        self.trainers, self.links = [], []
        self.view = MembershipView(1, ())

    @property
    def living(self):
        return [trainer for trainer in self.trainers if trainer.alive]

    def loaded(self):
        """Return the connections with messages in transit to a service."""
        self.links = [link for link in self.links if link.up and link.is_alive]
        self.links += [link for one in self.living for link in one.links if link not in self.links]
        return [link for link in self.links if link.up]

    def begin_trainer(self):
        trainer = FakeTrainer(self, len(self.trainers))
        self.trainers.append(trainer)
        self.set_members({*self.view.members, trainer.number})
        return trainer

    def set_members(self, members):
        if tuple(sorted(members)) != self.view.members:
            self.view = MembershipView(self.view.epoch + 1, tuple(sorted(members)))

    def carry(self, link, *, keep=False):
        """Deliver the oldest message to the service. Args: keep: whether it stays, to be delivered again."""
        message = link.up[0] if keep else link.up.popleft()
        if link.is_alive:
            self.route(link.server, link.server.receive(link.token + DATA, message))

    def beat(self, trainer, server):
        """Deliver a heartbeat."""
        for link in trainer.links:
            if link.server is server and link.is_alive and link.token + DATA in self._names(server):
                note = views.write_view(trainer.known) if trainer.known.epoch else {}
                ping = Message(Op.PING, server.session, trainer.number, 0, note=note)
                self.route(server, server.receive(link.token + HEARTBEAT, ping))

    def forget(self, server, number):
        """Let a service treat a trainer as lost."""
        session = server.service.sessions.trainers.get(number)
        if session is not None:
            self.route(server, server.service.sessions.forget(session, "is lost"))

    def cut(self, link):
        """Break a connection: all messages in transit are lost, and a living trainer sends its request again."""
        link.up.clear()
        link.down.clear()
        trainer = self.trainers[link.number]
        if trainer.alive and link in trainer.links and link.request:
            client = trainer.services and trainer.services.owner(link)
            if client is None or client.pending.get(link):
                link.up.extend(link.request)

    def route(self, server, out):
        for connection, message in out:
            token, kind = connection[:16], connection[16:]
            for trainer in self.trainers:
                for link in trainer.links:
                    if link.server is server and link.token == token and link.incarnation == server.incarnation:
                        if message is None:
                            link.is_open = False
                        elif kind == DATA:
                            frames = [bytes(frame) for frame in protocol.encode(message)]
                            link.down.append(protocol.decode(frames))
            for link in self.links:
                if link.server is server and link.token == token and message is None:
                    link.is_open = False

    def _names(self, server):
        return {name for session in server.service.sessions.trainers.values() for name in session.names}

    def flow(self, is_over, trainers=None, most=200):
        """Deliver messages and give trainers turns until a condition holds, or until nothing more happens."""
        some = self.living if trainers is None else trainers
        for _ in range(most):
            for trainer in some:
                for link in [one for one in trainer.links if one.up]:
                    if is_over():
                        return True
                    self.carry(link)
                if is_over():
                    return True
                trainer.turn()
        return is_over()

    def is_cut_in_two(self):
        """Return whether some services have applied a round that others have not applied."""
        return len({len(server.log) for server in self.servers}) > 1

    def is_prepared(self):
        """Return whether all services have received all gradients of a round that no service has applied."""
        prepared = {server.service._pushes.rounds.prepared for server in self.servers}
        return len(prepared) == 1 and None not in prepared

    # ----- Invariants -----

    def check(self):
        """Check what holds at any time.

        No gradient is applied twice. What a trainer takes for applied is, on each service that never crashed. If none
        crashed, no service is two rounds ahead of another.
        """
        for server in self.servers:
            keys = [key for key, _ in server.log]
            assert keys == sorted(set(keys)), keys
            counted = [one for _, some in server.log for one in some]
            assert len(counted) == len(set(counted)), counted
        whole = [server for server in self.servers if not server.crashes]
        done = {(trainer.number, batch) for trainer in self.trainers for batch in trainer.done}
        assert all(done <= server.counted for server in whole), (done, [server.log for server in whole])
        if whole == self.servers:
            longest = max((server.log for server in self.servers), key=len)
            for server in self.servers:
                assert len(server.log) >= len(longest) - 1 and server.log == longest[: len(server.log)]

    def settle(self, batches=2):
        """Deliver all messages and let all living trainers train in this epoch and the next; each must advance."""
        if not self.living:
            self.begin_trainer()
        self.set_members({trainer.number for trainer in self.living})
        self._go_on(batches)
        self.view = MembershipView(self.view.epoch + 1, self.view.members)
        self._go_on(batches)
        # all services agree about all rounds except the last one, which some services may not have applied yet
        epoch = self.view.epoch
        logs = [[one for one in server.log if one[0].epoch == epoch] for server in self.servers]
        shortest = min(map(len, logs))
        assert shortest and all(log[:shortest] == logs[0][:shortest] for log in logs), logs
        # a gradient of any earlier round has counted on all services that never crashed, or on none
        earlier = [(server, {one for _, some in server.log[:-1] for one in some}) for server in self.servers]
        for server, counted in earlier:
            assert server.crashes or all(counted <= other.counted or other.crashes for other in self.servers)

    def _go_on(self, batches):
        wanted = {trainer: len(trainer.done) + batches for trainer in self.living}
        for _ in range(400):
            for trainer in self.living:
                trainer.known = self.view
                for link in trainer.links:
                    while link.up:
                        self.carry(link)
                trainer.turn()
            self.check()
            if all(len(trainer.done) >= count for trainer, count in wanted.items()):
                return
        waits = {trainer.number: trainer.waits_for for trainer in self.living}
        raise AssertionError(f"the trainers do not get on: {waits}, {[server.log for server in self.servers]}")

    def close(self):
        for trainer in self.living:
            trainer.kill()
