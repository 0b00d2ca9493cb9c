"""The command line of `paddle train`: one table of all the legacy's flags, and gflags' syntax.

`--name=value`, `--name value`, `-name=value`; booleans also `--name` and `--noname`. Of a flag given
twice the last counts.

Source: spec/trainer.md 1.1 and 1.2.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pserver.addresses import list_hosts, list_services
from pserver.errors import UsageError

_INT32 = 1 << 31


class Status(Enum):
    """What becomes of a flag that is given with another value than its default."""

    SUPPORTED = "supported"
    QUIET = "accepted, without meaning here"
    IGNORED = "accepted with a warning, without meaning here"
    NOT_YET = "not supported yet"


@dataclass(frozen=True)
class Flag:
    """One line of the table; `least` and `most` are the smallest and the largest possible number."""

    name: str
    kind: type[bool] | type[int] | type[float] | type[str]
    default: bool | int | float | str
    status: Status
    meaning: str
    least: int | None = None
    choices: tuple[str, ...] = ()
    most: int = _INT32 - 1


_S, _Q, _I, _N = Status.SUPPORTED, Status.QUIET, Status.IGNORED, Status.NOT_YET

TABLE: tuple[Flag, ...] = (
    # job, config, input and output
    Flag(
        "job",
        str,
        "train",
        _S,
        "train, test, checkgrad or time",
        None,
        ("train", "test", "checkgrad", "time"),
    ),
    Flag("config", str, "", _S, "the config script; empty: that of --init_model_path"),
    Flag("config_args", str, "", _S, "k1=v1,k2=v2 for the config script"),
    Flag("num_passes", int, 100, _S, "passes to run from start_pass on; job=test: exclusive upper pass number", 0),
    Flag("start_pass", int, 0, _S, "first pass number; loads pass start_pass-1 from save_dir", 0),
    Flag("init_model_path", str, "", _S, "directory, merged model or tar to load from; wins over start_pass"),
    Flag(
        "load_missing_parameter_strategy",
        str,
        "fail",
        _S,
        "fail, rand or zero for absent parameter files",
        None,
        ("fail", "rand", "zero"),
    ),
    Flag("save_dir", str, "", _S, "where pass-* directories go; empty: the config's"),
    Flag("saving_period", int, 1, _S, "save when pass % saving_period == 0", 1),
    Flag("saving_period_by_batches", int, 0, _S, "save also inside a pass, every so many batches; 0 = never", 0),
    Flag("save_only_one", bool, False, _S, "after a save remove the pass directory saving_period earlier"),
    Flag("checkpoint_period_by_batches", int, 0, _S, "checkpoint also every so many batches; 0 = never", 0),
    Flag("checkpoint_period_seconds", int, 0, _S, "checkpoint also when so many seconds have passed; 0 = never", 0),
    Flag("checkpoints_kept", int, 2, _S, "so many checkpoints are kept", 1),
    Flag("resume_from", str, "", _S, "checkpoint directory to go on from; --start_pass and --num_passes as at first"),
    Flag("comment", str, "", _Q, "free text, by which scripts find processes"),
    Flag("python_path", str, "", _S, "further directories of modules, separated by colons"),
    Flag("python_bin", str, "python2.7", _I, "name of the interpreter"),
    Flag("version", bool, False, _S, "print the version and exit"),
    Flag("with_cost", bool, True, _S, "with_cost for the config script"),
    # logging
    Flag("log_period", int, 100, _S, "batches between progress lines, and the window of Current values", 1),
    Flag("dot_period", int, 1, _S, "batches between dots; 0 = none", 0),
    Flag("show_parameter_stats_period", int, 0, _S, "batches between parameter statistics; 0 = none", 0),
    Flag("show_layer_stat", bool, False, _S, "statistics of every layer in every batch"),
    Flag("log_clipping", bool, False, _S, "log where gradients are clipped; servers clip without a word"),
    Flag("log_error_clipping", bool, False, _S, "log where a layer's errors are clipped"),
    Flag(
        "progress_period",
        int,
        30,
        _S,
        "seconds between lines that say how far, how fast, how long; 0 = none",
        0,
    ),
    Flag("log_json", str, "", _S, "file that log lines are also appended to, each as a JSON object; empty: none"),
    Flag("report", bool, False, _S, "write records.jsonl, progress.json and report.html; not given: in a pod only"),
    Flag(
        "metrics_port",
        int,
        0,
        _S,
        "port of /healthz, /readyz and /metrics, on what --nics names; 0 = none",
        0,
        most=65535,
    ),
    Flag("layer_stack_error_only_current_thread", bool, True, _I, "form of the crash dump"),
    Flag("profile_signal", int, 12, _I, "signal of the CPU profiler"),
    Flag("profile_data_file", str, "gperf.prof", _I, "output of the CPU profiler"),
    # testing
    Flag("test_period", int, 0, _S, "test also after every so many batches; 0 = only after a pass", 0),
    Flag("test_all_data_in_one_period", bool, False, _S, "deprecated; tests always take all data"),
    Flag(
        "average_test_period",
        int,
        0,
        _S,
        "measure the averaged parameters on the last log_period batches of so many; 0 = never",
        0,
    ),
    Flag("test_pass", int, -1, _S, "job=test: first pass number"),
    Flag("test_wait", int, 0, _S, "job=test: not 0 waits for the directories of the passes to appear"),
    Flag("model_list", str, "", _S, "job=test: file of model directories"),
    Flag("predict_output_dir", str, "", _S, "job=test: directory for the values of the output layers"),
    Flag("predict_file", str, "", _I, "for auc-validation and pnpair-validation layers, which are not run"),
    Flag("feat_file", str, "", _I, "dead code in the original"),
    Flag("distribute_test", bool, False, _I, "every trainer tests by itself: nothing is merged"),
    Flag("beam_size", int, 1, _I, "beam width of generation, which is the config's alone"),
    Flag("diy_beam_search_prob_so", str, "", _I, "user library for beam scores"),
    # computing
    Flag("use_gpu", bool, False, _I, "there is no GPU here"),
    Flag("trainer_count", int, 1, _S, "threads of this process, each of which computes a share of every batch", 1),
    Flag("gpu_id", int, 0, _I, "first GPU"),
    Flag("parallel_nn", bool, False, _I, "devices per layer"),
    Flag("allow_only_one_model_on_one_gpu", bool, True, _I, "check of the number of GPUs"),
    Flag("cuda_dir", str, "", _I, "library path"),
    Flag("cudnn_dir", str, "", _I, "library path"),
    Flag("warpctc_dir", str, "", _I, "library path"),
    Flag("nccl_dir", str, "", _I, "library path"),
    Flag("lapack_dir", str, "", _I, "library path"),
    Flag("cudnn_conv_workspace_limit_in_mb", int, 4096, _I, "GPU memory"),
    Flag("pool_limit_size", int, 536870912, _I, "memory pool"),
    Flag("rnn_use_batch", bool, False, _I, "another kernel of the simple recurrent layer"),
    Flag("prev_batch_state", bool, False, _N, "carry recurrent state across batches"),
    Flag("enable_parallel_vector", int, 0, _I, "threads of vector operations"),
    Flag("enable_grad_share", int, 104857600, _I, "gradient sharing between threads"),
    Flag("grad_share_block_num", int, 64, _I, "gradient sharing between threads"),
    Flag("memory_threshold_on_load_data", float, 1.0, _I, "memory limit of old data providers"),
    Flag("feed_data", bool, False, _S, "job=time: new data for every batch"),
    Flag("allow_inefficient_sparse_update", bool, False, _I, "check of sparse updates"),
    Flag("use_mkldnn", bool, False, _I, "kernels"),
    Flag("use_mkl_packed", bool, False, _I, "kernels"),
    Flag("use_nnpack", bool, False, _I, "kernels"),
    Flag("nnpack_allocate_outside", bool, True, _I, "kernels"),
    Flag("nnpack_num_threads", int, 0, _I, "kernels"),
    # random numbers and checks
    Flag("seed", int, 1, _S, "seed of all random numbers; 0 = from the clock"),
    Flag("thread_local_rand_use_global_seed", bool, False, _S, "start from the seed itself, not from one less"),
    Flag("checkgrad_eps", float, 1e-5, _S, "job=checkgrad: relative change of the cost to aim at"),
    # distributed
    Flag("local", bool, True, _S, "train without parameter servers"),
    Flag("trainer_id", int, 0, _S, "0 .. num_gradient_servers-1; trainer 0 gives the first values and saves", 0),
    Flag("num_gradient_servers", int, 1, _S, "number of trainers", 1),
    Flag(
        "pservers",
        str,
        "127.0.0.1",
        _S,
        "hosts of the parameter servers, with commas; host:port has its own first port",
    ),
    Flag("port", int, 20134, _S, "first port of every host", 1),
    Flag("ports_num", int, 1, _S, "dense ports of every host", 1),
    Flag("ports_num_for_sparse", int, 0, _S, "sparse ports of every host, for parameters with sparse_update", 0),
    Flag(
        "nics",
        str,
        "xgbe0,xgbe1",
        _S,
        "interfaces or addresses of this trainer, which shares memory with a server there; not given: all",
    ),
    Flag("rdma_tcp", str, "tcp", _S, "tcp; rdma is not supported", None, ("tcp",)),
    Flag("start_pserver", bool, False, _S, "with --local=0: start a parameter server beside the trainer"),
    Flag("use_old_updater", bool, False, _I, "sending after the backward pass: that is done anyhow"),
    Flag("loadsave_parameters_in_pserver", bool, False, _S, "tables (sparse_update) are loaded and saved by servers"),
    Flag("parallel_thread_num", int, 1, _I, "obsolete"),
    Flag("pserver_num_threads", int, 1, _S, "of the server of --start_pserver: threads of a step"),
    Flag("log_period_server", int, 500, _S, "of the server of --start_pserver: batches between two log lines"),
    Flag("async_lagged_ratio_min", float, 1.0, _S, "of the server of --start_pserver: see paddle pserver --help"),
    Flag("async_lagged_ratio_default", float, 1.5, _S, "of the server of --start_pserver: see paddle pserver --help"),
    Flag("small_messages", bool, False, _I, "no delay is always on"),
    Flag(
        "sock_send_buf_size", int, 41943040, _I, "a trainer takes the system's; the server of --start_pserver gets it"
    ),
    Flag(
        "sock_recv_buf_size", int, 41943040, _I, "a trainer takes the system's; the server of --start_pserver gets it"
    ),
    Flag("sock_listen_queue_size", int, 1024, _S, "of the server of --start_pserver: connections that may wait"),
    Flag("log_barrier_abstract", bool, True, _Q, "no barrier statistics are kept"),
    Flag("log_barrier_lowest_nodes", int, 5, _Q, "no barrier statistics are kept"),
    Flag("log_barrier_show_log", bool, False, _Q, "no barrier statistics are kept"),
    Flag("check_sparse_distribution_in_pserver", bool, False, _I, "balance check"),
    Flag("check_sparse_distribution_batches", int, 100, _I, "balance check"),
    Flag("check_sparse_distribution_ratio", float, 0.6, _I, "balance check"),
    Flag("check_sparse_distribution_unbalance_degree", float, 2.0, _I, "balance check"),
    Flag("show_check_sparse_distribution_log", bool, False, _I, "balance check"),
    Flag("data_server_port", int, 21134, _I, "data server of v0.9"),
)
FLAGS: Mapping[str, Flag] = {flag.name: flag for flag in TABLE}

_BOOLEANS = {
    "true": True,
    "t": True,
    "yes": True,
    "y": True,
    "1": True,
    "false": False,
    "f": False,
    "no": False,
    "n": False,
    "0": False,
}


class Values:
    """The value of every flag, as attributes; `given` names those on the command line."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = frozenset(given)
        self._values = {flag.name: given.get(flag.name, flag.default) for flag in TABLE}
        vars(self).update(self._values)  # attributes of their own: some are asked for in every batch

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def changed(self) -> list[Flag]:
        """Return the flags whose value is not their default, in the order of the table."""
        return [flag for flag in TABLE if self._values[flag.name] != flag.default]


