"""Finds the words that complete each command in the tables and parsers with which the commands read their flags."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paddle_base.runtime.gflags import Flag

# path of a command -> (module, name) of its flags, which are a table of gflags, a function that returns an argparse
# parser, or a sequence of texts. None of the modules in this table imports numpy, because importing numpy would make
# the completion slow.
SOURCES: Mapping[str, tuple[str, str]] = {
    "paddle autoscaler": ("paddle_cluster.master.autoscaler.flags", "FLAGS"),
    "paddle completion": ("paddle.completion.__main__", "build_parser"),
    "paddle doctor": ("paddle.doctor.__main__", "build_parser"),
    "paddle dump_config": ("paddle.completion.tables", "DUMP_CONFIG"),
    "paddle elastic agent": ("paddle.completion.tables", "AGENT"),
    "paddle elastic run": ("paddle_cluster.elastic.launching.flags", "make_parser"),
    "paddle export": ("trainer.export.program", "build_parser"),
    "paddle follow": ("trainer.telemetry.follow", "build_parser"),
    "paddle launch": ("trainer.flags", "FLAGS"),
    "paddle localcluster": ("paddle_cluster.localcluster.flags", "build_parser"),
    "paddle make_diagram": ("paddle.completion.tables", "NONE"),
    "paddle master": ("paddle_cluster.master.flags", "FLAGS"),
    "paddle merge_model": ("paddle.completion.tables", "MERGE_MODEL"),
    "paddle plotcurve": ("paddle.utils.plotcurve", "build_parser"),
    "paddle prepare": ("paddle_cluster.prepare.settings", "make_parser"),
    "paddle pserver": ("pserver.flags", "FLAGS"),
    "paddle recordio": ("paddle.utils.recordio", "build_parser"),
    "paddle report": ("trainer.report.__main__", "build_parser"),
    "paddle run": ("paddle.completion.tables", "NONE"),
    "paddle serve": ("trainer.serving.flags", "FLAGS"),
    "paddle status": ("paddle.completion.tables", "NONE"),
    "paddle tensorboard": ("paddle.utils.tensorboard", "build_parser"),
    "paddle train": ("trainer.flags", "FLAGS"),
    "paddle usage": ("paddle.utils.usage", "FLAGS"),
    "paddle version": ("paddle.completion.tables", "NONE"),
    "start_paddle.py": ("trainer.flags", "FLAGS"),
    "start_paddle.py status": ("paddle.completion.tables", "LAUNCHER_STATUS"),
}
# flags of commands without a table or parser, and of commands whose modules take long to import; a test compares these
# flags with the --help of the command
NONE: Sequence[str] = ()
DUMP_CONFIG = ("--whole", "--binary")
AGENT = ("--port", "--address", "--driver-timeout", "--leave-timeout")
MERGE_MODEL = ("--model_dir=", "--model_file=", "--config=", "--config_args=", "--python_path=")
LAUNCHER = ("--dry_run",)
LAUNCHER_STATUS = ("--namespace=", "--job_path=")
HELP = "--help"


@dataclass
class CommandWords:
    """The words that may follow a command: names of its subcommands, and flags.

    A flag that ends in `=` takes its value after the `=`.  `values`: flag without `=` -> the values that it may have.
    """

    commands: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    values: dict[str, Sequence[str]] = field(default_factory=dict)


def collect_words() -> dict[str, CommandWords]:
    """Return path -> words for every command; examples of paths are `paddle` and `paddle elastic run`."""
    found: dict[str, CommandWords] = {}
    for path, (module, name) in SOURCES.items():
        for inner, words in read_source(path, getattr(importlib.import_module(module), name)):
            found[inner] = words
    for launcher in ("paddle launch", "start_paddle.py"):
        found[launcher].flags += LAUNCHER
    for path in list(found):
        while " " in path:
            path, _, name = path.rpartition(" ")
            commands = found.setdefault(path, CommandWords()).commands
            if name not in commands:
                commands.append(name)
    for words in found.values():
        words.flags = [HELP, *(flag for flag in words.flags if flag not in (HELP, "-h", "--nohelp"))]
    return found


def read_source(path: str, source: object) -> Iterator[tuple[str, CommandWords]]:
    """Yield (path, words) of a command and of its subcommands."""
    if isinstance(source, Mapping):
        yield path, read_table(source)
    elif callable(source):
        yield from read_parser(path, source())
    elif isinstance(source, Sequence):
        yield path, CommandWords(flags=[str(flag) for flag in source])


def read_table(table: Mapping[str, Flag]) -> CommandWords:
    """Return the words of a table of gflags; a boolean flag also has the form --noNAME."""
    words = CommandWords()
    for flag in table.values():
        words.flags += [f"--{flag.name}", f"--no{flag.name}"] if flag.kind is bool else [f"--{flag.name}="]
        if flag.choices:
            words.values[f"--{flag.name}"] = flag.choices
    return words


def read_parser(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, CommandWords]]:
    """Yield (path, words) of a parser and of its subparsers."""
    words = CommandWords()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from read_parser(f"{path} {name}", inner)
            continue
        words.flags += action.option_strings
        if action.choices:
            words.values |= {key: [str(one) for one in action.choices] for key in action.option_strings or [""]}
    yield path, words
