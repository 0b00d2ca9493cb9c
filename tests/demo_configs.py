"""The configs of v0.10's demos (tests/golden/demos), with dictionaries of a few words."""

import shutil
from pathlib import Path

DEMOS = Path(__file__).parent / "golden" / "demos"


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))


def lay_out(directory):
    """Copy the configs, and write the dictionaries that they read while they are parsed."""
    shutil.copytree(DEMOS, directory, dirs_exist_ok=True)
    words = [f"word{number}" for number in range(9)]
    write_lines(directory / "sentiment/data/pre-imdb/dict.txt", [f"{word}\t7" for word in words])
    write_lines(directory / "sentiment/data/pre-imdb/labels.list", ["neg\t0", "pos\t1"])
    for corpus in ("pre-wmt14", "wmt14_model", "pre-paraphrase"):
        for side in ("src", "trg"):
            write_lines(directory / f"seqToseq/data/{corpus}/{side}.dict", ["<s>", "<e>", "<unk>", *words])
    for name, count in (("word", 9), ("target", 5), ("verb", 4)):
        write_lines(directory / f"semantic_role_labeling/data/{name}Dict.txt", words[:count])
