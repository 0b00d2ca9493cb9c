"""The four sources: what they read, and what they write into a shard."""

import errno
import json
import os
import pickle
from pathlib import Path

import pytest
from each import each

from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from paddle_cluster.prepare.dataset import Dataset, Source
from paddle_cluster.prepare.program import prepare
from paddle_cluster.prepare.settings import read_settings
from paddle_cluster.prepare.sources import SOURCES
from paddle_cluster.prepare.split import LabelledLine, hold_out

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(out_dir, *flags):
    """Prepare two shards below out_dir and return the data directory of the first."""
    prepare(read_settings([f"--out_dir={out_dir}", "--split_count=2", f"--examples_dir={EXAMPLES}", *flags], {}))
    return out_dir / "0" / "data"


def training_lines(data):
    job = data.parents[1]
    name = (data / "train.list").read_text().strip()
    return [line for shard in "01" for line in (job / shard / name).read_text(encoding="utf-8").splitlines()]


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


# ----- digits -----


def test_digits_are_1797_lines_of_the_file_as_it_is(tmp_path):
    data = run(tmp_path / "job")
    test = (data / "test.txt").read_text().splitlines()
    assert (len(training_lines(data)), len(test)) == (1438, 359)
    assert all(len(line.split(",")) == 65 for line in test)
    assert (data / "train.list").read_bytes() == b"data/train.txt\n"
    assert (data / "test.list").read_bytes() == b"data/test.txt\n"


def test_a_shard_may_lie_in_many_files(tmp_path):
    """A task of `paddle master` is a file: what a trainer takes, and what is repeated when it is lost."""
    plain = training_lines(run(tmp_path / "plain"))
    data = run(tmp_path / "job", "--shard_files=10")
    names = (data / "train.list").read_text().split()
    assert names == [f"data/train-{number:05d}.txt" for number in range(10)]
    parts = [(data.parents[1] / shard / name).read_text().splitlines() for shard in "01" for name in names]
    assert sorted(line for part in parts for line in part) == sorted(plain)
    assert {len(part) for part in parts} == {71, 72}
    assert {len({line.rpartition(",")[2] for line in part}) for part in parts} == {10}, "every file has every digit"


def test_more_files_than_samples_are_refused(tmp_path):
    with pytest.raises(DataError, match="1438 training samples cannot be split into 2 x 720 files"):
        run(tmp_path / "job", "--shard_files=720")


@pytest.mark.parametrize("line", ["1,2,3", ",".join(["17"] + ["0"] * 64), ",".join(["0"] * 64 + ["10"]), "a,b"])
def test_a_line_that_is_no_digit_is_named(tmp_path, line):
    file = tmp_path / "mine.csv"
    file.write_text(",".join(["0"] * 65) + "\n" + line + "\n")
    with pytest.raises(DataError, match=r"mine\.csv line 2: expected 64 pixels"):
        run(tmp_path / "job", f"--data_path={file}")


def test_a_damaged_digits_file_is_bad_data(tmp_path):
    file = tmp_path / "digits.csv.gz"
    file.write_bytes((EXAMPLES / "digits" / "digits.csv.gz").read_bytes()[:20_000])
    with pytest.raises(DataError, match=r"digits\.csv\.gz is cut off"):
        run(tmp_path / "job", f"--data_path={file}")


def test_an_image_without_the_digits_file_says_where_it_looked(tmp_path):
    with pytest.raises(MissingInputError, match="EXAMPLES_DIR"):
        run(tmp_path / "job", f"--examples_dir={tmp_path}")


# ----- text -----

QUICK_START = "--data_source=quick_start"


def test_files_of_positive_and_negative_texts_get_the_tutorials_labels(tmp_path):
    raw = write(tmp_path / "raw", mine__pos="good film\n" * 10, mine__neg="bad film\n\nbad\n" * 5)
    data = run(tmp_path / "job", QUICK_START, f"--data_path={raw}")
    assert set(training_lines(data)) <= {"1\tgood film", "0\tbad film", "0\tbad"}
    assert (data / "labels.list").read_text() == "neg\t0\npos\t1\n"


