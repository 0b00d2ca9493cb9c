"""The ten rules of our image, on the text of the Dockerfile; tests/kubernetes builds and runs it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = [
    line for line in re.sub(r" *\\\n\s*", " ", TEXT).splitlines() if line.strip() and not line.lstrip().startswith("#")
]


def stage(name: str) -> list[str]:
    """The instructions of a stage, without its FROM."""
    start = next(n for n, line in enumerate(INSTRUCTIONS) if line.startswith("FROM") and line.endswith(f" AS {name}"))
    ends = [n for n, line in enumerate(INSTRUCTIONS) if line.startswith("FROM") and n > start]
    return INSTRUCTIONS[start + 1 : min(ends, default=len(INSTRUCTIONS))]


RUNTIME, DATA, TRAIN = stage("runtime"), stage("data"), stage("train")


def values(name: str, lines: list[str] = INSTRUCTIONS) -> list[str]:
    """The arguments of every instruction of a kind."""
    return [line.split(None, 1)[1] for line in lines if line.split(None, 1)[0] == name]


def test_1_the_base_is_a_pinned_slim_image_through_an_argument() -> None:
    (base,) = [value for value in values("ARG") if value.startswith("BASE=")]
    assert re.fullmatch(r"BASE=python:3\.\d+(\.\d+)?-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert values("FROM") == ["${BUILD_BASE} AS build", "${BASE} AS runtime", "runtime AS data", "runtime AS train"]


def test_2_the_image_has_no_compiler_no_pip_and_no_package_manager_run() -> None:
    runs = " ".join(values("RUN", RUNTIME))
    assert not re.search(r"\b(pip|apt|apt-get|gcc|build-essential)\b", runs)
    assert values("COPY", RUNTIME) == ["--from=build /image/ /"]
    assert "--without-pip" in TEXT and "--no-cache-dir" in TEXT


def test_3_output_is_not_buffered_and_no_bytecode_is_written() -> None:
    (env,) = values("ENV", RUNTIME)
    assert "PYTHONUNBUFFERED=1" in env and "PYTHONDONTWRITEBYTECODE=1" in env


def test_4_the_user_is_a_fixed_number_and_not_root() -> None:
    (user,) = values("USER", RUNTIME)
    assert int(user) > 0


def test_5_the_entrypoint_is_tini_in_exec_form() -> None:
    assert values("ENTRYPOINT", TRAIN) == ['["tini", "--", "/root/start.sh"]']
    assert values("ENTRYPOINT", DATA) == ['["tini", "--", "paddle", "prepare"]']
    assert values("ENTRYPOINT", RUNTIME) == []
    assert values("CMD") == []


def test_the_default_target_is_the_training_image_and_both_differ_by_entrypoint_and_data_alone() -> None:
    assert INSTRUCTIONS[-len(TRAIN) :] == TRAIN
    assert len(TRAIN) == 1
    assert {line.split()[0] for line in DATA} == {"ARG", "ENV", "ENTRYPOINT"}
    assert values("ENV", DATA)[0].startswith("DATA_SOURCE=${DATA_SOURCE}")


def test_the_image_says_that_the_data_job_needs_a_volume() -> None:
    (env,) = values("ENV", RUNTIME)
    assert "REQUIRE_VOLUME=1" in env


def test_6_the_stop_signal_is_the_one_that_the_launcher_forwards() -> None:
    assert values("STOPSIGNAL") == ["SIGTERM"]


def test_7_nothing_is_added_from_an_address() -> None:
    assert values("ADD") == []
    assert not re.search(r"https?://", "\n".join(INSTRUCTIONS))


def test_8_nothing_is_the_latest() -> None:
    assert "latest" not in TEXT
    (install,) = [run for run in values("RUN") if "--requirement" in run]
    assert "--only-binary :all: --require-hashes --requirement /src/requirements/image.txt &&" in install


def test_8_the_project_is_built_without_a_download() -> None:
    (build,) = [run for run in values("RUN") if "--no-build-isolation" in run]
    assert "--no-deps --no-index --no-build-isolation /src &&" in build


def test_8_nothing_but_extras_is_installed_without_digests() -> None:
    """The build argument EXTRAS adds packages; without it, the image has only those of the list."""
    others = [run for run in values("RUN") if "--require-hashes" not in run and "--no-index" not in run]
    (extras,) = [run for run in others if re.search(r"\bpip\b.* install\b", run)]
    assert "EXTRAS=" in values("ARG")
    assert extras.startswith('if [ -n "${EXTRAS}" ]; then ') and extras.endswith("fi")
    assert "--only-binary :all: --constraint /src/requirements/constraints.txt" in extras


def test_9_package_lists_go_in_the_layer_that_fetched_them() -> None:
    for run in values("RUN"):
        assert "apt-get update" not in run or "rm -rf /var/lib/apt/lists/*" in run


def test_10_the_build_context_is_an_allow_list() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {word.rstrip("/") for copy in values("COPY") if "--from" not in copy for word in copy.split()[:-1]}
    assert copied <= allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_the_classic_builder_understands_it() -> None:
    assert not re.search(r"--mount|--chmod|--link|<<", TEXT)


def test_no_instruction_depends_on_the_machine_type() -> None:
    assert not re.search(r"amd64|arm64|x86_64|aarch64|TARGETARCH|uname", TEXT)


def test_the_working_directory_is_the_root_because_the_tutorials_command_is_relative() -> None:
    assert values("WORKDIR", RUNTIME) == ["/"]


def test_both_scripts_are_readable_for_every_uid() -> None:
    assert "install -m 0755 /src/start.sh /src/start_paddle.py /image/root/" in TEXT
    assert "chmod 0755 /root" in TEXT
    assert "mkdir -m 1777 /work" in TEXT


@pytest.mark.parametrize("label", ["title", "description", "version", "licenses"])
def test_the_image_says_what_it_is(label: str) -> None:
    assert f"org.opencontainers.image.{label}=" in " ".join(values("LABEL"))


def test_the_version_is_that_of_the_package() -> None:
    (version,) = re.findall(r'version="([^"]+)"', (ROOT / "setup.py").read_text())
    assert f'image.version="{version}"' in TEXT
