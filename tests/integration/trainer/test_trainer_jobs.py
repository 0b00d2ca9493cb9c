"""Whole `paddle train` processes on a small job: what they print, save, and end with."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PLAIN = ["--config=config.py", "--save_dir=out", "--num_passes=1", "--dot_period=1", "--log_period=2"]
WITH_TEST = [*PLAIN, "--config_args=test_list=1"]


def read(path):
    return np.frombuffer(path.read_bytes(), "<f4", offset=16)


def messages(log):
    return re.findall(r"(?:^|[.\n])[IWEF]\d{4} \S+ +\d+ [^\]]+\] (.*)$", log, re.M)


def kinds(log):
    """The log's lines from the first batch on, each by its first word; dots and newlines as they are."""
    body = log[re.search(r"Init parameters done\.\n", log).end() :]
    return re.sub(r"[IWEF]\d{4} \S+ +\d+ \S+\] +(\w+)[ =].*", r"\1", body)


def passes(folder):
    return sorted(path.name for path in (folder / "out").iterdir())


def test_dots_batch_pass_test_and_save_lines_come_in_the_legacys_order(job, paddle):
    log = paddle.trained(job, *WITH_TEST)
    assert kinds(log) == ".\nBatch\n.\nBatch\n.Pass\nTest\nSaving\n"
    assert passes(job) == ["pass-00000"]
    assert sorted(path.name for path in (job / "out" / "pass-00000").iterdir()) == [
        "___fc_layer_0__.w0",
        "___fc_layer_0__.wbias",
        "config.py",
        "done",
        "path.txt",
    ]


def test_the_start_of_the_log_is_the_legacys(job, paddle):
    _, log = paddle.train(job, *WITH_TEST)
    assert messages(log)[1:6] == [
        "trainer mode: Normal",
        "loading dataprovider small_provider::process",
        "loading dataprovider small_provider::process",
        "Initing parameters..",
        "Init parameters done.",
    ]
    assert messages(log)[0] == f"commandline: paddle train {' '.join(WITH_TEST)} "
    assert "] The input order is [x, y]\n" in log
    assert re.search(r"^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ TrainerInternal\.cpp:165\]  Batch=2 samples=8 ", log, re.M)


def test_without_dots_there_is_no_newline_before_a_batch_line(job, paddle):
    _, log = paddle.train(job, *PLAIN, "--dot_period=0")
    assert kinds(log) == "Batch\nBatch\nPass\nSaving\n"


def test_statistics_are_printed_before_the_batch_line(job, paddle):
    _, log = paddle.train(job, *PLAIN, "--show_parameter_stats_period=2")
    assert (
        kinds(log).startswith(".___fc_layer_0__\n___fc_layer_0__\n\nBatch\n") or "avg_abs_val" in log.split("Batch=")[0]
    )


def test_tests_and_saves_inside_a_pass_come_at_the_legacys_batches(job, paddle):
    log = paddle.trained(job, *WITH_TEST, "--test_period=3", "--saving_period_by_batches=2")
    # batch 3: periodic test, then the first save inside the pass with its own test; batch 5: the second
    assert kinds(log) == ".\nBatch\n.Test\nTest\nSaving\n\nBatch\n.Test\nSaving\nPass\nTest\nSaving\n"
    assert passes(job) == ["pass-00000", "pass-00000-001", "pass-00000-002"]
    assert re.search(r"^W\d{4} \S+ +\d+ \S+\] --test_period: ", log, re.M)


def test_saving_period_and_save_only_one_choose_the_passes(job, paddle):
    log = paddle.trained(job, *PLAIN, "--num_passes=5", "--saving_period=2", "--save_only_one")
    assert passes(job) == ["pass-00004"]
    assert log.count("delete dir") == 2


def test_going_on_from_a_pass_equals_training_through(job, paddle):
    """Plain SGD without momentum has no state that a restart would lose."""
    log = paddle.trained(job, *PLAIN, "--num_passes=3")
    through = read(job / "out" / "pass-00002" / "___fc_layer_0__.w0")
    (job / "config.py").write_text(
        (job / "config.py").read_text().replace("MomentumOptimizer(0.5)", "MomentumOptimizer(0.0)")
    )
    results = []
    for folder, start in (("one", []), ("two", ["--init_model_path=one/pass-00000"])):
        log = paddle.trained(job, *PLAIN, f"--save_dir={folder}", f"--num_passes={2 if folder == 'one' else 1}", *start)
        results.append(read(job / folder / f"pass-0000{1 if folder == 'one' else 0}" / "___fc_layer_0__.w0"))
    log = paddle.trained(job, *PLAIN, "--save_dir=one", "--start_pass=1")
    assert re.search(r"Loading parameters from \./one/pass-00000\n", log)
    assert " Pass=1 " in log
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], read(job / "one" / "pass-00001" / "___fc_layer_0__.w0"))
    assert through.shape == results[0].shape


