"""Contenders: makes the configs to compare from a user's words, with one graph, one model and one target.

    lambda [async|pipe|no-pipe]   graph servers with Lambdas; async where no mode is said
    cpu [pipe|no-pipe|async]      graph servers alone; pipe where no mode is said
    gpu [pipe|no-pipe|async]      graph servers with a GPU each
    METHOD                        of ``siafu.baseline.METHODS``

and behind it settings of its own, KEY=VALUE: the name of a flag, a section.key, or s for the staleness. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from run_coordinator import run_config
from run_coordinator.baseline import settings
from siafu.baseline import METHODS, BaselineConfig, first_settings
from siafu.config import Config
from siafu.errors import ConfigError

#: Backend -> the mode that it has unless one is said.
BACKENDS = {"lambda": "async", "cpu": "pipe", "gpu": "pipe"}
MODES = ("async", "pipe", "no-pipe")
#: What "all" stands for.
ALL = (
    "lambda async",
    "lambda async s=1",
    "lambda pipe",
    "lambda no-pipe",
    "cpu pipe",
    "cpu async",
    "gpu pipe",
    *METHODS,
)
#: The task, equal for all of them; where and until when a run is belongs to the call.
EQUAL = ("data.source", "data.task", "data.split", "data.seed", "train.seed", "train.target_acc")
#: Of what servers alone heed (``settings.UNHEEDED``), what baselines are asked to do without: who is compared, not what
#: is learnt. The rest (links, jumping knowledge, a warm start) they refuse by name.
_OF_SERVERS = ("servers", "lambda", "cloud", "run", "train")
#: Stand in a name already.
_STALENESS = re.compile(r"(s|staleness|train\.staleness)=")
_RANKS = re.compile(r"(ranks|baseline\.ranks)=")


@dataclass(frozen=True)
class Asked:
    """One contender, as the user names it."""

    kind: str  # a key of BACKENDS or of METHODS
    mode: str  # "" of a method
    own: Mapping[str, str]  # settings by "section.key"
    words: tuple[str, ...]  # its own settings as they were written, but for the staleness
    tuned: str = ""  # the learning rate that ``tuning`` found: in its directories' names, not in its own

    @property
    def name(self) -> str:
        """The contender's name, as the user writes it: kind, mode and own settings; see ``labels``."""
        staleness = [f"s={self.own.get('train.staleness', 0)}"] if self.mode == "async" else []
        return " ".join(filter(None, [self.kind, self.mode, *staleness, *self.words]))

    @property
    def directory(self) -> str:
        """The prefix of its runs' directories."""
        return re.sub(r"[^A-Za-z0-9.=+-]+", "-", " ".join(filter(None, [self.name, self.tuned])))


def parse(text: str) -> list[Asked]:
    """Contenders in "lambda async s=1, cpu, sampling fanouts=25,10". A comma separates contenders, except before a
    digit. ConfigError for unknown or repeated contenders."""
    words = [part.split() for part in re.split(r",(?!\d)", text)]
    listed = [one for part in words if part for one in (map(str.split, ALL) if part == ["all"] else (part,))]
    found = [_parsed(part) for part in listed]
    if not found:
        raise ConfigError("--contenders: names no contender; " + _who())
    for number, one in enumerate(found):
        if one.directory in [other.directory for other in found[:number]]:
            raise ConfigError(f"--contenders: {one.name} is there twice")
    return found


def _parsed(words: Sequence[str]) -> Asked:
    kind, *rest = words
    said = " ".join(words)
    if kind not in BACKENDS and kind not in METHODS:
        raise ConfigError(f"--contenders {said}: unknown contender {kind}; " + _who())
    mode = rest.pop(0) if rest and rest[0] in MODES and kind in BACKENDS else BACKENDS.get(kind, "")
    own: dict[str, str] = {}
    for word in rest:
        name, equals, value = word.partition("=")
        if not equals:
            modes = f", or a mode first: {', '.join(MODES)}" if kind in BACKENDS else ""
            raise ConfigError(f"--contenders {said}: {word} must be KEY=VALUE{modes}")
        key = "train.staleness" if name == "s" else _key(name.replace("-", "_"), kind)
        if key in EQUAL or key.partition(".")[0] == "run":
            raise ConfigError(f"--contenders {said}: {name} must be equal for all of them")
        own[key] = value
    told = tuple(word for word in rest if _STALENESS.match(word) is None)
    return Asked(kind, mode, own, told)


