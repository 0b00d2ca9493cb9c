"""Training that is killed and goes on from a checkpoint ends in the bits of training that is left alone."""

import random
import re
import signal

import pytest
from server_jobs import ServerJob

CONFIG = """
from paddle.trainer_config_helpers import *
kind = get_config_arg('kind', str, 'plain')
define_py_data_sources2('train.list', 'test.list', module='slow_provider', obj=get_config_arg('obj', str, 'process'))
methods = {'adam': AdamOptimizer(), 'rows': AdaGradOptimizer()}
settings(batch_size=4, learning_rate=0.05, learning_rate_schedule='poly', learning_rate_decay_a=0.01,
         learning_rate_decay_b=0.5, learning_method=methods.get(kind, MomentumOptimizer(0.9)),
         regularization=L2Regularization(0.01),
         model_average=ModelAverage(0.5, max_average_window=7) if kind == 'adam' else None)
x, y, word = data_layer('x', 3), data_layer('y', 2), data_layer('word', 40)
table = ParamAttr(name='table', sparse_update=True, l2_rate=0.01) if kind == 'rows' else ParamAttr(name='table')
hidden = fc_layer([x, embedding_layer(word, 8, param_attr=table)], 8, act=TanhActivation(),
                  layer_attr=ExtraAttr(drop_rate=0.3))
if kind == 'norm':
    hidden = batch_norm_layer(hidden, act=ReluActivation())
out = fc_layer(hidden, 2, act=SoftmaxActivation())
cost = classification_cost(input=out, label=y)
if kind == 'sampled':
    cost = [cost, nce_layer(hidden, y, num_classes=2, num_neg_samples=3)]
auc_evaluator(input=out, label=y)
outputs(cost)
"""
GATED = 380  # the sample of a pass at which the provider waits if the file `gate` has the number of the pass
PROVIDER = f"""
import itertools, os, random, time
from paddle.trainer.PyDataProvider2 import *
TYPES = {{'x': dense_vector(3), 'y': integer_value(2), 'word': integer_value(40)}}
random.seed(11)
calls = itertools.count(1)

def samples(path):
    call = next(calls) if path == 'train.txt' else 0  # passes of this process
    lines = open(path).read().splitlines()
    random.shuffle(lines)
    for number, line in enumerate(lines):
        while number >= {GATED} and os.path.exists('gate') and open('gate').read() == str(call):
            open('at-gate', 'w').close()
            time.sleep(0.01)
        a, b, c, label = line.split()
        noise = random.random() / 10
        yield {{'x': [float(a) + noise, float(b), float(c)], 'y': int(label), 'word': int(abs(float(a)) * 100) % 40}}

@provider(input_types=TYPES, pool_size=16)
def process(settings, path):
    for sample in samples(path):
        yield sample

@provider(input_types=TYPES, cache=CacheType.CACHE_PASS_IN_MEM)
def cached(settings, path):
    for sample in samples(path):
        yield sample
"""
PASSES = 3
FLAGS = ["--config=config.py", f"--num_passes={PASSES}", "--log_period=3", "--test_period=4", "--dot_period=0"]
LAST = f"pass-{PASSES - 1:05d}"


def lay_out(folder, tools, count=45, seed=1):
    tools.lay_out(folder, tools.make_lines(count, seed), tools.make_lines(7, seed=2))
    (folder / "config.py").write_text(CONFIG)
    (folder / "slow_provider.py").write_text(PROVIDER)
    return folder


def model(folder, name=LAST):
    return {path.name: path.read_bytes() for path in (folder / name).iterdir()}


def complete(folder):
    """The complete checkpoints, the oldest place first."""
    state = folder / "state"
    names = [path.parent.name for path in state.glob("pass-*/done")] if state.is_dir() else []
    return [state / name for name in sorted(names, key=lambda name: (name[:10], name[10:] or "-999"))]


def measured(log):
    """What the log says of passes and tests, with its numbers."""
    return re.findall(r"\] ( (?:Pass=|Test samples=).*)", log)


CASES = {
    "rows and a small pool": ["--config_args=kind=rows"],
    "averages and a cache": ["--config_args=kind=adam,obj=cached", "--average_test_period=6", "--log_period=3"],
    "moving averages and saves": ["--config_args=kind=norm", "--saving_period_by_batches=5"],
    "samples in layers": ["--config_args=kind=sampled,obj=cached"],
    "threads": ["--config_args=kind=adam", "--trainer_count=2", "--saving_period=2"],
}


