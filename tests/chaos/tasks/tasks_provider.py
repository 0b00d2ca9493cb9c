"""Providers of digits, or of lines of text as sets of words; a sample takes at least `pace` seconds.

When a training provider has read a whole file, it writes a line to the file that CHAOS_LEDGER names. So a trial knows
how far the job is, independently of the logs of its programs.
"""

import os
import time

from paddle.trainer.PyDataProvider2 import *


def _read(settings, file_name, parse):
    with open(file_name, encoding="utf-8") as lines:  # noqa: PTH123 as in users' scripts
        for line in lines:
            if settings.pace:
                time.sleep(settings.pace)
            yield parse(settings, line.rstrip("\n"))


def _write_ledger(file_name):
    ledger = os.environ.get("CHAOS_LEDGER")
    if ledger:
        with open(ledger, "ab", buffering=0) as file:  # noqa: PTH123 as in users' scripts
            file.write(f"{file_name}\n".encode())


def _digit(settings, line):
    *pixels, digit = line.split(",")
    return {"seen": [int(p) / 8.0 - 1.0 for p in pixels], "label": int(digit)}


def _text(settings, line):
    label, _, words = line.partition("\t")
    known = settings.words
    return {"seen": sorted({known[word] for word in words.split() if word in known}) or [0], "label": int(label)}


def _begin_digits(settings, pace, dictionary, is_train, **_):
    settings.pace = pace if is_train else 0.0
    settings.input_types = {"seen": dense_vector(8 * 8), "label": integer_value(10)}


def _begin_texts(settings, pace, dictionary, is_train, **_):
    with open(dictionary, encoding="utf-8") as lines:  # noqa: PTH123 as in users' scripts
        settings.words = {line.split("\t")[0].strip(): number for number, line in enumerate(lines)}
    settings.pace = pace if is_train else 0.0
    settings.input_types = {"seen": sparse_binary_vector(len(settings.words)), "label": integer_value(2)}


@provider(init_hook=_begin_digits)
def train_digits(settings, file_name):
    yield from _read(settings, file_name, _digit)
    _write_ledger(file_name)


@provider(init_hook=_begin_digits)
def test_digits(settings, file_name):
    yield from _read(settings, file_name, _digit)


@provider(init_hook=_begin_texts)
def train_texts(settings, file_name):
    yield from _read(settings, file_name, _text)
    _write_ledger(file_name)


@provider(init_hook=_begin_texts)
def test_texts(settings, file_name):
    yield from _read(settings, file_name, _text)
