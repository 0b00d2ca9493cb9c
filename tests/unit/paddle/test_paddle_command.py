"""The `paddle` command."""

import os
import subprocess
import sys

import pytest

from paddle import command
from paddle.command import COMMANDS, main
from paddle.utils.make_model_diagram import draw
from paddle_base.proto import ModelConfig_pb2, TrainerConfig_pb2

CONFIG = "from paddle.trainer_config_helpers import *\noutputs(data_layer('x', get_config_arg('size', int, 3)))\n"
DUMP = "import sys; from paddle.command import main; sys.exit(main(['dump_config', 'config.py']))"


@pytest.fixture
def config(config_dir, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    (config_dir / "config.py").write_text(CONFIG)
    return "config.py"


def run(code, *arguments, cwd=None):
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("argv", [[], ["--help"]])
def test_help_lists_every_command_in_its_group(argv, capsys):
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: paddle [--help] [<args>]"
    commands = [line.split()[0] for line in lines if line.startswith("    ")]
    assert set(commands) == COMMANDS.keys()
    assert [line for line in lines if line.endswith(":") and " " not in line] == ["run:", "look:", "convert:"]


def test_version_is_the_block_of_v0_10(capsys):
    assert main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "PaddlePaddle 0.11.0, compiled with"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "    with_avx",
        "    with_gpu",
        "    with_double",
        "    with_python",
        "    with_rdma",
        "    with_timer",
    ]
    assert all(line.endswith((": ON", ": OFF")) for line in lines[1:])


@pytest.mark.parametrize(
    "argv, message",
    [
        (["trian"], "paddle: there is no command 'trian'"),
        (["usage", "--send"], "paddle usage: unknown option --send; usage: paddle usage [-e EXIT_CODE]"),
        (["usage", "-l"], "paddle usage: -l needs a value"),
        (["plotcurve", "--inputt=x"], "paddle plotcurve: unrecognized arguments: --inputt=x; did you mean --input?"),
        (["plotcurve", "--nosuch"], "paddle plotcurve: unrecognized arguments: --nosuch; usage: paddle plotcurve"),
        (["plotcurve", "-i", "config.py", "cost("], "paddle plotcurve: the keys cost( are no regular expressions"),
        (["make_diagram", "config.py"], "paddle make_diagram: give two or three arguments; usage: paddle make_diagram"),
        (["dump_config"], "paddle dump_config: 0 arguments instead of one or two; usage: paddle dump_config CONFIG"),
        (["dump_config", "a", "b", "c"], "paddle dump_config: 3 arguments"),
        (["dump_config", "a", "--hole"], "paddle dump_config: unknown flag --hole"),
    ],
)
def test_a_wrong_command_line_ends_with_64(argv, message, capsys, config):
    assert main(argv) == 64
    assert capsys.readouterr().err.startswith(message)


def test_status_of_a_file_and_of_nothing_ends_with_66(config, capsys):
    for name, what in ((config, "is not a directory"), ("nowhere", "does not exist")):
        assert main(["status", name]) == 66
        assert capsys.readouterr().err == f"paddle status: {name} {what}: give the output/ of a job, or a --save_dir\n"


def test_dump_config_prints_the_network_and_an_empty_line(config, capsys):
    assert main(["dump_config", config]) == 0
    out = capsys.readouterr().out
    assert out.startswith('type: "nn"\nlayers {\n  name: "x"\n') and out.endswith("}\n\n")


@pytest.mark.parametrize("arguments", ["--whole config.py size=4", "config.py size=4 --whole", "config.py --whole"])
def test_dump_config_takes_its_flags_anywhere(config, arguments, capsys):
    assert main(["dump_config", *arguments.split()]) == 0
    out = capsys.readouterr().out
    assert out.startswith("model_config {\n") and out.endswith("start_pass: 0\n\n")
    assert ("size: 4" in out) == ("size=4" in arguments)


def test_what_a_config_prints_is_no_part_of_the_dump(config, config_dir, capsys):
    (config_dir / "config.py").write_text("print('mode=generator')\nLayer('x', 'data', size=3)\n")
    assert main(["dump_config", config]) == 0
    out, err = capsys.readouterr()
    assert out.startswith('type: "nn"\n') and err == "mode=generator\n"


def test_dump_config_writes_serialised_messages(config, capfdbinary):
    assert main(["dump_config", config, "", "--binary"]) == 0
    model = ModelConfig_pb2.ModelConfig.FromString(capfdbinary.readouterr().out)
    assert model.layers[0].size == 3
    assert main(["dump_config", config, "--binary", "--whole"]) == 0
    assert TrainerConfig_pb2.TrainerConfig.FromString(capfdbinary.readouterr().out).model_config == model


@pytest.mark.parametrize(
    "text, code, message",
    [
        ("fc_layr(1)", 78, "config.py line 1: name 'fc_layr' is not defined; did you mean 'fc_layer'?"),
        ("1 / 0", 65, "config.py line 1: ZeroDivisionError: division by zero"),
        (None, 66, "the config script config.py cannot be read: No such file or directory; correct its name"),
    ],
)
def test_dump_config_ends_with_the_code_of_the_mistake(config, config_dir, text, code, message, capsys):
    (config_dir / "config.py").unlink()
    if text is not None:
        (config_dir / "config.py").write_text(text)
    assert main(["dump_config", config]) == code
    assert capsys.readouterr().err == f"paddle dump_config: {message}\n"


