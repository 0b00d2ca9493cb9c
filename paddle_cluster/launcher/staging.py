"""Copy this trainer's data to ./data: its shard, and files of the shards of absent trainers."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import functools
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddle_base.runtime.durable_files import read_text_file, retry_stale
from paddle_base.runtime.errors import DataError, MissingInputError, PaddleError, VolumeError
from paddle_cluster.launcher.attempts import AttemptHistory, JobRecord
from paddle_cluster.launcher.errors import IndivisibleError
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.shards.division import STAGED, Portion, ShardLists, assign_bases, divide, place_of
from paddle_cluster.launcher.shards.overlay import Overlay, StagedData
from paddle_cluster.launcher.shards.sources import marker_of, place_of_job, remove_copies, shard_of
from paddle_cluster.launcher.shards.tree import LOOP, NOTHING, TOO_MANY, walk_tree
from paddle_cluster.launcher.volume import describe_owner, describe_volume_error, load, volume_errors

# maximum number of files in a shard; only nested links to directories can produce a larger number
MAX_FILES = 1_000_000


def read_split_count(marker: Path) -> int | None:
    """Return the number of shards that the data job has made, or None if the data job has not made the data."""
    try:
        return int(load(marker)["split_count"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def stage_data(config: LauncherConfig, trainer_id: int, overlay: Overlay, place: str = "") -> int:
    """Copy a trainer's shard to a place below the overlay's directory, and return the number of files.

    Raises: MissingInputError: the shard does not exist, has no file, or is not readable for this user. DataError: the
        files of the shard are empty, or a file and a directory have one name. VolumeError: the shard does not fit into
        the work directory.
    """
    target, before = overlay.target / place, overlay.files
    job = place_of_job(config)
    advice = (
        f"the data job makes {job}/0/data ... {job}/{config.gradient_num - 1}/data "
        f"(kubectl create -f k8s/data-job.yaml, with SPLIT_COUNT={config.gradient_num})"
    )
    split_count = read_split_count(marker_of(config))
    if split_count not in (None, config.gradient_num):
        raise MissingInputError(
            f"the data were split into {split_count} shards for {config.gradient_num} trainers: {advice}"
        )
    source = shard_of(config, trainer_id)
    try:
        names = retry_stale(lambda: os.listdir(source))  # noqa: PTH208 - the same call in every Python
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInputError(f"there is no {source}, the shard of trainer {trainer_id}: {advice}") from None
    except PermissionError as problem:
        raise MissingInputError(describe_refusal(source, problem)) from problem
    except OSError as problem:
        raise VolumeError(f"cannot read {source}: {problem.strerror}; check the volume") from problem
    if all(name.startswith(".") for name in names):
        raise MissingInputError(f"{source}, the shard of trainer {trainer_id}, is empty: {advice}")
    fault = find_bad_data(source)
    if fault:
        raise DataError(f"trainer {trainer_id} has nothing to train with: {fault}: {advice}")

    def prepare(directory: str, _names: list[str]) -> tuple[()]:  # copytree calls it before it makes the copy
        overlay.make_directory(target / Path(directory).relative_to(source))
        return ()

    try:
        shutil.copytree(source, target, ignore=prepare, copy_function=overlay.copy, dirs_exist_ok=True)
    except shutil.Error as problem:  # the error contains a list of (source, target, text); the first entry suffices
        first, _, text = problem.args[0][0]
        is_of_file = re.match(rf"\[Errno ({errno.ENOENT}|{errno.EACCES}|{errno.EPERM})\]", text)
        if not is_of_file or os.access(first, os.R_OK):
            raise VolumeError(f"cannot copy the shard: {text}; check the volume") from problem
        code = int(is_of_file[1])
        if code == errno.ENOENT:
            raise MissingInputError(f"cannot copy the shard: {text}; make the shard again") from problem
        raise MissingInputError(describe_refusal(Path(first), OSError(code, os.strerror(code)))) from problem
    except OSError as problem:
        raise VolumeError(describe_volume_error(target, problem)) from problem
    return overlay.files - before


def walk_shard(shard: Path) -> Iterator[Path]:
    """Yield every file of a shard, including files below linked directories. Skip links to files that do not exist.

    Raises: DataError: a link forms a loop, there are more than MAX_FILES files, or an entry is not a regular file.
    """
    for path, kind in walk_tree(shard, MAX_FILES):
        if not kind:
            yield path
        elif kind == TOO_MANY:
            raise DataError(f"{shard} has more than {MAX_FILES} files; remove links to directories from it")
        elif kind == LOOP:
            raise DataError(f"{path} is a link that forms a loop; remove it")
        elif kind != NOTHING:
            raise DataError(f"{path} is neither a file nor a directory; remove it from the shard")


def find_bad_data(shard: Path) -> str:
    """Return why a shard has nothing to train with, or "".

    A shard has nothing to train with in two cases: all files in one of its lists are empty, or the shard has no lists
    and all its files are empty. The function does not check test lists and files that only the config names; the
    trainer reports faults in these files. Hidden files and files that are being removed are ignored.

    Raises: DataError: see walk_shard.
    """
    sizes: dict[str, int] = {}
    for path in walk_shard(shard):
        with contextlib.suppress(OSError):
            if not path.name.startswith("."):
                sizes[f"data/{path.relative_to(shard)}"] = path.stat().st_size
    lists = [name for name in sizes if name.endswith(".list")]
    for name in lists:
        named = []
        with contextlib.suppress(OSError):
            named = read_text_file(shard / name.removeprefix("data/")).decode("utf-8", "replace").split("\n")
        named = [line.strip() for line in named if line.strip()]
        if "test" not in name and all(line in sizes and not sizes[line] for line in named):
            listed = f"only empty files: {', '.join(named[:3])}" if named else "no file"
            return f"{shard}/{name.removeprefix('data/')} names {listed}"
    is_empty = bool(sizes) and not lists and not any(sizes.values())
    return f"all files of {shard} are empty" if is_empty else ""


def describe_refusal(path: Path, problem: OSError) -> str:
    """Describe which part of a path this user may not read, which user owns that part, and what to do."""
    text = f"uid {os.getuid()} cannot read {path}: {problem.strerror}"
    last = os.R_OK | (os.X_OK if os.path.isdir(path) else 0)  # noqa: PTH112 - Path's fails below a locked directory
    needed = [*((place, os.X_OK) for place in reversed(path.parents)), (path, last)]
    refused = next((place for place, right in needed if not os.access(place, right)), path)
    with contextlib.suppress(OSError):
        text += f"; {describe_owner(refused)}"
    return f"{text}; let this user read it: chmod {'-R ' * (refused == path)}a+rX {refused}"


def stage_shard(
    config: LauncherConfig, trainer_id: int, target: Path, history: AttemptHistory, record: JobRecord | None = None
) -> str:
    """Copy this trainer's data to `target` if `target` lacks them, and remove the data of other shards.

    Args: config: the config of the Job. record: the attempt, with its absent trainers.
    Returns: a description of the copy.
    """
    layout = record.roles if record and record.absent else config.layout
    if not layout.runs_trainer(trainer_id):
        return f"no trainer in this pod: the number of trainers in this attempt is {layout.trainers}"
    if config.entry and has_no_shards(config, trainer_id):
        return f"there are no shards in {place_of_job(config)}, so the program has no ./{target}"
    wanted = Portion(trainer_id)
    if record and record.absent:
        wanted = plan_portions(config, record.indexes[: layout.trainers])[trainer_id]
    staged = history.staged = history.staged or StagedData.below(target)
    said = f"shard {wanted.base} is still in ./{target}"
    if staged.portion == wanted:
        return said
    before, staged.portion = staged.portion, None  # the data are incomplete until the end of this function
    try:
        staged.pieces.clear()
        # without a completion index, a changed set of pods may give this pod another id
        if before is None or before.base != wanted.base:
            staged.shard.clear()
            said = f"copied {stage_data(config, wanted.base, staged.shard)} files of shard {wanted.base} to ./{target}"
        if wanted.pieces:
            said += f", and {stage_pieces(config, wanted, staged)}"
    except PaddleError:
        staged.clear()
        raise
    finally:
        remove_copies()
    staged.portion = wanted
    return said


# ----- Shards of absent trainers


def has_no_shards(config: LauncherConfig, trainer_id: int) -> bool:
    """Return whether the job has no data on the volume; a program of ENTRY may read its data from elsewhere."""
    if config.job_input is not None:
        return False
    places = (config.job_dir / "prepared.json", *(config.job_dir / str(number) / "data" for number in (0, trainer_id)))
    try:
        return not any(path.exists() for path in places)
    except OSError:  # `stage_data` reports it
        return False


def plan_portions(config: LauncherConfig, indexes: Sequence[int]) -> list[Portion]:
    """Return the data of each trainer of an attempt with fewer trainers; each file belongs to exactly one trainer.

    Args: config: the config of the Job. indexes: the completion indexes of the trainers, ordered by trainer id.
    Raises: IndivisibleError: an absent trainer's shard has no list of its files. VolumeError, DataError.
    """
    bases = assign_bases(config.gradient_num, indexes)
    absent = [number for number in range(config.gradient_num) if number not in bases]
    portions = divide(bases, {number: read_lists(shard_of(config, number)) for number in absent})
    if isinstance(portions, int):
        raise IndivisibleError(
            f"shard {portions}, {shard_of(config, portions)}, cannot be divided among other trainers: no "
            "list names its files; write a list (*.list) into each shard"
        )
    return portions


def read_lists(shard: Path) -> ShardLists:
    """Return the file sizes and the lists of a shard. Raises: VolumeError; DataError: see walk_shard."""
    sizes, lists = {}, {}
    try:
        for path in walk_shard(shard):
            name = str(path.relative_to(shard))
            sizes[f"{STAGED}{name}"] = path.stat().st_size
            if path.suffix == ".list":
                content = retry_stale(functools.partial(read_text_file, path))
                lines = content.decode("utf-8", "surrogateescape").split("\n")
                lists[name] = [line.strip() for line in lines]
    except OSError as problem:
        raise VolumeError(f"cannot read {shard}: {problem.strerror}; check the volume") from problem
    return ShardLists(sizes, lists)


def stage_pieces(config: LauncherConfig, portion: Portion, staged: StagedData) -> str:
    """Copy the absent trainers' shards in which this trainer has files, and add these files to this trainer's lists.

    A test file that is also in this trainer's own shard is not added. Returns: a description of the copy.
    """
    own, overlay = shard_of(config, portion.base), staged.pieces
    added: dict[str, list[str]] = {}
    for piece in portion.pieces:
        other = shard_of(config, piece.shard)
        if not (piece.is_test and piece.file and is_same_file(own / piece.file, other / piece.file)):
            added.setdefault(piece.list_name, []).append(piece.staged)
    for number in portion.others:
        stage_data(config, number, overlay, place_of(number))
    with volume_errors(overlay.target):
        for name, entries in added.items():
            path, text = overlay.target / name, b""
            if staged.shard.has_file(name):
                text = path.read_bytes().rstrip(b"\n") + b"\n"
            overlay.make_room(path)
            path.write_bytes(text + "".join(f"{entry}\n" for entry in entries).encode("utf-8", "surrogateescape"))
    count = sum(not piece.is_test for piece in portion.pieces)
    shards = ", ".join(map(str, portion.others))
    return f"{count} files of absent trainers' shards ({shards})"


def is_same_file(own: Path, other: Path) -> bool:
    """Return whether two paths name the same file, or two files with equal contents."""
    try:
        mine, its = own.stat(), other.stat()
        if (mine.st_dev, mine.st_ino) == (its.st_dev, its.st_ino):
            return True
        return mine.st_size == its.st_size and filecmp.cmp(own, other, shallow=False)
    except OSError:
        return False
