"""A merged model file comes from elsewhere: issue E 2. It ran code by its pickled args, and wrote where it liked."""

import os
import pickle
import struct
from textwrap import dedent

import pytest

from paddle_base.proto.TrainerConfig_pb2 import TrainerConfig
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.config.scripts.python2 import use_directories
from trainer.data import loading
from trainer.flags import parse_flags
from trainer.merge_model import merge
from trainer.training.assembly import Assembly

PROVIDER = """
    from paddle.trainer.PyDataProvider2 import *

    def hook(settings, words=None, **more):
        settings.words = words
        settings.input_types = {"x": dense_vector(1)}

    @provider(init_hook=hook)
    def process(settings, name):
        yield {"x": [len(settings.words or ())]}
"""


class Evil:
    def __reduce__(self):
        return os.mkdir, ("was-here",)


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A function that writes the merged model `model` of a config that is changed, and opens its test data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "its_provider.py").write_text(dedent(PROVIDER))
    (tmp_path / "test.list").write_text("one\n")

    def open_model(change=lambda config: None, *flags):
        config = TrainerConfig()
        config.opt_config.algorithm, config.opt_config.learning_rate, config.opt_config.batch_size = "sgd", 0.1, 1
        config.model_config.type = "nn"
        layer = config.model_config.layers.add(name="x", type="data", size=1, active_type="")
        config.model_config.input_layer_names.append(layer.name)
        config.model_config.output_layer_names.append(layer.name)
        data = config.test_data_config
        data.type, data.files = "py2", "test.list"
        data.load_data_module, data.load_data_object = "its_provider", "process"
        change(config)
        message = config.SerializeToString()
        (tmp_path / "model").write_bytes(struct.pack("<q", len(message)) + message)
        assembly = Assembly(parse_flags([*(flags or ["--job=test"]), "--init_model_path=model"]))
        source = assembly.testing()._parts.test
        source.start_pass()
        return source.next_batch(1)[0]["x"].value.tolist()

    yield open_model
    use_directories(forget=True)


def with_args(args):
    def change(config):
        config.test_data_config.load_data_args = pickle.dumps(args, 0).decode("latin-1")

    return change


def with_data(**fields):
    return lambda config: [setattr(config.test_data_config, name, value) for name, value in fields.items()]


def test_the_users_own_provider_in_the_directory_is_used_with_plain_args(model):
    assert model() == [[0.0]]
    assert model(with_args({"words": ["a", "b", "c"]})) == [[3.0]]


def test_code_in_the_args_of_a_model_file_does_not_run(model, tmp_path):
    with pytest.raises(ConfigError, match=r"args of .* in the model file cannot be read: .*mkdir.*--config"):
        model(with_args({"words": [Evil()]}))
    assert not (tmp_path / "was-here").exists()


@pytest.mark.parametrize(
    "module", ["antigravity", "json.tool", "numpy.f2py.__main__", "trainer.training.testing", "os"]
)
def test_a_model_file_imports_no_module_of_python_or_of_a_package(model, module):
    with pytest.raises(
        (ConfigError, MissingInputError), match=rf"the model file names the data provider module {module}, "
    ):
        model(with_data(load_data_module=module))


def test_a_provider_of_an_installed_package_is_not_imported(model, tmp_path, tmp_path_factory, monkeypatch):
    packages = tmp_path_factory.mktemp("python") / "site-packages"
    packages.mkdir()
    (tmp_path / "its_provider.py").rename(packages / "installed_provider.py")
    monkeypatch.syspath_prepend(packages)
    with pytest.raises(ConfigError, match="only modules of the working directory and of --python_path may be named"):
        model(with_data(load_data_module="installed_provider"))


@pytest.mark.parametrize("module", ["", ".", "..", "/tmp/x", "../x", "a..b", "no_such", "its_provider.inner"])
def test_what_is_no_module_is_missing(model, module):
    with pytest.raises(MissingInputError, match="which is neither in"):
        model(with_data(load_data_module=module))


def test_a_script_that_is_no_provider_is_not_run(model, tmp_path):
    (tmp_path / "clean_up.py").write_text("import os\nos.mkdir('was-here')\n")
    with pytest.raises(
        ConfigError, match=r"clean_up\.py does not import paddle\.trainer\.PyDataProvider2 or .*: it is not"
    ):
        model(with_data(load_data_module="clean_up"))
    assert not (tmp_path / "was-here").exists()


