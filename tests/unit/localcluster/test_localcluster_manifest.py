from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from each import each

from paddle_cluster.localcluster.errors import ManifestError
from paddle_cluster.localcluster.host import load_job
from paddle_cluster.localcluster.job.manifest import parse_job


def job_document(**spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "x"}]}
    pod |= spec.pop("pod", {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": pod}, **spec},
    }


def parse(**spec: Any):
    return parse_job(yaml.safe_dump(job_document(**spec)))


def test_the_defaults_are_the_api_servers():
    job = parse()
    assert (job.parallelism, job.completions, job.indexed, job.backoff_limit) == (1, 1, False, 6)
    assert (job.namespace, job.grace_seconds, job.replace_terminating, job.service_account) == (
        "default",
        30.0,
        True,
        "default",
    )


def test_a_job_with_parallelism_alone_is_a_work_queue():
    assert parse(parallelism=3).completions is None


def test_the_job_is_found_among_other_documents_and_in_lists():
    other = {"apiVersion": "v1", "kind": "ConfigMap"}
    text = yaml.safe_dump_all([other, {"kind": "List", "items": [other, job_document()]}, None])
    assert parse_job(text).name == "j"


def test_of_several_jobs_one_is_chosen_by_name():
    second = job_document(completions=7)
    second["metadata"]["name"] = "k"
    text = yaml.safe_dump_all([job_document(), second])
    assert parse_job(text, "k").completions == 7
    with pytest.raises(ManifestError, match=r"2 Jobs in the manifest \(j, k\): choose one with --job"):
        parse_job(text)
    with pytest.raises(ManifestError, match="no Job 'x' in the manifest"):
        parse_job(text, "x")


def test_a_pod_failure_policy_makes_failed_the_replacement_policy():
    rules = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [64, 78]}}]}
    assert parse(podFailurePolicy=rules).replace_terminating is False


@pytest.mark.parametrize("name", ["job", "data-job"])
def test_the_manifests_that_users_get_are_read(name: str):
    job = parse_job((Path(__file__).parents[3] / "k8s" / f"{name}.yaml").read_text())
    assert [volume.claim for volume in job.volumes if volume.claim] == ["mfs"]
    assert [rule.action for rule in job.rules] == ["Ignore", "FailJob"]
    assert not job.replace_terminating