@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES)
def test_going_on_from_a_checkpoint_anywhere_ends_in_the_same_bits(tmp_path, paddle, tools, arguments):
    job = lay_out(tmp_path / "job", tools)
    plain = paddle.trained(job, *FLAGS, *arguments, "--save_dir=plain")
    log = paddle.trained(
        job, *FLAGS, *arguments, "--save_dir=made", "--checkpoint_period_by_batches=1", "--checkpoints_kept=99"
    )
    assert model(job / "made") == model(job / "plain")
    assert measured(log) == measured(plain)
    every = complete(job / "made")
    assert len(every) >= 36
    for checkpoint in random.Random(arguments[0]).sample(every[:-1], 3):
        log = paddle.trained(job, *FLAGS, *arguments, "--save_dir=again", f"--resume_from={checkpoint}")
        assert model(job / "again") == model(job / "plain"), checkpoint
        lines = measured(log)
        assert lines == measured(plain)[-len(lines) :], checkpoint


def test_without_a_flag_local_training_writes_nothing_of_ours(job, paddle):
    paddle.trained(job, "--config=config.py", "--save_dir=out", "--num_passes=1")
    assert [path.name for path in (job / "out").iterdir()] == ["pass-00000"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_training_that_dies_again_and_again_ends_in_the_same_bits(tmp_path, paddle, tools, number):
    """At seeded moments: after a batch, or while a checkpoint is being written."""
    job = lay_out(tmp_path / "job", tools, 400)
    flags = [*FLAGS, "--config_args=kind=adam", "--test_period=0", "--log_period=1"]
    paddle.trained(job, *flags, "--save_dir=plain")
    moments = random.Random(5)
    resumed = []
    (job / "gate").write_text("2")  # no process comes to its end before it is harmed
    for attempt in range(4):
        process = paddle.start(
            job, "train", *flags, "--save_dir=out", "--checkpoint_period_by_batches=7", *resumed, log=f"log{attempt}"
        )
        batches = moments.randrange(10, 50)
        while_saving = moments.random() < 0.5

        def is_time(log=job / f"log{attempt}", batches=batches, while_saving=while_saving):
            has_begun = log.read_text().count(" Batch=") >= batches
            state = job / "out" / "state"
            is_due = has_begun and (not while_saving or (state.is_dir() and any(state.glob(".*.writing"))))
            return is_due or (job / "at-gate").exists()  # every save may be too short to be seen

        tools.wait_for(is_time)
        process.send_signal(number)
        status = process.wait(60)
        assert status == (-9 if number == signal.SIGKILL else 143), (job / f"log{attempt}").read_text()
        assert complete(job / "out")
        (job / "at-gate").unlink(missing_ok=True)
        is_in_last = complete(job / "out")[-1].name >= "pass-00002" or complete(job / "out")[-1].name == "pass-00001"
        (job / "gate").write_text("1" if is_in_last else "2")
        resumed = [f"--resume_from={complete(job / 'out')[-1]}"]
    (job / "gate").unlink()
    paddle.trained(job, *flags, "--save_dir=out", "--checkpoint_period_by_batches=7", *resumed)
    assert model(job / "out") == model(job / "plain")
    assert len(complete(job / "out")) == 2
    assert {path.name for path in (job / "out" / "state").iterdir()} == {path.name for path in complete(job / "out")}


def test_a_volume_that_is_full_ends_training_with_74_and_keeps_what_was_there(tmp_path, paddle, tools):
    """Files may have 8 KiB: the parameters of the passes fit, what trainers say of themselves does not."""
    job = lay_out(tmp_path / "job", tools)
    flags = [*FLAGS, "--save_dir=out", "--config_args=kind=adam"]
    paddle.trained(job, *flags, "--num_passes=1", "--checkpoint_period_by_batches=100")
    before = {path: path.read_bytes() for path in (job / "out").rglob("*") if path.is_file()}
    checkpoint = complete(job / "out")[-1]
    limited = ["prlimit", "--fsize=8192", *paddle.command(), "train"]
    arguments = [*flags, f"--resume_from={checkpoint}", "--checkpoint_period_by_batches=3"]
    process = paddle.run(job, [*limited, *arguments])
    assert process.wait(60) == 74, (job / "log").read_text()
    assert "cannot save to out/state/pass-00001-001: File too large" in (job / "log").read_text()
    assert {path: path.read_bytes() for path in before} == before
    assert complete(job / "out") == [checkpoint]
    assert not (job / "out" / "state" / ".pass-00001-001.writing").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--resume_from=out/pass-00000"], 66, "checkpoints are in <save_dir>/state"),
        (["--resume_from=out/state"], 66, "complete checkpoints are out/state/pass-00000"),
        (
            ["--resume_from=out/state/pass-00000", "--local=0", "--num_gradient_servers=2"],
            78,
            "was made by 1 trainer, but this job has 2",
        ),
        (["--resume_from=out/state/pass-00000", "--job=test"], 64, "--resume_from continues a training"),
    ],
)
def test_what_cannot_be_gone_on_from_is_said(tmp_path, paddle, tools, arguments, status, message):
    job = lay_out(tmp_path / "job", tools)
    flags = [*FLAGS, "--save_dir=out", "--num_passes=1"]
    assert paddle.train(job, *flags, "--checkpoint_period_by_batches=100")[0] == 0
    found, log = paddle.train(job, *flags, *arguments)
    assert found == status, log
    assert message in log.splitlines()[-1]
    assert "Traceback" not in log


