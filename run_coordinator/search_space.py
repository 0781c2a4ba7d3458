"""The points of a search: every combination of listed values, or random draws from lists and ranges. Pure.

"16,32,64"  or a list        values, one by one; a value of several numbers has spaces in it: "64 32,16"
"0.1..0.6"                   a range, drawn from evenly; of whole numbers where the setting is one
"1e-4..1e-1:log"             a range whose logarithm is drawn from evenly
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from run_coordinator import run_config
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError

#: Of a number that is drawn: enough to tell draws apart, and short in a table.
DIGITS = 4
#: So many draws in vain, and there are no more points to be had.
DRAWS_IN_VAIN = 1000

_RANGE = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+?)(:log)?\s*")


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    log: bool
    whole: bool

    def draw(self, rng: random.Random) -> float | int:
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = rng.uniform(self.low, self.high)
        return round(value) if self.whole else float(f"{value:.{DIGITS}g}")


Choices = tuple[Any, ...]
Space = Mapping[str, Choices | Range]  # by "section.key"


def parse(space: Mapping[str, Any], fixed: Collection[str] = ()) -> Space:
    """The space with full names and parsed values. ConfigError naming the setting and its fault. ``fixed``: settings
    given explicitly beside the space, which may not be in it; values of a file or preset may, and the space replaces
    them."""
    parsed: dict[str, Choices | Range] = {}
    for name, values in space.items():
        key = run_config.SHORT.get(name.replace("-", "_"), name)
        if key.partition(".")[0] in ("run", "cloud") or key in ("train.seed", "data.source"):
            raise ConfigError(f"search over {name}: is not a setting of the model or its training")
        if key in parsed:
            raise ConfigError(f"search over {name}: {key} is there twice, give all its values in one")
        if key in fixed:
            raise ConfigError(f"search over {name}: {key} is also given one value; leave one of the two out")
        parsed[key] = _values(name, key, values)
    if not parsed:
        raise ConfigError("nothing to search over: give --grid KEY=VALUE,..., such as --grid train.lr=0.01,0.005")
    return parsed


def _values(name: str, key: str, values: Any) -> Choices | Range:
    if isinstance(values, str):
        if found := _RANGE.fullmatch(values):
            return _range(name, key, found[1], found[2], bool(found[3]))
        values = [value.strip() for value in values.split(",")]
    values = getattr(values, "tolist", lambda: values)()  # of numpy.logspace
    if not isinstance(values, Sequence) or not len(values):
        raise ConfigError(f"search over {name} = {values!r}: must be values, or LOW..HIGH with :log or without")
    return tuple(dict.fromkeys(configs.parsed(key, value) for value in values))


def _range(name: str, key: str, first: str, last: str, log: bool) -> Range:
    default = Config().flat().get(key)
    one = default[0] if isinstance(default, tuple) and default else default
    if isinstance(one, bool) or not isinstance(one, int | float):
        raise ConfigError(f"search over {name}: a range is for numbers, {key} needs values with commas between")
    try:
        low, high = float(first), float(last)
    except ValueError:
        low = high = math.nan
    if not (low < high and math.isfinite(high - low)) or (log and low <= 0):
        limits = "LOW < HIGH" + (" and LOW > 0" if log else "")
        raise ConfigError(f"search over {name} = {first}..{last}: must be two numbers, {limits}")
    return Range(low, high, log, isinstance(one, int))


def points(space: Space, num_random: int, seed: int) -> list[dict[str, Any]]:
    """The settings to try: all combinations, or ``num_random`` different draws (fewer if there are no more). With more
    draws, a seed's first draws stay the same. ConfigError for a range without ``num_random``."""
    if num_random:
        return _drawn(space, num_random, random.Random(seed))
    listed = {}
    for key, values in space.items():
        if isinstance(values, Range):
            raise ConfigError(f"search over {key}: a range needs --random N, how often to draw from it")
        listed[key] = values
    return [dict(zip(listed, combination, strict=True)) for combination in itertools.product(*listed.values())]


def _drawn(space: Space, number: int, rng: random.Random) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    in_vain = 0
    while len(found) < number and in_vain < DRAWS_IN_VAIN:
        point = {
            key: values.draw(rng) if isinstance(values, Range) else rng.choice(values) for key, values in space.items()
        }
        known = tuple(point.values())
        in_vain = in_vain + 1 if known in found else 0
        found.setdefault(known, point)
    return list(found.values())


def written(value: Any) -> str:
    """A value as --set takes it."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
