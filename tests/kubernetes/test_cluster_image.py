"""The image is small, runs as any user, and has a bill of materials."""

import json
from pathlib import Path

import pytest
from kubernetes_cluster import BUILD_OPTIONS, REPOSITORY, Cluster, Image

IMAGE_BUDGET_MB, WHOLE_BUDGET_MB = 85, 200
READ_ONLY = ("docker", "run", "--rm", "--network", "none", "--read-only", "--user", "4242:4242")
TAKEN_FROM_THE_HOST = "! -path '/etc/host*' ! -name resolv.conf"  # files that docker writes for each container
LISTED = 5  # number of packages with a separate row in the table


def find_sizes(cluster: Cluster, image: Image) -> dict[str, float]:
    """Return the size in MB of each package of the image, of this project, and of the base image."""
    lines = cluster.run(*READ_ONLY, "--entrypoint", "sh", image.reference, "-c", "du -sb /opt/venv/lib/python3*/*/*")
    sizes = {Path(path).name: int(size) / 1e6 for size, path in (line.split("\t") for line in lines.splitlines())}
    ours = [name for name in sizes if (REPOSITORY / name).is_dir()]
    table = {"the base: Debian with Python": image.base_bytes / 1e6, "this project": sum(map(sizes.pop, ours))}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:LISTED]
    table |= {name: sizes.pop(name) for name in largest}
    return table | {f"{len(sizes)} other packages and files": sum(sizes.values())}


def test_the_image_is_small(cluster: Cluster, image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    added, whole = image.added_bytes / 1e6, (image.added_bytes + image.base_bytes) / 1e6
    with capsys.disabled():
        print(f"\nthe image has {whole:.1f} MB (at most {WHOLE_BUDGET_MB}), {added:.1f} of them besides its base")
        for name, size in sorted(find_sizes(cluster, image).items(), key=lambda pair: -pair[1]):
            print(f"{size:8.1f} MB  {name}")
    assert added <= IMAGE_BUDGET_MB
    assert whole <= WHOLE_BUDGET_MB


def test_a_bill_of_materials_lists_all_packages(cluster: Cluster, image: Image) -> None:
    """Run the command of docs/cluster.md that makes the bill."""
    script = (REPOSITORY / "k8s" / "sbom.py").read_text()
    command = ("docker", "run", "--rm", "-i", "--network", "none", "--entrypoint", "python3", image.reference, "-")
    document = json.loads(cluster.run(*command, stdin=script))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    urls = [one["purl"] for one in document["components"]]
    assert len(set(urls)) == len(urls)
    for beginning in (
        "pkg:deb/debian/libc6@",
        "pkg:pypi/numpy@",
        "pkg:pypi/pyzmq@",
        "pkg:pypi/paddle-on-kubernetes@0.11.0",
    ):
        assert any(url.startswith(beginning) for url in urls)


@pytest.mark.faults
def test_another_build_makes_the_same_files(cluster: Cluster, image: Image) -> None:
    """Compare the bytes of the files, because the times of directories differ between builds."""
    again = f"{image.reference}-again"
    cluster.run("docker", "build", "--no-cache", *BUILD_OPTIONS, "-t", again, REPOSITORY)
    question = f"find / -xdev -type f {TAKEN_FROM_THE_HOST} -exec sha256sum {{}} + | sort -k 2"
    one, other = (
        cluster.run(
            "docker", "run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "sh", name, "-c", question
        )
        for name in (image.reference, again)
    )
    assert one == other


@pytest.mark.faults
def test_an_extra_is_added_to_the_packages_of_the_image(cluster: Cluster, image: Image) -> None:
    """Install tensorboardX, which takes seconds and not the gigabytes of torch."""
    build = ("docker", "build", *BUILD_OPTIONS, "-t", f"{image.reference}-more", "--build-arg")
    cluster.run(*build, "EXTRAS=tensorboard", REPOSITORY)
    question = "import importlib.metadata as m; print(*sorted(f'{d.name}=={d.version}' for d in m.distributions()))"
    ask = (*READ_ONLY, "--entrypoint", "python3")
    plain, more = (
        set(cluster.run(*ask, name, "-c", question).split()) for name in (image.reference, f"{image.reference}-more")
    )
    assert plain < more and {name.partition("==")[0] for name in more - plain} >= {"tensorboardX"}
    cluster.run(*ask, f"{image.reference}-more", "-c", "import tensorboardX, paddle.elastic")
    with pytest.raises(AssertionError, match=r"EXTRAS has \['torhc'\], but setup.py has only \[.*'torch'"):
        cluster.run(*build, "EXTRAS=torhc", REPOSITORY)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["paddle", "version"], "PaddlePaddle"),
        (["paddle", "prepare", "--help"], "SPLIT_COUNT"),
        (["--help"], "TRAIN_CONFIG_DIR"),
        (["/root/start_paddle.py", "--help"], "CONF_PADDLE_GRADIENT_NUM"),
        (["sh", "-c", "pwd"], "/\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_every_program_runs_as_any_uid_on_a_read_only_root(
    cluster: Cluster, image: Image, command: list[str], expected: str
) -> None:
    assert expected in cluster.run(*READ_ONLY, image.reference, *command)


@pytest.mark.parametrize(
    "question",
    [
        "find / -xdev -type f -path '*/pip/*'",
        "find / -xdev -type f -name '*gcc*' ! -name 'libgcc*'",
        "find / -xdev -type d -path '*/opt/*' -name tests",
        "find / -xdev -type d -name '.cache'",
        "find /etc/ssl/certs /var/lib/apt/lists -type f -exec sha256sum {} +",
    ],
    ids=["pip", "compiler", "tests", "cache", "certificates"],
)
def test_the_image_keeps_nothing_of_its_making(cluster: Cluster, image: Image, question: str) -> None:
    """Look only at files that are not in the base image."""
    ask = (*READ_ONLY, "--entrypoint", "sh")
    built, base = (
        set(cluster.run(*ask, name, "-c", f"{question} 2>/dev/null || true").splitlines())
        for name in (image.reference, "paddle-test/base")
    )
    assert built <= base