def test_a_run_repeats_bit_for_bit_shuffled_or_not(job, paddle):
    found = []
    for folder in ("out", "again"):
        paddle.trained(job, *PLAIN, "--config_args=obj=shuffled", "--num_passes=3", f"--save_dir={folder}")
        found.append((job / folder / "pass-00002" / "___fc_layer_0__.w0").read_bytes())
    assert found[0] == found[1]


def test_seed_zero_takes_the_clock_and_says_so(job, paddle):
    _, log = paddle.train(job, *PLAIN, "--seed=0")
    assert re.search(r"random number seed=\d{9,}", log)


def test_the_test_job_measures_saved_passes(job, paddle):
    paddle.train(job, *WITH_TEST, "--num_passes=2")
    trained = re.findall(r"Test samples=8 cost=(\S+) Eval: (\S+)", (job / "log").read_text())
    log = paddle.trained(
        job,
        "--config=config.py",
        "--config_args=test_list=1",
        "--job=test",
        "--test_pass=0",
        "--num_passes=2",
        "--save_dir=out",
    )
    assert re.findall(r" Pass=\d samples=8 AvgCost=(\S+) Eval: (\S+)", log) == trained
    assert "trainer mode: Testing" in log


def test_the_test_job_takes_a_list_of_models_and_writes_predictions(job, paddle):
    paddle.train(job, *PLAIN, "--num_passes=2")
    named_in_latin_1 = os.fsdecode(b"out/mod\xe8le")  # such a list was a traceback
    (job / "out/pass-00001").rename(job / named_in_latin_1)
    (job / "models").write_bytes(b"out/pass-00000\n" + os.fsencode(named_in_latin_1) + b"\n")
    log = paddle.trained(
        job,
        "--config=config.py",
        "--config_args=test_list=1",
        "--job=test",
        "--model_list=models",
        "--predict_output_dir=dump",
        "--log_period=1",
    )
    assert log.count(" AvgCost=0 Eval:") == 2
    rows = (job / "dump" / "rank-00000").read_text().splitlines()
    assert len(rows) == 16
    assert all(re.fullmatch(r"[\d.e-]+;", row) for row in rows)


def test_a_job_without_config_uses_the_models(job, paddle):
    paddle.train(job, *PLAIN)
    log = paddle.trained(job, "--init_model_path=out/pass-00000", "--save_dir=more", "--num_passes=1")
    log = paddle.trained(job, "--save_dir=more", "--start_pass=1", "--num_passes=1")
    arguments = ["--job=test", "--save_dir=more", "--test_pass=0", "--num_passes=2", "--config_args=test_list=1"]
    log = paddle.trained(job, *arguments)
    assert log.count(" samples=8 ") == 2


def test_a_merged_model_trains_and_tests_without_its_config(job, paddle):
    (job / "config.py").write_text(
        (job / "config.py").read_text().replace("get_config_arg('test_list', bool, False)", "True")
    )
    _, log = paddle.train(job, *PLAIN)
    cost = re.search(r"Test samples=8 cost=(\S+)", log)[1]
    assert paddle.start(job, "merge_model", "--model_dir=out/pass-00000", "--model_file=merged").wait(60) == 0
    (job / "config.py").unlink()
    log = paddle.trained(job, "--job=test", "--init_model_path=merged")
    assert "Loading parameters from merged\n" in log
    assert f" Pass=0 samples=8 AvgCost={cost} " in log
    log = paddle.trained(job, "--init_model_path=merged", "--save_dir=more", "--num_passes=1")
    assert sorted(path.name for path in (job / "more" / "pass-00000").iterdir()) == [
        "___fc_layer_0__.w0",
        "___fc_layer_0__.wbias",
        "done",
    ]


def test_a_model_is_merged_with_the_arguments_of_its_config(job, paddle):
    assert paddle.train(job, *WITH_TEST)[0] == 0
    arguments = ["--model_dir=out/pass-00000", "--model_file=merged", "--config_args=test_list=1"]
    assert paddle.start(job, "merge_model", *arguments).wait(60) == 0
    status, log = paddle.train(job, "--job=test", "--init_model_path=merged")
    assert (status, " Pass=0 samples=8 " in log) == (0, True), log


