"""`paddle recordio show | check | convert` lists RecordIO files, verifies them, and writes new files from text."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from paddle_base.recordio.errors import DamagedChunkError
from paddle_base.recordio.index import FileIndex, open_records, read_index, scan
from paddle_base.recordio.layout import MOST_CHUNK_BYTES, Compression
from paddle_base.recordio.reading import RecordIOReader, load_chunk
from paddle_base.recordio.shards import ShardPlan, write_shards
from paddle_base.recordio.sources import FORMS, read_sources
from paddle_base.recordio.writing import CHUNK_BYTES
from paddle_base.remote.addresses import Address
from paddle_base.remote.places import expand, read_place
from paddle_base.runtime.durable_files import find_output, write_durably, write_mark
from paddle_base.runtime.errors import DataError, PaddleError, UsageError, VolumeError
from trainer.command_line import CommandParser, command

NAMES = {one: one.name.lower() for one in Compression}
LINES = 10_000  # default number of records of a shard


@command("paddle recordio")
def main(argv: Sequence[str]) -> int:
    """Run a command line, and return the exit status."""
    arguments = build_parser().parse_args(argv)
    arguments.files = list(expand(arguments.files, "FILE"))
    status: int = arguments.run(arguments)
    return status


def build_parser() -> CommandParser:
    """Return the parser of the three commands."""
    parser = CommandParser(prog="paddle recordio", description="Show, check and write RecordIO files.")
    commands = parser.add_subparsers(required=True, metavar="show | check | convert")
    show = commands.add_parser("show", help="list the chunks of files, from their headers only")
    show.set_defaults(run=run_show)
    check = commands.add_parser(
        "check", help="read the files completely, and name each damaged chunk; exit status 65: a chunk is damaged"
    )
    check.set_defaults(run=run_check)
    for reads in (show, check):
        reads.add_argument(
            "files",
            nargs="+",
            type=read_place,
            metavar="FILE",
            help="a RecordIO file, or an address such as s3://BUCKET/KEY",
        )
    convert = commands.add_parser("convert", help="write text as RecordIO files, or records of RecordIO files as lines")
    convert.set_defaults(run=run_convert)
    convert.add_argument(
        "files", nargs="+", type=read_place, metavar="FILE", help="input files or addresses, in this order"
    )
    convert.add_argument(
        "--to",
        choices=("recordio", "lines"),
        default="recordio",
        help="recordio: write shards; lines: write records as lines",
    )
    convert.add_argument("-o", "--output-file", type=Path, metavar="OUT", help="file for the lines; default: stdout")
    _add_shard_options(convert)
    return parser


def _add_shard_options(convert: CommandParser) -> None:
    convert.add_argument(
        "--form",
        choices=FORMS,
        default="lines",
        help="what a record is: a line, a row of CSV, or a whole file (then a FILE may be a directory)",
    )
    convert.add_argument(
        "--skip",
        type=_count(0),
        default=0,
        metavar="RECORDS",
        help="number of records to skip in each FILE: 1 for a header (default 0)",
    )
    convert.add_argument(
        "--output_path",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="directory for the shards (default: the working directory)",
    )
    convert.add_argument(
        "--name_prefix",
        default="part",
        metavar="PREFIX",
        help="shards are PREFIX-00000, PREFIX-00001, ...; PREFIX.list names them (default part)",
    )
    convert.add_argument(
        "--line_count",
        type=_count(1),
        default=LINES,
        metavar="RECORDS",
        help=f"records of each shard (default {LINES})",
    )
    convert.add_argument(
        "--compressor",
        choices=NAMES.values(),
        default="snappy",
        help="compression of the chunks (default snappy, as in the original)",
    )
    convert.add_argument(
        "--max_chunk_bytes", type=_count(1, MOST_CHUNK_BYTES), default=CHUNK_BYTES, metavar="BYTES",
        help=f"maximum bytes of the records of a chunk; a master's task has whole chunks (default {CHUNK_BYTES})",
    )  # fmt: skip
    convert.add_argument("--overwrite", action="store_true", help="replace existing shards of the same prefix, or OUT")


def _count(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text[:20]) <= most:
            raise ArgumentTypeError(f"{text} is no whole number in [{least}, {most}]")
        return int(text)

    return parse


def run_show(arguments: Namespace) -> int:
    """Print the chunks of each file.

    Raises: DamagedChunkError, MissingInputError, VolumeError: see `read_index`.
    """
    for path in arguments.files:
        index = read_index(path)
        sys.stdout.write("".join(f"{line}\n" for line in describe(index)))
    return 0


def describe(index: FileIndex) -> Iterator[str]:
    """Yield a line about a file, and the lines of a table of its chunks."""
    kinds = "+".join(sorted({NAMES[chunk.compression] for chunk in index.chunks}))
    yield f"{index.path}: {_sum_up(index)}, {index.size} bytes{', ' if kinds else ''}{kinds}"
    if index.chunks:
        yield f"{'chunk':>7} {'offset':>14} {'bytes':>11} {'records':>10}  compressor"
    for chunk in index.chunks:
        yield (f"{chunk.number:>7} {chunk.offset:>14} {chunk.size:>11} {chunk.records:>10}  {NAMES[chunk.compression]}")


def _sum_up(index: FileIndex) -> str:
    return f"{_plural(index.records, 'record')} in {_plural(len(index.chunks), 'chunk')}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def run_check(arguments: Namespace) -> int:
    """Read all chunks of all files. Print a line for each undamaged file, and name each damaged chunk on stderr.

    Returns: 65 if a chunk is damaged; otherwise the exit code of the first file that cannot be read, or 0.
    """
    statuses = [0]
    for path in arguments.files:
        faults: list[PaddleError] = []
        try:
            faults += find_damage(path)
            if not faults:
                sys.stdout.write(f"{path}: {_sum_up(read_index(path))}, none of them damaged\n")
        except PaddleError as error:
            faults.append(error)
        for fault in faults:
            sys.stderr.write(f"paddle recordio: {fault}\n")
            statuses.append(fault.exit_code)
    return DataError.exit_code if DataError.exit_code in statuses else next(filter(None, statuses), 0)


def find_damage(path: Path | Address) -> Iterator[DamagedChunkError]:
    """Yield an error for each damaged chunk of a file. After a damaged header, later chunks cannot be found.

    Raises: MissingInputError, VolumeError: the file cannot be read.  ConfigError: Snappy is not installed.
    """
    with open_records(path) as file:
        chunks = scan(file, str(path))
        while True:
            try:
                chunk = next(chunks, None)
                if chunk is None:
                    return
                load_chunk(file, str(path), chunk)
            except DamagedChunkError as error:
                yield error


def run_convert(arguments: Namespace) -> int:
    """Write shards or lines.

    Raises: the errors of `write_shards` and `read_sources`, or of `find_target` and `write_lines`.
    """
    if arguments.to == "lines":
        target = arguments.output_file
        write_lines(arguments.files, target and find_target(target, arguments.files, arguments.overwrite))
        return 0
    if arguments.output_file is not None:
        raise UsageError(
            "-o names the file for lines: add --to=lines, or use --output_path and --name_prefix for shards"
        )
    compression = next(one for one, name in NAMES.items() if name == arguments.compressor)
    plan = ShardPlan(
        arguments.output_path, arguments.name_prefix, arguments.line_count, compression, arguments.max_chunk_bytes,
        arguments.overwrite,
    )  # fmt: skip
    shards, count = write_shards(read_sources(arguments.files, arguments.form, arguments.skip), plan)
    size = sum(path.stat().st_size for path in shards)
    names = f"{shards[0]}{f' to {shards[-1].name}' if len(shards) > 1 else ''}"
    sys.stdout.write(f"{plan.list_file}: {names}, {_plural(count, 'record')}, {size} bytes, {arguments.compressor}\n")
    return 0


def find_target(target: Path, paths: Iterable[Path | Address], may_overwrite: bool) -> Path:
    """Return the file to which the lines are written: `target`, or the file to which the link `target` leads.

    Raises: UsageError: the file is one of the input files, or it exists and must not be overwritten.  VolumeError: the
    file exists and is not a regular file.
    """
    try:
        place = find_output(target)
    except OSError as error:
        raise VolumeError(f"cannot write {target}: {error.strerror}; name a file with -o") from error
    if any(_is_same(place, path) for path in paths):
        raise UsageError(f"-o {target} is one of the FILEs that are read; name another file")
    if place.exists() and not may_overwrite:
        raise UsageError(f"{target} exists already; name another file with -o, or replace the file with --overwrite")
    return place


def _is_same(one: Path, other: Path | Address) -> bool:
    try:
        return isinstance(other, Path) and one.samefile(other)
    except OSError:  # one of the files does not exist; a missing input file is reported when it is read
        return False


def write_lines(paths: Iterable[Path | Address], target: Path | None) -> None:
    """Write every record as a line to stdout or to a file. The file gets its name only when it is complete.

    Raises: DataError: a record has several lines.  VolumeError: the file cannot be written.  The errors of
        `RecordIOReader`.
    """
    if target is None:
        for line in _lines(paths):
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        return
    write_durably(target.parent, lambda: write_mark(target, _lines(paths)))


def _lines(paths: Iterable[Path | Address]) -> Iterator[bytes]:
    for path in paths:
        with RecordIOReader(path) as reader:
            for number, record in enumerate(reader):
                if b"\n" in record:
                    raise DataError(
                        f"{path}: record {number} (counted from 0) has several lines; read it by a program, with "
                        "paddle.trainer.recordio"
                    )
                yield record + b"\n"
