"""Which settings have an effect in a run: a value without effect is refused, not silently accepted. Pure.

A value that is the default is never refused: it asks for nothing. ``tests/run_coordinator/test_conditions.py`` has the
keys that need no condition, so that a new setting is not forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from siafu.config import Config
from siafu.errors import ConfigError
from siafu.places import PLACES


class Condition(NamedTuple):
    holds: Callable[[Config], bool]
    needs: str  # in words


_ASYNC = Condition(lambda c: c.train.mode == "async", "train.mode = async")
_LAMBDA = Condition(lambda c: c.servers.backend == "lambda", "servers.backend = lambda")
_STEP = Condition(lambda c: c.train.schedule == "step", "train.schedule = step")
_NOT_BILLED = [name for name, place in PLACES.items() if not place.billed]

NEEDS: dict[str, Condition] = {
    "train.momentum": Condition(lambda c: c.train.optimizer == "sgd", "train.optimizer = sgd"),
    "train.step_epochs": _STEP,
    "train.step_factor": _STEP,
    "train.freshness": _ASYNC,
    "train.warmup_epochs": _ASYNC,
    "train.ahead": Condition(
        lambda c: c.train.mode == "async" and c.train.staleness > 0, "train.mode = async and train.staleness > 0"
    ),
    "servers.device": Condition(lambda c: c.servers.backend == "gpu", "servers.backend = gpu"),
    **{
        f"lambda.{key}": _LAMBDA
        for key in Config().to_dict()["lambda"]
        if key != "region"  # servers are priced, and deployed, by it too
    },
    "lambda.cpu_share": Condition(
        lambda c: c.servers.backend == "lambda" and not c.lambdas.place.billed,
        f"servers.backend = lambda, and lambda.on = {' or '.join(_NOT_BILLED)} (AWS itself limits its functions)",
    ),
}


def idle(config: Config) -> dict[str, Any]:
    """Settings that differ from their defaults and have no effect: key -> default. ``auto`` must be resolved before."""
    mine, usual = config.flat(), Config().flat()
    return {
        key: usual[key] for key, condition in NEEDS.items() if mine[key] != usual[key] and not condition.holds(config)
    }


def refuse(config: Config, said: Collection[str]) -> None:
    """Raises ConfigError for the first key of ``said`` that has no effect."""
    for key in idle(config):
        if key in said:
            raise ConfigError(f"{key} = {config.flat()[key]}: has no effect, it needs {NEEDS[key].needs}")
