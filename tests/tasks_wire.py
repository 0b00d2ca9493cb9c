"""A service of a task job without sockets, and trainers that send messages to it."""

import numpy as np
from pserver_wire import FakeTrainer, Wire

from pserver.optim.settings import Optimization, ParameterSpec
from pserver.server.tasks.service import TaskService
from pserver.store import partition
from pserver.store.model_setup import describe_setup
from pserver.wire import views
from pserver.wire.protocol import Fetch, MessageFlag, Op
from pserver.wire.views import MembershipView, RoundKey

TABLE = [ParameterSpec("w", 12, sparse_update=True, row_width=3)]


class ElasticTrainer(FakeTrainer):
    """A trainer whose token, UID and incarnation the test chooses."""

    def __init__(self, wire, number, token=None, uid=None, incarnation=0, **hello):
        hello = {"elastic": True, "uid": uid or f"pod-{number}", "incarnation": incarnation} | hello
        super().__init__(wire, number, token, **hello)

    def fetch(self, kind=Fetch.INITIAL, note=None):
        self.ask(Op.FETCH, argument=kind, note=note)
        return self

    def enter(self, epoch, *members, **more):
        self.ask(Op.ENTER, note=views.write_view(MembershipView(epoch, members)), **more)
        return self

    def push_round(self, key, gradient, pass_number=0, **more):
        return self.push(gradient, note=views.write_push(RoundKey(*key), pass_number), **more)

    def push_alone(self, push, gradient, pass_number=0, **more):
        return self.push(gradient, note={"push": push, "pass": pass_number}, **more)

    def push_rows(self, rows, gradient, **note):
        payload = np.array([len(rows), *rows], np.uint32).tobytes()
        payload += np.full(3 * len(rows), gradient, np.float32).tobytes()
        self.ask(Op.PUSH, samples=4, payload=[payload], note=note)
        return self

    def commit(self, key, view=None, **more):
        self.ask(Op.COMMIT, note=views.write_commit(RoundKey(*key), view or key[0]), **more)
        return self

    @property
    def is_prepared(self):
        return self.last.op == Op.PUSH and bool(self.last.flags & MessageFlag.PREPARED) and not self.last.payload

    @property
    def answer(self):
        """The content of the last answer to ENTER."""
        assert self.last.op == Op.ENTER
        return views.read_answer(self.last.note)

    @property
    def epoch_told(self):
        """The epoch that the last answer, an error, contains."""
        assert self.last.op == Op.ERROR
        return views.read_epoch(self.last.note)


class ElasticWire(Wire):
    """A service of a task job, and its trainers."""

    kind = TaskService

    def __init__(self, **options):
        super().__init__(0, attempt="ps0.7", **options)

    def trainer(self, number, **hello):
        made = ElasticTrainer(self, number, **hello)
        self.trainers.append(made)
        return made

    def ready(self, count=1, **initial):
        """Return `count` trainers that have the initial values."""
        made = [self.trainer(number).join() for number in range(count)]
        made[0].initialise(**initial)
        for one in made[1:]:
            one.fetch()
        return made

    def ready_rows(self, count=1, **settings):
        """Return trainers of a sparse service that have the initial values."""
        digest = partition.digest(TABLE)
        made = [self.trainer(number, parameters=digest, shape=[1, 12]).join() for number in range(count)]
        setup = describe_setup(TABLE, Optimization("momentum", 0.1, **settings)) | {"by_rows": True}
        made[0].ask(Op.INITIALISE, note=setup, payload=[bytes(48)])
        assert made[0].last.op == Op.INITIALISE
        return made

    @property
    def values(self):
        return np.frombuffer(self.service.state.rounds.values, np.float32)
