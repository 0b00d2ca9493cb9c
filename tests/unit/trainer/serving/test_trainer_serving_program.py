"""The program `paddle serve` with a merged model, from its flags to SIGTERM."""

import http.client
import json
import os
import re
import signal
import tarfile
import threading

import pytest
from each import each
from waiting import DEADLINE_S, until

from paddle_base.runtime.errors import DataError, UsageError
from trainer import merge_model
from trainer.serving.__main__ import main
from trainer.serving.model import open_served

CONFIG = """
from paddle.trainer_config_helpers import *
settings(batch_size=1)
word = data_layer('word', 5)
score = data_layer('score', 2)
mean = pooling_layer(embedding_layer(word, 3), AvgPooling())
outputs(fc_layer([mean, score], 2, act=SoftmaxActivation(), name='out'))
"""
TYPES = "word:integer_value_sequence"


@pytest.fixture
def merged(tmp_path):
    """A merged model whose parameters are all 0, so that its output is [0.5, 0.5]."""
    from trainer.arrays.parameters import ParameterTable
    from trainer.config import parse_config
    from trainer.storage.model_files import encode_parameter

    (tmp_path / "config.py").write_text(CONFIG)
    table = ParameterTable(parse_config(str(tmp_path / "config.py"), "").model_config.parameters)
    (tmp_path / "model").mkdir()
    for parameter in table:
        parameter.value[:] = 0
        (tmp_path / "model" / parameter.name).write_bytes(b"".join(encode_parameter(parameter)))
    flags = [f"--model_dir={tmp_path / 'model'}", f"--model_file={tmp_path / 'merged'}"]
    merge_model.merge([*flags, f"--config={tmp_path / 'config.py'}"])
    return str(tmp_path / "merged")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_program_serves_a_merged_model_until_a_signal(merged, capfd, number, status):
    seen, answers = [], []

    def use():
        try:
            until(lambda: seen.append(capfd.readouterr().err) or "serving on" in "".join(seen), "the service is there")
            port = int(re.search(r"port (\d+)", "".join(seen))[1])
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
            client.request("POST", "/", json.dumps({"word": [1, 2], "score": [0.5, 0]}))
            answers.append(json.loads(client.getresponse().read()))
            client.close()
        finally:
            os.kill(os.getpid(), number)

    user = threading.Thread(target=use)
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    user.start()
    try:
        found = main([f"--model={merged}", f"--input_types={TYPES}", "--port=0"])
    finally:
        user.join(DEADLINE_S)
        for one, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(one, handler)
    assert found == status
    assert answers == [{"code": 0, "message": "success", "data": [[0.5, 0.5]]}]


def test_the_program_says_what_is_wrong_in_one_line(merged, capfd):
    assert main([]) == 64 and "--model is missing; usage: paddle serve" in capfd.readouterr().err
    assert main(["--model=none"]) == 66 and "--model=none is no file" in capfd.readouterr().err
    assert main([f"--model={merged}", "--nics=203.0.113.7"]) == 78
    assert "cannot listen on 203.0.113.7:8000" in capfd.readouterr().err
    assert main(["--help"]) == 0 and "usage: paddle serve" in capfd.readouterr().out


@each(
    ("types", "text"),
    [
        ("words:integer_value", "'words' is no data layer; the model has word, score"),
        ("word:integer_value_sequenc", "write for example word:integer_value_sequence"),
        ("word", "'word' names no type; write for example word:dense_vector"),
    ],
)
def test_types_of_a_merged_model_that_are_wrong_are_one_line(merged, types, text):
    with pytest.raises(UsageError, match=text):
        open_served(merged, "", types, ["value"])


def test_parameters_without_a_topology_and_a_file_that_is_none_are_told_by_their_names(tmp_path):
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("w"))
    with pytest.raises(UsageError, match=r"^--model=\S+p\.tar has parameters only; give --topology=T, "):
        open_served(str(tmp_path / "p.tar"), "", "", ["value"])
    (tmp_path / "text").write_text("import paddle.v2 as paddle\n")
    with pytest.raises(DataError, match=r"^\S+/text is no topology: "):
        open_served(str(tmp_path / "p.tar"), str(tmp_path / "text"), "", ["value"])
