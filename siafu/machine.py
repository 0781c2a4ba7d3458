"""One graph server's share of its machine: threads and environments.

Argument ``cores``: of the server's machine; None: of this one.
"""

from __future__ import annotations

from siafu import allotment
from siafu.config import Config

FEWEST, MOST = 2, 8


def num_sharing(config: Config) -> int:
    """Returns the number of graph servers that share a machine: all in a local run; else one, on a machine of its
    own."""
    return config.data.parts if config.run.on == "local" else 1


def num_threads(config: Config, cores: int | None = None) -> int:
    """Returns the number of graph threads of one server."""
    return config.servers.threads or max(1, (cores or allotment.cores()) // num_sharing(config))


def num_environments(config: Config, cores: int | None = None) -> int:
    """Returns the most Lambda environments that one server may want: an interval has one tensor task at a time."""
    lambdas = config.lambdas
    # 0: not decided yet, so assume the most there can be (run_coordinator.intervals)
    intervals = config.train.intervals or 2 * MOST
    if lambdas.count:
        return lambdas.count
    if lambdas.place.same_machine:
        fitting = 2 * (cores or allotment.cores()) / num_sharing(config) / lambdas.core
        return min(intervals, max(FEWEST, min(int(MOST / lambdas.core), int(fitting))))
    return intervals
