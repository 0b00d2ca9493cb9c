"""Addresses of files, and patterns of their names."""

import pytest
from each import each

from paddle_base.remote.addresses import Address, is_address, matches, parse_address
from paddle_base.runtime.errors import ConfigError


@each(
    "text, expected",
    [
        ("s3://bucket/a/b.csv", ("s3", "bucket", "a/b.csv")),
        ("S3://bucket", ("s3", "bucket", "")),
        ("gs://bucket/reviews/", ("gs", "bucket", "reviews/")),
        ("https://host:8443/data.tgz?x=1", ("https", "host:8443", "data.tgz?x=1")),
        ("file:///mnt/a%20b", ("file", "", "/mnt/a b")),
        ("data/a.csv", ("file", "", "data/a.csv")),
    ],
)
def test_an_address_has_scheme_root_and_key(text, expected):
    assert parse_address(text, "DATA_PATH") == Address(*expected)
    assert is_address("s3://bucket/key") and not is_address("/mnt/s3:/x")


@each(
    "text, said",
    [
        ("s3://key:hush@bucket/a", "a user or password before an '@'"),
        ("ftp://host/hush", "begins with ftp://, which is not read; known are s3://"),
        ("http://host/hush", "begins with http://, which is not read"),
        ("s3:///a", "without a bucket"),
        ("https:///a", "without a server"),
        ("s3://bucket/a\nb", "control character"),
        ("s3://bucket/" + "a" * 5000, "more than 4096 characters"),
        ("file://host/a", "names a server; write file:///PATH"),
    ],
)
def test_a_malformed_address_is_one_line_without_its_password(text, said):
    with pytest.raises(ConfigError, match=said) as caught:
        parse_address(text, "DATA_PATH")
    assert "hush" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_shown_address_has_no_query_because_it_may_be_a_signature():
    assert str(parse_address("https://host/a.tgz?X-Amz-Signature=hush", "DATA_URL")) == "https://host/a.tgz"


@each(
    "pattern, key, expected",
    [
        ("a/*.csv", "a/1.csv", True),
        ("a/*.csv", "a/b/1.csv", False),
        ("a/**/*.csv", "a/b/c/1.csv", True),
        ("a/**/*.csv", "a/1.csv", True),
        ("**", "a/b", True),
        ("a/part-[0-9]?.gz", "a/part-12.gz", True),
        ("a/part-[0-9]?.gz", "a/part-x2.gz", False),
        ("*", "a/b", False),
        ("/".join(["**", "a*"] * 20), "/".join(["a" * 20] * 60), True),
        ("/".join(["**", "a*b"] * 20), "/".join(["a" * 20] * 60), False),
    ],
)
def test_a_pattern_matches_within_directories_and_two_stars_across_them(pattern, key, expected):
    assert matches(pattern, key) is expected


def test_a_pattern_is_listed_from_its_fixed_beginning():
    assert parse_address("s3://b/2024/part-*/x", "I").prefix == "2024/"
    assert parse_address("s3://b/*.csv", "I").prefix == ""
    assert parse_address("s3://b/2024/x", "I").prefix == "2024/x"
