"""The command line: gflags' syntax, the table, and what is refused."""

import pytest
from each import each

from paddle_base.runtime.errors import UsageError
from trainer.flags import FLAGS, TABLE, Status, help_text, list_warnings, parse_flags, services

TUTORIAL = [
    "--nics=eth0",
    "--port=7164",
    "--ports_num=2",
    "--comment=paddle_process_by_paddle",
    "--pservers=10.0.0.1,10.0.0.2,10.0.0.3",
    "--dot_period=10",
    "--ports_num_for_sparse=2",
    "--log_period=50",
    "--num_passes=10",
    "--trainer_count=1",
    "--saving_period=1",
    "--local=0",
    "--config=trainer_config.py",
    "--use_gpu=0",
    "--num_gradient_servers=3",
    "--trainer_id=0",
    "--save_dir=/home/jobpath/job/output",
]


def test_the_tutorials_command_line_is_understood_without_a_warning():
    values = parse_flags(TUTORIAL)
    assert (values.local, values.dot_period, values.num_passes, values.config) == (False, 10, 10, "trainer_config.py")
    assert list_warnings(values) == []
    assert services(values)[:3] == [("10.0.0.1", 7164), ("10.0.0.1", 7165), ("10.0.0.2", 7164)]


def test_a_server_may_have_ports_of_its_own():
    values = parse_flags(["--local=0", "--pservers=a,b:9000", "--port=7164", "--ports_num_for_sparse=1"])
    assert services(values) == [("a", 7164), ("b", 9000)]
    assert services(values, sparse=True) == [("a", 7165), ("b", 9001)]


def test_nothing_given_means_the_legacys_defaults():
    values = parse_flags([])
    assert (values.num_passes, values.log_period, values.port, values.seed, values.local) == (100, 100, 20134, 1, True)


@each(
    ("arguments", "name", "value"),
    [
        (["--log_period=7"], "log_period", 7),
        (["-log_period=7"], "log_period", 7),
        (["--log_period", "7"], "log_period", 7),
        (["--test_pass", "-1"], "test_pass", -1),
        (["--local"], "local", True),
        (["--nolocal"], "local", False),
        (["--local=false"], "local", False),
        (["--local=0"], "local", False),
        (["--local=T"], "local", True),
        (["--local=no"], "local", False),
        (["--config_args=a=1,b=x y"], "config_args", "a=1,b=x y"),
        (["--comment="], "comment", ""),
        (["--log_period=1", "--log_period=2"], "log_period", 2),
        (["--nouse_gpu"], "use_gpu", False),
    ],
)
def test_every_spelling_of_gflags_works(arguments, name, value):
    assert getattr(parse_flags(arguments), name) == value


