"""Replace container paths in texts with paths of this machine; the longest paths are replaced first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SHELLS = ("bash", "sh", "dash")


@dataclass(frozen=True)
class Replacement:
    """A path or variable whose value here differs from its value in a container; localcluster prints the difference."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        """Return the line for the user."""
        return f"{self.what}: {self.before} -> {self.after}"


class PathMap:
    """Replaces paths in texts, and records which paths occurred."""

    def __init__(self, paths: Mapping[str, str]):
        """Set the map from container paths to paths of this machine."""
        self._paths = {path: target for path, target in paths.items() if path != "/"}
        longest_first = sorted(self._paths, key=len, reverse=True)
        alternatives = "|".join(re.escape(path) for path in longest_first)
        # The first group prevents a match inside a longer path, and the last group prevents a match inside a longer
        # component. For example, /root matches in "/root/start.sh", and does not match in "/x/root" or "/rooted".
        self._pattern = re.compile(rf"(?<![\w./)}}-])(?:{alternatives})(?![\w.-])") if alternatives else None
        self.met: set[str] = set()

    def replace(self, text: str, quote: Callable[[str], str] = str) -> str:
        """Return the text with every known path replaced; `quote` is applied to each inserted path."""

        def target(match: re.Match[str]) -> str:
            self.met.add(match.group())
            return quote(self._paths[match.group()])

        return self._pattern.sub(target, text) if self._pattern else text

    def replace_command(self, words: Sequence[str]) -> list[str]:
        """Return a command line with its paths replaced; in the script of a `bash -c` the new paths are quoted."""
        in_shell = bool(words) and words[0].rsplit("/", 1)[-1] in SHELLS
        result: list[str] = []
        for word in words:
            is_script = in_shell and bool(result) and result[-1].startswith("-") and result[-1].endswith("c")
            result.append(self.replace(word, shlex.quote if is_script else str))
        return result
