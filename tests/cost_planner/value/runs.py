"""Runs as they lie on the disk, without anybody who trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from siafu import config as configs
from siafu.config import Config
from siafu.pricing import cost


def write(
    folder: Path,
    config: Config,
    scores: list[float],
    *,
    epoch_s: float = 100.0,
    gb_s: float = 0.0,
    seconds: Mapping[str, float] | None = None,
    setup_s: float | None = 0.0,
    stopped: str = "epochs",
    cores: int = 0,
) -> Path:
    """A run whose epochs take ``epoch_s`` and use ``gb_s``, each evaluated, which takes 5 s;
    ``seconds``: of an epoch, by kind of step; ``setup_s``: None of an older version's; ``stopped``: "" if it is not
    finished; ``cores``: of its machine, 0 if it does not say."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(configs.dump(config))
    if stopped:
        (folder / "result.json").write_text(json.dumps({"stopped": stopped}))
    if cores:
        (folder / "manifest.json").write_text(json.dumps({"cores": cores, "machine": "Linux"}))
    records: list[dict[str, Any]] = [{"event": "start"} if setup_s is None else {"event": "start", "setup_s": setup_s}]
    for epoch, score in enumerate(scores):
        at, used = (epoch + 1) * epoch_s, (epoch + 1) * gb_s
        usage = {"invocations": 2 * (epoch + 1), "gb_s": used}
        usage |= {name: (epoch + 1) * spent for name, spent in (seconds or {}).items()}
        usd = cost.lambda_usd(usage["invocations"], used) if config.servers.backend == "lambda" else 0.0
        records += [
            {"event": "epoch", "epoch": epoch + 1, "time_s": at, "usage": usage, "usd": usd},
            {
                "event": "evaluation",
                "epoch": epoch + 1,
                "time_s": at + 5,
                "train": {"acc": 1.0},
                "val": {"acc": score, "loss": 0.1},
                "test": {"acc": score - 0.1, "loss": 0.2},
            },
        ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder
