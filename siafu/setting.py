"""The definition of a setting (its default, meaning, flag and bounds), and the parsing of its values.

    epochs: int = setting(200, "passes over the graph, at most", flag="epochs", metavar="E", least=0)

is a field of a section of ``siafu.config``. Help texts, docs/settings.md, the flags of every verb, the keywords of
``siafu.train`` and the limits of values all follow from that line.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from siafu.errors import ConfigError, one_of

T = TypeVar("T")


@dataclass(frozen=True)
class Unit:
    """The units in which a number may be written."""

    words: str  # the requirement, for errors
    factors: Mapping[str, float]  # by unit, in lower case
    any_case: bool = False  # accept any case; else 5M (minutes, months or millions) is refused

    def read(self, text: str) -> float:
        """Parses a number with a unit. Raises: ValueError."""
        found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([A-Za-z/]*)", text.strip())
        unit = "" if found is None else found[2].lower() if self.any_case else found[2]
        if found is None or unit not in self.factors:
            raise ValueError(text)
        return float(found[1]) * self.factors[unit]


BYTES = {
    "": 1,
    "b": 1,
    **{unit + b: 1000**power for power, unit in enumerate("kmgt", 1) for b in ("", "b")},
    **{f"{unit}ib": 1024**power for power, unit in enumerate("kmgt", 1)},
}
SECONDS = Unit(
    "seconds, or a number and one of us, ms, s, m, h, d: 90, 5ms, 30m, 2h",
    {"": 1, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400},
)
BYTES_PER_S = Unit(
    "bytes per second: 25MB, 1GiB or a number",
    {**BYTES, **{f"{unit}/s": factor for unit, factor in BYTES.items() if unit}},
    any_case=True,
)


@dataclass(frozen=True)
class Setting:
    """The description of a setting, besides its name, type and default."""

    text: str  # for help and docs
    flag: str  # of the command line, and the keyword of siafu.train: with _ for -; "" for --set alone
    common: bool  # whether --help shows it: --help-all shows all
    metavar: str
    least: float | None
    most: float | None
    unit: Unit | None


def setting(
    default: T,
    text: str,
    *,
    flag: str = "",
    common: bool = False,
    metavar: str = "",
    least: float | None = None,
    most: float | None = None,
    unit: Unit | None = None,
) -> T:
    """Makes the field of a dataclass."""
    said = Setting(text, flag, common, metavar, least, most, unit)
    return dataclasses.field(default=default, metadata={"setting": said})


def _settings_of(section: Any) -> Mapping[str, Setting]:
    return {field.name: field.metadata["setting"] for field in dataclasses.fields(section)}


#: Types and settings of a section's fields, by name. Cached: every config asks for every setting.
types_of: Callable[[Any], Mapping[str, Any]] = cache(typing.get_type_hints)
settings_of: Callable[[Any], Mapping[str, Setting]] = cache(_settings_of)


def check_bounds(section: Any, name: str) -> None:
    """Checks the bounds of all fields of a section. Raises: ConfigError for the first value outside of them."""
    for key, said in settings_of(type(section)).items():
        value = getattr(section, key)
        if said.least is not None and not value >= said.least:
            raise ConfigError(f"{name}.{key} = {value}: must be >= {said.least}")
        if said.most is not None and not value <= said.most:
            raise ConfigError(f"{name}.{key} = {value}: must be <= {said.most}")


def converted(key: str, value: Any, hint: Any, unit: Unit | None = None) -> Any:
    """Converts ``value`` to the field's type; parses strings. Raises: ConfigError if that fails."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        if value not in typing.get_args(hint):
            raise ConfigError(f"{key} = {value!r}: {one_of(value, typing.get_args(hint))}")
        return value
    if origin is tuple:
        items = re.split(r"[ ,\[\]]+", value.strip(" []")) if isinstance(value, str) else value
        items = items if isinstance(items, (list, tuple)) else [items]
        return tuple(converted(key, item, typing.get_args(hint)[0]) for item in items)
    assert not isinstance(hint, types.UnionType), key
    try:
        if hint is bool:
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if hint is int:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            return int(value)
        if hint is float:
            number = _number(value, unit)
            if isinstance(value, bool) or not math.isfinite(number):
                raise ValueError
            return number
        text = os.fspath(value)  # also of a Path: run_dir, warm_start
        if not isinstance(text, str):
            raise ValueError
        text.encode()
        return text
    except UnicodeEncodeError:
        raise ConfigError(f"{key} = {value!r}: a name that is not UTF-8: rename it") from None
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ConfigError(f"{key} = {value!r}: must be {unit.words if unit else _article(hint)}") from None


def _number(value: Any, unit: Unit | None) -> float:
    try:
        return float(value)
    except ValueError:
        if unit is None:
            raise
        return unit.read(value)


def _article(hint: type) -> str:
    return {int: "an integer", float: "a finite number", bool: "true or false", str: "a string"}[hint]
