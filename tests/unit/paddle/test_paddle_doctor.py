"""`paddle doctor`: what it finds, what it prints, and that it ends in time, on a machine and in a pod."""

import errno
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from autoscale.fake_api import FakeApi
from each import each

from paddle.command import main
from paddle.doctor import machine, packages, volume
from paddle.doctor.findings import Diagnosis, choose_exit_status, render
from paddle.doctor.job import check_api, check_secret, judge_clock
from paddle.doctor.probing import DoctorCase, DoctorProbe, run_all
from paddle_base import kernels

SECRET = "correct horse battery staple"
LAUNCHER = {"JOB_NAME": "digits", "CONF_PADDLE_GRADIENT_NUM": "3", "JOB_NAMESPACE": "science"}


@pytest.fixture
def api(tmp_path):
    made = FakeApi(tmp_path)
    yield made
    made.close()


def states(found):
    return {one.subject: one.state for one in found}


def in_pod(**variables):
    return DoctorCase({"KUBERNETES_SERVICE_HOST": "10.96.0.1", **variables})


def answer_late(case):
    released.wait(60)
    return []


def break_down(case):
    raise KeyError("ours")


released = threading.Event()


# ---- what is printed
def test_each_lack_has_its_cost_and_what_to_do():
    lack = Diagnosis("kernels", "none\x1b[2J", "slow", "install gcc", 0)
    assert render([Diagnosis("clock", "right"), lack, Diagnosis("API server", "no pod", applies=False)]) == [
        "ok     clock: right",
        "lacks  kernels: none\\x1b[2J",
        "       cost: slow",
        "       do:   install gcc",
        "-      API server: no pod",
        "nothing essential is missing; read the lines about: kernels",
    ]


def test_the_exit_status_is_that_of_the_first_essential_lack():
    found = [Diagnosis("a", "", "x"), Diagnosis("b", "", "x", exit_code=74), Diagnosis("c", "", "x", exit_code=77)]
    assert choose_exit_status(found) == 74 and choose_exit_status(found[:1]) == 0
    assert render(found)[-1] == "a job would fail here: b, c (exit status 74)"


# ---- every check is bounded
def test_a_check_that_hangs_or_breaks_is_a_finding_and_no_traceback(capfd):
    probes = [DoctorProbe(name, __name__, name, 74) for name in ("answer_late", "break_down")]
    probes.append(DoctorProbe("absent", "paddle.doctor.nowhere", "check", 0))
    found = run_all(DoctorCase({}), 1.0, probes)
    released.set()
    assert [one.exit_code for one in found] == [74, 70, 78]
    assert found[0].text == "no answer within 1 s" and "KeyError: 'ours'" in found[1].text
    assert capfd.readouterr() == ("", "")


