"""Read and write output/job.json, and create the record of a first attempt."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from paddle_base.runtime.durable_files import read_text_file, retry_stale
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord, parse_record
from paddle_cluster.launcher.cluster.pods import IdMap, in_id_order
from paddle_cluster.launcher.cluster.quorum import Quorum
from paddle_cluster.launcher.command_lines import is_local, wanted_passes, whole_number
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.volume import write_atomically

RECORD_COPY = ".job.json"  # name of the copy beside job.json


def read_record(output: Path, name: str = "job.json") -> JobRecord | None:
    """Return the record in a file of output/, or None if the file does not exist or contains no record."""
    try:
        return parse_record(retry_stale(lambda: read_text_file(output / name)))
    except (OSError, ValueError):
        return None


def write_record(output: Path, record: JobRecord) -> None:
    """Write output/job.json and its copy, which a launcher reads if job.json is lost."""
    text = json.dumps(dataclasses.asdict(record), indent=1) + "\n"
    for name in ("job.json", RECORD_COPY):
        write_atomically(output / name, text)


def find_record(output: Path, job_uid: str, history: AttemptHistory) -> JobRecord | None:
    """Return the record of the previous attempt, even if job.json was lost or damaged during the job."""
    record = read_record(output) or history.record
    copy = None if record else read_record(output, RECORD_COPY)
    if copy and copy.job_uid == job_uid:
        history.say_once(f"{output / 'job.json'} is lost or damaged: using its copy, {output / RECORD_COPY}")
        return copy
    return record


def attempt_config(config: LauncherConfig, record: JobRecord) -> LauncherConfig:
    """Return the config of an attempt, which has fewer trainers and pservers if some pods are absent."""
    return config.having(record.roles) if record.absent else config


def wanted_record(
    config: LauncherConfig, ids: IdMap, passed: Mapping[str, str], quorum: Quorum | None = None
) -> JobRecord:
    """Return the record of a Job's first attempt, made from the environment and the flags.

    Args: config: the config of the Job. quorum: the pods of the attempt, if some pods of the Job are absent.
    """
    layout = quorum.layout if quorum else config.layout
    indexes = {pod.ip: pod.index or 0 for pod in quorum.members} if quorum else ids
    return JobRecord(
        job_uid=ids.job_uid,
        passes=0 if config.entry else wanted_passes(passed),
        finished=False,
        attempt=1,
        pod_uids=ids.pod_uids,
        start_pass=0,
        config=config.train_config_dir,
        gradient_num=layout.trainers,
        pserver_num=0 if is_local(passed) else layout.pservers,
        ports_num=whole_number(passed, "ports_num", config.ports_num, 0),
        ports_num_sparse=whole_number(passed, "ports_num_for_sparse", config.ports_num_sparse, 0),
        pods=[
            {"ip": ip, "place": ids.places.get(ip, ""), "uid": ids.uids.get(ip, ""), "index": indexes[ip]}
            for ip in in_id_order(ids)
        ],
        absent=[*quorum.absent] if quorum else [],
        job_trainers=config.gradient_num,
        job_pservers=config.pserver_num,
    )
