"""The `paddle` command runs the program of a subcommand, and imports only this program.

Each numerical library gets one thread by default; the environment can set another number. One thread is the default,
because the pods of a job share machines, and because sums must have the same order everywhere. Like the wrapper script
of v0.10, the command puts the working directory first on the module path of child processes. The command's own module
path stays unchanged until the program reads a config. A user's `json.py` or `socket.py` therefore replaces no module of
the program.
"""

import contextlib
import difflib
import errno
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from paddle import interrupts
from paddle_base.runtime import VERSION

HELP = """usage: paddle [--help] [<args>]
These are common paddle commands used in various situations:

run:
    train             Start a paddle trainer
    run               Run a program of paddle.v2, also in the syntax of Python 2
    serve             Answer requests over HTTP with a trained network
    pserver           Start a paddle parameter server
    master            Give the tasks of a data set to trainers that join and leave
    elastic run       Start workers that join and leave, with all-reduce as in Horovod
    elastic agent     Start such workers on this machine for a driver on another one
    launch            Start the programs of one pod: start_paddle.py, the image's launcher
    localcluster run  Run the Job of a manifest on this machine, without containers
    prepare           Read a data set, and write the shards of a job: the data job
    autoscaler        Share the nodes of a Kubernetes cluster among jobs

look:
    status            Print the progress of a job: paddle status OUTPUT_DIR
    follow            Report the progress that a program prints as lines Pass=0 Batch=10 AvgCost=0.5
    report            Write the report of a job as an HTML page, or compare two jobs
    usage             Print how long a run took: paddle usage -l train.log
    plotcurve         Draw the curves of a log; needs matplotlib
    tensorboard       Write the records of a job as event files; needs tensorboardX
    doctor            Check whether a job could run on this machine or in this pod
    version           Print paddle version

convert:
    export            Write a trained network as a file of ONNX
    merge_model       Start a paddle merge_model
    dump_config       Dump the trainer config as proto string
    make_diagram      Make a model diagram by graphviz
    recordio          Show, check and write RecordIO files
    completion        Print the script with which bash or zsh completes these commands

'paddle COMMAND --help' lists the flags of a command.
"""
EX_USAGE = 64
EX_SOFTWARE = 70
EX_IOERR = 74
EX_CONFIG = 78
PACKAGES = ("numpy", "google", "zmq", "requests")  # the modules of install_requires in setup.py
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(argv: list[str] | None = None) -> int:
    """Run a command line (by default that of this process) and return the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    status = 0
    try:
        with _quiet_about_closed_stdout():
            status = _run(name, rest)
    except Exception as error:
        # only errors of stdout have no file name
        if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
            _drop_output()
            sys.stderr.write(f"paddle: cannot write to stdout: {error.strerror}; make room, or redirect stdout\n")
            return EX_IOERR
        if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in PACKAGES:
            sys.stderr.write(
                f"paddle: {sys.executable} has no module {error.name}: activate the virtual environment with the "
                "programs (. .venv/bin/activate, after make setup), or install them (docs/your-own-job.md)\n"
            )
            return EX_CONFIG
        traceback.print_exc()  # the exception is a bug of this project
        return EX_SOFTWARE
    if status == interrupts.EXIT_STATUS:
        interrupts.end()
    return status


def _run(name: str, arguments: list[str]) -> int:
    if name in ("--help", "-h", "help"):
        return _print(HELP)
    if name in REPLACED:
        return _refuse(f"there is no command {name!r}; {REPLACED[name]}")
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return _refuse(f"there is no command {name!r}; {hint}'paddle --help' lists all")
    return COMMANDS[name](arguments)


def _program(module: str, *packages: str) -> Callable[[list[str]], int]:
    tool = _tool(module)

    def run(arguments: list[str]) -> int:
        for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(threads, "1")
        # import these packages before the module path changes, because a user's module could replace them later
        for package in packages:
            importlib.import_module(package)
        _lead_children_here()
        return tool(arguments)

    return run


def _tool(module: str) -> Callable[[list[str]], int]:
    """A program that runs no code of the user in its own processes."""

    def run(arguments: list[str]) -> int:
        with interrupts.raised():
            status: int = importlib.import_module(module).main(arguments)
        return status

    return run


def _lead_children_here() -> None:
    directory = str(Path.cwd())
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{directory}{os.pathsep}{others}" if others else directory


def _printing(program: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    def run(arguments: list[str]) -> int:
        with _dying_of_closed_pipe():
            return program(arguments)

    return run


def _version(_arguments: list[str]) -> int:
    features: Mapping[str, bool] = {
        "with_avx": _has_avx(),
        "with_gpu": False,
        "with_double": False,
        "with_python": True,
        "with_rdma": False,
        "with_timer": False,
    }
    lines = [f"    {feature}: {'ON' if present else 'OFF'}\n" for feature, present in features.items()]
    return _print(f"PaddlePaddle {VERSION}, compiled with\n{''.join(lines)}")


def _has_avx() -> bool:
    """Return whether the processor has AVX, according to /proc/cpuinfo."""
    with contextlib.suppress(OSError):
        return " avx " in Path("/proc/cpuinfo").read_text()
    return False


def _print(text: str) -> int:
    with _dying_of_closed_pipe():
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0


def _refuse(message: str) -> int:
    sys.stderr.write(f"paddle: {message}\n")
    return EX_USAGE


@contextlib.contextmanager
def _dying_of_closed_pipe() -> Iterator[None]:
    """End by SIGPIPE, like other Unix programs, if the reader of the output exits (`paddle status ... | head`)."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
        sys.stdout.flush()
    finally:
        signal.signal(signal.SIGPIPE, before)