def parse_flags(arguments: Sequence[str]) -> Values:
    """Return the flags of a command line, checked one by one and together.

    Raises: UsageError: a flag is unknown (with the closest name), not supported yet, or its value impossible.
    """
    values = Values(read_arguments(arguments, FLAGS))
    _check_together(values)
    return values


def read_arguments(arguments: Sequence[str], flags: Mapping[str, Flag]) -> dict[str, Any]:
    """Return the values of the flags that are given.

    Raises: UsageError: a flag is unknown (with the closest name), or its value impossible.
    """
    given: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-") or argument in ("-", "--"):
            raise UsageError(f"Unknown commandline argument: {argument}")
        name, equals, text = argument.lstrip("-").partition("=")
        flag, negated = _find(name, flags)
        if negated and equals:
            raise UsageError(f"--{name}={text}: a negated flag takes no value; write --{name} or --{flag.name}={text}")
        if flag.kind is bool and not equals:
            given[flag.name] = not negated
            continue
        if not equals:
            if not rest:
                raise UsageError(f"--{flag.name} needs a value: --{flag.name}=...")
            text = rest.pop(0)
        given[flag.name] = _convert(flag, text)
    return given


def _find(name: str, flags: Mapping[str, Flag]) -> tuple[Flag, bool]:
    """Return the flag of a name and whether the name negates it."""
    if name in flags:
        return flags[name], False
    plain = name.removeprefix("no")
    if plain != name and plain in flags and flags[plain].kind is bool:
        return flags[plain], True
    close = difflib.get_close_matches(name, flags, 1)
    hint = f"; did you mean --{close[0]}?" if close else "; --help lists all"
    raise UsageError(f"unknown command line flag '{name}'{hint}")


