"""`paddle train --trainer_count`: whole runs whose batches are computed in shares."""

import re
import signal

import numpy as np
import pytest
from server_jobs import ServerJob

PLAIN = ["--config=config.py", "--save_dir=out", "--num_passes=2", "--log_period=1"]
PARAMETERS = ("___fc_layer_0__.w0", "___fc_layer_0__.wbias")


def read(folder, save="out/pass-00001"):
    return np.concatenate([np.frombuffer((folder / save / name).read_bytes(), "<f4", offset=16) for name in PARAMETERS])


def figures(log):
    """The numbers of the lines about batches, passes and tests."""
    lines = re.findall(r"\] ( (?:Batch|Pass|Test).*)$", log, re.M)
    return [float(number) for line in lines for number in re.findall(r"=([\d.e+-]+)", line)]


@pytest.mark.parametrize(
    "options", ["test_list=1", "test_list=1,cut=1", "test_list=1,adam=1,cut=1", "test_list=1,obj=shuffled,cut=1"]
)
def test_threads_change_neither_values_nor_what_is_printed(tmp_path, paddle, tools, options):
    values, printed = [], []
    for count in (1, 2, 3):
        folder = tools.lay_out(tmp_path / str(count), tools.make_lines(22), tools.make_lines(9, seed=2))
        log = paddle.trained(folder, *PLAIN, f"--config_args={options}", f"--trainer_count={count}")
        assert "trainer_count has" not in log
        values.append(read(folder))
        printed.append(figures(log))
    assert len(printed[0]) > 50
    for count in (1, 2):
        assert values[count] == pytest.approx(values[0], rel=1e-4, abs=1e-6)
        assert printed[count] == pytest.approx(printed[0], rel=1e-4)


def test_threads_give_the_same_bits_every_time(tmp_path, paddle, tools):
    saved = []
    for number in range(2):
        folder = tools.lay_out(tmp_path / str(number), tools.make_lines(22))
        assert paddle.train(folder, *PLAIN, "--trainer_count=3", "--config_args=cut=1")[0] == 0
        saved.append(read(folder).tobytes())
    assert saved[0] == saved[1]


def test_predictions_of_shares_stand_in_the_order_of_the_samples(job, paddle):
    assert paddle.train(job, *PLAIN)[0] == 0
    options = ["--config_args=test_list=1,batch=5,cut=1", "--init_model_path=out/pass-00001", "--job=test"]
    dumps = []
    for count in (1, 3):
        dump = f"--predict_output_dir=dump{count}"
        paddle.trained(job, "--config=config.py", *options, dump, f"--trainer_count={count}")
        dumps.append([float(row.rstrip(";")) for row in (job / f"dump{count}" / "rank-00000").read_text().splitlines()])
    assert dumps[1] == pytest.approx(dumps[0], rel=1e-5)
    assert len(set(dumps[0])) == 8


def test_an_error_in_a_share_is_one_line_with_its_status(job, paddle):
    lines = (job / "train.txt").read_text().splitlines()
    lines[3] = "1e38 1e38 1e38 1"  # the last sample of the first batch
    (job / "train.txt").write_text("\n".join(lines) + "\n")
    status, log = paddle.train(job, *PLAIN, "--trainer_count=2", "--config_args=rate=1e38,cut=1")
    assert status == 65, log
    assert "Traceback" not in log
    assert re.search(r"^F.* (cost of layer|gradient of parameter) ", log, re.M), log


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_a_run_with_threads(job, paddle, tools, number, status):
    process = paddle.start(job, "train", *PLAIN, "--trainer_count=2", "--config_args=obj=endless,cut=1")
    tools.wait_for(lambda: "Batch=" in (job / "log").read_text())
    process.send_signal(number)
    assert process.wait(20) == status
    assert "Saving parameters to ./out/pass-00000-001\n" in (job / "log").read_text()


def test_threads_and_parameter_servers_go_together(tmp_path, paddle, tools):
    lines = tools.make_lines(22)
    local = tools.lay_out(tmp_path / "local", lines)
    assert paddle.train(local, *PLAIN, "--trainer_count=2", "--config_args=cut=1")[0] == 0
    remote = tools.lay_out(tmp_path / "remote", lines)
    job = ServerJob(paddle, tmp_path / "pserver", [remote], *PLAIN)
    assert job.run("--trainer_count=2", "--config_args=cut=1") == [0, 0], job.log()
    assert read(remote).tobytes() == read(local).tobytes()


@pytest.mark.parametrize(
    ("variables", "threads", "line"),
    [
        ([], "1", None),
        (
            ["OPENBLAS_NUM_THREADS=64"],
            "1",
            r"each matrix product gets 1 thread in spite of OPENBLAS_NUM_THREADS=64, because of --trainer_count=99 and",
        ),
        (
            ["PADDLE_BLAS_THREADS=2"],
            "2",
            r"PADDLE_BLAS_THREADS=2: each matrix product gets 2 threads, with --trainer_count=99 and",
        ),
    ],
)
def test_products_do_not_get_more_threads_than_processors(job, paddle, variables, threads, line):
    """--trainer_count=2 with variables of 2 had four threads on two processors: issue E 25."""
    with (job / "config.py").open("a") as config:
        config.write("\nimport os, sys\nsys.stderr.write('blas %s\\n' % os.environ['OPENBLAS_NUM_THREADS'])\n")
    command = ["env", *variables, *paddle.command(), "train", *PLAIN, "--trainer_count=99", "--job=test"]
    paddle.run(job, command).wait(60)
    log = (job / "log").read_text()
    assert f"blas {threads}\n" in log
    assert len(re.findall(line or "matrix product gets", log)) == (line is not None), log


def test_a_small_batch_is_computed_as_a_whole_to_the_bits_of_one_thread(tmp_path, paddle, tools):
    """lr in two shares had two thirds of the speed of one thread: issue E 25."""
    saved = []
    for count in (1, 2):
        folder = tools.lay_out(tmp_path / str(count), tools.make_lines(22))
        log = paddle.trained(folder, *PLAIN, f"--trainer_count={count}")
        saved.append(read(folder).tobytes())
    assert saved[0] == saved[1]
    assert log.count("--trainer_count=2: one thread computes small batches") == 1
