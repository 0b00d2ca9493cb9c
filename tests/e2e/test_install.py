"""What `pip install` gives without a compiler, what is in wheel and sdist, and what a type checker says of a script."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from docpages.blocks import ROOT

BIN = Path(sys.executable).parent
pytestmark = pytest.mark.timeout(300)  # a build, and mypy without its cache
NOT_PACKED = (".*", "*.egg-info", "*.so", "__pycache__", "build", "dist", "demo*", "jobpath", "tests", "bench")
# ten lines that a user might write with each part of the public interface
SCRIPTS = {
    "train.py": """
import numpy as np
import paddle.elastic as hvd

hvd.init()

@hvd.elastic.run
def train(state: hvd.elastic.ObjectState) -> float:
    mean = hvd.allreduce(np.ones(3, dtype=np.float32), op=hvd.Average, name="weights")
    state.commit()
    return float(mean.sum()) / hvd.size()

print(train(hvd.elastic.ObjectState(batch=0)), hvd.rank())
""",
    "provider.py": """
from collections.abc import Iterator
from typing import Any
from paddle.trainer.PyDataProvider2 import CacheType, dense_vector, integer_value, provider

@provider(input_types={"x": dense_vector(3), "y": integer_value(2)}, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings: Any, path: str) -> Iterator[dict[str, Any]]:
    with open(path) as lines:
        for line in lines:
            *x, y = line.split()
            yield {"x": [float(each) for each in x], "y": int(y)}
""",
    "config.py": """
from paddle.trainer_config_helpers import data_layer, define_py_data_sources2, fc_layer, outputs, settings
from paddle.trainer_config_helpers import SoftmaxActivation, classification_cost

define_py_data_sources2("train.list", None, module="provider", obj="process")
settings(batch_size=4, learning_rate=0.1)
x, y = data_layer("x", size=3), data_layer("y", size=2)
outputs(classification_cost(input=fc_layer(input=x, size=2, act=SoftmaxActivation()), label=y))
""",
    "records.py": """
from paddle_cluster.elastic.launch import run
from paddle.trainer.recordio import reader, writer

with writer("numbers") as file:
    file.write(b"one")
print(list(reader("numbers")), run(print, args=("hello",), np=1))
""",
}


def start(*command, cwd, **environ):
    given = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run(command, cwd=cwd, env=given | environ, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, made from a clean copy on a machine without a compiler."""
    place = tmp_path_factory.mktemp("packages")
    shutil.copytree(ROOT, place / "project", ignore=shutil.ignore_patterns(*NOT_PACKED))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", place / "project"]
    start(*command, cwd=place, CC="/bin/false")
    return place / "dist"


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A virtual environment with the wheel and, by a .pth file, the dependencies of the tests' own environment."""
    place = tmp_path_factory.mktemp("installed")
    start(sys.executable, "-m", "venv", "--without-pip", place, cwd=place)
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", place / "bin/python", "--disable-pip-version-check"]
    start(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=place)
    (packages,) = place.glob("lib/python*/site-packages")
    (dependencies,) = (path for path in map(Path, sys.path) if (path / "numpy").is_dir())
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    return place / "bin"


@pytest.fixture
def scripts(tmp_path):
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "train.list").write_text("data\n")
    (tmp_path / "data").write_text("0.1 0.2 0.3 1\n0.3 0.2 0.1 0\n" * 8)
    return tmp_path


def test_wheel_and_sdist_pass_twine_check(built):
    said = start(BIN / "twine", "check", "--strict", *sorted(built.iterdir()), cwd=built, NO_COLOR="1", TERM="dumb")
    assert said.count("PASSED") == 2


def test_the_sdist_has_all_that_the_wheel_is_made_of(built):
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(sdist) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
    with zipfile.ZipFile(wheel) as file:
        modules = {name for name in file.namelist() if ".dist-info/" not in name and ".data/" not in name}
    assert {name.partition("/")[0] for name in modules} == {
        "paddle", "paddle_base", "paddle_cluster", "pserver", "start_paddle.py", "trainer",
    }  # fmt: skip
    assert modules <= packed and not any(name.startswith("tests") for name in modules | packed)
    assert {f"paddle_base/kernels/{path.name}" for path in (ROOT / "paddle_base/kernels").glob("*.[ch]")} <= packed
    assert {"LICENSE", "README.md", "CHANGELOG.md", "start_paddle.py", "paddle/bin/paddle"} <= packed
    assert {f"{name.partition('/')[0]}/py.typed" for name in modules if name.endswith("/__init__.py")} <= modules


def test_both_programs_work_where_there_was_no_compiler(installed, scripts):
    assert start(installed / "paddle", "version", cwd=scripts).startswith("PaddlePaddle 0.11.0")
    assert "compiled kernels: not installed" in start(installed / "paddle", "doctor", "--timeout=100", cwd=scripts)
    assert "usage: paddle prepare" in start(installed / "prepare", "--help", cwd=scripts), "older manifests start it"
    assert "usage: start_paddle.py" in start(installed / "start_paddle.py", "--help", cwd=scripts)
    start(installed / "paddle", "train", "--config=config.py", "--num_passes=1", "--save_dir=out", cwd=scripts)
    assert (scripts / "out/pass-00000/done").is_file()


def test_modules_of_a_user_and_of_another_project_keep_their_names(installed, scripts):
    """Our packages were called proto, runtime, messages, master, ...: proto-plus, for one, is imported as `proto`."""
    names = ("elastic", "launcher", "master", "messages", "prepare", "registry", "runtime")
    for name in names:
        (scripts / f"{name}.py").write_text(f"MINE = {name!r}\n")
    (scripts / "proto").mkdir()
    (scripts / "proto/__init__.py").write_text("MINE = 'proto'\n")
    config = f"import {', '.join(names)}, proto\nassert proto.MINE == 'proto' and messages.MINE == 'messages'\n"
    (scripts / "config.py").write_text(config + SCRIPTS["config.py"])
    start(installed / "paddle", "train", "--config=config.py", "--num_passes=1", "--save_dir=mine", cwd=scripts)
    assert (scripts / "mine/pass-00000/done").is_file()
    program = (
        "import proto, paddle_base.proto.ModelConfig_pb2 as ours\n"
        "class Named(proto.Message): name = proto.Field(proto.STRING, number=1)\n"
        "print(Named(name='plus').name, ours.LayerConfig(name='ours').name)\n"
    )
    said = start(installed / "python", "-P", "-c", program, cwd=scripts)
    assert said == "plus ours\n"


def test_a_type_checker_takes_the_scripts_of_a_user(installed, scripts):
    mypy = [BIN / "mypy", "--strict", "--python-executable", installed / "python", "--cache-dir", scripts / "cache"]
    assert "no issues found" in start(*mypy, *SCRIPTS, cwd=scripts)