def _convert(flag: Flag, text: str) -> bool | int | float | str:
    converters: Mapping[type, Callable[[str], Any]] = {
        bool: lambda text: _BOOLEANS[text.lower()],
        int: int,
        float: float,
        str: str,
    }
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    try:
        value: bool | int | float | str = converters[flag.kind](text)
    except (KeyError, ValueError):
        raise UsageError(f"--{flag.name} is '{text}'; it must be {kinds[flag.kind]}") from None
    if flag.kind is int and isinstance(value, int):
        least = -_INT32 if flag.least is None else flag.least
        if not least <= value <= flag.most:
            raise UsageError(f"--{flag.name} is {value}; it must be in [{least}, {flag.most}]")
    if flag.choices and value not in flag.choices:
        raise UsageError(f"--{flag.name} is '{value}'; it must be one of {', '.join(flag.choices)}")
    return value


def _check_together(values: Values) -> None:
    for flag in values.changed():
        if flag.status is Status.NOT_YET:
            raise UsageError(f"--{flag.name} is not supported yet ({flag.meaning}); leave it at {flag.default!r}")
    if values.average_test_period % values.log_period:
        raise UsageError(
            f"--average_test_period is {values.average_test_period}; it must be a multiple of --log_period, "
            f"which is {values.log_period}"
        )
    if values.job == "test" and values.test_wait and (values.model_list or values.init_model_path):
        raise UsageError(
            "--test_wait waits for pass directories: it goes with neither --model_list nor --init_model_path"
        )
    if values.resume_from and values.job != "train":
        raise UsageError(f"--resume_from goes on with training, --job={values.job} does not: leave one of them out")
    if values.start_pserver and (values.local or values.job != "train"):
        raise UsageError("--start_pserver starts a parameter server for training: add --local=0, and --job=train")
    if not values.local and values.trainer_id >= values.num_gradient_servers:
        raise UsageError(
            f"--trainer_id is {values.trainer_id} with --num_gradient_servers={values.num_gradient_servers}; "
            f"trainers are numbered 0 to {values.num_gradient_servers - 1}"
        )
    if not values.local:
        services(values)
    if values.job != "test" and values.predict_output_dir:
        raise UsageError("--predict_output_dir is only valid in test mode: add --job=test")


def services(values: Values, *, sparse: bool = False) -> list[tuple[str, int]]:
    """Return (host, port) of every dense service, or of every sparse one, host by host.

    Raises: UsageError: naming what is wrong with --pservers.
    """
    hosts = list_hosts(values.pservers, values.port, values.ports_num + values.ports_num_for_sparse)
    if sparse:
        return list_services(hosts, values.ports_num, values.ports_num_for_sparse)
    return list_services(hosts, 0, values.ports_num)


def list_warnings(values: Values) -> list[str]:
    """Return a line for each given flag that has no meaning here."""
    return [
        f"--{flag.name} has no meaning here ({flag.meaning})"
        for flag in values.changed()
        if flag.status is Status.IGNORED
    ]


def help_text() -> str:
    """Return the table as text."""
    lines = ["usage: paddle train --config=CONFIG [flags]", ""]
    for status in Status:
        lines.append(f"{status.value[0].upper()}{status.value[1:]}:")
        lines += [
            f"  --{flag.name} ({flag.meaning}) type: {flag.kind.__name__} default: {flag.default!r}"
            for flag in TABLE
            if flag.status is status
        ]
        lines.append("")
    return "\n".join(lines)
