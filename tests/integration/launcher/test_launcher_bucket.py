"""A job whose config and shards are in a bucket, and whose output is copied to one: a real S3 server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from builders import JOB, pod_environment
from s3_process import SECRET, environ_of, half, refuse

from paddle_base.remote.addresses import parse_address
from paddle_base.runtime.errors import ConfigError, MissingInputError, PeerUnreachableError
from paddle_cluster.launcher import copying
from paddle_cluster.launcher.attempts import AttemptHistory
from paddle_cluster.launcher.copying import CopyingThread, OutputCopy
from paddle_cluster.launcher.programs.process import Stop
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.staging import stage_shard

sys.path.append(str(Path(__file__).parents[2] / "unit" / "entrypoint"))
from script_pod import Pod


def config_of(tmp_path: Path, **more: str) -> LauncherConfig:
    given = {"JOB_PATH": str(tmp_path / "volume"), "CONF_PADDLE_GRADIENT_NUM": "2", **more}
    return LauncherConfig.from_env(pod_environment(**given))


def put_job(bucket, shards=2):
    bucket.put("jobs/one/digits/trainer_config.py", b"settings()\n")
    bucket.put("jobs/one/digits/sub/helper.py", b"# helper\n")
    bucket.put("jobs/one/prepared.json", b'{"split_count": %d}' % shards)
    for shard in range(shards):
        bucket.put(f"jobs/one/{shard}/data/train.list", b"data/train.txt\n")
        bucket.put(f"jobs/one/{shard}/data/train.txt", b"shard %d\n" % shard)


def test_a_trainers_shard_is_copied_from_the_bucket(bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put_job(bucket)
    bucket.proxy.faults = [half]
    history = AttemptHistory()
    config = config_of(tmp_path, JOB_INPUT="s3://bucket/jobs/one")
    assert stage_shard(config, 1, Path("data"), history) == "copied 2 files of shard 1 to ./data"
    assert Path("data/train.txt").read_text() == "shard 1\n"
    assert not Path(".job-input").exists()
    count = len(bucket.proxy.requests)
    assert stage_shard(config, 1, Path("data"), history) == "shard 1 is still in ./data"
    assert len(bucket.proxy.requests) == count


def test_a_shard_that_the_bucket_lacks_is_named_with_what_to_do(bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put_job(bucket, shards=1)
    with pytest.raises(
        MissingInputError, match=r"split into 1 shards for 2 trainers: the data job makes s3://bucket/jobs"
    ):
        stage_shard(config_of(tmp_path, JOB_INPUT="s3://bucket/jobs/one"), 1, Path("data"), AttemptHistory())
    with pytest.raises(MissingInputError, match=r"JOB_INPUT s3://bucket/jobs/two/1/data/: no object is there"):
        stage_shard(config_of(tmp_path, JOB_INPUT="s3://bucket/jobs/two/"), 1, Path("data"), AttemptHistory())


def test_an_address_that_is_no_bucket_is_refused_without_its_password(tmp_path):
    with pytest.raises(ConfigError, match="JOB_INPUT is https://host/x, which is no address in a bucket"):
        config_of(tmp_path, JOB_INPUT="https://host/x")
    with pytest.raises(ConfigError, match="OUTPUT_COPY has a user or password before an '@'") as caught:
        config_of(tmp_path, OUTPUT_COPY=f"s3://me:{SECRET}@bucket/x")
    assert SECRET not in str(caught.value)


def test_start_sh_stages_the_config_of_the_bucket(bucket, tmp_path):
    put_job(bucket)
    pod = Pod(tmp_path / "pod")
    environ = {**environ_of(bucket.proxy.endpoint), "JOB_INPUT": "s3://bucket/jobs/one", "JOB_NAME": "another"}
    record = pod.record(**environ)
    assert record["cwd"] == str(pod.work / "another") and (pod.volume / "another").is_dir()
    assert (pod.work / "another/sub/helper.py").read_text() == "# helper\n"
    done = pod.start(**{**environ, "TRAIN_CONFIG_DIR": "none"})
    assert done.returncode == 66
    assert "start.sh: JOB_INPUT s3://bucket/jobs/one/none/: no object is there" in done.stderr
    done = pod.start(**{**environ, "TRAIN_CONFIG_DIR": None})
    assert done.returncode == 78 and "JOB_INPUT is set, and TRAIN_CONFIG_DIR is not" in done.stderr


def save(output: Path, name: str, *, done: bool = True) -> None:
    (output / name).mkdir(parents=True, exist_ok=True)
    (output / name / "___fc__.w0").write_bytes(b"w" * 100)
    if done:
        (output / name / "done").write_bytes(b"")


def puts(bucket) -> list[str]:
    keys = [path.partition("?")[0].removeprefix("/bucket/") for way, path, _ in bucket.proxy.requests if way == "PUT"]
    bucket.proxy.requests.clear()
    return keys


def test_a_complete_save_is_copied_with_its_mark_last(bucket, tmp_path):
    output = tmp_path / JOB / "output"
    save(output, "pass-00000")
    save(output, "pass-00001", done=False)
    save(output, "state/pass-00000")
    (output / "records.jsonl").write_text("{}\n")
    (output / ".hidden").write_text("x")
    address = parse_address("s3://bucket/copy", "OUTPUT_COPY")
    OutputCopy(output, address, bucket.patience()).look()
    copied = puts(bucket)
    assert copied == [
        "copy/pass-00000/___fc__.w0", "copy/pass-00000/done", "copy/state/pass-00000/___fc__.w0",
        "copy/state/pass-00000/done", "copy/records.jsonl",
    ]  # fmt: skip
    save(output, "pass-00001")
    again = OutputCopy(output, address, bucket.patience())  # another pod, which finds the notes on the volume
    again.look()
    assert puts(bucket) == ["copy/pass-00001/___fc__.w0", "copy/pass-00001/done"]
    assert again.look() == 0


def test_a_save_that_is_replaced_loses_its_mark_until_the_copy_is_complete(bucket, tmp_path):
    save(tmp_path, "pass-00000")
    address = parse_address("s3://bucket/copy", "OUTPUT_COPY")
    copy = OutputCopy(tmp_path, address, bucket.patience())
    copy.look()
    save(tmp_path, "pass-00000")
    (tmp_path / "pass-00000/done").unlink()
    save(tmp_path, "pass-00000")
    bucket.proxy.applies, bucket.proxy.faults = (lambda way, path: way == "PUT"), [refuse] * 1000
    moments = iter(range(10_000))
    failing = OutputCopy(tmp_path, address, bucket.patience(clock=lambda: float(next(moments))))
    with pytest.raises(PeerUnreachableError):
        failing.look()
    assert not (bucket.folder / "copy/pass-00000/done").exists()
    bucket.proxy.faults = []
    failing.look()
    assert (bucket.folder / "copy/pass-00000/done").exists()


def test_the_end_of_an_attempt_waits_for_the_copy_and_a_failure_is_a_line(bucket, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(copying, "PERIOD_S", 1000.0)
    save(tmp_path, "pass-00000")
    with CopyingThread(tmp_path, parse_address("s3://bucket/copy", "OUTPUT_COPY"), 10.0, Stop()):
        pass
    assert (bucket.folder / "copy/pass-00000/done").exists()
    with CopyingThread(tmp_path, parse_address("s3://nobucket/copy", "OUTPUT_COPY"), 10.0, Stop()):
        save(tmp_path, "pass-00001")
    said = "".join(capsys.readouterr())
    assert "OUTPUT_COPY s3://nobucket/copy/" in said and "the volume has all of it" in said
