"""``siafu/__init__.pyi``, what editors and type checkers read; ``make pages`` writes it.

``siafu.train`` and its like are there with every setting as a parameter (``run_coordinator.keywords``). Rejected: a
TypedDict with ``Unpack``, which shows no defaults and no meanings, and which jedi does not read.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

import siafu
from run_coordinator.keywords import Keyword

HEAD = '"""What editors and type checkers know of ``siafu``. Made by ``make pages``."""\n'
WIDTH = 120
#: Name -> module: ``siafu._ELSEWHERE``, which the stub does not tell.
LOADED: Mapping[str, str] = vars(siafu)["_ELSEWHERE"]
#: What the types of settings need.
ALWAYS = (("", "os"), ("typing", "Literal"))


def stub() -> str:
    """The whole file: an import of each name, but of functions with settings (``spelled_out``) the functions."""
    wanted, functions = set[tuple[str, str]](ALWAYS), []
    renamed, told = set(), dict[str, str]()  # meaning of settings that a function above has told
    for name, module in LOADED.items():
        found = getattr(siafu, name)
        if hasattr(found, "keywords"):
            wanted |= set(_imports(found))
            functions.append(_function(name, found, told))
            told |= {one.name: one.text for one in vars(found)["keywords"]}
        else:
            renamed.add((module, name))
    given = {(module, f"{name} as {name}") for module, name in renamed}
    lines = _import_lines((wanted - renamed) | given)
    return "\n".join([HEAD, *lines, "", "__version__: str", "__all__: list[str]\n", *functions])


def _function(name: str, function: Callable[..., Any], told: Mapping[str, str]) -> str:
    """With its docstring, and at its end the meanings of those settings that ``train``, the first, has not told."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not Parameter.KEYWORD_ONLY]
    keyword_only = [one for one in signature.parameters.values() if one.kind is Parameter.KEYWORD_ONLY]
    lines = [*map(_parameter, own), "    *,", *map(_parameter, keyword_only)]
    keywords, defaults = vars(function)["keywords"], vars(function)["defaults"]
    new = [one for one in keywords if told.get(one.name) != one.text]
    said = _docstring(inspect.getdoc(function) or "", new, defaults, others=len(new) < len(keywords))
    return "\n".join([f"def {name}(", *lines, f") -> {signature.return_annotation}:", *said, ""])


def _parameter(one: Parameter) -> str:
    shown = "" if one.default is Parameter.empty else " = ..."
    if one.default is not ... and not callable(one.default):
        shown = f" = {one.default!r}".replace("'", '"')
    return f"    {one.name}: {one.annotation}{shown},"


def _docstring(text: str, keywords: list[Keyword], defaults: str, *, others: bool) -> Iterator[str]:
    first, *lines = text.splitlines()
    yield f'    """{first}'
    yield from (f"    {line}" if line else "" for line in lines)
    where = f"docs/settings.md; siafu.train tells what {'the others' if keywords else 'they'} mean"
    where = where if others else "docs/settings.md"
    end = ":\n" if keywords else "."
    yield f"\n    Settings, {defaults or 'with the defaults of a run without config and preset'} ({where}){end}"
    for one in keywords:
        yield from textwrap.wrap(
            f"{one.name}: {one.text}", WIDTH - 8, initial_indent=" " * 4, subsequent_indent=" " * 8
        )
    yield '    """'


# --- imports ----------------------------------------------------------------------------------------------------------


def _imports(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """(module, name) of each name in the function's annotations, as the function's own module imports it."""
    module = function.__module__
    known: dict[str, tuple[str, str]] = {}
    for node in ast.parse(Path(str(importlib.import_module(module).__file__)).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            known |= {alias.name: (str(node.module), alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            known |= {alias.name: ("", alias.name) for alias in node.names}
    settings = {one.name for one in vars(function)["keywords"]}
    signature = inspect.signature(function)
    annotations = [one.annotation for one in signature.parameters.values() if one.name not in settings]
    parsed = [ast.parse(one, mode="eval") for one in [*annotations, signature.return_annotation]]
    for part in (part for one in parsed for part in ast.walk(one)):
        if isinstance(part, ast.Name) and not hasattr(builtins, part.id):
            yield known.get(part.id, (module, part.id))


def _import_lines(wanted: set[tuple[str, str]]) -> Iterator[str]:
    """In the order that ruff keeps: Python's modules, then ours."""
    ours = {module.partition(".")[0] for module in LOADED.values()}
    standard = {one for one in wanted if one[0].partition(".")[0] not in ours}
    yield from (f"import {name}" for module, name in sorted(standard) if not module)
    yield from _from_lines({one for one in standard if one[0]})
    yield ""
    yield from _from_lines(wanted - standard)


def _from_lines(wanted: set[tuple[str, str]]) -> Iterator[str]:
    """Of a module, plain names on one line, and each "x as x" on its own, by their first names."""
    by_module: Mapping[str, list[str]] = {
        module: sorted(name for other, name in wanted if other == module) for module, _ in sorted(wanted)
    }
    for module, names in by_module.items():
        plain = [name for name in names if " as " not in name]
        lines = [", ".join(plain)] * bool(plain) + [name for name in names if " as " in name]
        yield from (f"from {module} import {line}" for line in sorted(lines))


if __name__ == "__main__":
    print(stub(), end="")
