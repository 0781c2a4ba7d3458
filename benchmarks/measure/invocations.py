"""What it costs to invoke a function at a place where Lambdas run: cold, warm, and many at a time.

The function is ``ping``: it returns at once, so that what is left is the way there and back.
"""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from graph_server.lambdas import launchers
from graph_server.lambdas.launchers import Ended, Launcher
from run_coordinator.lambda_emulator import lambda_site
from siafu.config import Config
from siafu.errors import WorkerError

PING = "lambda_funcs.handler.ping"
NUM_WARM, NUM_MANY = 50, 200
ABREAST = 4
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Invoking:
    """Milliseconds from ``invoke`` to the outcome."""

    cold_ms: float  # the first: the place makes an environment
    init_ms: float  # of it, by the place's own report
    warm_ms: float  # median of ``NUM_WARM`` one after another
    per_s: float  # of ``NUM_MANY``, ``ABREAST`` at a time


def measure(config: Config, run_dir: Path) -> Invoking:
    """At ``lambda.on``, which is started for it where it is ours to start.

    Raises ConfigError if it is not installed, WorkerError if it does not answer or an invocation fails."""
    ours = {"servers.backend": "lambda", "lambda.handler": PING, "lambda.count": ABREAST, "lambda.timeout_s": 60}
    config = config.replace(ours)
    outcomes: queue.SimpleQueue[tuple[float, Ended]] = queue.SimpleQueue()
    with lambda_site(config, run_dir) as site:
        launcher = launchers.build(
            site.config,
            0,
            ABREAST,
            lambda ended: outcomes.put((time.perf_counter(), ended)),
            run_dir / "logs" / "lambda-0",
        )
        try:
            cold_ms, first = _time(launcher, outcomes, "cold")
            warm_ms = median(_time(launcher, outcomes, f"warm-{i}")[0] for i in range(NUM_WARM))
            return Invoking(cold_ms, first.init_ms, warm_ms, _rate(launcher, outcomes))
        finally:
            launcher.close()


def _time(launcher: Launcher, outcomes: queue.SimpleQueue[tuple[float, Ended]], name: str) -> tuple[float, Ended]:
    begun = time.perf_counter()
    launcher.invoke({}, name)
    at, ended = outcomes.get(timeout=PATIENCE_S)
    return 1000 * (at - begun), _checked(ended)


def _rate(launcher: Launcher, outcomes: queue.SimpleQueue[tuple[float, Ended]]) -> float:
    """Invocations a second once all environments are warm."""
    for rounds in (ABREAST, NUM_MANY):
        begun = time.perf_counter()
        for i in range(rounds):
            if i >= ABREAST:
                _checked(outcomes.get(timeout=PATIENCE_S)[1])
            launcher.invoke({}, f"many-{i}")
        for _ in range(ABREAST):
            at = outcomes.get(timeout=PATIENCE_S)[0]
    return NUM_MANY / (at - begun)


def _checked(ended: Ended) -> Ended:
    if ended.error is not None:
        raise WorkerError(f"{PING}: {ended.error} {ended.reason}: {ended.payload.decode(errors='replace')[:300]}")
    return ended
