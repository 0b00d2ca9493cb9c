"""Data sets of paddle.v2, read from small files of the original formats at the places of the original cache."""

import gzip
import io
import pickle
import socket
import struct
import tarfile
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from paddle.v2.dataset import (
    cifar,
    common,
    conll05,
    digits,
    flowers,
    imdb,
    imikolov,
    mnist,
    movielens,
    mq2007,
    sentiment,
    synthetic,
    uci_housing,
    voc2012,
    wmt14,
)
from paddle_base.runtime.errors import DataError, MissingInputError, UsageError, VolumeError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache; `cache.put(module, address, content)` puts a file into its place."""
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))

    def put(folder, url, content):
        path = tmp_path / folder / url.rsplit("/", 1)[-1]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    return SimpleNamespace(put=put, path=tmp_path)


def tar(members, mode="w:gz"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def zipped(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def test_mnist(cache):
    pixels = bytes([0, 255] * 392 + [51] * 784)
    cache.put("mnist", "train-images-idx3-ubyte.gz", gzip.compress(struct.pack(">4I", 2051, 2, 28, 28) + pixels))
    cache.put("mnist", "train-labels-idx1-ubyte.gz", gzip.compress(struct.pack(">2I", 2049, 2) + bytes([7, 1])))
    (first, label), (second, other) = mnist.train()()
    assert (label, other) == (7, 1)
    assert first.dtype == np.float32
    assert first[:2].tolist() == [-1, 1]
    assert np.allclose(second, -0.6)
    cache.put("mnist", "train-images-idx3-ubyte.gz", gzip.compress(pixels)[:-20])
    with pytest.raises(DataError, match="is damaged"):
        list(mnist.train()())


def python2_pickle(data, labels, name):
    """The pickle that Python 2 wrote: protocol 2, with texts of bytes."""
    pickled = pickle.dumps({"data": np.array(data, np.uint8), name: labels}, 2)
    return pickled.replace(b"X\x04\x00\x00\x00data", b"U\x04data").replace(b"numpy._core", b"numpy.core")


def test_cifar(cache):
    batch = python2_pickle([[0, 255] * 1536, [51] * 3072], [3, 9], "labels")
    cache.put("cifar", cifar.CIFAR10_URL, tar({"cifar-10/data_batch_1": batch, "cifar-10/readme": b"no"}))
    (first, label), (second, other) = cifar.train10()()
    assert (label, other, first.dtype) == (3, 9, np.float32)
    assert first[:2].tolist() == [0, 1]
    assert np.allclose(second, 0.2)
    cache.put("cifar", cifar.CIFAR100_URL, tar({"cifar-100/test": python2_pickle([[1] * 3072], [99], "fine_labels")}))
    assert [label for _, label in cifar.test100()()] == [99]


def test_a_pickle_of_cifar_that_names_code_is_refused(cache):
    cache.put("cifar", cifar.CIFAR10_URL, tar({"cifar-10/data_batch_1": b"cos\nsystem\n(S'true'\ntR."}))
    with pytest.raises(DataError, match=r"it names a class or function \(os.system\)"):
        list(cifar.train10()())


def test_uci_housing(cache):
    rows = np.arange(140.0).reshape(10, 14) ** 2
    cache.put("uci_housing", uci_housing.URL, "\n".join(" ".join(map(str, row)) for row in rows).encode())
    train, test = list(uci_housing.train()()), list(uci_housing.test()())
    assert (len(train), len(test)) == (8, 2)
    scaled = (rows - rows.mean(axis=0)) / (rows.max(axis=0) - rows.min(axis=0))
    assert np.allclose([features for features, _ in train], scaled[:8, :13])
    assert test[1][1].tolist() == [139.0**2]
    cache.put("uci_housing", uci_housing.URL, b"1 2 three")
    with pytest.raises(DataError, match="has no rows of 14 numbers"):
        uci_housing.train()


def test_imdb(cache):
    reviews = {
        "aclImdb/train/neg/0_1.txt": b"Bad, bad film!\n", "aclImdb/train/neg/1_1.txt": b"so bad",
        "aclImdb/train/neg/2_1.txt": b"worse", "aclImdb/train/pos/0_9.txt": b"Good film.", "aclImdb/README": b"bad",
    }  # fmt: skip
    cache.put("imdb", imdb.URL, tar(reviews))
    ids = imdb.build_dict(imdb.re.compile("aclImdb/train/.*"), 1)
    assert ids == {"bad": 0, "film": 1, "<unk>": 2}
    samples = imdb.train(ids)
    wanted = [([2, 1], 0), ([0, 0, 1], 1), ([2, 0], 1), ([2], 1)]
    assert list(samples()) == list(samples) == wanted  # v0.11 called it, v0.10 iterated over it
    assert next(samples) == wanted[0]
    assert imdb.word_dict() == {"<unk>": 0}


def test_imikolov(cache):
    texts = {
        "./simple-examples/data/ptb.train.txt": b"a b a\n a\n",
        "./simple-examples/data/ptb.valid.txt": b"b <unk>\n",
    }
    cache.put("imikolov", imikolov.URL, tar(texts))
    ids = imikolov.build_dict(min_word_freq=1)
    assert ids == {"<e>": 0, "<s>": 1, "a": 2, "b": 3, "<unk>": 4}
    assert list(imikolov.train(ids, 3)()) == [(1, 2, 3), (2, 3, 2), (3, 2, 0), (1, 2, 0)]
    assert list(imikolov.test(ids, 0, imikolov.DataType.SEQ)()) == [([1, 3, 4], [3, 4, 0])]
    assert list(imikolov.train(ids, 3, imikolov.DataType.SEQ)()) == [([1, 2], [2, 0])]


def test_movielens(cache):
    cache.put("movielens", movielens.URL, zipped({
        "ml-1m/movies.dat": "1::Toy Story (1995)::Animation|Comedy\n7::Caf\xe9 Toy (1996)::Drama\n".encode("latin-1"),
        "ml-1m/users.dat": "3::F::18::4::12345\n5::M::56::16::1\n",
        "ml-1m/ratings.dat": "".join(f"{3 + n % 2 * 2}::{1 + n % 2 * 6}::{n % 5 + 1}::9\n" for n in range(40)),
    }))  # fmt: skip
    train, test = list(movielens.train()()), list(movielens.test()())
    assert (len(train), len(test)) == (39, 1)  # of random.Random(0), as the original draws
    title = movielens.get_movie_title_dict()
    assert sorted(title, key=title.get) == ["caf\udce9", "story", "toy"]
    assert train[0] == [3, 1, 1, 4, 1, [0, 1], [2, 1], [-3.0]]
    assert (movielens.max_movie_id(), movielens.max_user_id(), movielens.max_job_id()) == (7, 5, 16)
    assert movielens.movie_categories() == {"Animation": 0, "Comedy": 1, "Drama": 2}
    assert movielens.user_info()[5].value() == [5, 0, 6, 16]
    assert str(movielens.movie_info()[1]) == "<MovieInfo id(1), title(Toy Story ), categories(['Animation', 'Comedy'])>"


def test_conll05(cache):
    for url, lines in (
        (conll05.WORDDICT_URL, ["unk", "the", "cat", "sat", "bos", "eos", "."]),
        (conll05.VERBDICT_URL, ["be", "sit"]),
        (conll05.TRGDICT_URL, ["B-A0", "I-A0", "B-V", "O"]),
    ):
        cache.put("conll05st", url, "\n".join(lines).encode())
    words = gzip.compress(b"the\ncat\nsat\n.\n\n")
    props = gzip.compress(b"- (A0*\n- *)\nsit (V*)\n- *\n\n")
    folder = "conll05st-release/test.wsj"
    members = {f"{folder}/words/test.wsj.words.gz": words, f"{folder}/props/test.wsj.props.gz": props}
    cache.put("conll05st", conll05.DATA_URL, tar(members))
    (sample,) = conll05.test()()
    assert sample == (
        [1, 2, 3, 6], [1] * 4, [2] * 4, [3] * 4, [6] * 4, [5] * 4, [1] * 4, [1, 1, 1, 1], [0, 1, 2, 3],
    )  # fmt: skip


def test_sentiment(cache):
    reviews = {"neg/b.txt": "bad , bad", "neg/a.txt": "dull .", "pos/a.txt": "good", "pos/b.txt": "it's bad"}
    archive = zipped({f"movie_reviews/{name}": text for name, text in reviews.items()})
    cache.put("corpora", sentiment.URL, archive)
    ids = dict(sentiment.get_word_dict())
    assert ids["bad"] == 0
    assert list(sentiment.train()) == [
        ([ids["dull"], ids["."]], 0), ([ids["good"]], 1), ([0, ids[","], 0], 0),
        ([ids["it"], ids["'"], ids["s"], 0], 1),
    ]  # fmt: skip
    assert list(sentiment.test()()) == []


def test_wmt14(cache):
    words = b"<s>\n<e>\n<unk>\nle\nchat\nnoir\n"
    lines = b"le chat noir\tle chat\nno tab\n" + b"le " * 80 + b"\tle\n"
    cache.put("wmt14", wmt14.URL_TRAIN, tar({"w/src.dict": words, "w/trg.dict": words, "w/train/train": lines}))
    assert list(wmt14.train(5)()) == [([0, 3, 4, 2, 1], [0, 3, 4], [3, 4, 1])]
    assert wmt14.get_dict(4)[0] == {0: "<s>", 1: "<e>", 2: "<unk>", 3: "le"}
    assert wmt14.get_dict(4, reverse=False)[1]["le"] == 3


def test_mq2007(cache):
    lines = [f"{score} qid:{query} 1:0.5 46:{place} #docid = x" for place, (query, score) in enumerate(
        [(1, 0), (1, 2), (1, 0), (2, 0), (3, 1)])]  # fmt: skip
    path = cache.path / "MQ2007" / "MQ2007" / "Fold1" / "train.txt"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines), encoding="ascii")
    pairs = list(mq2007.train())
    assert [(label.tolist(), more[45], less[45]) for label, more, less in pairs] == [([1], 1, 0), ([1], 1, 2)]
    assert pairs[0][1][:2].tolist() == [0.5, -1]
    assert [labels.tolist() for labels, _ in mq2007.train(format="listwise")] == [[[0], [2], [0]], [[1]]]
    assert [score for score, _ in mq2007.train(format="pointwise")] == [0, 2, 0, 1]
    assert [score for _, score, _ in mq2007.train(format="plain_txt")] == [2, 0, 0, 1]
    with pytest.raises(UsageError, match="format 'pair' of mq2007"):
        list(mq2007.train(format="pair"))


def picture(color, kind="PNG", size=(300, 260)):
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB" if isinstance(color, tuple) else "L", size, color).save(file, kind)
    return file.getvalue()


def test_voc2012(cache):
    folder = "VOCdevkit/VOC2012"
    cache.put("voc2012", voc2012.VOC_URL, tar({
        f"{folder}/JPEGImages/one.jpg": picture((255, 0, 0), "JPEG", (4, 3)),
        f"{folder}/SegmentationClass/one.png": picture(5, size=(4, 3)),
        f"{folder}/ImageSets/Segmentation/val.txt": b"one\n",
    }, "w"))  # fmt: skip
    ((pixels, classes),) = voc2012.val()()
    assert pixels.shape == (3, 4, 3)
    assert classes.tolist() == [[5] * 4] * 3


def test_flowers(cache, monkeypatch):
    cache.put("flowers", flowers.DATA_URL, tar({"jpg/image_00002.jpg": picture((10, 20, 30)), "jpg/x.jpg": b""}))
    for url in (flowers.LABEL_URL, flowers.SETID_URL):
        cache.put("flowers", url, b"")
    rows = {"labels": [4, 8], "tstid": [2]}
    monkeypatch.setattr(flowers, "_matrix", lambda _, name: rows[name])  # scipy is no package of ours
    for use_xmap in (True, False):
        ((pixels, label),) = flowers.train(use_xmap=use_xmap)()
        assert label == 7
        assert pixels.shape == (3 * 224 * 224,)
        assert np.allclose(pixels.reshape(3, -1).mean(axis=1), [30 - 103.94, 20 - 116.78, 10 - 123.68])


def test_digits_need_no_download():
    train, test = list(digits.train()()), list(digits.test()())
    assert (len(train), len(test)) == (1617, 180)
    assert all(pixels.shape == (64,) and 0 <= pixels.min() <= pixels.max() <= 1 for pixels, _ in train)
    assert {label for _, label in test} == set(range(10))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mnist", [784, int]), ("uci_housing", [13, 1]), ("imdb", [list, int]), ("imikolov", [int] * 5),
        ("movielens", [int] * 5 + [list] * 3), ("sentiment", [list, int]), ("flowers", [150528, int]),
    ],
)  # fmt: skip
def test_made_up_samples_have_the_form_of_the_data_set(name, shapes):
    made = synthetic(name)
    train, again = made.train(), made.train()
    sample, same = next(iter(train)), next(iter(again))
    assert [
        len(one) if isinstance(wanted, int) else type(one) for one, wanted in zip(sample, shapes, strict=True)
    ] == shapes
    assert all(np.array_equal(one, other) for one, other in zip(sample, same, strict=True))
    assert not all(np.array_equal(*pair) for pair in zip(sample, next(iter(made.test())), strict=True))


def test_made_up_samples_of_sequences_fit_their_dictionaries():
    words, verbs, labels = synthetic("conll05").get_dict()
    for sample in synthetic("conll05").test()():
        assert len({len(column) for column in sample}) == 1
        assert max(map(max, sample[:6])) < len(words)
        assert max(sample[6]) < len(verbs)
        assert max(sample[8]) < len(labels)
    source, target, after = next(synthetic("wmt14").train(30))
    assert (source[0], source[-1], target[0], after[-1]) == (0, 1, 0, 1)
    assert target[1:] == after[:-1] == source[-2:0:-1]
    assert len(synthetic("wmt14").get_dict(30)[0]) == 30
    assert next(synthetic("cifar").train100())[0].shape == (3072,)
    with pytest.raises(UsageError, match="no made-up data set 'ptb'; there are cifar"):
        synthetic("ptb")


def answers(responses, url, *bodies):
    for body in bodies:
        responses.get(url, body=body)


@pytest.fixture
def responses():
    import responses

    with responses.RequestsMock(assert_all_requests_are_fired=True) as mock:
        yield mock


def test_download_keeps_what_has_the_check_sum(cache, responses):
    url = "http://data.example/set/hello.txt"
    answers(responses, url, b"Hell", b"Hello\n")
    path = common.download(url, "test", "09f7e02f1290be211da707a266f153b3")
    assert path == str(cache.path / "test" / "hello.txt")
    assert common.md5file(path) == "09f7e02f1290be211da707a266f153b3"
    assert common.download(url, "test", "09f7e02f1290be211da707a266f153b3") == path  # not fetched again
    assert [one.name for one in (cache.path / "test").iterdir()] == ["hello.txt"]


def test_a_mirror_has_the_files_at_the_paths_of_the_cache(cache, responses, monkeypatch):
    monkeypatch.setenv("PADDLE_DATASET_MIRROR", "https://mirror.example/paddle/")
    answers(responses, "https://mirror.example/paddle/test/x.bin", b"1")
    common.download("http://data.example/a/x.bin", "test", None)


def test_a_file_that_cannot_be_fetched_is_named_in_one_line(cache, responses):
    url = "http://data.example/x.bin"
    for _ in range(3):
        responses.get(url, status=503)
    with pytest.raises(MissingInputError) as raised:
        common.download(url, "test", "ab" * 16)
    message = str(raised.value)
    assert "\n" not in message
    assert url in message
    assert str(cache.path / "test" / "x.bin") in message
    assert "abab" in message
    assert "PADDLE_DATASET_MIRROR" in message
    assert not list((cache.path / "test").iterdir()) if (cache.path / "test").exists() else True


def test_a_failed_connection_is_told_by_its_lowest_reason_without_other_tracebacks(cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as taken:  # bound, but not listening: it refuses connections
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x.bin"
        with pytest.raises(
            MissingInputError, match=r"cannot be fetched \(\[Errno \d+\] Connection refused\); put"
        ) as raised:
            common.download(url, "test", "")
    assert raised.value.__cause__ is None


def test_a_cache_that_cannot_be_made_is_told_with_the_variable_that_moves_it(cache, monkeypatch):
    (cache.path / "file").touch()
    monkeypatch.setattr(common, "DATA_HOME", str(cache.path / "file"))
    with pytest.raises(VolumeError, match=r"/file/test cannot be made: Not a directory; set PADDLE_DATASET_HOME"):
        common.download("http://data.example/x.bin", "test", "")


def test_a_file_of_another_check_sum_is_used_with_a_warning(cache, capfd):
    path = cache.put("test", "mine.bin", b"mine")
    assert common.download("http://data.example/mine.bin", "test", "ab" * 16) == str(path)
    assert "it is used" in capfd.readouterr().err
    assert path.read_bytes() == b"mine"


def test_every_data_set_is_written_as_recordio_files(cache, tmp_path, monkeypatch):
    written = []
    modules = [
        SimpleNamespace(__name__="paddle.v2.dataset.one", convert=written.append, fetch=lambda: written.append("f"))
    ]
    monkeypatch.setattr(common, "_modules", lambda: iter(modules))
    common.fetch_all()
    common.fetch_all_recordio(str(tmp_path / "out"))
    assert written == ["f", str(tmp_path / "out" / "one")]
    assert (tmp_path / "out" / "one").is_dir()
