"""When a task of a master counts as finished: the functions between reader and trainer keep samples for a while."""

import pickle

import pytest
from each import each

import paddle.v2 as paddle
from paddle.v2.reader.decorator import buffered, firstn, map_readers, shuffle, xmap_readers
from paddle_base.recordio.writing import RecordIOWriter
from paddle_base.runtime.errors import ConfigError, DataError
from paddle_cluster.master.client import PassOver, TaskGrant
from trainer.updaters.tasks.errors import TaskTakenError
from trainer.v2.jobs import parts
from trainer.v2.jobs.parts import CloudReader, Part
from trainer.v2.jobs.stores import store_flags

layer, data_type = paddle.layer, paddle.data_type
RECORDS, TASKS = 5, 3


class GivenTasks:
    """A job without a master: its tasks are given in order, in each of two passes, and `told` has the reports."""

    def __init__(self, folder):
        self.trained_passes, self.num_passes, self.told, self.trained = 0, 2, [], []
        self._folder, self._left, self.unsaved = folder, {}, None
        for number in range(TASKS):
            with RecordIOWriter(folder / f"part-{number}") as file:
                for index in range(RECORDS):
                    value = float(number * RECORDS + index)
                    file.write(pickle.dumps(([value], [value]), 0))

    def present_pass(self):
        return 0

    def take(self, number):
        left = self._left.setdefault(number, list(range(TASKS)))
        if not left or number > 1:
            return None, PassOver(number + 1, is_last=number > 1)
        task = left.pop(0)
        return TaskGrant(task, 1, number, (str(self._folder / f"part-{task}"),), 60.0), None

    def finish(self, task, samples):
        own = range(task.number * RECORDS, (task.number + 1) * RECORDS)
        assert set(own) <= set(self.trained), "a task is reported before its samples are trained"
        self.told.append(("finish", task.pass_number, task.number, samples))

    def fail(self, task, error, samples):
        self.told.append(("fail", task.pass_number, task.number, samples, str(error)))

    def give_back(self, task, samples, reason, patience=None):
        self.told.append(("give back", task.pass_number, task.number, samples, reason))

    def must_save(self, number):
        return number == self.unsaved

    def settle(self):
        self.told.append(("settle",))


@pytest.fixture
def tasks(tmp_path):
    given = GivenTasks(tmp_path)
    parts.READING.append(given)
    yield given
    parts.READING.remove(given)


def train(tasks, reader, handler=lambda event: None, passes=2):
    """Train a line through the samples; `tasks.trained` has the samples whose step is complete."""
    x, y = (layer.data(name=name, type=data_type.dense_vector(1)) for name in "xy")
    cost = layer.square_error_cost(input=layer.fc(input=x, size=1), label=y)
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(learning_rate=1e-9))
    batch = []

    def note(event):
        if isinstance(event, paddle.event.BeginPass):
            tasks.trained.clear()
        if isinstance(event, paddle.event.EndIteration):
            tasks.trained += trainer_batch(batch)
        handler(event)

    def kept():
        for one in reader():
            batch[:] = one
            yield one

    trainer.train(kept, num_passes=passes, event_handler=note)
    return tasks.told


def trainer_batch(batch):
    return [int(sample[0][0]) for sample in batch]


def finished(number):
    return [("finish", number, task, RECORDS) for task in range(TASKS)] + [("settle",)]


def read(tasks):
    return CloudReader(tasks, pickle.loads)


@pytest.mark.parametrize(
    "between",
    [
        lambda reader: reader,
        lambda reader: shuffle(reader, 3),
        lambda reader: shuffle(reader, 100),
        lambda reader: buffered(reader, 2),
        lambda reader: xmap_readers(lambda sample: sample, reader, 3, 2),
        lambda reader: buffered(shuffle(buffered(reader, 1), 4), 3),
    ],
)
def test_a_task_is_finished_when_its_last_sample_is_trained(tasks, between):
    """In v0.11 it was finished when its last record was in a queue."""
    assert train(tasks, paddle.batch(between(read(tasks)), 2)) == finished(0) + finished(1)


def test_the_number_of_the_pass_is_that_of_the_master(tasks, monkeypatch):
    monkeypatch.setattr(tasks, "present_pass", lambda: 1)
    seen = []
    train(tasks, paddle.batch(read(tasks), 2), lambda event: seen.append((type(event).__name__, event.pass_id)))
    assert seen[0] == ("BeginPass", 1)
    assert seen[-1] == ("EndPass", 1)
    assert tasks.told == finished(1)


def test_a_pass_that_no_program_has_saved_is_handled_by_the_next_one(tasks, monkeypatch):
    """The programs that trained it have ended in their handlers. The job was over without a model."""
    monkeypatch.setattr(tasks, "present_pass", lambda: 2)
    tasks.unsaved, seen = 1, []
    train(tasks, paddle.batch(read(tasks), 2), lambda event: seen.append((type(event).__name__, event.pass_id)))
    assert (seen, tasks.told) == ([("EndPass", 1)], [("settle",)])


def test_a_mapper_that_raises_fails_its_task_and_the_training_goes_on(tasks):
    def mapper(sample):
        if sample[0] == [7.0]:
            raise ValueError("odd")
        return sample

    told = train(tasks, paddle.batch(map_readers(mapper, read(tasks)), 2), passes=1)
    assert told == [finished(0)[0], ("fail", 0, 1, 2, "odd"), finished(0)[2], ("settle",)]