@each(
    ("arguments", "message"),
    [
        (["--log_perod=3"], "unknown command line flag 'log_perod'; did you mean --log_period"),
        (["--parameter_block_size=3"], "unknown command line flag 'parameter_block_size'"),
        (["--nolog_period"], "unknown command line flag 'nolog_period'"),
        (["train.py"], "Unknown commandline argument: train.py"),
        (["--"], "Unknown commandline argument: --"),
        (["--num_passes=ten"], "--num_passes is 'ten'; it must be a whole number"),
        (["--num_passes=-1"], r"--num_passes is -1; it must be in \[0, "),
        (["--num_passes=2147483648"], "--num_passes is 2147483648"),
        (["--log_period=0"], "--log_period is 0"),
        (["--saving_period=0"], "--saving_period is 0"),
        (["--local=maybe"], "--local is 'maybe'; it must be true or false"),
        (["--nolocal=1"], "a negated flag takes no value"),
        (["--config"], "--config needs a value"),
        (["--job=dance"], "--job is 'dance'; it must be one of train, test"),
        (["--rdma_tcp=rdma"], "--rdma_tcp is 'rdma'"),
        (["--load_missing_parameter_strategy=guess"], "must be one of fail, rand, zero"),
        (
            ["--average_test_period=50"],
            "--average_test_period is 50; it must be a multiple of --log_period, which is 100",
        ),
        (["--job=test", "--test_wait=1", "--model_list=m"], "--test_wait waits for pass directories"),
        (["--job=test", "--test_wait=1", "--init_model_path=m"], "--test_wait waits for pass directories"),
        (["--start_pserver"], "--start_pserver starts a parameter server for training: add --local=0"),
        (["--start_pserver", "--local=0", "--job=test"], "--start_pserver starts a parameter server for training"),
        (
            ["--local=0", "--trainer_id=3", "--num_gradient_servers=3"],
            "--trainer_id is 3 with --num_gradient_servers=3; trainers are numbered 0 to 2",
        ),
        (["--local=0", "--port=65535", "--ports_num=2"], "127.0.0.1 would need the ports 65535 to 65536"),
        (["--port=0"], "--port is 0"),
        (["--metrics_port=65536"], r"--metrics_port is 65536; it must be in \[0, 65535\]"),
        (["--local=0", "--pservers=a,,b"], "--pservers is 'a,,b'"),
        (["--predict_output_dir=."], "only valid in test mode"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(UsageError, match=message):
        parse_flags(arguments)


STORE = "--store_dir=store"


def test_a_store_makes_the_mode_elastic():
    values = parse_flags([STORE, "--config=c.py"])
    assert (values.is_task_job, values.local, values.endpoints, values.wait) == (True, False, [], "3600s")
    assert not parse_flags(["--config=c.py"]).is_task_job
    assert parse_flags(["--etcd_endpoints=http://a:1, http://b:2"]).endpoints == ["http://a:1", "http://b:2"]


def test_what_a_launcher_passes_does_no_harm_with_a_store():
    harmless = "--local=0 --port=7164 --ports_num=2 --ports_num_for_sparse=2 --nics=eth0 --comment=x --trainer_id=0"
    values = parse_flags([STORE, *harmless.split(), "--num_gradient_servers=1", "--start_pass=0"])
    assert values.is_task_job
    assert list_warnings(values) == []


@each(
    ("arguments", "message"),
    [
        ([STORE, "--local=true"], "--local=True cannot be used with --store_dir: the parameter servers in the store"),
        (
            [STORE, "--pservers=a"],
            "--pservers=a cannot be used with --store_dir: .* are found in the store; leave it out",
        ),
        ([STORE, "--trainer_id=1"], "--trainer_id=1 cannot be used with --store_dir: the master numbers the trainers"),
        (
            ["--etcd_endpoints=http://a:1", "--num_gradient_servers=3"],
            "cannot be used with --etcd_endpoints: trainers may",
        ),
        ([STORE, "--start_pserver"], "paddle pserver --store_dir"),
        ([STORE, "--start_pass=2"], "the master knows the pass"),
        ([STORE, "--resume_from=state/pass-00001"], "go on from their own snapshots"),
        ([STORE, "--checkpoint_period_seconds=5"], "paddle pserver --checkpoint_interval"),
        ([STORE, "--checkpoint_period_by_batches=5"], "paddle pserver --checkpoint_interval"),
        ([STORE, "--saving_period_by_batches=5"], "one of the trainers saves"),
        ([STORE, "--loadsave_parameters_in_pserver"], "writes the tables, too"),
        ([STORE, "--test_period=9"], "the trainer that saves a pass also tests it"),
        ([STORE, "--job=test"], "--store_dir is for training with a master and not for --job=test"),
        ([STORE, "--etcd_endpoints=http://a:1"], "name two stores"),
        (["--etcd_endpoints=,"], "--etcd_endpoints is ','"),
        ([STORE, "--wait=soon"], "--wait is 'soon'; it must be a time"),
        ([STORE, "--wait=0"], "--wait is '0'; it must be at least 1s"),
        (["--wait=5s"], "--wait is for training with a master: add --store_dir or --etcd_endpoints"),
        (["--job_name=a"], "--job_name is for training with a master"),
    ],
)
def test_what_contradicts_a_store_is_named(arguments, message):
    with pytest.raises(UsageError, match=message):
        parse_flags(arguments)


def test_flags_without_meaning_are_warned_of_once_each():
    assert list_warnings(parse_flags(["--use_gpu=true", "--gpu_id=4", "--trainer_count=4", "--nics=eth0"])) == [
        "--use_gpu has no meaning here (there is no GPU here)",
        "--gpu_id has no meaning here (first GPU)",
    ]


def test_the_table_has_each_flag_once_and_the_help_shows_all():
    assert len(FLAGS) == len(TABLE)
    text = help_text()
    for flag in TABLE:
        assert f"--{flag.name} (" in text
        assert isinstance(flag.default, flag.kind)
        assert isinstance(flag.status, Status)


def test_an_unknown_attribute_is_an_error_of_ours():
    with pytest.raises(AttributeError):
        _ = parse_flags([]).no_such_flag
