"""The classes of the texts: `prepare` writes labels.list, with lines `name<TAB>number`, beside the dictionary."""

import os

MOST_CLASSES = 10000


def read_labels(path="data/labels.list"):
    """Return the names of the classes in the order of their numbers; without labels.list they are 0 and 1."""
    names = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                name, number = line.rstrip("\n").rsplit("\t", 1)
                names.setdefault(int(number), name)
    count = max([1, *names]) + 1
    if count > MOST_CLASSES:
        raise ValueError(f"{path} has the number {count - 1}; number at most {MOST_CLASSES} labels from 0")
    return [names.get(number, str(number)) for number in range(count)]