def test_a_sample_of_the_wrong_form_fails_its_task(tasks):
    reader = map_readers(lambda sample: (sample[0] * 2, sample[1]) if sample[0] == [7.0] else sample, read(tasks))
    told = train(tasks, paddle.batch(reader, 2), passes=1)
    assert told[1][:4] == ("fail", 0, 1, 2)
    assert "sample 2" in told[1][4] or "x" in told[1][4]
    assert told[2:] == finished(0)[2:]


def test_an_exception_of_the_handler_gives_the_task_back_and_is_the_programs(tasks):
    def handler(event):
        if isinstance(event, paddle.event.EndIteration) and event.batch_id == 4:
            raise KeyError("the handler")

    with pytest.raises(KeyError):
        train(tasks, paddle.batch(read(tasks), 2), handler)
    assert tasks.told == [finished(0)[0], ("give back", 0, 1, 4, "'the handler'")]


def test_a_task_that_the_master_has_taken_away_is_given_up(tasks, monkeypatch):
    steps = []

    def step(self, samples, checkpoint=False):
        steps.append(samples)
        if len(steps) == 2:
            raise TaskTakenError("taken")
        return False

    monkeypatch.setattr("trainer.updaters.local.LocalUpdater.step", step)
    told = train(tasks, paddle.batch(read(tasks), 2), passes=1)
    assert told == [("give back", 0, 0, 2, "taken"), *finished(0)[1:]]


def test_a_reader_that_ends_early_has_finished_its_task(tasks, capfd, monkeypatch):
    monkeypatch.setattr(tasks, "finish", lambda task, samples: tasks.told.append((task.number, samples)))
    told = train(tasks, paddle.batch(firstn(read(tasks), 3), 2), passes=1)
    assert told == [(0, 3), (1, 3), (2, 3), ("settle",)]
    assert "before the last record of task 0 of pass 0" in capfd.readouterr().err


def test_a_second_reader_of_the_same_iteration_does_not_wait(tasks):
    with Part(0) as part:
        first, second = read(tasks)(), read(tasks)()
        next(first)
        assert list(second) == []
        list(first)
        tasks.trained += range(RECORDS)
        part.samples = RECORDS
    assert tasks.told == finished(0)[:1]


def test_checkpoints_are_refused_with_a_master(tasks, tmp_path):
    x = layer.data(name="x", type=data_type.dense_vector(1))
    cost = layer.square_error_cost(input=layer.fc(input=x, size=1), label=x)
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(learning_rate=1e-9))
    with pytest.raises(ConfigError, match="checkpoint_dir"):
        trainer.train(paddle.batch(read(tasks), 2), checkpoint_dir=tmp_path / "state")


def test_the_discarded_tasks_of_the_job_are_an_error_at_its_end(tasks, monkeypatch):
    take, seen = tasks.take, []
    monkeypatch.setattr(
        tasks, "take", lambda number: take(number) if number < 2 else (None, PassOver(2, True, "task 3 was discarded"))
    )
    with pytest.raises(DataError, match="task 3 was discarded"):
        train(tasks, paddle.batch(read(tasks), 2), seen.append, passes=9)
    assert [one.pass_id for one in seen if isinstance(one, paddle.event.EndPass)] == [0, 1]


def test_a_program_that_learns_late_of_the_end_of_the_job_goes_on_with_its_values(tasks, monkeypatch, capfd):
    """Its servers may have ended."""

    def finish_pass(self, own=None):
        raise TaskTakenError("the job is over")

    monkeypatch.setattr("trainer.updaters.local.LocalUpdater.finish_pass", finish_pass)
    assert train(tasks, paddle.batch(read(tasks), 2), passes=1) == finished(0)
    assert "not of the end of pass 0: the job is over" in capfd.readouterr().err


@each(
    ("store", "directory", "endpoints"),
    [
        ("http://a:2379", "", "http://a:2379"),
        ("http://10.0.0.1:2379,http://b:2379", "", "http://10.0.0.1:2379,http://b:2379"),
        ("10.0.0.1:2379,b:2379", "", "http://10.0.0.1:2379,http://b:2379"),
        ("/volume/store", "/volume/store", ""),
        ("store", "store", ""),
    ],
)
def test_a_store_is_etcd_or_a_directory(store, directory, endpoints):
    """It takes the place of both flags of the environment."""
    assert store_flags(store) == {"store_dir": directory, "etcd_endpoints": endpoints}


class TestLoops:
    """Loops outside of `SGD.train`."""

    def test_a_task_is_finished_when_the_sample_after_its_last_one_is_requested(self, tasks):
        samples = read(tasks)()
        for value in range(RECORDS):
            assert next(samples)[0] == [value]
            tasks.trained.append(value)
        assert tasks.told == []
        next(samples)
        assert tasks.told == finished(0)[:1]

    def test_leaving_the_loop_gives_the_task_back(self, tasks):
        samples = read(tasks)()
        next(samples)
        samples.close()
        assert tasks.told[0][:4] == ("give back", 0, 0, 0)

    def test_each_reader_counts_its_passes(self, tasks):
        """In v0.11 all readers of a process had one count."""
        tasks.trained += range(RECORDS * TASKS)
        one, other = read(tasks), read(tasks)
        assert [len(list(one())) for _ in range(2)] == [RECORDS * TASKS] * 2
        tasks._left.clear()
        assert [len(list(other())) for _ in range(3)] == [RECORDS * TASKS] * 2 + [0]

    def test_a_task_that_cannot_be_read_fails_alone(self, tasks, tmp_path):
        (tmp_path / "part-1").write_bytes(b"damaged")
        tasks.trained += range(RECORDS * TASKS)
        assert len(list(read(tasks)())) == 2 * RECORDS
        assert [one[0] for one in tasks.told] == ["finish", "fail", "finish"]