@pytest.mark.parametrize("argv", [["dump_config", "config.py"], ["make_diagram", "config.py", "net.dot"]])
def test_a_mistake_of_ours_is_a_traceback_and_70(argv, config, monkeypatch, capsys):
    def broken(*_arguments):
        raise KeyError("ours")

    monkeypatch.setattr("trainer.config.building.state.Parse.add_layer", broken)
    assert main(argv) == 70
    assert "KeyError: 'ours'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["numpy", "google.protobuf", "zmq", "requests"])
def test_a_python_without_the_packages_is_told_in_one_line(name, config, monkeypatch, capsys):
    """Who forgot to activate the virtual environment got a traceback of 20 lines."""

    def lacking(_arguments):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setitem(command.COMMANDS, "dump_config", lacking)
    assert main(["dump_config", config]) == 78
    said = capsys.readouterr().err
    assert said.startswith(f"paddle: {sys.executable} has no module {name}: activate the virtual environment")
    assert said.count("\n") == 1
    monkeypatch.setattr("trainer.__main__.run", lacking)
    assert main(["train", f"--config={config}"]) == 78
    assert f"has no module {name}: activate the virtual environment" in capsys.readouterr().err


def test_make_diagram_draws_layers_and_inputs(config, config_dir):
    (config_dir / "config.py").write_text("""
from paddle.trainer_config_helpers import *
fc_layer(data_layer('x', get_config_arg('size', int)), 2, act=SoftmaxActivation(), name='p')
""")
    assert main(["make_diagram", "config.py", "out.dot", "size=3"]) == 0
    assert (
        (config_dir / "out.dot").read_text()
        == r"""digraph graphname {
node [width=0.375,height=0.25];
l0 [label="x type=data", shape=box];
l1 [label="p type=fc\lact=softmax bias=_p.wbias ", shape=box];
l0 -> l1 [label="_p.w0"];
}
"""
    )


def test_make_diagram_draws_recurrent_groups_as_clusters():
    model = ModelConfig_pb2.ModelConfig(type="recurrent_nn")
    for name in ("group", "x", "boot", "x@group", "mem", "y@group", "y"):
        model.layers.add(name=name, type="data")
    model.sub_models.add(name="root")
    group = model.sub_models.add(name="group", layer_names=["x@group", "mem", "y@group"], reversed=True)
    group.in_links.add(layer_name="x", link_name="x@group")
    group.out_links.add(layer_name="y@group", link_name="y")
    group.memories.add(layer_name="y@group", link_name="mem", boot_layer_name="boot")
    lines = list(draw(model))
    assert lines[2:6] == [
        "subgraph cluster_0 {",
        "style=dashed;",
        'label = "group <==";',
        'l3 [label="x@group type=data", shape=box];',
    ]
    assert lines[-5:] == ["l1 -> l3;", "l5 -> l6;", "l2 -> l5;", "l5 -> l4 [style=dashed];", "}"]
    assert not any(line.startswith("l0 ") for line in lines)  # the group's own layer is its cluster


def test_the_command_itself_imports_nothing_heavy():
    heavy = ("numpy", "google.protobuf", "zmq", "logging", "trainer", "pserver")
    assert run(f"import paddle.command, sys; print([m for m in {heavy} if m in sys.modules])").stdout == "[]\n"


def test_a_program_starts_with_one_thread_per_library_and_its_directory_on_the_path(config, config_dir):
    code = (
        "import os, sys; from paddle.command import main; main(['dump_config', 'config.py']);"
        "print(*map(os.environ.get, ('OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS', 'PYTHONPATH')), sys.path[0])"
    )
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=config_dir,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment | {"PYTHONPATH": "elsewhere", "OMP_NUM_THREADS": "3"},
    )
    here = str(config_dir)
    assert done.stdout.splitlines()[-1] == f"1 3 {here}{os.pathsep}elsewhere {here}"


@pytest.mark.parametrize("name", ["string", "google", "numpy"])
def test_a_module_of_the_user_does_not_hide_what_the_program_imports(name, config, config_dir):
    (config_dir / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    done = run(f"import sys; sys.path.remove(''); {DUMP}", cwd=config_dir)
    assert (done.returncode, done.stderr.count("wrong one")) == (0, 0)


def test_a_module_called_trainer_in_the_working_directory_hides_nothing_of_ours(config, config_dir):
    for name in ("trainer", "proto", "pserver"):
        (config_dir / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    done = run(f"import sys; sys.path.remove(''); {DUMP}", cwd=config_dir)
    assert (done.returncode, done.stderr.count("wrong one")) == (0, 0)


def test_a_reader_that_leaves_early_ends_the_dump_quietly(config, config_dir):
    (config_dir / "config.py").write_text(
        "from paddle.trainer_config_helpers import *\nfor i in range(3000): data_layer('layer%d' % i, 1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", DUMP], cwd=config_dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as dump:
        dump.stdout.read(1)
        dump.stdout.close()
        assert dump.stderr.read() == b""
        assert dump.wait(60) == -13


def test_ctrl_c_ends_the_command_by_its_signal(config, config_dir):
    (config_dir / "config.py").write_text("raise KeyboardInterrupt\n")
    done = run(DUMP, cwd=config_dir)
    assert (done.returncode, done.stderr) == (-2, "")
