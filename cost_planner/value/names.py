"""Names of compared runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cost_planner.value.trained import name_of
from siafu.baseline import BaselineConfig
from siafu.config import Config

#: Settings that do not make a run another contender: seeds, and what only says where it
#: is written or how it is followed.
SAME = (
    "train.seed",
    "train.target_acc",
    "data.seed",
    "data.keep_aggregate",
    "baseline.timeout_s",
    "data.parts",
    "baseline.ranks",
)
SAME_SECTIONS = ("run.", "cloud.")


def names_apart(configs: Sequence[Config]) -> list[str]:
    """A name for each run: backend and mode, and the settings in which runs of that name differ. If several settings
    differ, those at their defaults are left out."""
    parts = {config.data.parts for config in configs if not isinstance(config, BaselineConfig)}
    apart = len(parts) > 1  # then all graph servers say how many; a baseline says its ranks always
    plain = [_plain(config, apart=apart) for config in configs]
    settings = [_settings(config) for config in configs]
    usual = _settings(Config()) | _settings(BaselineConfig())
    names = []
    for name, mine in zip(plain, settings, strict=True):
        namesakes = [other for other_name, other in zip(plain, settings, strict=True) if other_name == name]
        differing = [key for key in mine if len({other.get(key) for other in namesakes}) > 1]
        told = [key for key in differing if len(differing) == 1 or mine[key] != usual.get(key)]
        names.append(" ".join([name, *(_said(key, mine[key]) for key in told)]))
    return names


def _said(key: str, value: str) -> str:
    field = key.partition(".")[2]
    if key == "model.name":
        return value
    return field if value == "True" else f"{field}={value.strip('(),')}"


def _settings(config: Config) -> dict[str, str]:
    """A contender's settings as text, by key, without its parts."""
    return {
        key: str(value) for key, value in config.flat().items() if key not in SAME and not key.startswith(SAME_SECTIONS)
    }


def _plain(config: Config, *, apart: bool) -> str:
    """The name without settings. A baseline's parts follow from its method and ranks."""
    says = apart and not isinstance(config, BaselineConfig)
    return name_of(config) + f" parts={config.data.parts}" * says
