"""Draw a random sample of the sentences of the product and of its pages, for a reader to judge.

Usage: python tests/prose_sample.py [--seed=N] [--number=N] [--path=PREFIX ...] [--context]. It prints one sentence a
line, with its file and line. With --context it first prints what a reader of the file sees beside the sentence: the
heading of the page, or the line of code that a comment or docstring belongs to, and the sentences before it in the same
text. The same seed and sources give the same sample. The figure to write down is the number of sentences that a reader
who has not seen the project understands at first reading; issue 19 asks for at least 196 of 200.

A sentence comes from a docstring, a comment (of Python, C, a manifest or a shell script), a message (a string of at
least four words, with its values in angle brackets), or the text of a page of docs/.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from house import ROOMS, ROOT

SOURCES = ["start_paddle.py", "start.sh", "README.md", "docs", "k8s", *ROOMS]
LEAST_WORDS = 4  # minimum words of a sentence; shorter texts are names, units and headings
MOST_CONTEXT = 1000  # maximum characters of the context of a sentence
# a sentence ends before a capital after a full stop, an empty line, an item of a list, or the name of a section
SENTENCE_END = re.compile(
    r"(?<=[.!?:])\s+(?=[A-Z`\"])|\n\s*\n|\n\s*(?=[-*] |\d+\. |Args:|Returns:|Raises:|Source:|Shapes:)"
)
# lines that are no prose: headings, rows of tables, HTML, pictures, targets of links
NO_PROSE = re.compile(r"[#|<!]|\[[^]]*\]:")
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|ruff|mypy|!)")


class Text(NamedTuple):
    """A docstring, block of comments, message or paragraph, with the place of its first line."""

    path: str
    line: int
    kind: str
    text: str
    context: str = ""  # the heading or line of code of the text, and then its sentences before this one


def read_texts(paths: list[str]) -> Iterator[Text]:
    """Return the texts of the files of the repository below the paths."""
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    for path in sorted(listed.stdout.split()):
        reader = {".py": python_texts, ".md": page_texts, ".c": c_texts, ".h": c_texts}
        reader |= {".yaml": comment_texts, ".sh": comment_texts}
        if read := reader.get(Path(path).suffix):
            yield from read(path, (ROOT / path).read_text(encoding="utf-8"))


def python_texts(path: str, source: str) -> Iterator[Text]:
    """Return the docstrings, messages and comments of a module."""
    docstrings, inner = set(), set()
    tree, lines = ast.parse(source), source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node):
                first = node.body[0]
                assert isinstance(first, ast.Expr)
                docstrings.add(first.value)
                owner = "" if isinstance(node, ast.Module) else lines[node.lineno - 1].strip()
                yield Text(path, first.lineno, "docstring", ast.get_docstring(node) or "", owner)
        elif isinstance(node, ast.JoinedStr):
            inner |= set(ast.walk(node)) - {node}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and node not in inner:
            parts = (part.value if isinstance(part, ast.Constant) else f"<{name_of(part)}>" for part in node.values)
            yield from message(path, node, "".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings | inner:
            yield from message(path, node, node.value)
    yield from python_comments(path, source, lines)


def python_comments(path: str, source: str, lines: list[str]) -> Iterator[Text]:
    """Return the comments of a module; successive lines of the same column are one text."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or DIRECTIVE.match(token.string):
            continue
        is_next = bool(block) and token.start == (block[-1].start[0] + 1, block[-1].start[1])
        if block and (not is_next or has_code(token) or has_code(block[-1])):
            yield comment(path, block, lines)
            block = []
        block.append(token)
    if block:
        yield comment(path, block, lines)


def has_code(token: tokenize.TokenInfo) -> bool:
    """Return whether code precedes a comment in its line; such a comment is a separate text."""
    return bool(token.line[: token.start[1]].strip())


def message(path: str, node: ast.expr, text: str) -> Iterator[Text]:
    """Return a string as a message, or nothing if it does not look like a message."""
    if len(re.findall(r"[a-z]{2,}", text)) >= LEAST_WORDS and " " in text.strip():
        yield Text(path, node.lineno, "message", text)


def name_of(part: ast.expr) -> str:
    """Return the text that replaces a value of a message: the last name of the value's expression."""
    names = [getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(part)]
    return next((name for name in names if name), "value")


def comment(path: str, block: list[tokenize.TokenInfo], lines: list[str]) -> Text:
    """Return a block of comments as one text, with the code before it, or else the code of the next line."""
    code = block[0].line[: block[0].start[1]].strip() or "".join(lines[block[-1].start[0] :][:1]).strip()
    return Text(path, block[0].start[0], "comment", "\n".join(token.string.lstrip("#! ") for token in block), code)


def c_texts(path: str, source: str) -> Iterator[Text]:
    """Return the comments of a C file, each with the code before it in its line, or else the code of the next line."""
    for found in re.finditer(r"/\*(.*?)\*/([^\n]*\n?[^\n]*)", source, re.DOTALL):
        before = source[source.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
        text = "\n".join(line.strip().lstrip("* ") for line in found[1].splitlines())
        yield Text(path, source.count("\n", 0, found.start()) + 1, "comment", text.strip(), before or found[2].strip())


def comment_texts(path: str, source: str) -> Iterator[Text]:
    """Return the comments of a manifest or a shell script, each block of whole lines as one text."""
    block: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        found = re.search(r"(^|\s)#\s(.*)", line)
        if found and line.lstrip().startswith("#"):
            block.append(found[2])
            continue
        if block:
            yield Text(path, number - len(block), "comment", "\n".join(block), line.strip())
            block = []
        if found:
            yield Text(path, number, "comment", found[2], line[: found.start()].strip())


def page_texts(path: str, source: str) -> Iterator[Text]:
    """Return the paragraphs and lists of a page, without its code, tables and headings."""
    block: list[str] = []
    is_code, heading = False, ""
    for number, line in enumerate([*source.splitlines(), ""], 1):
        heading = line if line.startswith("#") and not is_code else heading
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if not is_fence and not is_code and line.strip() and not NO_PROSE.match(line):
            block.append(line)
        elif block:
            yield Text(path, number - len(block), "page", "\n".join(block), heading)
            block = []


def split_sentences(text: Text) -> Iterator[Text]:
    """Return the sentences of a text, each on one line."""
    position = 0
    for sentence in SENTENCE_END.split(text.text):
        start = text.text.index(sentence, position)
        position = start + len(sentence)
        line = text.line + text.text.count("\n", 0, start) * (text.kind != "message")
        if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= LEAST_WORDS:
            context = f"{text.context} || {text.text[:start]}" if start else text.context
            yield text._replace(line=line, text=" ".join(sentence.split()), context=" ".join(context.split()))


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=19, help="seed of the choice (default 19)")
    parser.add_argument("--number", type=int, default=200, help="number of sentences (default 200)")
    parser.add_argument("--path", action="append", help="sample only files below this path; may be given repeatedly")
    parser.add_argument("--context", action="store_true", help="print what a reader sees beside each sentence, too")
    flags = parser.parse_args()
    sentences = [each for text in read_texts(flags.path or SOURCES) for each in split_sentences(text)]
    sample = random.Random(flags.seed).sample(sentences, min(flags.number, len(sentences)))
    print(f"{len(sample)} of {len(sentences)} sentences, seed {flags.seed}")
    for number, each in enumerate(sorted(sample), 1):
        if flags.context:
            print(f"    beside: {each.context[-MOST_CONTEXT:]}" if each.context else "    beside: nothing")
        print(f"{number:3} {each.path}:{each.line} [{each.kind}] {each.text}")


if __name__ == "__main__":
    main()
