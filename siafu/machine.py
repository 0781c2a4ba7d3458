"""One graph server's share of its machine: threads and environments.

``cores``: of that machine; None: this one.
"""

from __future__ import annotations

from siafu import allotment
from siafu.config import Config

FEWEST, MOST = 2, 8


def num_sharing(config: Config) -> int:
    """Graph servers on this machine; elsewhere than here each is meant to have one of its own."""
    return config.data.parts if config.run.on == "local" else 1


def num_threads(config: Config, cores: int | None = None) -> int:
    """Graph threads of one server."""
    return config.servers.threads or max(1, (cores or allotment.cores()) // num_sharing(config))


def num_environments(config: Config, cores: int | None = None) -> int:
    """Lambda environments that one server may want, if the service grants them. An
    interval has one tensor task at a time."""
    lambdas = config.lambdas
    # 0 is not settled yet: as many as there are at most (run_coordinator.intervals)
    intervals = config.train.intervals or 2 * MOST
    if lambdas.count:
        return lambdas.count
    if lambdas.place.same_machine:
        fitting = 2 * (cores or allotment.cores()) / num_sharing(config) / lambdas.core
        return min(intervals, max(FEWEST, min(int(MOST / lambdas.core), int(fitting))))
    return intervals