@pytest.mark.parametrize(("kind", "difference"), [("norm", "only the config has"), ("adam", "learning_method 'moment")])
def test_the_error_about_a_save_that_the_launcher_chose_names_the_variable(
    tmp_path, paddle, tools, monkeypatch, kind, difference
):
    job = lay_out(tmp_path / "job", tools)
    flags = [*FLAGS, "--save_dir=out", "--num_passes=1", "--checkpoint_period_by_batches=100"]
    assert paddle.train(job, *flags)[0] == 0
    resumed = [*flags, "--resume_from=out/state/pass-00000", f"--config_args=kind={kind}"]
    advice = "; set RESUME=0 in a new Job to start from the beginning"
    assert advice not in paddle.train(job, *resumed)[1]  # a user who named the save has a flag for it
    monkeypatch.setenv("PADDLE_CHOSEN_SAVE", "./out/state/pass-00000")
    status, log = paddle.train(job, *resumed)
    assert status == 78 and difference in log and log.rstrip().endswith(advice), log


def test_nothing_is_left_to_do_after_the_last_pass(tmp_path, paddle, tools):
    job = lay_out(tmp_path / "job", tools)
    flags = [*FLAGS, "--save_dir=out", "--num_passes=1", "--checkpoint_period_by_batches=100"]
    assert paddle.train(job, *flags)[0] == 0
    log = paddle.trained(job, *flags, "--resume_from=out/state/pass-00000")
    assert " Pass=" not in log
    assert "nothing is left to do: the last pass is 0" in log


# ----- With parameter servers -----


def make_job(root, paddle, tools):
    """Two servers, and two trainers with samples of their own: all of it can be killed."""
    folders = [lay_out(root / f"trainer{k}", tools, count=150 - 40 * k, seed=k) for k in range(2)]
    return ServerJob(paddle, root, folders, *FLAGS, servers=2, rows=1)


def run(job, *arguments):
    assert job.run(*arguments) == [0] * 4, job.log(0) + job.log(1)


REMOTE = {
    "averages and a cache": "--config_args=kind=adam,obj=cached",
    "moving averages and a small pool": "--config_args=kind=norm",
    "tables on servers": "--config_args=kind=rows",
}


@pytest.mark.parametrize("arguments", REMOTE.values(), ids=REMOTE)
def test_a_job_of_which_everything_dies_goes_on_to_the_same_bits(tmp_path, paddle, tools, arguments):
    job = make_job(tmp_path, paddle, tools)
    arguments = [arguments, "--log_period=1"]
    run(job, *arguments, "--save_dir=plain")
    expected = [measured(job.log(number)) for number in range(2)]
    assert [path.name for path in complete(job.folders[0] / "plain")] == ["pass-00001", "pass-00002"]
    assert not (job.folders[1] / "plain").exists()
    moments, resumed = random.Random(3), []
    for _ in range(3):
        trainers = job.start(*arguments, "--save_dir=out", "--checkpoint_period_by_batches=5", *resumed)
        batches = moments.randrange(8, 40)

        def is_time(batches=batches, first=trainers[0]):
            return job.log(0).count(" Batch=") >= batches or first.poll() is not None

        tools.wait_for(is_time, 60)
        if trainers[0].poll() is not None:
            break  # it came to its end before anybody looked: its last part is trained again
        for one in (*trainers, *job.servers):
            one.kill()
        for one in (*trainers, *job.servers):
            one.wait(60)
        resumed = [f"--resume_from={complete(job.folders[0] / 'out')[-1]}"]
    run(job, *arguments, "--save_dir=out", "--checkpoint_period_by_batches=5", *resumed)
    assert model(job.folders[0] / "out") == model(job.folders[0] / "plain")
    for number in range(2):
        lines = measured(job.log(number))
        assert lines and lines == expected[number][-len(lines) :]


@pytest.mark.parametrize("number", [0, 1])
def test_a_trainer_that_is_told_to_stop_gets_a_checkpoint_of_all(tmp_path, paddle, tools, number):
    job = make_job(tmp_path, paddle, tools)
    arguments = ["--config_args=kind=adam,obj=cached", "--log_period=1"]
    run(job, *arguments, "--save_dir=plain")
    trainers = job.start(*arguments, "--save_dir=out")
    tools.wait_for(lambda: job.log(0).count(" Batch=") >= 5, 60)
    trainers[number].send_signal(signal.SIGTERM)
    assert trainers[number].wait(60) == 143, job.log(number)
    assert trainers[1 - number].wait(60) == 75, job.log(1 - number)
    for one in job.servers:
        one.wait(60)
    found = complete(job.folders[0] / "out")
    assert len(found) == 1 and found[0].name.startswith("pass-00000-001"), job.log(0)
    run(job, *arguments, "--save_dir=out", f"--resume_from={found[0]}")
    assert model(job.folders[0] / "out") == model(job.folders[0] / "plain")
