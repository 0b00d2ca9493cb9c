"""The command `paddle export`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddle_base.runtime.durable_files import find_output
from paddle_base.runtime.errors import ConfigError, UsageError, VolumeError
from trainer.command_line import CommandParser, command

# for each format: the module whose `write(model, target, arguments)` writes a file, and the packages that it imports
FORMATS: Mapping[str, tuple[str, Sequence[str]]] = {
    "onnx": ("trainer.export.onnx.files", ("onnx",)),
    "safetensors": ("trainer.export.tensors.weights", ()),
    "torch": ("trainer.export.tensors.torch_file", ("torch",)),
}
# flags that say nothing in the other formats
ONLY = {"opset": ("onnx",), "dictionary": ("onnx",), "outputs": ("onnx", "torch")}
EXTRAS = {"torch": "torch"}  # the extra of a package; that of the others is `export`


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(prog="paddle export", description="Write a trained network in the format of other programs.")
    add = parser.add_argument
    add("target", type=Path, metavar="FILE", help="file to write; with --import a pass directory, or a file NAME.tar")
    add("--format", choices=list(FORMATS), default="onnx", help="format of the file; default: onnx")
    add("--config", default="", help="config script of the network; default: the one that --init_model_path names")
    add("--config_args", default="", metavar="K=V,...", help="arguments of the config script")
    add("--python_path", default="", metavar="A:B", help="further directories of modules, separated by colons")
    add("--init_model_path", default="", metavar="PASS", help="parameters of the config's network: a pass directory")
    add("--model", default="", metavar="MERGED", help="file of paddle merge_model, in place of the flags above")
    add("--v2", default="", metavar="TAR", help="tar file of parameters of paddle.v2; needs --topology")
    add("--topology", default="", metavar="T", help="network of a tar file: what serialize_for_inference wrote")
    add(
        "--input_types",
        default="",
        metavar="NAME:TYPE,...",
        help="types of data layers, such as word:integer_value_sequence, where no data provider or topology has them",
    )
    add(
        "--outputs",
        type=_split_names,
        default=[],
        metavar="A,B",
        help="layers to compute; default: the outputs of the network",
    )
    add("--opset", type=int, default=0, help="version of the operators of ONNX, 17 to 21; default: 17")
    add(
        "--dictionary",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="dictionary file of a data layer, which the metadata of the file keeps; may be repeated",
    )
    add(
        "--import",
        dest="weights",
        default="",
        metavar="WEIGHTS",
        help="the way back: write the parameters of a file of safetensors as a pass directory of --config's network",
    )
    add("--overwrite", action="store_true", help="replace a file that stands already")
    return parser


def _split_names(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


@command("paddle export")
def main(argv: Sequence[str]) -> None:
    """Write a model."""
    arguments = build_parser().parse_args(argv)
    if arguments.weights:
        import_package("safetensors")
        written = importlib.import_module("trainer.export.tensors.importing").import_weights(arguments)
        sys.stdout.write(f"{arguments.target}: {written}\n")
        return
    for flag, formats in ONLY.items():
        if getattr(arguments, flag) and arguments.format not in formats:
            raise UsageError(f"--{flag} belongs to --format={' and '.join(formats)}; leave it out")
    module, packages = FORMATS[arguments.format]
    for package in packages:
        import_package(package)
    target = find_target(arguments.target, may_overwrite=arguments.overwrite)
    require_one_model(arguments)
    # numpy and the packages of formats come after wrong arguments have been answered
    model = importlib.import_module("trainer.export.model").read_named(arguments)
    written = importlib.import_module(module).write(model, target, arguments)
    sys.stdout.write(f"{arguments.target}: {written}\n")


def import_package(name: str) -> Any:
    """Import a package of an extra.

    Raises: ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{name} cannot be imported ({error}); install it: pip install "
            f"'paddle-on-kubernetes[{EXTRAS.get(name, 'export')}]'"
        ) from error


def find_target(target: Path, *, may_overwrite: bool) -> Path:
    """Return the file to write, before a model is read.

    Raises: UsageError: it stands already. VolumeError: it is no regular file.
    """
    try:
        place = find_output(target)
    except OSError as error:
        raise VolumeError(f"cannot write {target}: {error.strerror}; name another file") from error
    if place.exists() and not may_overwrite:
        raise UsageError(f"{target} exists already; name another file, or replace the file with --overwrite")
    return place


def require_one_model(arguments: argparse.Namespace) -> None:
    """Check that the arguments name one model: --config and --init_model_path, --model, or --v2 and --topology.

    Raises: UsageError: they name none, or several.
    """
    ways = {"--model": arguments.model, "--v2": arguments.v2, "--config": arguments.config}
    given = [flag for flag, value in ways.items() if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} name several models; give one of them")
    if not given and not arguments.init_model_path:
        raise UsageError(
            "no model is given: give --config and --init_model_path, --model=merged.paddle, or --v2=inference.tar and "
            "--topology=T"
        )
    if bool(arguments.v2) != bool(arguments.topology):
        raise UsageError(
            "--v2=inference.tar and --topology=T belong together; T is a file that Topology.serialize_for_inference "
            "wrote"
        )
    if arguments.config and not arguments.init_model_path:
        raise UsageError(
            "--config needs the parameters, too: --init_model_path=pass-00009, a directory that paddle train has saved"
        )
    if arguments.init_model_path and (arguments.model or arguments.v2):
        raise UsageError("--init_model_path belongs to --config; leave it out, or --model and --v2")


if __name__ == "__main__":
    sys.exit(main())
