"""The flags of `paddle train` in a table, with all flags of v0.10; paddle_base/runtime/gflags.py parses them.

Source: spec/trainer.md 1.1 and 1.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle_base.registry.etcd_flags import ETCD_FLAGS
from paddle_base.runtime.errors import UsageError
from paddle_base.runtime.gflags import Flag, Status, index_flags, read_arguments, read_seconds
from paddle_base.runtime.network.addresses import list_hosts, list_services

LEAST_WAIT_S = 1  # minimum of --wait
_S, _Q, _I = Status.SUPPORTED, Status.QUIET, Status.IGNORED
# help texts that several flags without effect share
_LIBRARY = "directory in which v0.10 searched for this library; it is not loaded here"
_BARRIER = "a flag of paddle pserver, which can log the trainers that are often late; it has no effect on a trainer"
_BALANCE = "v0.10 could check whether its servers received equal amounts of sparse data; there is no such check here"

TABLE: tuple[Flag, ...] = (
    # job, config, input and output
    Flag("job", "train", _S, "mode: train, test, checkgrad or time", choices=("train", "test", "checkgrad", "time")),
    Flag("config", "", _S, "path of the config script; if empty, the config in --init_model_path is used"),
    Flag("config_args", "", _S, "arguments of the config script, as k1=v1,k2=v2"),
    Flag(
        "num_passes",
        100,
        _S,
        "number of passes, counted from start_pass; with job=test: number of the last pass to test, plus 1",
        0,
    ),
    Flag("start_pass", 0, _S, "number of the first pass; above 0, pass start_pass-1 of save_dir is loaded", 0),
    Flag("init_model_path", "", _S, "directory, merged model or tar file to load; overrides start_pass"),
    Flag(
        "load_missing_parameter_strategy",
        "fail",
        _S,
        "what happens if a parameter file is missing: fail, rand (random values) or zero",
        choices=("fail", "rand", "zero"),
    ),
    Flag("save_dir", "", _S, "directory for the pass-* directories; if empty, save_dir of the config"),
    Flag("saving_period", 1, _S, "passes between saves: a pass is saved if saving_period divides its number", 1),
    Flag("saving_period_by_batches", 0, _S, "batches between saves inside a pass; 0 = no such saves", 0),
    Flag(
        "save_only_one",
        False,
        _S,
        "after a save, remove the pass directory that was saved saving_period passes earlier",
    ),
    Flag("checkpoint_period_by_batches", 0, _S, "batches between checkpoints inside a pass; 0 = none", 0),
    Flag("checkpoint_period_seconds", 0, _S, "seconds between checkpoints inside a pass; 0 = none", 0),
    Flag("checkpoints_kept", 2, _S, "number of checkpoints that are kept", 1),
    Flag(
        "resume_from",
        "",
        _S,
        "checkpoint directory to resume from; with the old --start_pass, and --num_passes of the whole run",
    ),
    Flag("comment", "", _Q, "free text, by which scripts can find this process"),
    Flag("python_path", "", _S, "further directories of modules, separated by colons"),
    Flag("python_bin", "python2.7", _I, "name of the interpreter"),
    Flag("version", False, _S, "print the version and exit"),
    Flag("with_cost", True, _S, "value of the config script's argument with_cost"),
    # logging
    Flag("log_period", 100, _S, "batches between log lines; CurrentCost and CurrentEval cover them", 1),
    Flag("dot_period", 1, _S, "batches between two dots in the log; 0 = no dots", 0),
    Flag("show_parameter_stats_period", 0, _S, "batches between logs of parameter statistics; 0 = none", 0),
    Flag("show_layer_stat", False, _S, "log statistics of every layer in every batch"),
    Flag("log_clipping", False, _S, "log each clipping of a gradient; parameter servers do not log it"),
    Flag("log_error_clipping", False, _S, "log a line when the gradient of a layer's output is clipped"),
    Flag("progress_period", 30, _S, "seconds between log lines with progress, speed and time left; 0 = none", 0),
    Flag("log_json", "", _S, "file to which log lines are also appended as JSON; empty = no such file"),
    Flag("report", False, _S, "write records.jsonl, progress.json and report.html; by default only in a pod"),
    Flag("metrics_port", 0, _S, "port of /healthz, /readyz, /metrics at the addresses of --nics; 0 = none", 0, 65535),
    Flag("layer_stack_error_only_current_thread", True, _I, "form of the crash dump"),
    Flag("profile_signal", 12, _I, "signal of the CPU profiler"),
    Flag("profile_data_file", "gperf.prof", _I, "output of the CPU profiler"),
    # testing
    Flag(
        "test_period",
        0,
        _S,
        "batches between tests inside a pass; 0 = test only after each pass; with job=time: number of batches to time",
        0,
    ),
    Flag("test_all_data_in_one_period", False, _S, "deprecated; every test takes all test data"),
    Flag(
        "average_test_period",
        0,
        _S,
        "batches of a period; on its last log_period batches, the averaged parameters are tested; 0 = never",
        0,
    ),
    Flag("test_pass", -1, _S, "with job=test: number of the first pass to test"),
    Flag("test_wait", 0, _S, "with job=test: if not 0, wait until the directories of the passes exist"),
    Flag("model_list", "", _S, "with job=test: file that lists model directories, one on each line"),
    Flag("predict_output_dir", "", _S, "with job=test: directory for the values of the output layers"),
    Flag(
        "predict_file",
        "",
        _S,
        "file to which each pass writes the scores of auc-validation and pnpair-validation layers",
    ),
    Flag("feat_file", "", _I, "v0.10 does not use this flag, either"),
    Flag("distribute_test", False, _I, "every trainer tests alone, and no results are merged"),
    Flag("beam_size", 1, _I, "the config alone sets the beam width"),
    Flag("diy_beam_search_prob_so", "", _I, "user library for beam scores"),
    # computing
    Flag("use_gpu", False, _I, "there is no GPU here"),
    Flag("trainer_count", 1, _S, "number of threads, each of which computes a part of every batch", 1),
    Flag("gpu_id", 0, _I, "first GPU"),
    Flag("parallel_nn", False, _I, "choice of a device for each layer"),
    Flag("allow_only_one_model_on_one_gpu", True, _I, "check of the number of GPUs"),
    Flag("cuda_dir", "", _I, _LIBRARY),
    Flag("cudnn_dir", "", _I, _LIBRARY),
    Flag("warpctc_dir", "", _I, _LIBRARY),
    Flag("nccl_dir", "", _I, _LIBRARY),
    Flag("lapack_dir", "", _I, _LIBRARY),
    Flag("cudnn_conv_workspace_limit_in_mb", 4096, _I, "GPU memory"),
    Flag("pool_limit_size", 536870912, _I, "memory pool"),
    Flag("rnn_use_batch", False, _I, "choice of another kernel for the simple recurrent layer"),
    Flag("prev_batch_state", False, _S, "lstmemory and recurrent layers continue from the state of the previous batch"),
    Flag("enable_parallel_vector", 0, _I, "threads of vector operations"),
    Flag("enable_grad_share", 104857600, _I, "gradient sharing between threads"),
    Flag("grad_share_block_num", 64, _I, "gradient sharing between threads"),
    Flag("memory_threshold_on_load_data", 1.0, _I, "memory limit of old data providers"),
    Flag("feed_data", False, _S, "with job=time: read new data for every batch"),
    Flag("allow_inefficient_sparse_update", False, _I, "v0.9 needs this flag to update many rows"),
    Flag("use_mkldnn", False, _I, "choice of kernels"),
    Flag("use_mkl_packed", False, _I, "choice of kernels"),
    Flag("use_nnpack", False, _I, "choice of kernels"),
    Flag("nnpack_allocate_outside", True, _I, "v0.10 allocates the memory of NNPACK's kernels outside NNPACK"),
    Flag("nnpack_num_threads", 0, _I, "threads of a kernel"),
    # random numbers and checks
    Flag("seed", 1, _S, "seed of all random numbers; 0 = the clock gives the seed"),
    Flag("thread_local_rand_use_global_seed", False, _S, "the random numbers start from seed, not seed - 1"),
    Flag("checkgrad_eps", 1e-5, _S, "with job=checkgrad: wanted relative change of the cost per step"),
    # distributed
    Flag("local", True, _S, "train without parameter servers"),
    Flag("collective", False, _S, "train by all-reduce among the workers of paddle elastic run; no parameter servers"),
    Flag(
        "commit_period_by_batches",
        10,
        _S,
        "with --collective and workers that come and go: maximum number of batches that a failure loses",
        1,
    ),
    Flag(
        "trainer_id",
        0,
        _S,
        "number of this trainer, below num_gradient_servers; trainer 0 sends the initial values and saves the model",
        0,
    ),
    Flag("num_gradient_servers", 1, _S, "number of trainers; if not given, the parameter servers tell it", 1),
    Flag("pservers", "127.0.0.1", _S, "comma-separated hosts of the parameter servers; host:port sets the first port"),
    Flag("port", 20134, _S, "first port of every host of parameter servers", 1),
    Flag("ports_num", 1, _S, "number of ports of every host for dense parameters", 1),
    Flag("ports_num_for_sparse", 0, _S, "number of ports of every host for parameters with sparse_update", 0),
    Flag(
        "nics",
        "xgbe0,xgbe1",
        _S,
        "interfaces or addresses of this trainer (all if not given); servers at these addresses share memory with it",
    ),
    Flag("rdma_tcp", "tcp", _S, "transport: tcp; rdma is not supported", choices=("tcp",)),
    Flag("start_pserver", False, _S, "with --local=0: start a parameter server beside the trainer"),
    Flag("use_old_updater", False, _I, "choice between two updaters of v0.10; there is only one updater here"),
    Flag(
        "loadsave_parameters_in_pserver",
        False,
        _S,
        "the servers load and save the tables (parameters with sparse_update)",
    ),
    Flag("parallel_thread_num", 1, _I, "obsolete"),
    Flag("pserver_num_threads", 1, _S, "threads with which the server of --start_pserver computes a step"),
    Flag("log_period_server", 500, _S, "batches between two log lines of the server of --start_pserver"),
    Flag("async_lagged_ratio_min", 1.0, _S, "flag of the server of --start_pserver: see paddle pserver --help"),
    Flag("async_lagged_ratio_default", 1.5, _S, "flag of the server of --start_pserver: see paddle pserver --help"),
    # with a master (trainer/tasks)
    Flag(
        "store_dir",
        "",
        _S,
        "directory in which the trainer finds the master, whose tasks it trains, and the pservers of this machine",
    ),
    Flag(
        "etcd_endpoints",
        "",
        _S,
        "endpoints of the etcd that replaces --store_dir and lists the master and the pservers: http://host:port,...",
    ),
    *ETCD_FLAGS,
    Flag("job_name", "", _S, "name of the master's and the pservers' job; empty: PADDLE_JOB_NAME, or 'job'"),
    Flag("wait", "3600s", _S, "time after which the trainer gives up if the master or a pserver is absent"),
    Flag("trainer_uid", "", _S, "this trainer's name at the master; empty: POD_UID, or a generated name"),
    Flag("small_messages", False, _I, "TCP_NODELAY is always on"),
    Flag(
        "sock_send_buf_size",
        41943040,
        _I,
        "buffer bytes of the server of --start_pserver; the system chooses the buffers of a trainer",
    ),
    Flag(
        "sock_recv_buf_size",
        41943040,
        _I,
        "buffer bytes of the server of --start_pserver; the system chooses the buffers of a trainer",
    ),
    Flag("sock_listen_queue_size", 1024, _S, "connections that may wait at the server of --start_pserver"),
    Flag("log_barrier_abstract", True, _Q, _BARRIER),
    Flag("log_barrier_lowest_nodes", 5, _Q, _BARRIER),
    Flag("log_barrier_show_log", False, _Q, _BARRIER),
    Flag("check_sparse_distribution_in_pserver", False, _I, _BALANCE),
    Flag("check_sparse_distribution_batches", 100, _I, _BALANCE),
    Flag("check_sparse_distribution_ratio", 0.6, _I, _BALANCE),
    Flag("check_sparse_distribution_unbalance_degree", 2.0, _I, _BALANCE),
    Flag("show_check_sparse_distribution_log", False, _I, _BALANCE),
    Flag("data_server_port", 21134, _I, "data server of v0.9"),
)
FLAGS = index_flags(*TABLE)


class Values:
    """The values of all flags, as attributes; `given` holds the names of the flags among the `arguments`."""

    def __init__(self, given: Mapping[str, Any], arguments: Sequence[str] = ()) -> None:
        self.given, self.arguments = frozenset(given), tuple(arguments)
        self._values = {flag.name: given.get(flag.name, flag.default) for flag in TABLE}
        if (self.is_task_job or self._values["collective"]) and "local" not in given:
            self._values["local"] = False
        vars(self).update(self._values)  # plain attributes, because some flags are read in every batch

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def number_trainer(self, number: int, trainers: int) -> None:
        """Set the id of this trainer and the number of trainers.

        The program that starts the trainers assigns both numbers.
        """
        self._values |= {"trainer_id": number, "num_gradient_servers": trainers}
        vars(self).update(self._values)

    @property
    def is_task_job(self) -> bool:
        """Whether a store is given, so that a master distributes the tasks."""
        return bool(self._values["store_dir"] or self._values["etcd_endpoints"])

    @property
    def endpoints(self) -> list[str]:
        """The endpoints of etcd, or [] if a directory is used."""
        return [one.strip() for one in self._values["etcd_endpoints"].split(",") if one.strip()]

    def changed(self) -> list[Flag]:
        """Return the flags whose values differ from their defaults, in the order of the table."""
        return [flag for flag in TABLE if self._values[flag.name] != flag.default]


def parse_flags(arguments: Sequence[str]) -> Values:
    """Return the flags of a command line. Check the value of each flag, and the combination of all flags.

    Raises: UsageError: a flag is unknown, has an impossible value, or does not fit another flag.
    """
    values = Values(read_arguments(arguments, FLAGS), arguments)
    if values.is_task_job:
        _check_task_job(values)
    else:
        _refuse_without_store(values)
    check_together(values)
    return values


def check_together(values: Values) -> None:
    """Check the values of flags that depend on each other.

    Raises: UsageError: a value does not fit another one.
    """
    if values.average_test_period % values.log_period:
        raise UsageError(
            f"--average_test_period is {values.average_test_period}; it must be a multiple of --log_period, "
            f"which is {values.log_period}"
        )
    if values.job == "test" and values.test_wait and (values.model_list or values.init_model_path):
        raise UsageError("--test_wait waits for pass directories: leave out --model_list and --init_model_path")
    if values.resume_from and values.job != "train":
        raise UsageError(f"--resume_from continues a training, and --job={values.job} does not: leave one of them out")
    if values.start_pserver and (values.local or values.job != "train"):
        raise UsageError("--start_pserver starts a parameter server for training: add --local=0, and --job=train")
    if "num_gradient_servers" in values.given and not values.local and values.trainer_id >= values.num_gradient_servers:
        raise UsageError(
            f"--trainer_id is {values.trainer_id} with --num_gradient_servers={values.num_gradient_servers}; "
            f"trainers are numbered 0 to {values.num_gradient_servers - 1}"
        )
    if not values.local and not values.is_task_job:
        services(values)
    if values.collective:
        _check_collective(values)
    elif "commit_period_by_batches" in values.given:
        raise UsageError("--commit_period_by_batches is for training among workers: add --collective, or leave it out")
    if values.job != "test" and values.predict_output_dir:
        raise UsageError("--predict_output_dir is only valid in test mode: add --job=test")


def _check_collective(values: Values) -> None:
    others = ("trainer_id", "num_gradient_servers", "pservers", "start_pserver", "store_dir", "etcd_endpoints")
    for name in ("local", *others):
        if name in values.given and (name != "local" or values.local):
            raise UsageError(
                f"--{name} cannot be used with --collective: paddle elastic run numbers the trainers, and there are no "
                "servers; leave it out"
            )
    if values.job != "train":
        raise UsageError(f"--collective is for training and not for --job={values.job}: leave one of them out")


# flag -> the reason why it cannot be used with a store
_STATIC_ONLY = {
    "local": "the parameter servers in the store update the parameters",
    "pservers": "the parameter servers are found in the store",
    "trainer_id": "the master numbers the trainers",
    "num_gradient_servers": "trainers may come and go",
    "start_pserver": "parameter servers are separate programs: paddle pserver --store_dir or --etcd_endpoints",
    "start_pass": "the master knows the pass; --init_model_path names initial values",
    "resume_from": "the parameter servers go on from their own snapshots",
    "checkpoint_period_by_batches": "the parameter servers write snapshots: paddle pserver --checkpoint_interval",
    "checkpoint_period_seconds": "the parameter servers write snapshots: paddle pserver --checkpoint_interval",
    "saving_period_by_batches": "one of the trainers saves at the end of a pass",
    "test_period": "the trainer that saves a pass also tests it",
    "loadsave_parameters_in_pserver": "the trainer that saves a pass writes the tables, too",
}


def _check_task_job(values: Values) -> None:
    """Check that the flags can be used with a store.

    Raises: UsageError: the text names a flag that cannot be used.
    """
    store = "--etcd_endpoints" if values.etcd_endpoints else "--store_dir"
    if values.etcd_endpoints and values.store_dir:
        raise UsageError("--store_dir and --etcd_endpoints name two stores; give the store of the master")
    if values.etcd_endpoints and not values.endpoints:
        raise UsageError(f"--etcd_endpoints is '{values.etcd_endpoints}'; it must be http://host:port,...")
    if values.job != "train":
        raise UsageError(f"{store} is for training with a master and not for --job={values.job}: leave one of them out")
    for flag in (FLAGS[name] for name in _STATIC_ONLY if name in values.given):
        value = getattr(values, flag.name)
        if value != (False if flag.name == "local" else flag.default):
            raise UsageError(
                f"--{flag.name}={value} cannot be used with {store}: {_STATIC_ONLY[flag.name]}; leave it out"
            )
    if read_seconds("wait", values.wait) < LEAST_WAIT_S:
        raise UsageError(f"--wait is '{values.wait}'; it must be at least {LEAST_WAIT_S}s")


def _refuse_without_store(values: Values) -> None:
    for name in ("job_name", "wait", "trainer_uid", *(flag.name for flag in ETCD_FLAGS)):
        if name in values.given:
            raise UsageError(f"--{name} is for training with a master: add --store_dir or --etcd_endpoints")


def services(values: Values, *, sparse: bool = False) -> list[tuple[str, int]]:
    """Return (host, port) of every service for dense parameters, or for parameters with sparse_update.

    The services of one host are next to each other.

    Raises: UsageError: the text describes what is wrong with --pservers.
    """
    hosts = list_hosts(values.pservers, values.port, values.ports_num + values.ports_num_for_sparse)
    if sparse:
        return list_services(hosts, values.ports_num, values.ports_num_for_sparse)
    return list_services(hosts, 0, values.ports_num)


def list_warnings(values: Values) -> list[str]:
    """Return a line for each given flag that has no effect here, or no effect together with the other flags."""
    lines = list_ignored(values)
    if values.prev_batch_state and values.trainer_count > 1:
        lines.append("--prev_batch_state has no effect with --trainer_count over 1: each batch begins with zero states")
    remote = [f"--{name}" for name in ("pservers", "num_gradient_servers") if name in values.given]
    if values.local and remote and "local" not in values.given:
        lines.append(f"{' and '.join(remote)} without --local=0: this trainer trains alone, without parameter servers")
    return lines


def list_ignored(values: Values) -> list[str]:
    """Return a line for each given flag that never has an effect here."""
    return [
        f"--{flag.name} has no meaning here ({flag.meaning})"
        for flag in values.changed()
        if flag.status is Status.IGNORED
    ]


def help_text() -> str:
    """Return the text of --help: all flags with their meanings."""
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
