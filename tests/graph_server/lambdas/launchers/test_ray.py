"""Lambdas on Ray where Ray differs from Lambda: room, and actors that die. The rest is in the contract of launchers."""

from __future__ import annotations

import json
import os
import queue
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_server.lambdas.invoke_errors import THROTTLED, Next, judge
from graph_server.lambdas.launchers import ray as launchers
from graph_server.lambdas.launchers.ray import RayLauncher
from lambda_funcs.invocation import Function, Invocation
from siafu import ray_cluster as clusters
from siafu.config import Config
from tests.simulated_ray import CPUS, SimulatedRay

pytestmark = pytest.mark.long  # the cluster takes seconds to start

HANDLERS = "tests.lambda_funcs.handlers"
PATIENCE_S = 120.0  # what does not come within this never does


@pytest.fixture(scope="module")
def joined(ray_cluster: SimulatedRay) -> Iterator[SimulatedRay]:
    connection = clusters.connect(ray_cluster.address)
    yield ray_cluster
    connection.close()


class Driven:
    """A launcher and the outcomes that it reported. Use in a ``with`` block."""

    def __init__(self, handler: str, memory_mb: int = 192, log_dir: Path | None = None, cold_s: float = PATIENCE_S):
        self.outcomes: queue.SimpleQueue[Invocation] = queue.SimpleQueue()
        function = Function(f"{HANDLERS}.{handler}", memory_mb, 60.0, cold_s)
        cluster = clusters.connect("auto")
        self.launcher = RayLauncher(function, limit=4, on_done=self.outcomes.put, log_dir=log_dir, cluster=cluster)

    def outcome(self) -> Invocation:
        return self.outcomes.get(timeout=PATIENCE_S)

    def __enter__(self) -> Driven:
        return self

    def __exit__(self, *_: object) -> None:
        self.launcher.close()


def actor_above(pid: int) -> int:
    """The actor's process, of an environment's."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_actor_that_dies_ends_its_invocation_and_the_next_gets_another(joined: SimulatedRay, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with Driven("hang") as driven:
        begun = time.monotonic()
        driven.launcher.invoke({"started": str(fifo)}, "r1")
        actor = actor_above(int(fifo.read_text()))
        os.kill(actor, signal.SIGKILL)
        outcome = driven.outcome()
        assert (outcome.request_id, outcome.error) == ("r1", "Sandbox.Failure")
        assert "its actor is gone" in json.loads(outcome.payload)["errorMessage"]
        assert 0 < outcome.billed_ms <= 1e3 * (time.monotonic() - begun) + 1
        driven.launcher.invoke({"started": str(fifo)}, "r2")
        assert actor_above(int(fifo.read_text())) != actor
    assert driven.outcome().request_id == "r2"
    assert driven.outcomes.empty()


def test_actor_without_a_place_is_a_refusal_to_shrink_at(joined: SimulatedRay) -> None:
    with Driven("echo", memory_mb=int(1.5 * CPUS * launchers.CORE_MB), cold_s=0.5) as driven:
        driven.launcher.invoke({}, "r")
        outcome = driven.outcome()
    assert (outcome.error, outcome.billed_ms, outcome.max_memory_mb) == (THROTTLED, 0, 0)
    assert judge(outcome.error or "", outcome.reason).next == Next.SHRINK
    assert driven.outcomes.empty()


def test_tail_of_each_invocation_is_logged_where_the_graph_server_is(joined: SimulatedRay, tmp_path: Path) -> None:
    with Driven("talk", log_dir=tmp_path / "lambda-0") as driven:
        for name in ("r1", "r2"):
            driven.launcher.invoke({"nbytes": 1}, name)
            assert driven.outcome().error is None
    log = (tmp_path / "lambda-0" / "env-0001.log").read_text()
    assert "REPORT RequestId: r1" in log
    assert "REPORT RequestId: r2" in log


def test_limit_is_the_graph_servers_share_of_the_cluster(joined: SimulatedRay, tmp_path: Path) -> None:
    config = Config.from_dict({"data": {"parts": 2}, "lambda": {"on": "ray", "memory_mb": 1769}})
    launcher = RayLauncher.make(config, 0, 100, lambda outcome: None, tmp_path)
    launcher.close()
    assert 1 <= launcher.limit <= 3 * CPUS // 2  # Ray's count of what is free lags behind the test before
