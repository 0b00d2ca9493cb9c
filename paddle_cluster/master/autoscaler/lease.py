"""A Lease of coordination.k8s.io ensures that only one autoscaler leads at a time, as in Kubernetes' controllers."""

from __future__ import annotations

import datetime
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import LeaseLostError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.kubernetes.client import ApiClient, ApiProblem

DURATION_S = 15  # seconds for which a lease is valid after its last renewal
RENEW_S = 2.0
GIVE_UP_S = 10.0  # seconds without a renewal after which the leader ends; less than DURATION_S, so no other leads yet


@dataclass(frozen=True)
class LeaseView:
    """The content of a Lease, and the time of `time.monotonic` at which this content was first read."""

    holder: str
    renewed: str
    duration: float
    seen: float

    def is_free(self, me: str, now: float) -> bool:
        """Return whether this program may take the lease: no other program holds it, or it has expired.

        The times in the lease are not used, because the clocks of other machines may differ.
        """
        return self.holder in ("", me) or now - self.seen >= self.duration


def view_lease(item: Mapping[str, Any], before: LeaseView | None, now: float) -> LeaseView:
    """Return the view of a Lease that was read at the time `now`; `before` is the previous view, or None."""
    spec = item.get("spec") or {}
    holder, renewed = str(spec.get("holderIdentity") or ""), str(spec.get("renewTime") or "")
    duration = float(spec.get("leaseDurationSeconds") or DURATION_S)
    if before and (before.holder, before.renewed) == (holder, renewed):
        return before
    return LeaseView(holder, renewed, min(duration, 3600.0), now)


def make_lease(name: str, me: str, item: Mapping[str, Any] | None, moment: datetime.datetime) -> dict[str, Any]:
    """Return the Lease with this program as its holder; `item` is the existing Lease, or None."""
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = dict((item or {}).get("spec") or {})
    if spec.get("holderIdentity") != me:
        spec |= {"acquireTime": stamp, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (item is not None)}
    spec |= {"holderIdentity": me, "leaseDurationSeconds": DURATION_S, "renewTime": stamp}
    metadata = (item or {}).get("metadata") or {"name": name}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


class ClusterLease(ServiceThread):
    """A thread that acquires the Lease, renews it, and releases it at the end.

    Args: me: unique identity of this program.  changed: function that is called when this program becomes the leader,
        finds that another program leads instead, or has a problem with the Lease.
    """

    def __init__(self, client: ApiClient, namespace: str, name: str, me: str, changed: Callable[[], None]) -> None:
        super().__init__(self.serve, "lease")
        self._client, self._name, self._me, self._changed = client, name, me, changed
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._view: LeaseView | None = None
        self._stopping = threading.Event()
        self._renewed = -math.inf  # `time.monotonic` of the last renewal
        self.leads = False
        self.took_over = False  # whether another program may have led just before this program
        self.problem: ApiProblem | None = None
        self.loss: LeaseLostError | None = None

    def check(self) -> None:
        """Raise LeaseLostError if this program has lost the lead."""
        if self.loss is None and self.leads and time.monotonic() - self._renewed > GIVE_UP_S:
            why = f": {self.problem}" if self.problem else ""
            self.loss = LeaseLostError(
                f"the lease {self._name} could not be renewed for {GIVE_UP_S:.0f} s{why}; another autoscaler may lead"
            )
        if self.loss:
            raise self.loss

    def stop(self) -> None:
        """End the thread, and release the Lease."""
        self._stopping.set()
        if self.is_alive():
            self.join(15.0)

    def serve(self) -> None:
        """Acquire and renew the Lease until stopped."""
        while not self._stopping.is_set() and self.loss is None:
            try:
                self._turn()
                self.problem = None
            except ApiProblem as problem:
                if problem.status != 409:  # 409: another program was faster; read the Lease again
                    self.problem = problem
                    self._changed()
            self._stopping.wait(RENEW_S)
        if self.leads and self.loss is None:
            self._give_back()

    def _turn(self) -> None:
        begun = time.monotonic()
        item = self._get()
        view = view_lease(item, self._view, begun) if item is not None else None
        known = self._view.holder if self._view else ""
        if view and view.holder not in ("", self._me, known):
            glog.info(f"the lease {self._name} is held by {glog.clean(view.holder)}: this autoscaler stands by")
        self._view = view
        if view and not view.is_free(self._me, begun):
            if self.leads:
                self.loss = LeaseLostError(
                    f"{glog.clean(view.holder)} has the lease {self._name} now, and leads instead of this autoscaler"
                )
                self._changed()
            return
        made = make_lease(self._name, self._me, item, datetime.datetime.now(datetime.UTC))
        if item is None:
            self._client.ask("POST", self._path, made)
        else:
            # with the resourceVersion that was read: of two programs that write, one gets a conflict
            self._client.ask("PUT", f"{self._path}/{self._name}", made)
        # the time before the request: this program has to give up before another one may take over
        self._renewed = begun
        if not self.leads:
            self.took_over = item is not None
            self.leads = True
            self._changed()

    def _get(self) -> dict[str, Any] | None:
        try:
            return self._client.ask("GET", f"{self._path}/{self._name}")
        except ApiProblem as problem:
            if problem.status == 404:
                return None
            raise

    def _give_back(self) -> None:
        """Release the Lease, so that another program can lead at once. If the release fails, the Lease expires."""
        try:
            item = self._get()
            if item is not None and (item.get("spec") or {}).get("holderIdentity") == self._me:
                item["spec"]["holderIdentity"] = ""
                self._client.ask("PUT", f"{self._path}/{self._name}", item)
        except ApiProblem as problem:
            glog.warning(f"the lease {self._name} is not released: {problem}")
