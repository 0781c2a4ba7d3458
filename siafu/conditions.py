"""When a setting means something: a value that would do nothing is refused, instead of accepted in silence. Pure.

Every key of a config is in one of three places: ``ALWAYS``, ``CHECKED`` (who else refuses it), or ``NEEDS``. A value that is
the default is never refused: it asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from siafu.config import Config
from siafu.errors import ConfigError


class Condition(NamedTuple):
    holds: Callable[[Config], bool]
    needs: str  # in words


_ASYNC = Condition(lambda c: c.train.mode == "async", "train.mode = async")
_LAMBDA = Condition(lambda c: c.servers.backend == "lambda", "servers.backend = lambda")
_STEP = Condition(lambda c: c.train.schedule == "step", "train.schedule = step")

NEEDS: dict[str, Condition] = {
    "train.momentum": Condition(lambda c: c.train.optimizer == "sgd", "train.optimizer = sgd"),
    "train.step_epochs": _STEP,
    "train.step_factor": _STEP,
    "train.freshness": _ASYNC,
    "train.stale_gradients": _ASYNC,
    "train.stale_rows": _ASYNC,
    "train.stale_lr": _ASYNC,
    "train.warmup_epochs": _ASYNC,
    "train.ahead": Condition(
        lambda c: c.train.mode == "async" and c.train.staleness > 0, "train.mode = async and train.staleness > 0"
    ),
    "train.smoothing": Condition(
        lambda c: c.train.mode == "async" and "smooth" in (c.train.stale_gradients, c.train.stale_rows),
        "train.stale_rows or train.stale_gradients = smooth",
    ),
    "train.freeze_epochs": Condition(
        lambda c: c.train.mode == "async" and c.train.stale_rows == "freeze", "train.stale_rows = freeze"
    ),
    "servers.device": Condition(lambda c: c.servers.backend == "gpu", "servers.backend = gpu"),
    **{
        f"lambda.{key}": _LAMBDA
        for key in Config().to_dict()["lambda"]
        if key != "region"  # servers are priced, and deployed, by it too
    },
}
#: Key -> who refuses it where it does nothing.
CHECKED = {
    **dict.fromkeys(("data.val_edges", "data.test_edges", "data.negatives", "data.eval_negatives"), "run_coordinator.api.fit"),
    **dict.fromkeys(
        (
            "model.activation", "model.dropout", "model.norm", "model.residual", "model.jump", "model.heads", "model.out_heads",
            "model.attn_dropout", "model.slope", "model.alpha", "model.theta", "model.hops", "model.eps", "model.train_eps",
            "model.bases", "model.narrow", "model.decoder",
        ),
        "siafu.models.build",
    ),
    **dict.fromkeys(("model.layers", "model.hidden", "train.weight_decay_rest", "run.write"), "run_coordinator.api.built"),
    **dict.fromkeys(("data.inductive", "train.staleness"), "siafu.config"),
}  # fmt: skip
ALWAYS = {
    f"{section}.{key}"
    for section, keys in {
        "data": "source parts partitioner order directed feature_norm split seed train_per_class val_per_class cache_dir "
        "keep_aggregate task",
        "model": "name bias init outputs rows dtype",
        "train": "epochs lr optimizer weight_decay clip_norm label_smoothing warm_start schedule seed mode intervals eval_every "
        "target_acc patience stop_on",
        "servers": "param_servers backend threads listen ports start_timeout_s heartbeat_s silence_s security stall_s",
        "lambda": "region",
        "run": "dir trace checkpoint_every checkpoint_seconds keep checkpoint_to restarts on_nan on budget_usd max_seconds loggers",
        # Of a deployment: siafu deploy reads them from the same file.
        "cloud": "name graph_instance param_instance gpu_instance spot volume_gib zone shell arch reserved ttl_hours monthly_usd "
        "email bucket ray_address",
    }.items()
    for key in keys.split()
}


def idle(config: Config) -> dict[str, Any]:
    """Settings that differ from their defaults and do nothing: key -> default. ``auto`` must be decided."""
    mine, usual = config.to_dict(), Config().to_dict()
    found = {}
    for key, condition in NEEDS.items():
        section, _, name = key.partition(".")
        if mine[section][name] != usual[section][name] and not condition.holds(config):
            found[key] = usual[section][name]
    return found


def refuse(config: Config, said: Collection[str]) -> None:
    """ConfigError for the first key of ``said`` that does nothing."""
    for key in idle(config):
        if key in said:
            section, _, name = key.partition(".")
            raise ConfigError(f"{key} = {config.to_dict()[section][name]}: does nothing, it needs {NEEDS[key].needs}")
