"""Checkpoints as nobody of ours writes them: an error that names what is wrong, never a traceback, never a wait."""

import json
import random
import shutil
from dataclasses import asdict

import crafted
import numpy as np
import pytest

from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import ConfigError, DamagedError, DataError
from pserver.optim.settings import Optimization
from pserver.store import partition, snapshot
from pserver.store.shard import DenseShard
from pserver.store.snapshot import CheckpointState
from trainer.arrays.encoding import UNDECODABLE, decoding
from trainer.arrays.parameters import ParameterTable
from trainer.evaluators import Accumulator
from trainer.storage.checkpoint import write_checkpoint
from trainer.storage.checkpoint_reader import read_checkpoint
from trainer.storage.sums import sum_of
from trainer.training.position import Position, read_position


def make_table():
    return ParameterTable([ParameterConfig(name=name, size=4, dims=[1, 4]) for name in ("w", "b")])


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A checkpoint of a real optimiser with averages."""
    table = make_table()
    shard = make_shard(table)
    shard.work_on(table.values)
    shard.step(np.ones(8, np.float32), 4)
    folder = tmp_path_factory.mktemp("state") / "pass-00000"
    own = {"place": {"number": 0}, "random": [1, 2], "sums": {}}
    write_checkpoint(folder, CheckpointState([snapshot.take(shard)], [own]), table, {}, {"number": 0})
    return folder


def make_shard(table):
    specs = [one.spec() for one in table]
    optimization = Optimization(learning_method="adam", average_window=0.5)
    return DenseShard(specs, partition.whole(specs), optimization, per_parameter=False)


@pytest.fixture
def folder(tmp_path, original):
    return shutil.copytree(original, tmp_path / "state" / "pass-00000")


def refuse(folder):
    with pytest.raises(DamagedError, match="pass-00000 is damaged: ") as caught:
        read_checkpoint(folder, make_table())
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1500


@pytest.mark.parametrize("text", crafted.TEXTS.values(), ids=crafted.TEXTS)
@pytest.mark.parametrize("name", ["job.json", "trainers.json"])
def test_json_that_is_none_of_ours_is_damage(folder, name, text):
    if name == "job.json":
        crafted.reseal(folder, text)
    else:
        (folder / name).write_bytes(text)
        job = json.loads((folder / "job.json").read_bytes())
        job["files"][name], job["sums"][name] = len(text), sum_of([text])
        crafted.reseal(folder, crafted.spell(job))
    refuse(folder)


@pytest.mark.parametrize("replace", crafted.REPLACEMENTS.values(), ids=crafted.REPLACEMENTS)
@pytest.mark.parametrize("name", ["done", "job.json", "trainers.json", "parameters/w", "services/0/state.mom.bin"])
def test_what_stands_in_place_of_a_file_is_neither_waited_for_nor_read_whole(folder, name, replace):
    found = next(folder.glob("services/0/*.bin")) if name.startswith("services") else folder / name
    replace(found)
    if (name, replace) == ("done", crafted.REPLACEMENTS["nothing"]):
        return  # then it is no checkpoint: test_trainer_checkpoint.py
    refuse(folder)


def test_a_value_of_any_other_type_at_any_place_of_job_json_is_an_error_of_ours(folder):
    """It was a traceback of KeyError, TypeError, ValueError or AttributeError, and 70."""
    job = json.loads((folder / "job.json").read_bytes())
    changed = list(crafted.replace_values(job))
    assert len(changed) > 500
    judged = 0
    for what, one in changed:
        crafted.reseal(folder, crafted.spell(one))
        table = make_table()
        shard = make_shard(table)
        shard.work_on(table.values)
        try:
            gathered = read_checkpoint(folder, table)
            snapshot.put_back(shard, gathered.services[0]) if gathered.services else None
        except (DamagedError, ConfigError) as error:
            judged += 1
            assert "\n" not in str(error) and "\x1b" not in str(error), what
    assert judged > len(changed) * 0.8


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "parameters/../../w", "a\0b", "", "x" * 5000])
def test_a_name_that_leads_elsewhere_is_damage(folder, name):
    job = json.loads((folder / "job.json").read_bytes())
    job["files"][name] = 1
    job["sums"][name] = "0" * 64
    crafted.reseal(folder, crafted.spell(job))
    refuse(folder)


def test_an_array_of_objects_or_of_terabytes_is_not_made(folder):
    job = json.loads((folder / "job.json").read_bytes())
    record = next(one for one in job["services"][0]["arrays"] if one["file"])
    for change in ({"type": "|O"}, {"type": "<f4", "shape": [1 << 40]}, {"shape": [-1]}, {"shape": []}):
        before = dict(record)
        record.update(change)
        crafted.reseal(folder, crafted.spell(job))
        refuse(folder)
        record.clear()
        record.update(before)
    job["files"][record["file"]] = 4 << 40
    record["shape"] = [1 << 40]
    crafted.reseal(folder, crafted.spell(job))
    refuse(folder)


def test_any_flipped_bit_of_job_json_is_damage(folder):
    text = (folder / "job.json").read_bytes()
    dice = random.Random(8)
    for place in dice.sample(range(len(text)), 200):
        (folder / "job.json").write_bytes(
            text[:place] + bytes([text[place] ^ 1 << dice.randrange(8)]) + text[place + 1 :]
        )
        refuse(folder)


def test_a_place_or_a_sum_of_another_type_is_refused_and_not_counted_on_with():
    """A text in place of a number came back as it was, and ended training at the next batch, with a traceback."""
    place = Position(3, "inside", 7, 0, 2, True)
    assert read_position(asdict(place)) == place
    refused = 0
    for what, changed in crafted.replace_values(asdict(place)):
        try:
            found = read_position(changed)
        except UNDECODABLE:
            refused += 1
        else:
            assert all(isinstance(value, str if name == "stage" else int) for name, value in asdict(found).items()), (
                what
            )
    assert refused > 20
    sums = Accumulator([])
    for value in ("8", None, [8], {}, 8.0):
        with pytest.raises(UNDECODABLE):
            sums.put_back({"samples": value, "cost": "0x1.0p+0", "measures": {}})


def test_what_cannot_be_decoded_is_one_line_of_bad_data():
    said = r"data of trainer 1 are not .* \(KeyError: 'sums'\); go on from another checkpoint"
    with pytest.raises(DataError, match=said), decoding("trainer 1"):
        raise KeyError("sums")
