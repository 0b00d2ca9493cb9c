"""Lists of the API server that are no lists of pods: each is an obstacle of the wait, in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
import responses
from builders import OWN, items, one_pod
from test_launcher_api import URL, make_api

from paddle_cluster.launcher.errors import ApiError


def bad_pod(said: str, **changed: Any) -> tuple[Any, str]:
    return one_pod(**changed), rf"items\[0\]: {said}"


LISTS: dict[str, tuple[Any, str]] = {
    "HTML": (b"<html>sign in</html>", r"line 1 column 1 .*<html>sign"),
    "nothing": (b"", "line 1 column 1"),
    "an object of another kind": ({"kind": "Status"}, "the object has no items"),
    "a list": ([], "the object has no items"),
    "objects, nested": (b'{"items":' * 100_000, "the JSON text is nested too deep"),
    "NaN": (b'{"items": NaN}', "NaN is no value of JSON"),
    "a number of 100,000 digits": (b'{"items": ' + b"9" * 100_000 + b"}", ""),
    "bytes that are no text": (b'{"items": ["\xff"]}', ""),
    "null": (None, "the object has no items"),
    "items in an object": ({"items": {"0": OWN}}, "items is an object, expected a list"),
    "a number for a pod": (items(7), r"items\[0\] is 7, expected an object"),
    "a list's metadata as a list": ({"items": [], "metadata": [1]}, "metadata is a list"),
    "a continue that is a number": ({"items": [], "metadata": {"continue": 3}}, "continue is 3"),
    # pods of parts that are none
    "metadata null": bad_pod("metadata.name is missing", metadata=None),
    "metadata as a text": bad_pod('metadata is "x", expected an object', metadata="x"),
    "a name that is a number": bad_pod("name is 7, expected a text", metadata__name=7),
    "a uid that is a list": bad_pod("uid is a list, expected a text", metadata__uid=[[]]),
    "labels as a list": bad_pod("labels is a list, expected an object", metadata__labels=["a"]),
    "an index that is a number": bad_pod(
        "batch.kubernetes.io/job-completion-index is 0",
        metadata__labels={"batch.kubernetes.io/job-completion-index": 0},
    ),
    "owners as a text": bad_pod("ownerReferences is", metadata__ownerReferences="x"),
    "a time that is a number": bad_pod("deletionTimestamp is 1", metadata__deletionTimestamp=1),
    "status as a text": bad_pod('status is "Running"', status="Running"),
    "a phase that is a list": bad_pod("phase is a list", status__phase=["Running"]),
    "an address that is a number": bad_pod("podIP is 2130706433", status__podIP=2130706433),
    "two addresses in one": bad_pod("podIP is .*, expected an IP address", status__podIP="127.0.0.1,10.9.9.9"),
    "an address with a line break": bad_pod("podIP is", status__podIP="127.0.0.1\nx"),
    "conditions that are numbers": bad_pod(r"conditions\[0\] is 1", status__conditions=[1]),
    "containers in an object": bad_pod("containerStatuses is an object", status__containerStatuses={"a": 1}),
    "an exit code that is a text": bad_pod(
        "exitCode is",
        status__containerStatuses=[{"state": {"terminated": {"reason": "Error", "exitCode": "1"}}}],
    ),
    "two pods of one name": (items(OWN, OWN), "two pods have the name"),
    "two pods of one uid": (items(OWN, one_pod(metadata__name="another")["items"][0]), "two pods have the uid"),
}


@pytest.mark.parametrize(("body", "said"), LISTS.values(), ids=LISTS)
@responses.activate
def test_an_answer_that_is_no_list_of_pods_is_asked_for_again(body: Any, said: str) -> None:
    """A pod whose parts have other types ended the launcher with a traceback."""
    responses.get(URL, body=body if isinstance(body, bytes) else json.dumps(body))
    with pytest.raises(ApiError, match=f"answered something that is no pod list.*{said}") as error:
        make_api().list_pods()
    assert not error.value.fatal and str(error.value).isprintable()