BAD_SPECS = {
    "restart policy": ({"pod": {"restartPolicy": "OnFailure"}}, "restartPolicy is 'OnFailure'"),
    "two containers": ({"pod": {"containers": [{}, {}]}}, "containers has 2 entries"),
    "no container": ({"pod": {"containers": None}}, "containers has 0 entries"),
    "container beside": ({"pod": {"initContainers": [{"restartPolicy": "Always"}]}}, "initContainers"),
    "suspended": ({"suspend": True}, "suspend is true"),
    "negative": ({"parallelism": -1}, "parallelism is -1"),
    "text for a number": ({"completions": "3"}, "completions is '3'"),
    "truth for a number": ({"completions": True}, "completions is True"),
    "indexed without completions": ({"completionMode": "Indexed", "parallelism": 2}, "completions is missing"),
    "unknown mode": ({"completionMode": "Often"}, "completionMode is 'Often'"),
    "unknown replacement": ({"podReplacementPolicy": "Soon"}, "podReplacementPolicy is 'Soon'"),
    "unquoted value": (
        {"pod": {"containers": [{"env": [{"name": "A", "value": 1}]}]}},
        "env A: the value 1 is not a text",
    ),
    "unquoted argument": ({"pod": {"containers": [{"args": [1]}]}}, "args is"),
    "envFrom": ({"pod": {"containers": [{"envFrom": [{}]}]}}, "envFrom"),
    "no name for a variable": ({"pod": {"containers": [{"env": [{"name": "A=B", "value": ""}]}]}}, "'A=B': this is"),
    "a NUL in a value": ({"pod": {"containers": [{"env": [{"name": "A", "value": "\0"}]}]}}, "'A': .* a NUL"),
    "subPath out of the volume": (
        {
            "pod": {
                "volumes": [{"name": "v"}],
                "containers": [{"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a/../../b"}]}],
            }
        },
        "leads out of the volume",
    ),
    "mount without a path": (
        {"pod": {"volumes": [{"name": "v"}], "containers": [{"volumeMounts": [{"name": "v"}]}]}},
        "'mountPath' is missing",
    ),
    "volume without a name": ({"pod": {"volumes": [{"emptyDir": {}}]}}, "'name' is missing"),
    "object for a list": ({"pod": {"volumes": {"name": "v"}}}, "not have the structure of a Job"),
    "reference to a text": (
        {"pod": {"containers": [{"env": [{"name": "A", "valueFrom": {"fieldRef": "status.podIP"}}]}]}},
        "env A: valueFrom is",
    ),
    "mount of no volume": (
        {"pod": {"containers": [{"volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}},
        "'v' is not a volume of the pod",
    ),
}


@each(("spec", "message"), BAD_SPECS.values(), ids=BAD_SPECS)
def test_what_cannot_run_is_refused_by_name(spec: dict[str, Any], message: str):
    with pytest.raises(ManifestError, match=message):
        parse(**spec)


BAD_TEXTS = {
    "not YAML": ("a: [", "not YAML"),
    "a key twice": ("kind: Job\nspec: {a: 1,\n  a: 2}", "line 3: this object has the key 'a' twice"),
    "empty": ("", "no object of kind Job in the manifest .found: nothing"),
    "another kind": ("kind: Pod", "found: Pod"),
    "a text": ("hello", "a document is a str, expected an object"),
    "old api": ("kind: Job\napiVersion: batch/v1beta1\nmetadata: {name: j}", "apiVersion is 'batch/v1beta1'"),
    "no name": ("kind: Job\napiVersion: batch/v1\nmetadata: {}\nspec: {}", "metadata.name is missing"),
    "a path for a name": ("kind: Job\napiVersion: batch/v1\nmetadata: {name: a/../b}", "metadata.name is 'a/../b'"),
    "no metadata": ("kind: Job\napiVersion: batch/v1\nspec: {}", "Job.metadata is missing"),
    "no template": ("kind: Job\napiVersion: batch/v1\nmetadata: {name: j}\nspec: {}", "spec.template is missing"),
}


@each(("text", "message"), BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_what_is_no_job_is_refused_by_name(text: str, message: str):
    with pytest.raises(ManifestError, match=message):
        parse_job(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        f"parallelism: {'9' * 5000}",
        "x: 2020-99-99",
        "x: !!int abc",
        "x: !!bool x",
        'x: !!int ""',
        "&a {kind: List, items: [*a]}",
        "{kind: List, items: 5}",
    ],
    ids=lambda text: text[:20],
)
def test_yaml_that_python_cannot_read_is_a_wrong_manifest(text: str):
    with pytest.raises(ManifestError):
        parse_job(text)


SECRETS = {
    "a number": ([{"name": "API_TOKEN", "value": 12345678}], r"env API_TOKEN: the value \(not shown\) is not a text"),
    "a number, in lower case": ([{"name": "db_password", "value": 12345678}], "is not a text"),
    "a number without a name": ([{"value": 12345678}], "is not a text"),
    "both in the name": ([{"name": "SECRET=12345678"}], r"env 'SECRET=\(not shown\)': this is no name"),
    "a NUL behind": ([{"name": "SSH_KEY", "value": "12345678\0"}], "env 'SSH_KEY': .* a NUL"),
    "a text for its source": ([{"name": "SECRET", "valueFrom": "12345678"}], r"env SECRET: valueFrom is \(not shown\)"),
    "a source in a source": ([{"name": "SECRET", "valueFrom": {"a": "12345678"}}], "valueFrom is"),
}


@each(("env", "message"), SECRETS.values(), ids=SECRETS)
def test_the_value_of_a_secret_is_not_in_the_error(env: list[Any], message: str):
    with pytest.raises(ManifestError, match=message) as caught:
        parse(pod={"containers": [{"env": env}]})
    assert "12345678" not in str(caught.value)


def test_the_arguments_of_a_command_are_not_in_the_error():
    with pytest.raises(ManifestError, match=r"args is \['str', 'int'\]: a list of texts is needed") as caught:
        parse(pod={"containers": [{"args": ["--password=xyzzy", 1]}]})
    assert "xyzzy" not in str(caught.value)
    with pytest.raises(ManifestError, match="command is str: a list of texts is needed"):
        parse(pod={"containers": [{"command": "xyzzy"}]})


SECRET_TEXTS = {
    "an unclosed quote": ('value: "xyzzy', "quoted scalar in line 3, column 8, found unexpected end of stream"),
    "an unclosed list": ("value: [xyzzy", "not YAML"),
    "an alias": ("value: *xyzzy", r"found undefined alias \(not shown\) in line 3, column 8"),
    "a tag": ("value: !xyzzy 1", r"could not determine a constructor for the tag \(not shown\) in line 3"),
    "a tag's handle": ("value: !xyzzy!a 1", r"found undefined tag handle \(not shown\)"),
    "an escape": ('value: "xyzzy\\q"', "found unknown escape character 'q'"),
    "a number": ("value: !!int xyzzy", r"does not fit its type \(invalid literal .*: \(not shown\)\)"),
    "a truth": ("value: !!bool xyzzy", "does not fit its type"),
    "a fraction": ("value: !!float xyzzy", "does not fit its type"),
    "an expected token": ("value: 'xyzzy' 5", r"expected <block end>, but found '<scalar>' in line 3"),
}


@each(("line", "message"), SECRET_TEXTS.values(), ids=SECRET_TEXTS)
def test_no_line_of_the_manifest_is_in_the_error(line: str, message: str):
    """PyYAML quotes the line, which may have the value of a secret."""
    with pytest.raises(ManifestError, match=message) as caught:
        parse_job(f"kind: Job\nname: SECRET\n{line}\n")
    assert "xyzzy" not in str(caught.value)


def test_a_count_that_the_api_server_cannot_hold_is_refused():
    with pytest.raises(ManifestError, match="parallelism"):
        parse(parallelism=1 << 31)
    text = yaml.safe_dump(job_document(parallelism=1)).replace("parallelism: 1", f"parallelism: -0x{'f' * 5000}")
    with pytest.raises(ManifestError):
        parse_job(text)


def test_a_manifest_may_come_through_a_pipe_and_begin_with_a_byte_order_mark(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    data = b"\xef\xbb\xbf" + yaml.safe_dump(job_document()).encode()
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[data])
    writer.start()
    assert load_job(tmp_path / "pipe").name == "j"
    writer.join()


def test_a_manifest_without_end_or_in_another_encoding_is_refused(tmp_path: Path):
    with pytest.raises(ManifestError, match="more than 16 MiB"):
        load_job("/dev/zero")
    (tmp_path / "job.yaml").write_bytes("kind: Jöb".encode("utf-16"))
    with pytest.raises(ManifestError, match="save it as UTF-8"):
        load_job(tmp_path / "job.yaml")
