"""``siafu completion``: a script with which a shell completes siafu's verbs, flags, their values, and files.

It is written from the parsers of all verbs, once: a TAB starts no Python.
"""

from __future__ import annotations

import argparse
import importlib

import shtab

from siafu.parser import offered

SHELLS = ("bash", "zsh", "fish")
#: Words of a metavar -> shtab's completion.
KINDS = {
    **dict.fromkeys(("FILE", "SOURCE", "MODEL", "NEW", "PATH"), shtab.FILE),
    **dict.fromkeys(("DIR", "FOLDER", "RUN"), shtab.DIRECTORY),
}

EXAMPLES = """install it once, and again after an update of siafu; new shells have it:
  bash  mkdir -p ~/.local/share/bash-completion/completions && siafu completion bash > $_/siafu
        (needs the system's package bash-completion)
  zsh   mkdir -p ~/.zfunc && siafu completion zsh > $_/_siafu
        (needs fpath+=~/.zfunc before compinit in ~/.zshrc)
  fish  siafu completion fish > ~/.config/fish/completions/siafu.fish

examples:
  siafu completion bash > siafu.bash; source siafu.bash      in this shell alone
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu completion bash|zsh|fish"
    parser.description = "Print a script that completes verbs, flags, their values and file names in a shell."
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell that will read the script")


def main(args: argparse.Namespace) -> int:
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """Returns the completion script for ``siafu`` and its verbs."""
    program = importlib.import_module("siafu.__main__")  # by name: its table has this module
    parser, verbs = program.parsers(program.SIAFU, program.VERBS)
    for verb in verbs.values():
        for action in verb._actions:
            _complete(action)
    return str(shtab.complete(parser, shell))


def _complete(action: argparse.Action) -> None:
    """Tells shtab how to complete a flag or a word: by values, by files or by folders."""
    words = action.metavar.split("|") if isinstance(action.metavar, str) else []
    kinds = [KINDS[word] for word in words if word in KINDS]
    if values := offered(action):
        action.choices = values
    elif kinds:
        vars(action)["complete"] = kinds[0]
    elif len(words) > 1:
        action.choices = words
