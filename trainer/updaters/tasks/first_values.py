"""One trainer, the holder of a lock, sends the initial values to the servers.

If this trainer is lost, another trainer takes the lock.

The lock is a claim in the registry. The holder of the lock sends its values to all servers. A server that already has
values ignores the new values. Then the holder of the lock writes a second key through the claim. The write of this key
fails if the holder has lost the lock. All other trainers wait for the second key.

Source: spec/distributed.md 5.6; the Go client of v0.11 (which waited for ever if the holder had ended).
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable

from paddle_base.registry.interface import WATCH_S, Claim, Entry, Registry
from paddle_base.registry.keeping import ClaimKeeper
from paddle_base.registry.servers import INIT_DONE, INIT_LOCK
from paddle_base.runtime import glog
from paddle_base.runtime.bounded_json import BoundedJsonError, parse_bounded
from paddle_base.runtime.errors import ConfigError, LeaseLostError, PeerUnreachableError
from paddle_base.runtime.rate_limit import WAIT_LINE_S, RateLimit

INIT = "init/"


def agree_on_first_values(
    registry: Registry,
    name: str,
    digest: str,
    give: Callable[[], None],
    patience: float,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Wait until all servers have initial values. Send the values if no other trainer sends them.

    Args: name: the name of this trainer. digest: the digest of its model. give: a function that sends the values to all
        servers. patience: maximum seconds to wait for another trainer. look: a function that is called every second of
        the wait; it may raise an error.
    Raises: ConfigError: the values belong to another model.  PeerUnreachableError: no trainer has sent values in time.
        Errors of `give`.
    """
    began = time.monotonic()
    lines = RateLimit(WAIT_LINE_S, began + WAIT_LINE_S)
    while True:
        known = registry.read(INIT)
        if INIT_DONE in known:
            _check_model(known[INIT_DONE], name, digest)
            return
        claim = registry.claim(INIT_LOCK, name)
        if claim is not None:
            # the registry, and not this attempt, tells in the next turn whether the values are complete
            _give(registry, claim, name, digest, give)
            continue
        look()
        now = time.monotonic()
        holder = known[INIT_LOCK].value[:200] if INIT_LOCK in known else "another trainer"
        if now - began >= patience:
            raise PeerUnreachableError(
                f"{glog.clean(holder)} has not sent the parameter servers their initial values within "
                f"{patience:.0f} s; end that trainer, and another trainer will send them"
            )
        if lines.is_due(now):
            glog.info(
                f"this trainer has waited {now - began:.0f} s for the initial values of {glog.clean(holder)}; "
                "if that trainer hangs, end it, and another trainer will send them"
            )
        registry.wait(INIT, known, WATCH_S)


def _give(registry: Registry, claim: Claim, name: str, digest: str, give: Callable[[], None]) -> None:
    """Send the values as the holder of the lock. If another holder has just sent values, do nothing."""
    try:
        # without a lock this trainer goes on: its write through the claim is refused
        with ClaimKeeper(claim, lambda _: None, patience=math.inf, what="the lock for sending the initial values"):
            if INIT_DONE in registry.read(INIT):
                return
            glog.info("this trainer sends the parameter servers their initial values")
            give()
            claim.put(INIT_DONE, json.dumps({"by": name, "digest": digest}))
    except LeaseLostError as exc:
        glog.warning(f"the lock for sending the initial values is lost; another trainer may send them: {exc}")
    finally:
        claim.release()


def _check_model(done: Entry, name: str, digest: str) -> None:
    """Check that the values of the servers belong to this model.

    Raises: ConfigError: the values belong to another model.
    """
    by = theirs = None
    with contextlib.suppress(BoundedJsonError):
        fields = parse_bounded(done.value.encode(), depth=2, values=16)
        by, theirs = fields.get("by"), fields.get("digest")
    if not isinstance(theirs, str) or not isinstance(by, str):
        raise ConfigError(
            f"the registry's {INIT_DONE} is {glog.clean(done.value[:100])!r}, which no trainer writes; another program "
            "uses the name of this job"
        )
    if theirs != digest:
        raise ConfigError(
            f"the parameter servers have the values of another model: {glog.clean(by[:200])} sent values for "
            f"{glog.clean(theirs[:200])}, and {name} has {digest} (digest and elements of the dense parameters, then "
            "of the tables); give this job another name, or the same config"
        )
