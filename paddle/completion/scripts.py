"""The completion scripts for bash and zsh."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from paddle.completion.tables import CommandWords

PROGRAMS = ("paddle", "start_paddle.py")
BODY = r"""
_paddle_complete() {
    local IFS=$'\n' program=${COMP_WORDS[0]##*/} current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local place=$program flag='' value='' prefix='' equals='' words file i
    for ((i = 1; i < COMP_CWORD; i++)); do
        words=$(_paddle_words "$place ${COMP_WORDS[i]}")
        [ -n "$words" ] || break
        place="$place ${COMP_WORDS[i]}"
    done
    COMPREPLY=()
    # bash splits --job=train into three words, zsh does not
    if [[ $current == "=" ]]; then
        flag=$before equals=1
    elif [[ $before == "=" ]]; then
        flag=${COMP_WORDS[COMP_CWORD-2]} value=$current equals=1
    elif [[ $current == -*=* ]]; then
        flag=${current%%=*} value=${current#*=} equals=1
        prefix="$flag="
    elif [[ $current != -* ]]; then
        flag=$before value=$current
    fi
    words=''
    if [[ $flag == -* ]]; then
        words=$(_paddle_values "$place $flag")
    elif [[ $current != -* ]]; then
        words=$(_paddle_values "$place ")
    fi
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -P "$prefix" -W "$words" -- "$value"))
    elif [ -n "$prefix" ]; then
        # zsh's compgen -f would treat the flag as a part of the file's name, so the loop lists the files
        while IFS= read -r file; do
            [ ! -e "$file" ] || COMPREPLY+=("$prefix$file")
        done < <({ printf '%s\n' "$value"*; } 2>/dev/null)
    elif [ -z "$equals" ]; then
        words=$(_paddle_words "$place")
        # after a dash, offer flags; otherwise, offer commands or, if there are none, file names
        [[ $current == -* ]] || words=$(printf '%s\n' "$words" | grep -v '^-')
        [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[*]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}
"""


def make_script(shell: str, tables: Mapping[str, CommandWords]) -> str:
    """Return the script for a shell, `bash` or `zsh`."""
    lines = ["# shellcheck disable=SC2207", f"# made by `paddle completion {shell}`"]
    if shell == "zsh":
        lines += ["autoload -U +X compinit && compinit -u", "autoload -U +X bashcompinit && bashcompinit"]
    words = {path: [*one.commands, *one.flags] for path, one in tables.items()}
    values = {f"{path} {flag}": chosen for path, one in tables.items() for flag, chosen in one.values.items()}
    lines += [*_make_case("_paddle_words", words), *_make_case("_paddle_values", values)]
    lines += [BODY.strip(), *(f"complete -o default -F _paddle_complete {program}" for program in PROGRAMS)]
    return "\n".join(lines) + "\n"


def _make_case(function: str, table: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the lines of a shell function that prints the words of the table for its argument, one per line."""
    cases = [
        f"    {shlex.quote(key)}) printf '%s\\n' {' '.join(map(shlex.quote, words))} ;;" for key, words in table.items()
    ]
    return [f"{function}() {{", '    case "$1" in', *cases, "    esac", "}"]
