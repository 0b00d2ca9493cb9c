"""A real server in mid-round with hostile peers: the same bits, bounded memory, a short log."""

import contextlib
import re
import resource
import socket
from pathlib import Path
from random import Random

import numpy as np
import pytest
from fuzz import peers, seeds

from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard
from pserver.wire import protocol
from pserver.wire.protocol import Message, Op

PARAMETERS = [ParameterSpec("w", 300_000, momentum=0.5), ParameterSpec("b", 3)]  # two pieces
SIZE, BATCHES = 300_003, 3
SETTINGS = Optimization("momentum", 0.01)
JOB, ATTEMPT, SECRET = "job", "1.abc", "hush"
MEMORY = 40_000  # KiB, by which an attack may raise what the server has at most


def gradients():
    return np.random.default_rng(9).standard_normal((2, BATCHES, SIZE)).astype(np.float32)


def expected():
    shard = DenseShard(PARAMETERS, partition.whole(PARAMETERS), SETTINGS, per_parameter=True)
    shard.values[:] = np.arange(SIZE, dtype=np.float32) % 7
    for batch in range(BATCHES):
        shard.step(list(gradients()[:, batch]), 20)
    shard.finish_pass()
    return shard.values


def train(client, address, number, before):
    """One trainer's job; `before` is called in the middle of each round of trainer 1, when trainer 0 has pushed."""
    own = [address[0]] if number == 0 else []  # the first shares memory with the server
    one = client([address], number, 2, job=JOB, attempt=ATTEMPT, secret=SECRET, own_addresses=own)
    values = np.arange(SIZE, dtype=np.float32) % 7 if number == 0 else np.zeros(SIZE, np.float32)
    one.join(PARAMETERS, SETTINGS)
    one.initialise(values)
    one.start_pass()
    for gradient in gradients()[number]:
        before(number)
        one.push_pull(gradient, values, 10)
    one.finish_pass(values)
    before(number)
    one.goodbye()
    return values


class Job:
    """Two trainers on one server, the second behind a relay that an attacker can read; an attack in every round."""

    def __init__(self, pserver, client, crowd, tmp_path):
        secret = tmp_path / "secret"
        secret.write_text(SECRET)
        environ = {"PADDLE_JOB_NAME": JOB, "PADDLE_ATTEMPT": ATTEMPT, "PADDLE_SECRET_FILE": str(secret)}
        self.server = pserver(trainers=2, environ=environ)
        self.address = self.server.services[0]
        self._client, self._crowd = client, crowd
        self.tap = peers.Tap(self.address)

    def run(self, attack):
        self.failed = []

        def before(number):
            if number == 1:
                try:
                    attack(self)
                except Exception as exc:
                    self.failed.append(exc)

        for number, address in ((0, self.address), (1, self.tap.address)):
            self._crowd.start(number, train, self._client, address, number, before)
        self._crowd.join()

    @property
    def peak(self):
        """The most memory that the server has had, in KiB."""
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])

    def seeds(self):
        """Messages of the honest trainers that pass the relay."""
        session = protocol.session_of(JOB, ATTEMPT)
        made = [Message(op, session, 1, 3, note={"own": 1}, payload=[bytes(64)]) for op in (Op.PUSH, Op.FINISH_PASS)]
        hellos = [[bytes(sent[128:192]), bytes(sent[192:400])] for sent in self.tap.sent if len(sent) > 400]
        return [[bytes(frame) for frame in protocol.encode(one)] for one in made] + hellos


@pytest.fixture
def job(pserver, client, crowd, tmp_path):
    made = Job(pserver, client, crowd, tmp_path)
    yield made
    made.tap.close()


SEED = seeds(1)[0]
ATTACKS = {
    "other protocols": lambda job, random: peers.speak_other_protocols(job.address, random),
    "sizes": lambda job, random: peers.claim_sizes(job.address, random),
    "fuzz": lambda job, random: peers.send_fuzz(job.address, random, job.seeds()),
    "many connections": lambda job, random: peers.open_many(job.address, random),
    "handshakes": lambda job, random: peers.break_handshakes(job.address, random),
    "slow": lambda job, random: peers.say_slowly(job.address, random),
    "bombs": lambda job, random: peers.send_bombs(job.address, random),
    "setup": lambda job, random: peers.initialise(job.address, random),
    "never reads": lambda job, random: peers.never_read(job.address, random),
    "no secret": lambda job, random: peers.join_without_secret(job.address, random, JOB, ATTEMPT),
    "stolen names": lambda job, random: peers.steal_names(
        job.address, random, job.tap.names(), protocol.session_of(JOB, ATTEMPT)
    ),
    "replays": lambda job, random: peers.replay(job.address, random, [bytes(sent) for sent in job.tap.sent][:6]),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_in_every_round_changes_no_bit(job, crowd, attack):
    random, peak = Random(f"{SEED} {attack}"), []

    def strike(job):
        peak.append(job.peak)
        ATTACKS[attack](job, random)
        peak.append(job.peak)

    job.run(strike)
    assert job.failed == [] and crowd.errors == {}
    whole = expected().tobytes()
    assert [crowd.results[number].tobytes() == whole for number in (0, 1)] == [True, True]
    assert job.server.wait() == 0
    text = job.server.text()
    warnings = [line for line in text.splitlines() if line[:1] in "WE"]
    assert len(warnings) <= 15 and len(text) < 20_000, text
    assert "\x1b" not in text and "hush" not in text
    assert not [line for line in text.splitlines() if not re.match(r"[IW]\d{4} ", line)]
    assert peak[-1] - peak[0] < MEMORY, peak


def test_unauthenticated_peers_that_take_all_file_descriptors_do_not_keep_a_trainer_out(job, crowd):
    """The server has few; a trainer whose connection breaks meanwhile comes back all the same."""
    resource.prlimit(job.server.process.pid, resource.RLIMIT_NOFILE, (64, 64))
    with contextlib.ExitStack() as stack:

        def strike(job):
            for _ in range(100):
                stream = stack.enter_context(socket.create_connection(job.address, peers.DEADLINE))
                stream.setblocking(False)
            job.tap.cut()

        job.run(strike)
    assert job.failed == [] and crowd.errors == {}
    assert {values.tobytes() for values in crowd.results.values()} == {expected().tobytes()}
    assert job.server.wait() == 0 and len(job.server.text()) < 20_000