def test_the_dictionary_begins_with_the_unknown_word_and_goes_by_frequency(tmp_path):
    raw = write(tmp_path / "raw", all__txt="0\tb a c\n1\tb a\n1\tb d\n")
    data = run(tmp_path / "job", QUICK_START, f"--data_path={raw}", "--test_fraction=0")
    assert (data / "dict.txt").read_text() == "<unk>\t2\nb\t3\na\t2\n"


def test_the_dictionary_is_made_of_training_text_only(tmp_path):
    raw = write(tmp_path / "raw", all__txt="".join(f"{i % 2}\tw{i} w{i}\n" for i in range(20)))
    data = run(tmp_path / "job", QUICK_START, f"--data_path={raw}")
    test_words = {line.split()[1] for line in (data / "test.txt").read_text().splitlines()}
    assert len(test_words) == 4
    assert not test_words & set((data / "dict.txt").read_text().split())


def test_latin_1_text_becomes_utf_8(tmp_path):
    raw = write(tmp_path / "raw", a__pos="caf\xe9 \x85 na\xefve\n".encode("latin-1") * 3, a__neg="déjà\n" * 3)
    data = run(tmp_path / "job", QUICK_START, f"--data_path={raw}", "--test_fraction=0")
    assert set(training_lines(data)) == {"1\tcafé naïve", "0\tdéjà"}


def test_a_stated_encoding_is_insisted_on(tmp_path):
    raw = write(tmp_path / "raw", a__pos="caf\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.pos line [0-9]+: the text is not utf-8"):
        run(tmp_path / "job", QUICK_START, f"--data_path={raw}", "--data_encoding=utf-8")


def test_labels_that_are_words_are_numbered_in_their_order(tmp_path):
    raw = write(tmp_path / "raw", all__tsv="sport\ta\nart\tb\nsport\tc\n")
    data = run(tmp_path / "job", QUICK_START, f"--data_path={raw}", "--test_fraction=0")
    assert set(training_lines(data)) == {"1\ta", "0\tb", "1\tc"}
    assert (data / "labels.list").read_text() == "art\t0\nsport\t1\n"


def test_great_numbers_as_labels_are_numbered_in_their_order(tmp_path):
    """A network has a class for each number up to the greatest, so labels such as years or codes are numbered."""
    raw = write(tmp_path / "raw", t__txt="20500\ta\n20500\tb\n1999\ta\n1999\tb\n100\ta\n100\tb\n")
    data = run(tmp_path / "job", "--data_source=quick_start", f"--data_path={raw}", "--test_fraction=0")
    assert (data / "labels.list").read_text() == "100\t0\n1999\t1\n20500\t2\n"


def test_the_dictionary_has_at_most_max_words_words_and_counts_the_others_as_unknown(tmp_path):
    raw = write(tmp_path / "raw", t__txt="0\ta a a b b c\n1\tb c d d\n")
    flags = ["--data_source=quick_start", f"--data_path={raw}", "--test_fraction=0", "--min_count=2", "--max_words=2"]
    assert (run(tmp_path / "job", *flags) / "dict.txt").read_text() == "<unk>\t4\na\t3\nb\t3\n"


def test_texts_may_be_the_columns_of_a_table(tmp_path):
    table = 'id,queue,title,text\n1,billing,no refund,"where, please\nis it"\n2,NA,lost,x\n3,help,how,to  sit\n'
    raw = write(tmp_path / "raw", t__csv=table)
    flags = ["--data_source=quick_start", f"--data_path={raw / 't.csv'}", "--test_fraction=0", "--csv_label=queue"]
    data = run(tmp_path / "job", *flags, "--csv_skip=id")
    assert sorted(training_lines(data)) == ["0\tno refund where, please is it", "1\thow to sit"]
    assert (data / "labels.list").read_text() == "billing\t0\nhelp\t1\n"