# ----- what goes wrong -----


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--config=nowhere.py"], 66, "nowhere.py"),
        (
            ["--config=config.py", "--config_args=obj=raising"],
            65,
            r"small_provider\.py:\d+ \(raise ValueError\('the tenth .*ValueError: the tenth line is odd",
        ),
        (
            ["--config=config.py", "--config_args=rate=1e38", "--num_passes=3"],
            65,
            r"the cost of layer __cost_0__ is \S+ in batch \d+ of pass \d",
        ),
        (["--config=config.py", "--start_pass=1"], 66, "no model directory ./out/pass-00000"),
        (["--config=config.py", "--job=test"], 78, "TestData is not specified"),
        (["--config=config.py", "--job=test", "--config_args=test_list=1"], 64, "--job=test needs a model"),
        (["--config=config.py", "--trainer_count=0"], 64, r"--trainer_count is 0; it must be in \[1, "),
        (["--config=config.py", "--passes=1"], 64, "unknown command line flag 'passes'; did you mean --num_passes"),
        (
            ["--config=config.py", "--local=0", "--pservers=127.0.0.1", "--port=1", "--nosuch"],
            64,
            "unknown command line flag 'nosuch'",
        ),
    ],
)
def test_errors_are_one_line_with_the_right_status_and_leave_no_pass(job, paddle, arguments, status, message):
    got, log = paddle.train(job, "--save_dir=out", *arguments)
    assert got == status, log
    assert re.search(message, log), log
    assert "Traceback" not in log
    assert not (job / "out").exists() or not passes(job)
    assert re.match(r"[.]*F\d{4} ", log.splitlines()[-1])


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        (
            lambda job: (job / "train.txt").unlink(),
            66,
            r"reading 'train.txt': small_provider.py:\d+ .*FileNotFoundError",
        ),
        (
            lambda job: (job / "train.list").write_text("train.txt\n\n"),
            66,
            r"reading '' \(line 2 of train.list is blank\): small_provider.py:\d+ .*FileNotFoundError",
        ),
        (
            lambda job: (job / "train.txt").write_text(""),
            65,
            "no sample in pass 0; check train.list, and what small_provider::process yields for the files",
        ),
        (lambda job: (job / "train.list").write_text(""), 65, "delivers no sample in pass 0"),
        (lambda job: (job / "small_provider.py").write_text("def process(:"), 65, "small_provider.py:1: SyntaxError"),
        (lambda job: (job / "out").write_text(""), 74, "cannot save to out: File exists"),
    ],
)
def test_missing_and_broken_inputs_are_named(job, paddle, change, status, message):
    change(job)
    got, log = paddle.train(job, *PLAIN)
    assert got == status, log
    assert re.search(message, log), log
    assert "Traceback" not in log


def test_a_pass_that_cannot_be_loaded_leaves_no_save_directory(job, paddle):
    status, log = paddle.train(job, "--config=config.py", "--save_dir=nope", "--start_pass=3")
    assert status == 66, log
    assert not (job / "nope").exists()


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2> >(exec true)"], ids=["closed", "full", "reader gone"])
def test_a_log_that_nobody_takes_ends_no_training(job, stderr):
    command = shlex.join([sys.executable, "-m", "paddle", "train", *PLAIN])
    done = subprocess.run(["bash", "-c", f"{command} {stderr}"], cwd=job, check=False, timeout=60)
    assert done.returncode == 0
    assert passes(job)


def test_what_is_not_supported_is_refused_before_any_data_is_read(job, paddle):
    (job / "train.list").unlink()
    with (job / "config.py").open("a") as config:
        config.write("evaluator_base(input=x, type='horoscope')\n")
    got, log = paddle.train(job, *PLAIN)
    assert got == 78, log
    assert "type 'horoscope' is not supported yet" in log


def test_what_the_legacy_ignored_is_warned_of_once(job, paddle):
    text = (job / "config.py").read_text()
    (job / "config.py").write_text(
        text.replace(
            "MomentumOptimizer(0.5)",
            "AdamOptimizer(), regularization=L2Regularization(1e-3), gradient_clipping_threshold=1",
        )
    )
    log = paddle.trained(job, *PLAIN)
    warnings = [line for line in log.splitlines() if line.startswith("W")]
    assert len(warnings) == 2
    assert "adam does not use L2 regularization" in warnings[0]
    assert "does not clip gradients" in warnings[1]