@contextlib.contextmanager
def _quiet_about_closed_stdout() -> Iterator[None]:
    """Keep the exit status of a program that prints to a closed pipe, for example the exit status of a trainer.

    SIGPIPE is ignored; a closed pipe therefore does not end training. The unwritten output is discarded, because the
    interpreter would otherwise report an error at its end and change the exit status.
    """
    with contextlib.suppress(BrokenPipeError):
        yield
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        _drop_output()


def _drop_output() -> None:
    """Discard the output that is still in the buffer of stdout."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# commands of v0.10 and before: what replaces them
REPLACED: Mapping[str, str] = {
    "cluster_train": (
        "a Job starts the pods (kubectl create -f k8s/job.yaml), and paddle localcluster run starts them on this "
        "machine: see docs/from-v2.md"
    ),
}
_OURS = ("pserver", "trainer")  # the names of our packages that a user's own module may have
COMMANDS: Mapping[str, Callable[[list[str]], int]] = {
    "autoscaler": _program("paddle_cluster.master.autoscaler.__main__"),
    "completion": _printing(_tool("paddle.completion.__main__")),
    "doctor": _printing(_program("paddle.doctor.__main__")),
    "dump_config": _printing(_program("paddle.utils.dump_config", *_OURS)),
    "elastic": _program("paddle_cluster.elastic.launch"),
    "export": _printing(_program("trainer.export.program", *_OURS)),
    "follow": _tool("trainer.telemetry.follow"),
    "launch": _tool("start_paddle"),
    "localcluster": _tool("paddle_cluster.localcluster.program"),
    "make_diagram": _printing(_program("paddle.utils.make_model_diagram", *_OURS)),
    "master": _program("paddle_cluster.master.__main__"),
    "merge_model": _printing(_program("trainer.merge_model", *_OURS)),
    "plotcurve": _printing(_program("paddle.utils.plotcurve", *_OURS)),
    "prepare": _tool("paddle_cluster.prepare.program"),
    "pserver": _program("pserver.__main__", "pserver"),
    "recordio": _printing(_program("paddle.utils.recordio", *_OURS)),
    "report": _printing(_program("trainer.report.__main__")),
    "run": _program("paddle.run", *_OURS),
    "serve": _program("trainer.serving.__main__", *_OURS),
    "status": _printing(_program("paddle.utils.status", *_OURS)),
    "tensorboard": _printing(_program("paddle.utils.tensorboard", *_OURS)),
    "train": _program("trainer.__main__", *_OURS),
    "usage": _printing(_program("paddle.utils.usage", *_OURS)),
    "version": _version,
}
