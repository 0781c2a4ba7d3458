"""Asking before money is spent or data is lost."""

from __future__ import annotations

import sys

from siafu.errors import ConfigError, GnnError


def ask(question: str) -> None:
    """Asks the user, and returns if the answer is yes. ConfigError if nobody can be asked, GnnError for any other
    answer."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to ask in: add --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise GnnError("nothing was done")
