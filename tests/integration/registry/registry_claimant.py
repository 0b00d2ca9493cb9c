"""A process that claims "ps/0" and writes through it: PLACE NAME. It prints what it does, a line each.

It renews in a thread, and writes "init/done" as fast as it can, until it hears that it has lost the claim.
"""

import sys
import threading
from pathlib import Path

from paddle_base.registry.choice import open_registry
from paddle_base.registry.servers import claim_index
from paddle_base.runtime.errors import LeaseLostError, PaddleError

TTL = 5.0


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # at once, because two threads say something
    sys.stdout.flush()


def main(place: str, name: str) -> None:
    is_etcd = place.startswith("http")
    registry = open_registry([place] if is_etcd else [], None if is_etcd else Path(place), "job", TTL)
    say("waits")
    claim, record = claim_index(registry, 1, name, lambda line: None)
    say("holds", record.incarnation)

    def renew() -> None:
        while not is_over.wait(TTL / 3):
            try:
                claim.renew()
            except PaddleError as exc:
                say("renewal:", type(exc).__name__)
                return

    is_over = threading.Event()
    threading.Thread(target=renew, daemon=True).start()
    number = 0
    try:
        while True:
            number += 1
            claim.put("init/done", f"{name} {number}")
            if number == 20:
                say("wrote")
            is_over.wait(0.001)
    except LeaseLostError as exc:
        say("lost:", exc)


if __name__ == "__main__":
    main(*sys.argv[1:])
