"""The settings that ``siafu.train`` and others take as ``**short``, each as a keyword-only parameter.

Nobody can complete or look up ``**short``. So the functions' signatures name every setting with its type and default:
notebooks and ``help`` read them, and ``website.stub`` writes them down for editors and type checkers.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, NamedTuple, TypeVar

from graph_data.source_flags import OPTIONS, SOURCE_FLAGS
from siafu import config as configs
from siafu.baseline import BaselineConfig
from siafu.setting import Setting

F = TypeVar("F", bound=Callable[..., Any])

PATH = "os.PathLike[str]"
#: Metavariables of settings that name a place on the disk.
OF_PATHS = ("DIR", "MODEL")


class Keyword(NamedTuple):
    name: str
    type: str  # as Python writes it
    default: object
    text: str

    @property
    def parameter(self) -> Parameter:
        return Parameter(self.name, Parameter.KEYWORD_ONLY, default=self.default, annotation=self.type)


def spelled_out(names: Sequence[str], *, tables: bool = False, defaults: str = "") -> Callable[[F], F]:
    """A decorator: the function's signature has these settings in place of ``**short``.

    names: flags, as in ``siafu.setting``. tables: also the options of the source (``graph_data.source_flags``).
    defaults: the owner of the defaults, if that is not a config.
    """

    def marked(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        found = [
            one
            for one in _keywords(names, OPTIONS if tables else (), bool(defaults))
            if one.name not in signature.parameters
        ]
        whole = signature.replace(parameters=[*own, *(one.parameter for one in found)])
        function.__dict__.update(__signature__=whole, keywords=found, defaults=defaults)
        return function

    return marked


def _keywords(names: Sequence[str], options: Sequence[str], others_defaults: bool) -> list[Keyword]:
    """A setting and an option of the source may have the same name: ``split`` is a number or a file."""
    said, keys = configs.settings(BaselineConfig), configs.flags(BaselineConfig)
    found = []
    for name in names:
        key = keys[name]
        hint, default = configs.type_and_default(key, BaselineConfig)
        kind = type_of(hint, said[key]) + (f" | str | {PATH}" if name in options else "")
        found.append(Keyword(name, kind, ... if others_defaults else default, said[key].text))
    for flag, (takes, what) in SOURCE_FLAGS.items():
        name = flag.replace("-", "_")
        if name in options and name not in names:
            kind = "int" if takes in ("N", "R") else f"str | {PATH}" if "FILE" in takes else "str"
            found.append(Keyword(name, kind, ..., what))
    return found


def type_of(hint: Any, said: Setting) -> str:
    """The type of a setting's argument: a number with a unit may be text, a single width needs no list."""
    if typing.get_origin(hint) is typing.Literal:
        return f"Literal[{', '.join(json.dumps(word) for word in typing.get_args(hint))}]"
    if typing.get_origin(hint) is tuple:
        one = typing.get_args(hint)[0].__name__
        return f"{one} | list[{one}] | tuple[{one}, ...]"
    if said.unit is not None:
        return f"{hint.__name__} | str"
    return f"str | {PATH}" if said.metavar in OF_PATHS else str(hint.__name__)