def test_rows_without_a_label_and_texts_without_words_are_counted(tmp_path, capsys):
    """They were left out, and kept, without a word."""
    raw = write(tmp_path / "raw", t__csv="text,queue\nhello,a\n,b\nlost,\nyou,NA\nbye,b\n")
    run(tmp_path / "job", "--data_source=quick_start", f"--data_path={raw}", "--csv_label=queue")
    said = capsys.readouterr().err
    assert "WARNING: 2 rows without a label in 'queue' are left out, the first is t.csv line 4" in said
    assert "WARNING: 1 of 3 texts have no words" in said


FORMS = {
    "csv": ({"train__csv": "text,q\nx,a\ny,b\n", "test__csv": "text,q\nz,b\n"}, ["--csv_label=q"]),
    "tsv": ({"all__tsv": "a\tx\nb\ty\n", "test__tsv": "b\tz\n"}, []),
    "pos and neg": ({"t__neg": "x\n", "t__pos": "y\n", "test__pos": "z\n"}, []),
}


@each("form", FORMS)
def test_files_named_test_are_the_test_set_of_texts_in_every_form(tmp_path, form):
    """They were mixed into the training data, so the tests measured texts that the network had learnt."""
    files, flags = FORMS[form]
    raw = write(tmp_path / "raw", **files)
    data = run(tmp_path / "job", "--data_source=quick_start", f"--data_path={raw}", *flags)
    assert sorted(training_lines(data)) == ["0\tx", "1\ty"]
    assert (data / "test.txt").read_text() == "1\tz\n"


def test_a_file_or_folder_with_only_tests_is_divided_as_any_other(tmp_path):
    raw = write(tmp_path / "raw", test__tsv="a\tx\nb\ty\n")
    for path in (raw, raw / "test.tsv"):
        data = run(tmp_path / "job", "--data_source=quick_start", f"--data_path={path}", "--test_fraction=0")
        assert sorted(training_lines(data)) == ["0\tx", "1\ty"]


TABLES = {"quick_start": {"train__csv": "q,t\na,x\nb,y\n", "test__csv": "q,t\nc,x\n,y\n"}}
TABLES["csv"] = TABLES["quick_start"]


@each("source", TABLES)
def test_a_class_of_which_only_the_test_data_have_samples_is_named(tmp_path, capsys, source):
    """Nothing said that the network can never predict the class."""
    raw = write(tmp_path / "raw", **TABLES[source])
    run(tmp_path / "job", f"--data_source={source}", f"--data_path={raw}", "--csv_label=q")
    assert "no sample of 1 classes of the test data: 'c'; the network never predicts them" in capsys.readouterr().err


@each("source", TABLES)
def test_a_column_of_ids_as_the_label_is_named(tmp_path, capsys, source):
    """A network of 2,000 classes was prepared from a column of ids without a word."""
    raw = write(tmp_path / "raw", t__csv="q,t\n" + "".join(f"id{n},{n}\n" for n in range(30)))
    run(tmp_path / "job", f"--data_source={source}", f"--data_path={raw}", "--csv_label=q")
    said = capsys.readouterr().err
    assert "WARNING: 30 samples have 30 different labels, so most labels are of one sample" in said
    assert "never predicts" not in said


def test_other_data_beside_a_model_are_named_with_the_files_that_it_needs(tmp_path, capsys):
    """The model's vocabulary and the names of its classes were gone, and predictions got wrong words."""
    raw, flags = tmp_path / "raw", ["--data_source=quick_start", f"--data_path={tmp_path / 'raw'}", "--min_count=1"]
    write(raw, t__tsv="a\tx\nb\ty\n")
    for _ in range(2):  # the same data again, beside the model
        run(tmp_path / "job", *flags)
        (tmp_path / "job/output/pass-00000").mkdir(exist_ok=True, parents=True)
    assert "WARNING" not in capsys.readouterr().err
    write(raw, t__tsv="a\tx\nb\tz\n")
    run(tmp_path / "job", *flags)
    said = capsys.readouterr().err
    assert "output has a model of the earlier data, which does not fit the new dict.txt; prepare other data" in said


