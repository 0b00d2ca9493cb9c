"""The image by itself: small, and usable by anybody."""

import pytest
from kubernetes_cluster import Cluster, Image

IMAGE_BUDGET_MB = 90
READ_ONLY = ("docker", "run", "--rm", "--network", "none", "--read-only", "--user", "4242:4242")


def test_the_image_adds_at_most_its_budget_to_the_base(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    added = image.added_bytes / 1e6
    with capsys.disabled():
        print(f"\nthe image adds {added:.1f} MB to its base (at most {IMAGE_BUDGET_MB})")
    assert added <= IMAGE_BUDGET_MB


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["paddle", "version"], "PaddlePaddle"),
        (["prepare", "--help"], "SPLIT_COUNT"),
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
    """What the base has by itself is the base's."""
    ask = (*READ_ONLY, "--entrypoint", "sh")
    built, base = (
        set(cluster.run(*ask, name, "-c", f"{question} 2>/dev/null || true").splitlines())
        for name in (image.reference, "paddle-test/base")
    )
    assert built <= base
