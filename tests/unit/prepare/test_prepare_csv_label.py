"""The source `csv`: the label, ids, missing values, and what a wrong name of a column is told."""

import json

import pytest
from each import each

from paddle_cluster.prepare.program import main


def prepare(tmp_path, table, *flags, shards=1):
    """Run the data job on a table; return the status and, if it is 0, the content of columns.json."""
    (tmp_path / "t.csv").write_text(table)
    where = [f"--data_path={tmp_path / 't.csv'}", f"--out_dir={tmp_path / 'job'}", f"--split_count={shards}"]
    status = main(["--data_source=csv", *where, *flags])
    return status, json.loads((tmp_path / "job/0/data/columns.json").read_text()) if status == 0 else {}


def rows(*columns):
    return "".join(",".join(map(str, row)) + "\n" for row in zip(*columns, strict=True))


WORDS = "id,queue,text\n" + rows(list("abcd"), ["sales", "help"] * 2, ["x y"] * 4)


def test_a_first_line_with_the_name_of_the_label_is_a_header(tmp_path):
    """Before, a table of words alone was told that 'queue' is no column, though it stands in line 1."""
    status, about = prepare(tmp_path, WORDS, "--csv_label=queue")
    assert (status, about["header"], about["label"]) == (0, "dropped", "queue")
    assert about["columns"][1]["values"] == {"help": 2, "sales": 2}


def test_a_first_line_with_the_name_of_a_column_to_skip_is_a_header(tmp_path):
    assert prepare(tmp_path, WORDS, "--csv_skip=text")[1]["header"] == "dropped"


def test_missing_values_in_the_second_line_do_not_hide_the_header(tmp_path):
    assert prepare(tmp_path, "a,b\nNA,x\n3,y\n")[1]["header"] == "dropped"


@pytest.mark.parametrize("option", ["csv_label", "csv_skip"])
def test_a_name_that_is_no_column_is_told_which_columns_there_are(tmp_path, capsys, option):
    told = {}
    for name, table, flags in [
        ("misspelt", "city,price\nx,1\n", ()),
        ("a row", "city,city\nx,1\n", ()),
        ("none", "city,price\nx,1\n", ("--csv_header=none",)),
        ("words", "city,prices\nx,y\n", ()),
    ]:
        assert prepare(tmp_path, table, f"--{option}=prise", *flags)[0] == 65
        said = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
        told[name] = said[0].split("which is no column")[1].split(" (CSV")[0]
    numbers = "a number from 1 to 2"
    assert told == {
        "misspelt": f" (did you mean 'price'?); the columns of t.csv line 1 are city, price; give one of them, or "
        f"{numbers}",
        "a row": ": t.csv line 1 is taken for a row, not for a header: 'city, city'; set CSV_HEADER=drop if this line "
        f"names the columns, or give {numbers}",
        "words": " (did you mean 'prices'?): t.csv line 1 is taken for a row, not for a header: 'city, prices'; set "
        f"CSV_HEADER=drop if this line names the columns, or give {numbers}",
        "none": " (did you mean 'price'?): t.csv line 1 is taken for a row, by CSV_HEADER=none: 'city, price'; set "
        f"CSV_HEADER=drop if this line names the columns, or give {numbers}",
    }


LABELS = {
    "words": (["yes", "no"] * 30, "classes"),
    "codes": ([0, 1, 2] * 20, "classes"),
    "whole numbers of which many recur": ([*range(12)] * 5, "classes"),
    "prices": ([number * 1000 for number in range(60)], "number"),
    "measurements": ([number / 7 for number in range(60)], "number"),
    "few measurements": ([0.5, 1.5] * 30, "number"),
    "with missing values": ([0.5, "NA", "", 1.5] * 15, "number"),
}


@each("name", LABELS)
def test_a_label_is_taken_for_classes_or_a_number(tmp_path, name):
    column, task = LABELS[name]
    assert prepare(tmp_path, "x,y\n" + rows(range(60), column), "--csv_label=y")[1]["task"] == task