def test_a_table_of_texts_needs_the_column_of_the_labels(tmp_path):
    raw = write(tmp_path / "raw", t__csv="a,b\nc,d\n")
    for path, said in ((raw, r"\*\.csv with CSV_LABEL"), (raw / "t.csv", "set CSV_LABEL to the column of the labels")):
        with pytest.raises(DataError, match=said):
            run(tmp_path / "job", "--data_source=quick_start", f"--data_path={path}")


def test_the_tutorials_folder_keeps_its_own_test_set_dictionary_and_other_files(tmp_path):
    folder = write(
        tmp_path / "raw",
        train__txt="0\ta b\n1\tc\n0\td\n",
        test__txt="1\tx\n",
        pred__txt="some words\n",
        dict__txt="the\t10\na\t3\n",
        train__list="./elsewhere/train.txt\n",
        train__00001="0\tstale\n",
        notes__md="mine",
    )
    data = run(tmp_path / "job", QUICK_START, f"--data_path={folder}")
    assert sorted(training_lines(data)) == ["0\ta b", "0\td", "1\tc"]
    assert (data / "test.txt").read_text() == "1\tx\n"
    assert (data / "dict.txt").read_text() == "the\t10\na\t3\n"
    assert (data / "train.list").read_text() == "data/train.txt\n"
    assert (data / "pred.list").read_text() == "data/pred.txt\n"
    assert (data / "notes.md").read_text() == "mine"
    assert not (data / "train.00001").exists()


def test_a_line_without_a_label_is_named(tmp_path):
    raw = write(tmp_path / "raw", train__txt="0\tfine\nno label here\n")
    with pytest.raises(DataError, match=r"train\.txt line 2: the line is not of the form label<TAB>words"):
        run(tmp_path / "job", QUICK_START, f"--data_path={raw}")


def test_a_folder_without_text_says_what_was_expected(tmp_path):
    raw = write(tmp_path / "raw", picture__jpg=b"\xff\xd8")
    with pytest.raises(DataError, match=r"expected train\.txt"):
        run(tmp_path / "job", QUICK_START, f"--data_path={raw}")


def test_a_missing_path_is_a_missing_input(tmp_path):
    with pytest.raises(MissingInputError, match="does not exist"):
        run(tmp_path / "job", QUICK_START, f"--data_path={tmp_path}/nothing")


def test_fewer_samples_than_shards_are_bad_data(tmp_path):
    raw = write(tmp_path / "raw", all__txt="0\tone\n")
    with pytest.raises(DataError, match="1 training samples cannot be split into 2 shards"):
        run(tmp_path / "job", QUICK_START, f"--data_path={raw}", "--test_fraction=0")


# ----- ratings -----


def movielens(folder, **changed):
    files = {
        "ratings__dat": "1::2::5::978300760\n1::3::3::978302109\n2::2::4::978301968\n2::3::1::978300275\n",
        "users__dat": "1::F::1::10::48067\n2::M::56::16::70072\n",
        "movies__dat": "2::Jumanji (1995)::Adventure|Children's\n3::Am\xe9lie (2001)::Comedy\n".encode("latin-1"),
    }
    return write(folder, **{**files, **changed})


