"""Flags and variables: read once, all problems reported together."""

from fractions import Fraction
from pathlib import Path

import pytest
from each import each

from paddle_base.runtime.environment import find_misspelt
from paddle_base.runtime.errors import ConfigError, UsageError
from paddle_cluster.prepare.settings import OPTIONS, help_table, name_flags, read_settings

GOOD = {"OUT_DIR": "/volume/job", "SPLIT_COUNT": "3"}


def read(*flags, **environ):
    return read_settings(flags, {**GOOD, **environ})


def problem(*flags, **environ):
    with pytest.raises(ConfigError) as caught:
        read(*flags, **environ)
    return str(caught.value)


def test_two_variables_are_enough():
    settings = read()
    assert (settings.out_dir, settings.split_count) == (Path("/volume/job"), 3)
    assert (settings.data_source, settings.train_config_dir) == ("digits", "digits")
    assert settings.test_fraction == Fraction(1, 5)
    assert settings.data_owner is None


def test_a_flag_wins_over_its_variable():
    assert read("--seed=7", SEED="8").seed == 7


def test_an_empty_variable_is_an_unset_one():
    assert read(SEED="", DATA_SOURCE="", TEST_FRACTION="").seed == 1


@pytest.mark.parametrize(
    ("config", "source"),
    [("digits", "digits"), ("quick_start", "quick_start"), ("recommendation", "movielens")],
)
def test_the_source_follows_the_config_directory(config, source):
    assert read(TRAIN_CONFIG_DIR=config, DATA_PATH="/data").data_source == source


@pytest.mark.parametrize(
    ("environ", "config"),
    [
        ({"DATA_SOURCE": "synthetic"}, "quick_start"),
        ({"DATA_SOURCE": "synthetic", "SYNTHETIC_SHAPE": "ratings"}, "recommendation"),
        ({"DATA_SOURCE": "synthetic", "TRAIN_CONFIG_DIR": "mine"}, "mine"),
        ({"DATA_SOURCE": "synthetic", "TRAIN_CONFIG_DIR": "recommendation"}, "recommendation"),
    ],
)
def test_the_config_directory_follows_the_source(environ, config):
    assert read(**environ).train_config_dir == config


def test_made_up_data_are_of_the_kind_that_the_config_reads():
    """Of recommendation they were text, which its provider cannot read."""
    assert read(DATA_SOURCE="synthetic", TRAIN_CONFIG_DIR="recommendation").synthetic_shape == "ratings"
    given = read(DATA_SOURCE="synthetic", TRAIN_CONFIG_DIR="recommendation", SYNTHETIC_SHAPE="text")
    assert given.synthetic_shape == "text"


def test_the_number_of_shards_follows_the_number_of_trainers():
    settings = read_settings([], {"OUT_DIR": "/volume/job", "CONF_PADDLE_GRADIENT_NUM": "4"})
    assert settings.split_count == 4


def test_d5_a_split_count_other_than_the_number_of_trainers_is_refused():
    """The original had SPLIT_COUNT, parallelism and CONF_PADDLE_GRADIENT_NUM, and compared none of them."""
    assert "SPLIT_COUNT is 3 but CONF_PADDLE_GRADIENT_NUM is 2" in problem(CONF_PADDLE_GRADIENT_NUM="2")
    assert read(CONF_PADDLE_GRADIENT_NUM="3").split_count == 3


def test_d3_an_address_without_digest_or_without_tls_is_refused():
    """The original fetched its archive over plain HTTP and looked at no checksum."""
    digest = "0" * 64
    assert "DATA_SHA256 must name" in problem(DATA_SOURCE="quick_start", DATA_URL="https://host/a.tar.gz")
    plain = problem(DATA_SOURCE="quick_start", DATA_URL="http://host/a.tar.gz", DATA_SHA256=digest)
    assert "DATA_URL begins with http://, which is not read; known are s3://" in plain
    assert read(DATA_SOURCE="quick_start", DATA_URL="https://host/a.tar.gz", DATA_SHA256=digest).data_sha256 == digest