def _key(name: str, kind: str) -> str:
    if kind in METHODS and name in settings.OWN:
        return settings.OWN[name]
    return run_config.SHORT.get(name, name)


def _who() -> str:
    return f"must be one of {', '.join(BACKENDS)} (each with a mode: {', '.join(MODES)}), {', '.join(METHODS)}, all"


def config_of(asked: Asked, base: Config, ranks: int) -> Config:
    """``base`` as this contender runs it; ``ranks``: of a baseline that does not set them. ConfigError for settings
    that it does not have, and for a base that it cannot run (``can_run``)."""
    if asked.kind in METHODS:
        return settings.resolve(asked.kind, "", _of_baseline(asked.kind, base, ranks), asked.own, {})
    changes: dict[str, Any] = {"servers.backend": asked.kind, "train.mode": asked.mode, "train.staleness": 0}
    lambdas = base.lambdas
    if asked.kind == "lambda" and lambdas.cpu_share == "auto" and not lambdas.place.billed:
        changes["lambda.cpu_share"] = "real"  # or its price would buy it more than on AWS
    return base.replace({**changes, **asked.own})


def labels(asked: Sequence[Asked], base: Config, ranks: int) -> dict[str, str]:
    """Directory -> label of each contender. ConfigError for two with the same name."""
    found: dict[str, str] = {}
    for one in asked:
        if (name := label(one, base, ranks)) in found.values():
            raise ConfigError(f"--contenders: {name} is there twice")
        found[one.directory] = name
    return found


def label(asked: Asked, base: Config, ranks: int) -> str:
    """The contender's name with its own settings, as ``trained.name_of`` names its runs: a baseline's name has its
    ranks."""
    if asked.kind not in METHODS:
        return asked.name
    usual = first_settings(asked.kind, base.model.name).get("baseline.ranks", ranks)
    number = asked.own.get("baseline.ranks", usual)
    words = [word for word in asked.words if _RANKS.match(word) is None]
    return " ".join([asked.kind, f"ranks={number}", *words])


def can_run(asked: Asked, base: Config, ranks: int) -> None:
    """Raises ConfigError, with the reason, if a method does not support the common model or task, or has nothing to do
    on its ranks: no mistake of the contender's own words."""
    if asked.kind not in METHODS:
        return
    settings.resolve(asked.kind, "", _of_baseline(asked.kind, base, ranks), {}, {})
    try:
        own = config_of(asked, base, ranks)
    except ConfigError:
        return  # a mistake in its own settings: ``config_of`` says so before anything is trained
    assert isinstance(own, BaselineConfig)
    if own.baseline.ranks == 1 and (own.baseline.depth or own.baseline.scheme != "none"):
        raise ConfigError(f"{asked.name} on one rank is vanilla: no rows travel (--ranks 2, or '{asked.kind} ranks=2')")


def _of_baseline(method: str, base: Config, ranks: int) -> BaselineConfig:
    sections: dict[str, dict[str, Any]] = {section: dict(values) for section, values in base.to_dict().items()}
    for key, kept in settings.UNHEEDED.items():
        section, _, name = key.partition(".")
        if section in _OF_SERVERS and key != "train.warm_start":
            sections[section][name] = kept
    sections["data"]["keep_aggregate"] = True
    config = BaselineConfig.from_dict({**sections, "baseline": {"ranks": ranks}})
    return config.replace(first_settings(method, base.model.name))