@pytest.mark.parametrize("ending", ["", "print 'Python 2'\n"], ids=["3", "2"])
def test_a_provider_of_the_oldest_type_may_be_named_too(model, tmp_path, ending):
    code = """
        from paddle.trainer.PyDataProviderWrapper import *

        @init_hook_wrapper
        def hook(obj, words=(), **kwargs):
            obj.words = words

        @provider(slots=[DenseSlot(1)], init_hook=hook)
        def process(obj, name):
            yield [[len(obj.words)]]
    """
    (tmp_path / "its_provider.py").write_text(dedent(code) + ending)

    def change(config):
        with_data(type="py")(config)
        with_args({"words": ["a", "b"]})(config)

    if ending:  # its error comes from Python, after the module has been accepted
        with pytest.raises(
            DataError, match=r"import of the data provider module its_provider: its_provider\.py:11: Syntax"
        ):
            model(change)
    else:
        assert model(change) == [[2.0]]


def test_a_provider_inside_of_a_package_is_found(model, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "its_provider.py").rename(tmp_path / "mine" / "inner.py")
    assert model(with_data(load_data_module="mine.inner")) == [[0.0]]


def test_a_provider_in_the_python_path_is_found(model, tmp_path):
    (tmp_path / "beside").mkdir()
    (tmp_path / "its_provider.py").rename(tmp_path / "beside" / "its_provider2.py")
    change = with_data(load_data_module="its_provider2")
    assert model(change, "--job=test", f"--python_path={tmp_path}/beside") == [[0.0]]


def test_a_pipe_or_device_as_list_is_refused(model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", "/dev/zero", "."):
        with pytest.raises(ConfigError, match="as its list of test data, which is no file"):
            model(with_data(files=path, for_test=True))


def test_too_long_a_list_of_a_model_file_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "MOST_LIST_BYTES", 3)
    (tmp_path / "long.list").write_text("abc\n")
    with pytest.raises(ConfigError, match="as its list of test data, which has over 3 bytes"):
        model(with_data(files="long.list", for_test=True))


def writing_to(path, dictionary=""):
    def change(config):
        config.model_config.evaluators.add(
            name="text", type="seq_text_printer", input_layers=["x"], result_file=path, dict_file=dictionary
        )

    return change


@pytest.mark.parametrize("path", ["/tmp/was-here", "../was-here", "link/was-here", "a/../../was-here"])
def test_a_model_file_writes_nothing_outside_of_the_working_directory(model, tmp_path, path):
    (tmp_path / "link").symlink_to(tmp_path.parent)
    with pytest.raises(ConfigError, match=r"evaluator text write to .*outside of the working directory"):
        model(writing_to(path))


def test_a_model_file_overwrites_nothing(model, tmp_path):
    before = (tmp_path / "its_provider.py").read_bytes()
    with pytest.raises(ConfigError, match=r"write to 'its_provider\.py'; this file exists"):
        model(writing_to("its_provider.py"))
    assert (tmp_path / "its_provider.py").read_bytes() == before
    assert model(writing_to("new.txt")) == [[0.0]]
    assert (tmp_path / "new.txt").exists()


def test_a_dictionary_is_a_file(model):
    with pytest.raises(ConfigError, match="read '/dev/zero', which is no file"):
        model(writing_to("new.txt", "/dev/zero"))


@pytest.mark.parametrize("path", ["/tmp/was-here", "../was-here"])
def test_passes_go_outside_only_where_the_user_says_so(model, path):
    def change(config):
        config.save_dir = path

    with pytest.raises(ConfigError, match=r"the model file saves to .*--save_dir="):
        model(change, "--job=train")
    assert model(change) == [[0.0]]
    assert model(change, "--job=train", "--save_dir=elsewhere") == [[0.0]]


@pytest.mark.parametrize(("args", "warnings"), [("{'words': ['a']}", 0), ("{'words': {'a'}}", 1)])
def test_merging_says_that_objects_will_not_come_out_again(tmp_path, monkeypatch, capsys, args, warnings):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        f"define_py_data_sources2(None, 'test.list', 'its_provider', 'process', args={args})\n"
        "settings(batch_size=1)\noutputs(data_layer('x', 1))\n"
    )
    (tmp_path / "pass-00000").mkdir()
    merge(["--model_dir=pass-00000", "--model_file=model", "--config=config.py"])
    said = capsys.readouterr().err
    assert said.count("args of the data provider its_provider::process cannot be read from") == warnings
    use_directories(forget=True)