@each(
    ("environ", "message"),
    [
        ({"OUT_DIR": ""}, "OUT_DIR is not set"),
        ({"SPLIT_COUNT": ""}, "SPLIT_COUNT is not set"),
        ({"SPLIT_COUNT": "None"}, "SPLIT_COUNT is 'None'"),
        ({"SPLIT_COUNT": "0"}, "SPLIT_COUNT is '0'"),
        ({"SPLIT_COUNT": "1_0"}, "SPLIT_COUNT is '1_0'"),
        ({"SPLIT_COUNT": "٣"}, "SPLIT_COUNT is '٣'"),
        ({"SPLIT_COUNT": "-1"}, "SPLIT_COUNT is '-1'"),
        ({"CONF_PADDLE_GRADIENT_NUM": "three"}, "CONF_PADDLE_GRADIENT_NUM is 'three'"),
        ({"DATA_SOURCE": "mnist"}, "DATA_SOURCE is 'mnist'; it must be one of digits,"),
        ({"DATA_SOURCE": "quick_start"}, "needs DATA_PATH or DATA_URL"),
        ({"DATA_SOURCE": "movielens"}, "needs DATA_PATH or DATA_URL"),
        ({"TRAIN_CONFIG_DIR": "mine"}, "not an example of this project; set DATA_SOURCE"),
        ({"TRAIN_CONFIG_DIR": "../etc", "DATA_SOURCE": "digits"}, "it must be one directory name"),
        ({"TRAIN_CONFIG_DIR": "0", "DATA_SOURCE": "digits"}, "reserved for a shard"),
        ({"TRAIN_CONFIG_DIR": "output", "DATA_SOURCE": "digits"}, "reserved for a shard, output or prepared.json"),
        ({"DATA_PATH": "/a", "DATA_URL": "file:///a"}, "both set"),
        ({"DATA_URL": "ftp://host/a"}, "DATA_URL begins with ftp://, which is not read"),
        ({"DATA_SHA256": "12"}, "64 hexadecimal digits"),
        ({"TEST_FRACTION": "1"}, "TEST_FRACTION is '1'"),
        ({"TEST_FRACTION": "1/0"}, "TEST_FRACTION is '1/0'"),
        ({"TEST_DATA": "some"}, "TEST_DATA is 'some'"),
        ({"SEED": "x"}, "SEED is 'x'"),
        ({"DATA_TIMEOUT": "nan"}, "DATA_TIMEOUT is 'nan'"),
        ({"MIN_COUNT": "0"}, "MIN_COUNT is '0'"),
        ({"REPLACE_CONFIG": "yes"}, "REPLACE_CONFIG is 'yes'"),
        ({"DATA_OWNER": "paddle"}, "DATA_OWNER is 'paddle'"),
        ({"REQUIRE_VOLUME": "yes"}, "REQUIRE_VOLUME is 'yes'"),
        (
            {"DATA_SOURCE": "synthetic", "DATA_PATH": "/x"},
            "DATA_PATH is set, but DATA_SOURCE=synthetic reads no input; set DATA_SOURCE to digits, quick_start, ",
        ),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(environ, message):
    assert message in problem(**environ)


def test_all_problems_are_reported_together():
    text = problem(OUT_DIR="", SPLIT_COUNT="x", SEED="y", DATA_SOURCE="z")
    assert all(name in text for name in ("OUT_DIR", "SPLIT_COUNT", "SEED", "DATA_SOURCE"))


@pytest.mark.parametrize("flag", ["--no_such_flag=1", "--see=1"])
def test_an_unknown_flag_is_a_usage_error(flag):
    with pytest.raises(UsageError, match="see paddle prepare --help"):
        read(flag)


def test_a_misspelt_flag_is_named_with_the_flag_that_it_resembles():
    with pytest.raises(UsageError, match=r"did you mean --split_count\?; see paddle prepare --help"):
        read("--split_cuont=3")


def test_a_misspelt_variable_is_named_with_the_setting_that_it_resembles():
    """It had no effect, and nothing said so."""
    known = [one.name.upper() for one in OPTIONS]
    assert find_misspelt({"SPLIT_CONT": "3", **GOOD, "SEEDS": "", "DATA": ""}, known) == {"SPLIT_CONT": "SPLIT_COUNT"}


def test_a_variable_with_two_swapped_letters_is_misspelt_too():
    """CSV_LABLE had no effect: in a short name difflib counts two wrong letters."""
    assert find_misspelt(["CSV_LABLE", "CSV_SIPK", "NAME_OUT"], [one.name.upper() for one in OPTIONS]) == {
        "CSV_LABLE": "CSV_LABEL",
        "CSV_SIPK": "CSV_SKIP",
    }


def test_the_variables_of_a_message_are_named_as_flags():
    assert name_flags("SPLIT_COUNT is not set") == " (SPLIT_COUNT is --split_count)"
    assert name_flags("DATA_PATHS: line 3") == ""


def test_the_help_has_every_flag_and_variable_in_one_table():
    table = help_table()
    for option in OPTIONS:
        assert f"--{option.name}=" in table
        assert option.name.upper() in table


@each("trainers", ["9" * 5000, "many", "٣"], ids=["long", "word", "arabic"])
@each("count", ["", "3", "many"])
def test_a_number_of_trainers_that_is_none_is_named(trainers, count):
    said = problem(CONF_PADDLE_GRADIENT_NUM=trainers, SPLIT_COUNT=count)
    assert f"CONF_PADDLE_GRADIENT_NUM is {trainers!r}; it must be the number of trainers" in said


def test_the_config_of_tables_is_for_the_source_csv(tmp_path):
    flags = [f"--out_dir={tmp_path}", "--split_count=1", f"--data_path={tmp_path.parent / 't.csv'}"]
    assert read_settings([*flags, "--train_config_dir=table"], {}).data_source == "csv"
    assert read_settings([*flags, "--data_source=csv"], {}).train_config_dir == ""


def test_a_task_without_a_label_is_refused(tmp_path):
    flags = [f"--out_dir={tmp_path}", "--split_count=1", "--data_source=csv", f"--data_path={tmp_path.parent / 't'}"]
    with pytest.raises(ConfigError, match="CSV_TASK is number, but CSV_LABEL is not set"):
        read_settings([*flags, "--csv_task=number"], {})


def test_a_setting_is_one_field_whose_parser_accepts_its_default():
    """The name, the default, the check and the type of a setting stood in three places: issue M."""
    for one in OPTIONS:
        if one.name != "test_fraction":  # its default is that of the source
            one.parse(one.absent)
    min_count = next(one for one in OPTIONS if one.name == "min_count")
    assert (min_count.default, min_count.parse("7"), read(MIN_COUNT="7").min_count) == ("2", 7, 7)
    with pytest.raises(ValueError, match=r"^a number from 1 to 1000000000$"):
        min_count.parse("0")


def test_a_wrong_number_of_shards_is_one_error_and_not_compared_with_the_trainers():
    wrong = "SPLIT_COUNT is 'x'; it must be a number from 1 to 100000"
    for trainers in ("3", "999999999"):
        assert problem(SPLIT_COUNT="x", CONF_PADDLE_GRADIENT_NUM=trainers) == wrong
