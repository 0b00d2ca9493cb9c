"""The image's scripts, start.sh and start_paddle.py, in whatever form a command names them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from paddle_cluster.localcluster.pods.paths import SHELLS

FOLDER = "/root"  # the directory of both scripts in the image
START_SCRIPT = f"{FOLDER}/start.sh"
LAUNCHER = f"{FOLDER}/start_paddle.py"
_HOME = re.compile(r"^(~|\$HOME|\$\{HOME\})(?=/)")  # root's home in the tutorial's image
# a path to a script in a shell's text; after a `)`, a part of the path is unknown
_PATH = re.compile(r"(?<![^\s'\"`;&|<>(=:,])(?:[^\s'\"`;&|<>()=:,]*/)?(?:start\.sh|start_paddle\.py)(?![\w./-])")
_CHANGE = re.compile(rf"""\bcd(?:\s+["']?(?:{FOLDER}/?|~/?|\$HOME|\$\{{HOME\}})["']?)?(?=[^\S\n]*(?:[;&|\n]|$))""")


def name_scripts(words: Sequence[str], working_directory: str, has_folder: bool) -> list[str]:
    """Return a command with START_SCRIPT or LAUNCHER in place of every path that means it in the image.

    Such paths are `root/start.sh` in the image's working directory /, `./start.sh` after `cd /root`, and `~/start.sh`.

    Args: has_folder: whether FOLDER exists here, because a volume is mounted there; otherwise the command does not
    change to it.
    """

    def name(word: str) -> str:
        directory = FOLDER if _CHANGE.search(word) else working_directory or "/"

        def full(match: re.Match[str]) -> str:
            path = posixpath.normpath(posixpath.join(directory, _HOME.sub(FOLDER, match.group())))
            path = f"/{path.lstrip('/')}"  # POSIX keeps two slashes at the beginning
            return path if path in (START_SCRIPT, LAUNCHER) else match.group()

        named = _PATH.sub(full, word)
        return named if has_folder or named == word else _CHANGE.sub("cd .", named)

    return [name(word) for word in words]


def find_scripts(words: Sequence[str]) -> Iterator[str]:
    """Yield the paths by which a command names a script: all absolute paths, and a relative path that it starts."""
    for number, word in enumerate(words):
        before = words[number - 1] if number else "--"
        is_program = before in ("--", "-c") or before.rsplit("/", 1)[-1] in SHELLS
        for match in _PATH.finditer(word):
            if match.group().startswith("/") or (is_program and match.start() == 0):
                yield match.group()
