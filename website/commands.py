"""The page of all commands, made of the parsers of the verbs."""

from __future__ import annotations

import argparse
import importlib

from siafu.__main__ import SIAFU
from siafu.parser import Parser

HEAD = """# Commands

Every flag of every command. This page is made of the parsers that print `siafu VERB --help`; where that shows only the
most used flags, `--help-all` shows all. Every command takes `--verbose`, which prints the log and remote tracebacks on
stderr.
"""


def page() -> str:
    """Markdown: a section for each verb."""
    return "\n".join([HEAD, *(_verb(word, module, what) for word, (module, what) in SIAFU.verbs.items())])


def _verb(word: str, module: str, what: str) -> str:
    parser = Parser(prog=f"siafu {word}", add_help=False)
    importlib.import_module(module).add_arguments(parser)
    lines = [f"## siafu {word}", "", (parser.description or f"{what[0].upper()}{what[1:]}.").strip(), ""]
    lines += _code(parser.format_usage().removeprefix("usage: "))
    for group in parser._action_groups:
        if rows := [_row(parser, action) for action in group._group_actions if action.help is not argparse.SUPPRESS]:
            title = {"positional arguments": "argument", "options": "flag"}.get(group.title or "", group.title)
            lines += [group.description, ""] if group.description else []
            lines += [f"| {title} | |", "|---|---|", *rows, ""]
    if parser.epilog:
        lines += _code(parser.epilog)
    return "\n".join(lines)


def _row(parser: Parser, action: argparse.Action) -> str:
    shown = argparse.HelpFormatter(parser.prog)
    invocation = shown._format_action_invocation(action).replace("|", "&#124;").replace("<", "&lt;")
    said = shown._expand_help(action) if action.help else ""
    return f"| <code>{invocation}</code> | {_text(said)} |"


def _text(said: str) -> str:
    """Words, none of which is taken for markup."""
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;"), ("*", "\\*"), ("_", "\\_"), ("`", "\\`")):
        said = said.replace(sign, instead)
    return " ".join(said.split())


def _code(text: str) -> list[str]:
    return ["```text", text.strip("\n"), "```", ""]
