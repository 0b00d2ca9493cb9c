"""The parameters of programs, by name and as tar files, of which some are hostile."""

import bz2
import gzip
import io
import struct
import tarfile

import numpy as np
import pytest
from each import each

import paddle.v2 as paddle
from paddle.v2.parameters import Parameters
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.runtime.errors import DataError


def config(name, *dims):
    return ParameterConfig(name=name, size=int(np.prod(dims)), dims=dims)


def parameters_of(*shapes):
    """Return parameters p0, p1, ... whose values count."""
    parameters = Parameters()
    for number, shape in enumerate(shapes):
        parameters.append_config(config(f"p{number}", *shape))
        parameters.set(f"p{number}", np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    return parameters


def tar_of(parameters):
    file = io.BytesIO()
    parameters.to_tar(file)
    return file.getvalue()


def archive(**members):
    """Return a tar archive of the given files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name.replace("_protobuf", ".protobuf"))
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def values_of(*numbers):
    return struct.pack("<iIQ", 0, 4, len(numbers)) + np.array(numbers, "<f4").tobytes()


def test_parameters_are_read_and_set_by_name():
    parameters = parameters_of((2, 3), (4,))
    assert parameters.names() == parameters.keys() == list(parameters) == ["p0", "p1"]
    assert "p0" in parameters and parameters.has_key("p1") and "p2" not in parameters
    assert parameters.get_shape("p0") == (2, 3)
    parameters["p0"] = parameters["p0"] * 2
    np.testing.assert_array_equal(parameters.get("p0"), [[0, 2, 4], [6, 8, 10]])
    parameters.set("p0", np.arange(6))
    np.testing.assert_array_equal(parameters.get("p0"), [[0, 1, 2], [3, 4, 5]])


@each(
    ("call", "complaint"),
    [
        (lambda p: p.get(1), "parameter name should be string"),
        (lambda p: p.get("x"), "No such parameter x"),
        (lambda p: p.set("p0", [1, 2]), "Must return ndarray"),
        (lambda p: p.set("p0", np.zeros((3, 2))), r"Value shape mismatch, expect \(2, 3\), should \(3, 2\)"),
        (lambda p: p.append_config(config("p0", 1)), "duplicated parameter p0"),
        (lambda p: p.append_config("p0"), "must be ParameterConfig"),
    ],
)
def test_wrong_use_raises_value_error(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(parameters_of((2, 3)))


@each(
    "wrap",
    [
        lambda data, path: io.BytesIO(data),
        lambda data, path: gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(data))),
        lambda data, path: io.BytesIO(gzip.compress(data)),
        lambda data, path: bz2.BZ2File(io.BytesIO(bz2.compress(data))),
        lambda data, path: _Pipe(data),
        lambda data, path: _text_file(data, path),
    ],
)
def test_a_tar_file_is_read_from_any_file(wrap, tmp_path):
    parameters = parameters_of((2, 3), (4,), (1, 1))
    with wrap(tar_of(parameters), tmp_path / "model.tar") as file:
        read = Parameters.from_tar(file)
    assert read.names() == parameters.names()
    for name in read:
        assert read.get_shape(name) == parameters.get_shape(name)
        np.testing.assert_array_equal(read.get(name), parameters.get(name))


class _Pipe(io.BytesIO):
    def seekable(self):
        return False

    def seek(self, *where):
        raise OSError("a pipe cannot move")


def _text_file(data, path):
    path.write_bytes(data)
    return path.open(encoding="latin-1")  # as a program of 2017 opens it, by "r"


def test_a_tar_file_is_written_into_a_file_in_text_mode(tmp_path):
    with (tmp_path / "model.tar").open("w", encoding="utf-8") as file:
        parameters_of((2, 3)).to_tar(file)
    with (tmp_path / "model.tar").open("rb") as file:
        assert Parameters.from_tar(file).names() == ["p0"]


def test_every_file_of_bytes_may_be_open_in_text_mode(tmp_path):
    # programs of 2017 open the topology of a server, and single parameters, by open(name, "w") and open(name)
    predict = paddle.layer.fc(input=paddle.layer.data(name="x", type=paddle.data_type.dense_vector(2)), size=1)
    parameters = paddle.parameters.create(predict)
    name, path = parameters.names()[0], tmp_path / "file"
    parameters.set(name, np.array([[1], [2]], np.float32))
    with path.open("w", encoding="utf-8") as file:
        paddle.topology.Topology(predict).serialize_for_inference(file)
    with path.open(encoding="utf-8") as file:
        inference = paddle.inference.Inference(parameters=parameters, fileobj=file)
    assert inference.infer(input=[([1, 1],)]).tolist() == [[np.tanh(np.float32(3))]]
    with path.open("w", encoding="utf-8") as file:
        parameters.serialize(name, file)
    parameters.set(name, np.zeros((2, 1), np.float32))
    with path.open(encoding="utf-8") as file:
        parameters.deserialize(name, file)
    assert parameters.get(name).reshape(-1).tolist() == [1, 2]


def test_the_tar_file_has_the_form_of_2017():
    with tarfile.open(fileobj=io.BytesIO(tar_of(parameters_of((2,), (1,))))) as tar:
        assert tar.getnames() == ["p0", "p0.protobuf", "p1", "p1.protobuf"]
        assert {(one.mode, one.mtime, one.uid) for one in tar} == {(0o644, 0, 0)}
        assert tar.extractfile("p0").read() == values_of(0, 1)
        assert ParameterConfig.FromString(tar.extractfile("p0.protobuf").read()) == config("p0", 2)


def test_init_from_tar_takes_the_common_names():
    mine, file = parameters_of((2,), (3,)), io.BytesIO(tar_of(parameters_of((2,))))
    mine.set("p0", np.zeros(2))
    mine.set("p1", np.zeros(3))
    mine.init_from_tar(file)
    np.testing.assert_array_equal(mine.get("p0"), [0, 1])
    np.testing.assert_array_equal(mine.get("p1"), [0, 0, 0])
    with pytest.raises(ValueError, match="Value shape mismatch"):
        mine.init_from_tar(io.BytesIO(tar_of(parameters_of((5,)))))


P0 = config("p0", 2).SerializeToString()


@each(
    ("content", "complaint"),
    [
        (b"", "is no tar archive of parameters"),
        (b"x" * 2000, "is no tar archive of parameters"),
        (archive(p0=values_of(1, 2)), "p0.protobuf, which describes the parameter, is missing"),
        (archive(p0_protobuf=P0, p0=b""), "it has 0 bytes, but the header alone has 16"),
        (archive(p0_protobuf=P0, p0=values_of(1, 2, 3)), "does not match the size"),
        (archive(p0_protobuf=P0, p0=values_of(1, 2)[:-1]), "is cut off"),
        (archive(p0_protobuf=P0, p0=b"\1" * 24), "no parameter file of float32"),
        (archive(p0_protobuf=b"\xff" * 9, p0=values_of(1, 2)), "no description of a parameter"),
        (archive(p0_protobuf=config("p1", 2).SerializeToString(), p0=values_of(1, 2)), "describes 'p1'"),
        (
            archive(p0_protobuf=ParameterConfig(name="p0", size=2, dims=[3]).SerializeToString(), p0=values_of(1, 2)),
            r"with 2 values of \[3\]",
        ),
        (
            archive(p0_protobuf=config("p0", *[1] * 99).SerializeToString(), p0=values_of(1)),
            "describes 'p0' with 1 values",
        ),
        (
            archive(p0_protobuf=ParameterConfig(name="p0", size=1 << 62).SerializeToString(), p0=values_of(1, 2)),
            "describes 'p0' with",
        ),
        (tar_of(parameters_of((300,)))[:1000], "at most 1000 bytes"),
        (gzip.compress(tar_of(parameters_of((3,))))[:-30], "tar archive of parameters"),
    ],
)
def test_a_damaged_or_hostile_tar_file_is_refused(content, complaint):
    with pytest.raises(DataError, match=complaint):
        Parameters.from_tar(io.BytesIO(content))


def test_links_and_other_files_of_an_archive_are_not_followed():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind in (("p0", tarfile.SYMTYPE), ("../p1", tarfile.LNKTYPE), ("p2", tarfile.DIRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    assert Parameters.from_tar(io.BytesIO(file.getvalue())).names() == []


def test_a_bomb_is_not_unpacked(monkeypatch):
    monkeypatch.setattr("trainer.storage.model_archive.EXPANDED_LIMIT", 1 << 16)
    monkeypatch.setattr("trainer.v2.parameters.EXPANDED_LIMIT", 1 << 16)
    with pytest.raises(DataError, match="at most"):
        Parameters.from_tar(io.BytesIO(gzip.compress(archive(a=bytes(1 << 24), b=b""))))
    with pytest.raises(DataError, match="more than 65536 bytes"):
        Parameters.from_tar(_Pipe(tar_of(parameters_of((1 << 15,)))))


def test_the_messages_of_parameters_have_the_name_of_v010():
    """globally_normalized_reader of the models prints the initial deviation of each parameter."""
    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(3))
    attribute = paddle.attr.Param(name="w", initial_mean=0.5, initial_std=0.25)
    parameters = paddle.parameters.create(paddle.layer.fc(input=x, size=2, param_attr=attribute, bias_attr=False))
    found = [
        (p, parameters.__param_conf__[p].initial_mean, parameters.__param_conf__[p].initial_std) for p in parameters
    ]
    assert found == [("w", 0.5, 0.25)]
    assert list(parameters.__param_conf__["w"].dims) == [3, 2]


def test_an_initializer_gives_the_values_of_a_parameter():
    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(3))
    attr = paddle.attr.Param(name="w", initializer=lambda name: np.full((3, 2), len(name), np.float32))
    parameters = paddle.parameters.create(paddle.layer.fc(input=x, size=2, bias_attr=False, param_attr=attr))
    np.testing.assert_array_equal(parameters["w"], np.ones((3, 2)))


def test_a_name_in_place_of_a_file_is_told_how_to_open_it():
    parameters = parameters_of((2,))
    for use, mode in ((parameters.to_tar, "wb"), (Parameters.from_tar, "rb"), (parameters.init_from_tar, "rb")):
        with pytest.raises(TypeError, match=rf"^'a\.tar' is a name, not a file; give open\('a\.tar', '{mode}'\)$"):
            use("a.tar")
