"""Run directories as servers and ranks leave them, written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from siafu import config as configs
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.tasks import Kind

SCORES = (0.3, 0.5, 0.7, 0.8)


def write(
    folder: Path,
    config: Config,
    scores: Sequence[float] = SCORES,
    *,
    epoch_s: float = 100.0,
    trace: bool = False,
    finished: bool = True,
) -> Path:
    """A run whose epochs take ``epoch_s``, each evaluated."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(configs.dump(config))
    manifest = {
        "siafu": "0.1.0",
        "machine": "Linux",
        "cores": 2,
        "started": "2026-11-22T08:00:00+0000",
        "seed": config.train.seed,
        "graph": {"name": "toy", "vertices": 34, "edges": 156, "features": 5, "classes": 2},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    records: list[dict[str, Any]] = [{"event": "start"}]
    for epoch, score in enumerate(scores):
        records += [
            {
                "event": "epoch",
                "epoch": epoch + 1,
                "loss": 1.0,
                "time_s": (epoch + 1) * epoch_s,
                "epoch_s": epoch_s,
                **_of_epoch(config, epoch, epoch_s),
            },
            {
                "event": "evaluation",
                "epoch": epoch + 1,
                "time_s": (epoch + 1) * epoch_s + 1,
                "train": {"acc": 1.0},
                "val": {"acc": score, "loss": 0.1},
                "test": {"acc": score},
            },
        ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if finished:
        result = {"stopped": "epochs", "metric": "accuracy", "test_acc": scores[-1], "bytes_per_link": _links(config)}
        if not isinstance(config, BaselineConfig):
            train = {"tensor_tasks": 88, "ghost_bytes": 0, "compute_s": 4.0}
            result["lanes"] = {"train": train, "eval": {"tensor_tasks": 12, "ghost_bytes": 0, "compute_s": 1.0}}
        (folder / "result.json").write_text(json.dumps(result))
    if trace:
        for server in range(config.data.parts):
            lines = _trace(server, len(scores), epoch_s)
            (folder / f"trace-{server}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def servers(backend: str = "cpu", mode: str = "pipe", **changes: Any) -> Config:
    return Config().replace({"servers.backend": backend, "train.mode": mode, "data.parts": 2, **changes})


def baseline(method: str = "vanilla", **changes: Any) -> BaselineConfig:
    return BaselineConfig().replace({"baseline.method": method, "train.mode": "pipe", **changes})


def _of_epoch(config: Config, epoch: int, epoch_s: float) -> dict[str, Any]:
    if isinstance(config, BaselineConfig):
        return {
            "seconds": {"compute": 0.6 * epoch_s, "communicate": 0.4 * epoch_s, "reduce": 0.0},
            "bytes": {"halo": 80},
        }
    done = epoch + 1
    usage = {
        "GA_s": 2.0 * done,
        "AV_s": 5.0 * done,
        "AV_B_s": 7.0 * done,
        "eval_s": 1.0 * done,
    }
    if config.servers.backend == "lambda":
        usage |= {"invocations": 4, "gb_s": 100.0 * done}
    return {"staleness": [6, 2] if config.train.mode == "async" else [8], "usage": usage, "usd": 0.0}


def _links(config: Config) -> list[list[int]]:
    parts = config.baseline.ranks if isinstance(config, BaselineConfig) else config.data.parts
    return [[0 if a == b else 1000 * (a + 1) for b in range(parts)] for a in range(parts)]


def _trace(server: int, epochs: int, epoch_s: float, begun: float = 5000.0) -> list[dict[str, Any]]:
    """One interval: GA from 10% to 30% of an epoch, waiting before; AV answered at 80% after 20% of computing."""
    lines = []
    for epoch in range(epochs):
        zero = begun + epoch * epoch_s
        for event, pc, kind, at, more in [
            ("start", 0, Kind.GA, 0.0, {}),
            ("begin", 0, Kind.GA, 0.1, {}),
            ("done", 0, Kind.GA, 0.3, {}),
            ("start", 1, Kind.AV, 0.3, {}),
            ("answered", 1, Kind.AV, 0.8, {"compute_s": 0.2 * epoch_s}),
            ("done", 1, Kind.AV, 0.8, {}),
            ("start", 2, Kind.WU, 0.8, {}),
            ("done", 2, Kind.WU, 1.0, {}),
        ]:
            lines.append(
                {
                    "time_s": zero + at * epoch_s,
                    "event": event,
                    "lane": "train",
                    "epoch": epoch + 1,
                    "interval": server,
                    "pc": pc,
                    "step": f"{kind.value}0",
                    "slowest": epoch,
                    **more,
                }
            )
    return lines
