"""What a plan may choose, and what the user holds fixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cost_planner.plan.epochs import Epochs
from cost_planner.plan.graphs import Graph
from cost_planner.plan.speeds import Speeds
from siafu.config import Config
from siafu.evaluation import usual_eval_every
from siafu.places import CORE_MB

Backend = Literal["cpu", "lambda", "gpu", "vanilla"]
Mode = Literal["pipe", "async", "no-pipe"]
#: The last is none of siafu's backends, but the baseline.
BACKENDS: tuple[Backend, ...] = ("cpu", "lambda", "gpu", "vanilla")
MODES: tuple[tuple[Mode, int], ...] = (("pipe", 0), ("async", 0), ("async", 1), ("no-pipe", 0))
MEMORIES_MB = (192, 512, 1024, CORE_MB)
#: An account's environments at once in a region, unless it has asked for more.
CONCURRENCY = 1000


@dataclass(frozen=True)
class Asked:
    """The values that the user holds fixed; None: every value is tried."""

    config: Config
    graph: Graph
    epochs: Epochs
    speeds: Speeds
    instances: Sequence[str] | None = None
    servers: Sequence[int] | None = None
    backends: Sequence[Backend] = BACKENDS
    modes: Sequence[tuple[Mode, int]] = MODES
    memories_mb: Sequence[int] = MEMORIES_MB
    lambdas: int | None = None  # of a server; 0: the autotuner's
    intervals: int | None = None
    concurrency: int = CONCURRENCY
    max_vcpus: float = math.inf  # of all EC2 machines together
    random_share: float = 1.0  # of a memory's bandwidth, what rows at random get: the calibrated machine's

    def __post_init__(self) -> None:
        if self.config.train.eval_every < 0:
            every = usual_eval_every(self.graph.manifest(1))
            object.__setattr__(self, "config", self.config.replace({"train.eval_every": every}))