def test_a_sparse_parameter_changes_the_mode(job, paddle):
    text = (job / "config.py").read_text()
    words = "[x, embedding_layer(y, 2, param_attr=ParamAttr(name='table', sparse_update=True))]"
    (job / "config.py").write_text(text.replace("fc_layer(x,", f"fc_layer({words},"))
    log = paddle.trained(job, *PLAIN)
    assert {"ignore sparse_remote_update=true due to  --local=true", "trainer mode: SgdSparseCpuTraining"} <= {
        *messages(log)
    }


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_the_run_by_its_own_status(job, paddle, tools, number, status):
    process = paddle.start(job, "train", *PLAIN, "--config_args=obj=endless")
    tools.wait_for(lambda: "Batch=" in (job / "log").read_text())
    process.send_signal(number)
    assert process.wait(20) == status
    log = (job / "log").read_text()
    assert "Traceback" not in log
    assert bool(re.search("^F", log, re.M)) == (number == signal.SIGTERM)
    assert "Saving parameters to ./out/pass-00000-001\n" in log
    assert "--init_model_path=out/pass-00000-001 --num_passes=1 (" in log
    # what is saved goes on like any other model
    assert passes(job) == ["pass-00000-001"]
    log = paddle.trained(job, *PLAIN, "--init_model_path=out/pass-00000-001")