def test_the_task_can_be_chosen(tmp_path):
    table = "x,y\n" + rows(range(60), [0.5, 1.5] * 30)
    about = prepare(tmp_path, table, "--csv_label=y", "--csv_task=classes")[1]
    assert (about["task"], about["columns"][1]["values"]) == ("classes", {"0.5": 30, "1.5": 30})
    assert prepare(tmp_path, "x,y\n" + rows(range(60), [0, 1] * 30), "--csv_label=y", "--csv_task=number")[1][
        "task"
    ] == ("number")


def test_a_label_that_should_be_numbers_but_has_words_is_named_by_its_line(tmp_path, capsys):
    assert prepare(tmp_path, "x,y\n1,2\n3,cheap\n", "--csv_label=y", "--csv_task=number")[0] == 65
    assert "t.csv line 3: the label 'y' has 'cheap', which is not a number" in capsys.readouterr().err


def test_a_label_of_more_numbers_than_classes_can_have_is_predicted(tmp_path):
    """Before, it ended with 65, and with the advice to unset CSV_LABEL."""
    table = "x,y\n" + "".join(f"{number},{number / 3}\n" for number in range(10_050))
    status, about = prepare(tmp_path, table, "--csv_label=y", shards=2)
    assert (status, about["task"]) == (0, "number")
    sizes = [len((tmp_path / f"job/{shard}/data/train.csv").read_text().splitlines()) for shard in range(2)]
    assert max(sizes) - min(sizes) <= 1


def test_a_label_of_too_many_words_or_wanted_classes_is_refused(tmp_path, capsys):
    table = "x,y\n" + "".join(f"{number},w{number}\n" for number in range(10_050))
    assert prepare(tmp_path, table, "--csv_label=y")[0] == 65
    assert prepare(tmp_path, table.replace("w", ""), "--csv_label=y", "--csv_task=classes")[0] == 65
    assert capsys.readouterr().err.count("has more than 10000 values") == 2


def test_words_for_missing_values_are_missing_and_the_column_stays_one_of_numbers(tmp_path, capsys):
    """Before, one NA or nan made a column of numbers a column of words."""
    table = "a,b,city\n" + rows([1, "NA", 3, "nan"], ["NULL", 2, "", 4], ["x", "n/a", "y", "x"])
    about = prepare(tmp_path, table)[1]
    assert [(one["kind"], one["missing"]) for one in about["columns"]] == [("number", 2), ("number", 2), ("text", 1)]
    assert about["columns"][0]["mean"] == 2.0
    assert about["columns"][2]["values"] == {"x": 2, "y": 1}
    assert "NA" in about["missing_words"]
    assert "WARNING" not in capsys.readouterr().err


def test_the_words_for_missing_values_can_be_given(tmp_path):
    about = prepare(tmp_path, "a,b\n1,NA\n?,x\n3,-\n", "--csv_missing=?, -")[1]
    assert [(one["kind"], one["missing"]) for one in about["columns"]] == [("number", 1), ("text", 1)]
    assert about["missing_words"] == ["?", "-"]


def test_columns_to_skip_are_marked_by_name_and_number(tmp_path):
    about = prepare(tmp_path, "id,name,x,y\n1,a,5,0\n2,b,6,1\n", "--csv_label=y", "--csv_skip=id, 2")[1]
    assert [one.get("skipped", False) for one in about["columns"]] == [True, True, False, False]


def test_a_label_is_not_skipped(tmp_path, capsys):
    assert prepare(tmp_path, "x,y\n1,0\n2,1\n", "--csv_label=y", "--csv_skip=2")[0] == 65
    assert "CSV_SKIP has y, the column of CSV_LABEL" in capsys.readouterr().err


def test_columns_that_look_like_ids_are_named_if_they_are_not_skipped(tmp_path, capsys):
    count = 12
    names = [f"n{number}" for number in range(count)]
    table = "id,name,x,y\n" + rows(range(100, 100 + count), names, [1, 5, 2] * 4, [0, 1] * 6)
    prepare(tmp_path, table, "--csv_label=y")
    said = capsys.readouterr().err
    assert "set CSV_SKIP=id," in said
    assert "set CSV_SKIP=name," in said
    assert "CSV_SKIP=x" not in said
    prepare(tmp_path, table, "--csv_label=y", "--csv_skip=id,name")
    assert "WARNING" not in capsys.readouterr().err
