"""Mix sentences of this project with sentences of installed libraries, for a reader who does not know which are whose.

Usage: python tests/prose_comparison.py KEY [--seed=N] [--number=N]. It prints 2 x N sentences in random order, each
below what a reader sees beside it, and writes to the file KEY one line for each sentence: its origin. A strict reader
also refuses sentences of well-kept libraries, so the figure of tests/prose_sample.py needs theirs beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path

from prose_sample import MOST_CONTEXT, SOURCES, Text, python_texts, read_texts, split_sentences

LIBRARIES = ("requests", "urllib3", "responses", "_pytest", "xdist", "zmq")  # all are in the test environment
OURS = "this project"


def read_library(name: str) -> Iterator[Text]:
    """Return the docstrings, comments and messages of an installed package."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None, f"{name} is not installed"
    for path in sorted(Path(found.origin).parent.rglob("*.py")):
        yield from python_texts(name, path.read_text(encoding="utf-8"))


def main() -> None:
    """Print the mixed sample, and write its key."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("key", type=Path, help="file for the origin of each sentence")
    parser.add_argument("--seed", type=int, default=19, help="seed of the choice (default 19)")
    parser.add_argument("--number", type=int, default=100, help="sentences of each side (default 100)")
    flags = parser.parse_args()
    ours = [one._replace(path=OURS) for one in read_texts(SOURCES) if one.path.endswith(".py")]
    theirs = [one for name in LIBRARIES for one in read_library(name)]
    rng = random.Random(flags.seed)
    mixed = []
    for side in (ours, theirs):
        mixed += rng.sample([one for text in side for one in split_sentences(text)], flags.number)
    rng.shuffle(mixed)
    flags.key.write_text("".join(f"{number} {one.path}\n" for number, one in enumerate(mixed, 1)), encoding="utf-8")
    for number, one in enumerate(mixed, 1):
        print(f"    beside: {one.context[-MOST_CONTEXT:] or 'nothing'}\n{number:3} [{one.kind}] {one.text}")


if __name__ == "__main__":
    main()
