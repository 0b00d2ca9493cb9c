"""OUT_DIR must lie on a mounted volume where the image says so: elsewhere it is deleted with the container."""

from pathlib import Path

import pytest

from paddle_base.runtime.errors import ConfigError, VolumeError
from paddle_cluster.prepare import mounts, program
from paddle_cluster.prepare.mounts import Mount, find_mount, parse_mounts, require_volume

POD = r"""
620 519 0:54 / / rw,relatime master:270 - overlay overlay rw,lowerdir=/a:/b
621 620 0:56 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
622 620 0:57 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
623 620 254:0 /var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/work /scratch rw,relatime - ext4 /dev/vda rw
624 620 0:99 / /mnt rw,relatime shared:1 - nfs4 10.0.0.1:/ rw
625 620 0:98 /jobs /home/job\040path rw,relatime - fuse.mfs mfsmaster:9421 rw
626 620 254:0 /etc-hosts /etc/hosts rw,relatime - ext4 /dev/vda rw
627 620 0:60 / /run/secrets/kubernetes.io/serviceaccount ro,relatime - tmpfs tmpfs rw
an unknown line
"""


@pytest.fixture
def mountinfo(tmp_path: Path) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(POD)
    return file


def test_names_with_blanks_and_lines_of_another_form_are_read() -> None:
    found = parse_mounts(POD)
    assert len(found) == 8
    assert Mount(Path("/home/job path"), "/jobs") in found


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/efs/paddle-cluster-job", "/"),
        ("/mnt/paddle-cluster-job", "/mnt"),
        ("/mnt", "/mnt"),
        ("/mnt2/paddle-cluster-job", "/"),
        ("/home/job path/a/b", "/home/job path"),
    ],
)
def test_a_directory_lies_on_the_deepest_mount_above_it(path: str, point: str) -> None:
    found = find_mount(Path(path), parse_mounts(POD))
    assert found and found.point == Path(point)


def test_of_two_mounts_at_one_place_the_last_is_seen() -> None:
    found = find_mount(Path("/mnt/x"), [Mount(Path("/mnt"), "/first"), Mount(Path("/mnt"), "/second")])
    assert found == Mount(Path("/mnt"), "/second")


@pytest.mark.parametrize("out_dir", ["/mnt/paddle-cluster-job", "/home/job path/paddle-cluster-job"])
def test_a_mounted_volume_is_accepted(mountinfo: Path, out_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    require_volume(Path(out_dir), mountinfo)
    assert capsys.readouterr().err == ""


def test_an_empty_dir_is_accepted_with_a_warning(mountinfo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An init container may hand its data to the pod's trainer; a Job of its own would lose them."""
    require_volume(Path("/scratch/paddle-cluster-job"), mountinfo)
    assert "WARNING: OUT_DIR is /scratch/paddle-cluster-job, and /scratch is an emptyDir" in capsys.readouterr().err


def test_the_blogs_directory_beside_its_mount_is_refused(mountinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Job mounted /mnt, wrote to /home/work/mfs, succeeded, and left nothing."""
    monkeypatch.setattr(mounts.Path, "is_dir", lambda path: path != Path("/etc/hosts"))
    with pytest.raises(ConfigError) as error:
        require_volume(Path("/home/work/mfs/paddle-cluster-job"), mountinfo)
    assert error.value.exit_code == 78
    assert "lost with this container (mounted are /home/job path, /mnt, /scratch)" in str(error.value)
    assert "REQUIRE_VOLUME=0" in str(error.value)


def test_a_mount_below_a_closed_directory_is_not_named(mountinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Path.is_dir raised PermissionError, and the error was a traceback."""

    def is_dir(path: Path) -> bool:
        if path == Path("/scratch"):
            raise PermissionError(13, "Permission denied", str(path))
        return path == Path("/mnt")

    monkeypatch.setattr(mounts.Path, "is_dir", is_dir)
    with pytest.raises(ConfigError, match=r"\(mounted are /mnt\)"):
        require_volume(Path("/home/work/mfs/paddle-cluster-job"), mountinfo)


def test_a_link_is_followed_to_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/efs")
    info = tmp_path / "info"
    info.write_text(f"1 0 0:1 / / rw - overlay overlay rw\n2 1 0:2 / {tmp_path} rw - nfs4 server:/ rw\n")
    require_volume(tmp_path / "job", info)
    with pytest.raises(ConfigError):
        require_volume(tmp_path / "link/job", info)


def test_an_unreadable_list_of_mounts_is_no_assent(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="REQUIRE_VOLUME=0 disables the check"):
        require_volume(Path("/mnt"), tmp_path / "absent")


def test_outside_of_the_image_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "require_volume", lambda *_: pytest.fail("asked"))
    monkeypatch.delenv("REQUIRE_VOLUME", raising=False)
    assert program.main([f"--out_dir={tmp_path}/job", "--split_count=1", "--data_source=synthetic"]) == 0


def test_the_data_job_asks_before_it_writes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tmp_path / "info"
    info.write_text("1 0 0:1 / / rw - overlay overlay rw\n")
    monkeypatch.setattr(program, "MOUNTINFO", info)
    monkeypatch.setenv("REQUIRE_VOLUME", "1")
    flags = [f"--out_dir={tmp_path}/volume/job", "--split_count=1", "--data_source=synthetic"]
    assert program.main(flags) == 78
    assert "no volume is mounted" in capsys.readouterr().err
    assert not (tmp_path / "volume").exists()
    assert program.main([*flags, "--require_volume=0"]) == 0
    assert "WARNING: DATA_SOURCE=synthetic: all samples are generated" in capsys.readouterr().err