def test_a_signal_while_waiting_for_data_saves_only_what_was_learnt(job, paddle, tools):
    process = paddle.start(job, "train", *PLAIN, "--config_args=obj=stuck")
    tools.wait_for(lambda: "the provider is stuck" in (job / "log").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert passes(job) == []


def test_the_next_save_inside_the_pass_is_the_signals(job, paddle, tools):
    process = paddle.start(job, "train", *PLAIN, "--config_args=obj=endless", "--saving_period_by_batches=1000000")
    tools.wait_for(lambda: "Batch=" in (job / "log").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert passes(job) == ["pass-00000-001"]


def test_a_test_that_waits_for_a_pass_is_ended_by_a_signal(job, paddle, tools):
    arguments = ["--config=config.py", "--config_args=test_list=1", "--job=test", "--save_dir=out", "--num_passes=2"]
    paddle.train(job, *WITH_TEST)
    process = paddle.start(job, "train", *arguments, "--test_pass=0", "--test_wait=1")
    tools.wait_for(lambda: "Waiting for parameters of pass 1" in (job / "log").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert " Pass=0 samples=8 " in (job / "log").read_text()
    status, log = paddle.train(job, *arguments, "--test_pass=0")
    assert status == 66, log
    assert "no model directory ./out/pass-00001" in log
    assert "--job=test takes every pass below --num_passes=2: give --num_passes=1 to end before this one" in log


def test_layer_statistics_come_with_every_forward_pass(job, paddle):
    _, log = paddle.train(job, *WITH_TEST, "--show_layer_stat")
    lines = re.findall(r"Layer\.cpp:322\] The output state of (\S+): mean=0\.5, std=(\S+), min=(\S+), max=(\S+)\n", log)
    assert [line[0] for line in lines] == ["__fc_layer_0__"] * 7  # five batches and two of the test


def test_all_evaluators_print_in_the_order_of_the_config(job, paddle):
    text = (job / "config.py").read_text()
    network = "fc_layer(x, 2, act=SoftmaxActivation())"
    assert network in text
    evaluators = """
p = NETWORK
auc_evaluator(p, y, name='area')
sum_evaluator(y, name='labels')
precision_recall_evaluator(p, y, positive_label=1, name='one')
gradient_printer_evaluator(p, name='gradient')
maxid_printer_evaluator(p, name='best')
value_printer_evaluator(x, name='value')
""".replace("NETWORK", network)
    head, cost = text.replace(network, "p").split("outputs(")
    (job / "config.py").write_text(f"{head}{evaluators}outputs({cost}")
    log = paddle.trained(job, *WITH_TEST, "--dot_period=0")
    number = r"[\d.e+-]+"
    evals = (
        rf"area={number} labels={number} positive_label=1 precision={number} recall={number} F1-score={number} "
        rf"gradient=0 best=0 value=0 classification_error_evaluator={number} "
    )
    assert re.search(
        rf"  Batch=2 samples=8 AvgCost={number} CurrentCost={number} Eval: {evals} CurrentEval: {evals}\n", log
    )
    assert re.search(rf"  Test samples=8 cost={number} Eval: {evals}\n", log)
    # five training batches with gradients, two of the test without
    gradients = re.findall(r"layer=__fc_layer_0__ grad matrix:\n((?:\S+ \S+ \n){4})", log + "\n")
    rows = [[float(x) for x in row.split()] for row in "".join(gradients).splitlines()]
    assert len(rows) == 4 * 5
    assert all(abs(sum(row)) < 1e-5 for row in rows)  # of a softmax
    assert log.count("layer=__fc_layer_0__ row max id vector:\n") == 7
    assert log.count("layer=x value:\n") == 7


def test_averaged_parameters_are_measured_on_the_last_batches_of_a_period(job, paddle):
    log = paddle.trained(job, *PLAIN, "--config_args=average=1", "--average_test_period=4")
    assert kinds(log) == ".\nBatch\n.\nBatch\nAveraged\n.Pass\nSaving\n"
    cost = re.search(r"  Averaged parameter: cost=(\S+) Eval: classification_error_evaluator=\S+ \n", log)[1]
    # the parameters of these batches, averaged, are not those that the batches were trained with
    costs = re.findall(r"CurrentCost=(\S+)", log)
    assert float(cost) == pytest.approx(float(costs[1]), rel=0.2)
    assert cost not in costs
    log = paddle.trained(job, *PLAIN, "--average_test_period=2")
    assert "W" in log and "--average_test_period has no effect without settings(model_average=" in log
    assert "Averaged" not in log


LAYER = r"Layer=(\S+ \([a-z-]+\)) + forward=[0-9.e-]+ +backward=[0-9.e-]+ +share=([0-9.]+)%"
SUMMARY = (
    r"[0-9.e+]+ ms a batch, [0-9.e+]+ samples/s: {batches} batches of {size} samples; ms a batch: forward [0-9.e-]+, "
    r"backward [0-9.e-]+, update [0-9.e-]+{data}, other [0-9.e-]+"
)


@pytest.mark.parametrize("options", [[], ["--feed_data"]])
def test_the_time_job_times_batches_and_saves_nothing(job, paddle, options):
    log = paddle.trained(job, *PLAIN, "--job=time", "--test_period=3", "--dot_period=0", *options)
    body = [line.partition("] ")[2] for line in log.splitlines() if re.match("I", line)]
    start = body.index("Burning time...")
    assert body[start + 6] == "Burning time end."
    assert sum(" Batch=" in line for line in body) == 6  # of 13 batches
    first, last = body.index("======= StatSet: [GlobalStatInfo] status ======"), body.index("-" * 50)
    names = [line.split()[0].removeprefix("Stat=") for line in body[first + 1 : last]]
    assert names == [*["GetData"] * bool(options), "ForwardTimer", "BackwardTimer", "UpdateTimer", "FwdBwd"]
    for line in body[first + 1 : last]:
        assert re.fullmatch(r"Stat=\w+ {17,} total=\S+ +avg=\S+ +max=\S+ +min=\S+ +count=3 {9}", line), line
    assert body[last + 1] == "======= Layers, ms a batch ======"
    layers = [re.fullmatch(LAYER, line) for line in body[last + 2 : -2]]
    assert len(layers) == 2 and all(layers), body
    assert sum(float(one[2]) for one in layers) == pytest.approx(100, abs=0.2)
    assert body[-2] == "-" * 50
    data = ", data [0-9.e-]+" * bool(options)
    assert re.fullmatch(SUMMARY.format(size=4, batches=3, data=data), body[-1]), body[-1]
    assert not (job / "out").exists()


def test_the_time_job_times_batches_where_no_number_is_given(job, paddle):
    """It printed a table without a line, for --test_period is 0: issue E 17."""
    log = paddle.trained(job, *PLAIN, "--job=time", "--dot_period=0")
    assert re.search(r" ms a batch, \S+ samples/s: 100 batches of 4 samples; ms a batch: forward ", log)
    assert "Stat=FwdBwd " in log and "count=100 " in log
    log = paddle.trained(
        job, *PLAIN, "--job=time", "--dot_period=0", "--trainer_count=2", "--test_period=2", "--config_args=cut=1"
    )
    assert "======= Layers, ms a batch of the first of 2 threads ======" in log


def test_the_time_job_needs_a_full_batch(job, paddle):
    status, log = paddle.train(job, *PLAIN, "--job=time", "--config_args=batch=21")
    assert status == 65
    assert "--job=time needs a full batch of 21 samples; the data has fewer" in log


def test_modules_are_found_on_the_python_path(job, paddle):
    (job / "far").mkdir()
    (job / "small_provider.py").rename(job / "far" / "small_provider.py")
    paddle.trained(job, *PLAIN, "--python_path=nowhere:far")


def test_a_parameter_with_the_name_of_the_config_is_refused(job, paddle):
    config = (job / "config.py").read_text()
    named = config.replace("fc_layer(x, 2,", "fc_layer(x, 2, param_attr=ParamAttr(name='config.py'),")
    assert named != config
    (job / "config.py").write_text(named)
    status, log = paddle.train(job, *PLAIN)
    assert status == 78, log
    assert "parameter 'config.py' cannot be saved: a script of the config has the same name and is in every" in log


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 nan 3 1", r"sample 5 of test\.txt \(counted from 1\): slot x \(dense_vector\(3\)\): number 2 is nan, "),
        (
            "3.4e38 -3.4e38 3.4e38 1",  # a number, but a product with the weights is none
            r"the cost of layer __cost_0__ is nan in batch 2 of the test: the first such output is that of layer "
            r"__fc_layer_0__ \(fc\), with input x in \[-3\.4e\+38, 3\.4e\+38\]",
        ),
    ],
)
def test_what_is_no_number_in_test_data_ends_training_and_tests_by_name(job, paddle, line, message):
    assert paddle.train(job, *PLAIN, "--config_args=rate=1000")[0] == 0  # weights over 1
    (job / "test.txt").write_text("1 2 3 1\n" * 4 + f"{line}\n")
    for arguments in ([*PLAIN, "--job=test", "--test_pass=0"], PLAIN):  # training moves the earlier pass away
        status, log = paddle.train(job, *arguments, "--config_args=test_list=1,rate=1000")
        assert status == 65, log
        assert re.search(rf"F\d{{4}} .*{message}", log), log


def test_the_checkgrad_job_compares_every_parameter_and_saves_nothing(job, paddle):
    log = paddle.trained(job, *PLAIN, "--job=checkgrad", "--checkgrad_eps=0.01")
    body = messages(log)
    cost, weight, bias = body[body.index("Init parameters done.") + 1 :]
    assert re.fullmatch(r"original cost=[\d.]+", cost)
    line = r"step=\S+ *cost1=\S+ *cost2=\S+ *true_delta=\S+ *analytic_delta=\S+ *diff=(\S+)"
    assert abs(float(re.fullmatch(rf"___fc_layer_0__\.w0 +{line}", weight)[1])) < 0.01
    assert bias.startswith("___fc_layer_0__.wbias") and abs(float(bias.split("diff=")[1])) < 0.01
    assert not (job / "out").exists()


def test_the_checkgrad_job_needs_a_sample(job, paddle):
    (job / "train.txt").write_text("")
    status, log = paddle.train(job, *PLAIN, "--job=checkgrad")
    told = "the data provider delivers no sample; check train.list, and what small_provider::process yields"
    assert (status, told in log) == (65, True)


def test_modules_beside_the_config_stand_in_no_way_of_the_report(job):
    """It is made while these directories are on the module path."""
    for name in ("base64", "hashlib", "html"):
        (job / f"{name}.py").write_text("raise RuntimeError('not ours')\n")
    program = Path(sys.executable).with_name("paddle")  # unlike `python -m` it has no directory of the user's at first
    command = [program, "train", *PLAIN, "--report"]
    done = subprocess.run(command, cwd=job, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "cannot be written" in done.stderr) == (0, False), done.stderr
    assert "<title>out: finished</title>" in (job / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("lists", "status", "message"),
    [
        ("test.txt\nabsent.txt\n", 66, r"reading 'absent\.txt': .*No such file"),
        ("empty.txt\n", 65, "gives no sample: check test.list"),
        ("", 65, "gives no sample: check test.list"),
        ("class.txt\n", 65, "sample 1 of class.txt .* id 7 is not in"),
    ],
)
def test_a_fault_of_the_test_data_is_known_before_the_first_batch(job, paddle, lists, status, message):
    """The whole first pass was trained before."""
    (job / "empty.txt").touch()
    (job / "class.txt").write_text("1 2 3 7\n")
    (job / "test.list").write_text(lists)
    found, log = paddle.train(job, *WITH_TEST)
    assert found == status and re.search(message, log), log
    assert " Pass=0 " not in log and not (job / "out").exists()