def test_ratings_come_with_the_meta_data_that_the_demo_reads(tmp_path):
    folder = movielens(tmp_path / "ml")
    data = run(tmp_path / "job", "--data_source=movielens", f"--data_path={folder}", "--test_fraction=0")
    assert len(training_lines(data)) == 4
    assert (data / "train.list").read_text() == "data/ratings.dat.train\n"
    meta = pickle.loads((data / "meta.bin").read_bytes())
    fields = meta["movie"]["__meta__"]["raw_meta"]
    assert fields[0] == {"type": "id", "min": 2, "max": 3, "count": 2, "is_key": True}
    assert (fields[1]["name"], fields[1]["type"], fields[1]["seq"]) == ("title", "embedding", "sequence")
    assert [fields[1]["dict"][c] for c in "Amélie"] == meta["movie"][3][0]
    assert (fields[2]["name"], fields[2]["type"]) == ("genres", "one_hot_dense")
    assert sum(meta["movie"][2][1]) == 2.0
    assert [f.get("name") for f in meta["user"]["__meta__"]["raw_meta"]] == [None, "gender", "age", "occupation"]
    assert meta["user"][2] == [1, 1, 1]
    assert json.loads((data / "meta.json").read_text())["user"]["2"] == [1, 1, 1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ratings__dat": "1::2::5\n"}, r"ratings\.dat line 1: 3 fields instead of 4"),
        ({"ratings__dat": "1::9::5::0\n"}, r"movie 9 is not in movies\.dat"),
        ({"ratings__dat": "7::2::5::0\n"}, r"user 7 is not in users\.dat"),
        ({"ratings__dat": "1::2::5.5::0\n"}, "not four whole numbers"),
        ({"users__dat": ""}, r"users\.dat: it is empty"),
    ],
)
def test_bad_ratings_are_named(tmp_path, changed, message):
    with pytest.raises(DataError, match=message):
        run(tmp_path / "job", "--data_source=movielens", f"--data_path={movielens(tmp_path / 'ml', **changed)}")


def test_a_folder_without_ratings_is_a_missing_input(tmp_path):
    with pytest.raises(MissingInputError, match=r"has no ratings\.dat"):
        run(tmp_path / "job", "--data_source=movielens", f"--data_path={write(tmp_path / 'ml', a__txt='')}")


# ----- synthetic -----


@pytest.mark.parametrize("shape", ["text", "ratings"])
def test_synthetic_data_repeat_for_a_seed(tmp_path, shape):
    flags = ["--data_source=synthetic", f"--synthetic_shape={shape}", "--synthetic_rows=100"]
    first = training_lines(run(tmp_path / "a", *flags))
    assert first == training_lines(run(tmp_path / "b", *flags))
    assert first != training_lines(run(tmp_path / "c", *flags, "--seed=2"))


def test_an_input_that_may_not_be_read_is_a_missing_input(tmp_path, monkeypatch):
    raw = write(tmp_path / "raw", all__txt="0\tone\n")

    open_any = os.open

    def refused(path, *arguments, **options):
        if path == "all.txt":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return open_any(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(MissingInputError, match=r"cannot read .*all\.txt: Permission denied"):
        run(tmp_path / "job", QUICK_START, f"--data_path={raw}")


# ----- a new source -----


def test_a_source_is_known_by_its_record_alone(tmp_path, monkeypatch):
    """The facts of a source stood in seven places: issue M 2.1."""

    def read_lines(settings, scratch):
        lines = [LabelledLine(line, line[0]) for line in settings.data_path.read_text().splitlines()]
        return Dataset(*hold_out(lines, settings.test_fraction))

    monkeypatch.setitem(SOURCES, "lines", Source("lines", read_lines, "input", test_fraction="1/2", example="poems"))
    (tmp_path / "poems").mkdir()
    with pytest.raises(ConfigError, match="DATA_SOURCE=lines needs DATA_PATH or DATA_URL"):
        run(tmp_path / "job", "--data_source=lines")
    path = tmp_path / "in.txt"
    path.write_text("a\nb\n" * 8)
    data = run(tmp_path / "job", "--train_config_dir=poems", f"--data_path={path}", f"--examples_dir={tmp_path}")
    assert len(training_lines(data)) == 8
    assert json.loads((tmp_path / "job" / "prepared.json").read_text())["source"] == "lines"
    assert (tmp_path / "job" / "poems").is_dir()