def test_a_named_pipe_as_the_secret_does_not_hold_up_the_command(tmp_path):
    os.mkfifo(tmp_path / "secret")
    program = [sys.executable, "-m", "paddle", "doctor", "--timeout=5"]
    environ = {**os.environ, "PADDLE_SECRET_FILE": str(tmp_path / "secret")}
    ended = subprocess.run(program, env=environ, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 78 and ended.stderr == ""
    assert "FAILS  secret: PADDLE_SECRET_FILE names " in ended.stdout and "Is no regular file\n" in ended.stdout


# ---- the command
def test_on_a_machine_it_says_that_this_is_no_pod(capsys, tmp_path):
    assert main(["doctor", str(tmp_path), "--timeout=60"]) == 0
    said = capsys.readouterr().out
    assert "\n-      API server: not in a pod: " in said and "\nok     volume: " in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argument", ["--timeout=0", "--timeout=nan", "--role=king", "--nosuch"])
def test_a_wrong_flag_ends_with_64(argument, capsys):
    assert main(["doctor", argument]) == 64
    assert capsys.readouterr().err.startswith("paddle doctor: ")


# ---- packages and machine
def test_absent_packages_are_named(monkeypatch):
    monkeypatch.setattr(packages, "REQUIRED", {"pyzmq": "no_such_zmq"})
    (found,) = packages.check_packages(DoctorCase({}))
    assert found.exit_code == 78 and "pyzmq (No module named" in found.text
    monkeypatch.setattr(packages, "REQUIRED", {})
    monkeypatch.setattr(packages, "EXTRAS", {"plot": ("no_such_plot", "paddle plotcurve")})
    _, found = packages.check_packages(DoctorCase({}))
    assert found.state == "lacks" and found.remedy.endswith("pip install 'paddle-on-kubernetes[plot]'")


def test_every_extra_is_among_those_that_may_be_absent(monkeypatch):
    text = Path(packages.__file__).parents[2].joinpath("setup.py").read_text()
    extras = {extra: name for extra, name in re.findall(r'^        "(\w+)": ([A-Z0-9]+),$', text, re.M)}
    assert set(extras) == set(packages.EXTRAS)
    for extra, name in extras.items():
        asked = re.findall(r'"([\w-]+)[><=]', re.search(rf"^{name} = \[(.*)\]", text, re.M)[1])
        assert asked == packages.EXTRAS[extra][0].split()
    page = Path(packages.__file__).parents[2].joinpath("docs/your-own-job.md").read_text()
    listed = re.search(r"The extras (.*?) install", page, re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", listed)) == set(extras)
    monkeypatch.setattr(packages, "is_installed", lambda name: name != "trustme")
    _, found = packages.check_packages(DoctorCase({}))
    assert found.text == "not installed: localcluster"


@pytest.mark.parametrize(
    "cores, environ, state",
    [(2.0, {}, "ok"), (0.5, {}, "lacks"), (2.0, {"TRAINER_COUNT": "4"}, "lacks"), (4.0, {"TRAINER_COUNT": "4"}, "ok")],
)
def test_processors_by_cgroup_and_threads(cores, environ, state, monkeypatch):
    monkeypatch.setattr(machine, "count_cores", lambda: cores)
    assert states(machine.check_processors(DoctorCase(environ))) == {"processors": state}


@pytest.mark.parametrize(
    "library, environ, state",
    [
        ("openblas 0.3", {}, "ok"),
        ("", {"OPENBLAS_NUM_THREADS": "2"}, "ok"),
        ("openblas 0.3", {"OMP_NUM_THREADS": "8"}, "lacks"),
        ("openblas 0.3", {"PADDLE_BLAS_THREADS": "3"}, "lacks"),
        ("none", {}, "lacks"),
    ],
)
def test_products_by_library_and_threads(library, environ, state, monkeypatch):
    monkeypatch.setattr(machine, "count_cores", lambda: 2.0)
    monkeypatch.setattr(machine, "_name_blas", lambda: library)
    assert states(machine.check_products(DoctorCase(environ))) == {"matrix products": state}


def test_numpy_names_its_library():
    assert machine._name_blas() not in ("", "none")


def test_absent_kernels_are_a_lack(monkeypatch):
    monkeypatch.setattr(kernels, "compiled", None)
    (found,) = machine.check_kernels(DoctorCase({}))
    assert found.state == "lacks" and "no C compiler" in found.text
    (found,) = machine.check_kernels(DoctorCase({"PADDLE_KERNELS": "plain"}))
    assert found.remedy == "unset PADDLE_KERNELS"


def test_memory_is_really_shared_and_a_small_shm_named(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "SHM", tmp_path / "absent")
    assert states(machine.check_shared_memory(DoctorCase({}))) == {"shared memory": "ok", "/dev/shm": "lacks"}
    monkeypatch.setattr(machine.SharedMemory, "open", lambda offer: None)
    assert states(machine.check_shared_memory(DoctorCase({})))["shared memory"] == "lacks"


# ---- the volume
def test_the_directory_is_the_deepest_of_the_job(tmp_path):
    case = DoctorCase({"JOB_NAME": "digits", "JOB_PATH": str(tmp_path)})
    assert volume.find_directory(case) == tmp_path
    (tmp_path / "digits").mkdir()
    assert volume.find_directory(case) == tmp_path / "digits"
    assert volume.find_directory(DoctorCase({"JOB_NAME": "digits"})) == Path("/home/jobpath")
    assert volume.find_directory(DoctorCase({})) is None
    assert volume.find_directory(DoctorCase(case.environ, "here")) == Path("here")


def test_an_absent_volume_is_66_and_one_that_takes_no_file_is_74(tmp_path, monkeypatch):
    case = DoctorCase({}, str(tmp_path / "absent"))
    assert [one.exit_code for one in volume.check_volume(case)] == [66]

    def refuse(directory):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(directory / "file"))

    monkeypatch.setattr(volume, "sync_directory", refuse)
    (found,) = volume.check_volume(DoctorCase({}, str(tmp_path)))
    assert found.exit_code == 74 and found.remedy == "the volume is read-only: mount it read-write"
    assert list(tmp_path.iterdir()) == []


def test_little_room_is_a_lack_and_so_is_a_clock_that_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(volume, "LEAST_BYTES", 1 << 62)
    monkeypatch.setattr(volume, "try_files", lambda directory: 120.0)
    found = volume.check_volume(DoctorCase({}, str(tmp_path)))
    assert states(found) == {"volume": "lacks", "clock": "lacks"}
    assert found[1].text == "the clock of the volume's server is 120 s ahead of this machine's"


def test_a_pod_without_a_mount_keeps_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(volume, "lies_on_mount", lambda directory: False)
    assert states(volume.check_volume(in_pod(JOB_PATH=str(tmp_path))))["mount"] == "lacks"


# ---- the secret
def test_the_secret_is_looked_for_and_never_printed(tmp_path):
    file = tmp_path / "secret"
    (found,) = check_secret(in_pod(PADDLE_SECRET_FILE=str(file), PADDLE_WITHOUT_SECRET="1"))
    assert found.state == "lacks" and found.text == f"none: there is no file {file}"
    case = in_pod(PADDLE_SECRET_FILE=str(file))
    (found,) = check_secret(case)
    assert found.exit_code == 78 and "kubectl create secret generic paddle-secret" in found.text
    file.write_text(SECRET)
    (found,) = check_secret(case)
    assert found.state == "ok" and case.secrets.redact(f"a {SECRET}") == "a <token>"
    file.write_text("")
    assert [one.exit_code for one in check_secret(case)] == [78]
    assert states(check_secret(DoctorCase({}))) == {"secret": "-"}


# ---- the API server
def test_the_rights_of_the_launcher(api):
    case = DoctorCase({**api.environment, **LAUNCHER})
    assert states(check_api(case)) == {"API server": "ok", "rights of the launcher": "ok", "clock": "ok"}
    assert api.reviews == [{"verb": "list", "resource": "pods", "namespace": "science"}]
    api.lacking.add(("list", "pods"))
    api.ahead_s = -90
    _, rights, clock = check_api(case)
    assert rights.exit_code == 77 and rights.text == "missing: list pods" and "k8s/rbac.yaml" in rights.remedy
    assert clock.state == "lacks" and " s behind this machine's" in clock.text
    assert case.secrets.redact("the-token-of-the-test") == "<token>"


@each("content", [b"a-token\nof-two-lines", b"a-token-\xff", b"a-token-" + b"x" * 100_000])
def test_a_token_that_is_none_is_named_and_not_shown(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    environ = {**LAUNCHER, "KUBERNETES_SERVICE_HOST": "10.96.0.1", "SERVICE_ACCOUNT_DIR": str(tmp_path)}
    (found,) = check_api(DoctorCase(environ))
    assert found.exit_code == 78 and "/token of its service account" in found.text and "a-token" not in found.text


def test_an_address_of_the_api_server_that_is_none_is_named():
    (found,) = check_api(DoctorCase({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "x"}))
    assert found.exit_code == 78 and "its port 'x'" in found.text


def test_the_rights_of_every_role_are_those_of_its_manifest(api):
    api.lacking |= {("watch", "nodes"), ("patch", "statefulsets/scale")}
    environ = {**api.environment, "SCALE_TO_ZERO": "statefulsets/paddle-pserver deployments/paddle-master"}
    found = {one.subject: one.text for one in check_api(DoctorCase(environ, roles=("autoscaler", "master", "driver")))}
    assert found["rights of the autoscaler"] == "missing: watch nodes of all namespaces"
    assert found["rights of the master"] == "missing: patch statefulsets/scale paddle-pserver"
    assert {"verb": "patch", "group": "batch", "resource": "jobs"} in api.reviews
    assert {
        "verb": "update",
        "group": "coordination.k8s.io",
        "resource": "leases",
        "name": "paddle-autoscaler",
        "namespace": "science",
    } in api.reviews


def test_an_autoscaler_of_listed_namespaces_needs_rights_only_there(api):
    environ = {**api.environment, "NAMESPACES": "arts,science"}
    api.lacking = {("patch", "jobs")}
    found = {one.subject: one.text for one in check_api(DoctorCase(environ, roles=("autoscaler",)))}
    missing = "missing: patch jobs of namespace arts, patch jobs of namespace science"
    assert found["rights of the autoscaler"] == missing
    everywhere = [asked["resource"] for asked in api.reviews if "namespace" not in asked]
    assert everywhere == ["nodes", "nodes"]


def test_a_pod_without_token_or_with_a_refused_one_is_77_and_a_silent_server_69(api):
    environ = {**api.environment, **LAUNCHER}
    (api.account / "token").write_text("another")
    case = DoctorCase(environ)
    token = api.account / "token"
    token.unlink()
    (found,) = check_api(case)
    assert found.exit_code == 77 and "no token" in found.text
    token.write_text("the-token-of-the-test")
    (found,) = check_api(DoctorCase({**environ, "KUBERNETES_SERVICE_PORT_HTTPS": "1"}))
    assert found.exit_code == 69


def test_a_server_that_reviews_no_rights_is_no_failure(api, monkeypatch):
    monkeypatch.setattr("paddle.doctor.job.REVIEWS", "/apis/authorization.k8s.io/v1/nothing")
    assert states(check_api(DoctorCase({**api.environment, **LAUNCHER}))) == {"API server": "-", "clock": "ok"}


def test_a_pod_that_needs_no_right_asks_for_none(api):
    assert states(check_api(DoctorCase(api.environment))) == {"API server": "-"} and api.reviews == []


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Nov 2026 17:00:00 GMT"])
def test_a_date_that_is_none_is_not_compared(date):
    assert judge_clock(date, 0.0).state == "-"


@pytest.mark.parametrize("text", ["9" * 5000, "٩٩"], ids=["long", "arabic"])
def test_a_variable_that_no_program_reads_as_a_number_counts_as_one_thread(text):
    case = DoctorCase({"TRAINER_COUNT": text, "OMP_NUM_THREADS": text})
    processors, products = *machine.check_processors(case), *machine.check_products(case)
    assert "TRAINER_COUNT" not in processors.text
    assert "1 thread per matrix product" in products.text
