"""What the loop of a graph server counts: seconds of a computation, and invocations that still run when it leaves."""

from __future__ import annotations

import json
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from graph_server import server as module
from graph_server.backends import Action, Compute
from graph_server.lambdas import invoker as invokers
from graph_server.lambdas.backend import LambdaBackend
from graph_server.lambdas.invoker import Invoker
from graph_server.server import Server, _timed, largest_result
from siafu.address import COORDINATOR
from siafu.config import Config
from siafu.models import ModelSpec


def test_the_seconds_of_a_computation_are_those_between_its_start_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.25])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    assert _timed(lambda: "rows") == ("rows", 0.25)


@pytest.mark.parametrize("changed", ["in_features", "num_classes", "widths", "num_edge_types"])
def test_a_result_may_be_as_large_as_the_widest_layer_makes_it(changed: str) -> None:
    """A value of float64 for each vertex, column and type of edge, a few times over."""
    shard = SimpleNamespace(vertices=range(100_000), in_edges=SimpleNamespace(indices=range(0)))
    wide = {changed: (7, 5000) if changed == "widths" else 5000}
    spec = ModelSpec(**{"name": "gcn", "in_features": 3, "num_classes": 2, "num_train": 1, "widths": (1,), **wide})
    assert largest_result(shard, spec) > 2 * 8 * 100_000 * 5000  # type: ignore[arg-type]


@dataclass
class Spec:
    name: str = "gcn"


class Backend(LambdaBackend):
    def __init__(self) -> None:
        pass

    @property
    def workers(self) -> Any:
        return ()

    def stop(self) -> None:
        pass

    def ended(self, invocation: Any, now: float) -> list[Any]:
        return []


def made(config: Config, launcher: Any) -> Invoker:
    invoker = object.__new__(Invoker)
    invoker.__dict__.update(
        hub=SimpleNamespace(endpoint="tcp://127.0.0.1:5", run_id=b"r"),
        config=config,
        index=0,
        spec=Spec(),
        roster=SimpleNamespace(param_servers=[]),
        backend=Backend(),
        _workers_keys=None,
        _running=0,
        _launcher=launcher,
    )
    return invoker


@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize("ended", [0, 1, 3])
def test_a_server_that_leaves_says_how_many_invocations_a_service_goes_on_with(
    ended: int, hangs_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three that began. Only of a service that goes on without us is the cost unknown."""
    monkeypatch.setattr(invokers, "LEAVE_S", 0.0)
    sent: list[Any] = []
    launcher = SimpleNamespace(invoke=lambda payload, name: None, close=lambda: None, hangs_up=hangs_up)
    invoker = made(Config(), launcher)
    server = object.__new__(Server)
    server.__dict__.update(
        hub=SimpleNamespace(counts={}, send=lambda to, said: sent.append((to, said)), wake=lambda: None),
        index=0,
        _events=SimpleQueue(),
        _short=deque(),
        _trace=None,
        partition=SimpleNamespace(usage={"gb_s": 2}, perform=lambda actions: actions),
        _invoker=invoker,
    )
    for name in "abc":
        invoker.invoke(name, 2)
    for _ in range(ended):
        server._hand_over(lambda: invoker._ended(SimpleNamespace()))
    server._take_events()
    server._leave()
    ((to, said),) = sent
    assert to == COORDINATOR
    assert json.loads(said.usage) == {"gb_s": 2, **({"cut": 3 - ended} if hangs_up and ended < 3 else {})}


@pytest.mark.parametrize(
    ("settings", "core", "keep_bytes"),
    [
        ({}, 1.0, 192 << 18),
        ({"cpu_share": "real", "keep_constants": False}, 192 / 1769, 0),
        ({"on": "aws", "memory_mb": 1024}, 1.0, 1024 << 18),  # Lambda itself gives it a share
    ],
)
def test_a_worker_is_told_what_it_may_compute_with_and_keep(
    settings: dict[str, Any], core: float, keep_bytes: int
) -> None:
    told: list[dict[str, Any]] = []
    config = Config().replace({f"lambda.{key}": value for key, value in settings.items()})
    made(config, SimpleNamespace(invoke=lambda payload, name: told.append(payload))).invoke("w", 2)
    (payload,) = told
    assert (payload["core"], payload["keep_bytes"]) == (pytest.approx(core), keep_bytes)


class Threads:
    """A pool that computes when it is told to, as ``ThreadPoolExecutor`` would at some time."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, call: Any, work: Any) -> Future[Any]:
        self.waiting.append((Future(), call, work))
        return self.waiting[-1][0]

    def compute(self) -> None:
        for future, call, work in self.waiting:
            future.set_result(call(work))
        self.waiting = []


def test_what_was_short_the_last_time_is_computed_on_the_servers_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, threads, computed = {"a": 0.0, "b": 1.0}, Threads(), []
    monkeypatch.setattr(module, "_timed", lambda work: (work(), seconds[work()]))

    def done(action: Compute[str], value: str, now: float, seconds: float) -> list[Action]:
        computed.append(value)
        return action.then(value)

    server = object.__new__(Server)
    server.__dict__.update(
        hub=SimpleNamespace(wake=lambda: None),
        partition=SimpleNamespace(computed=done),
        _events=SimpleQueue(),
        _short=deque(),
        _took={},
        _pool=threads,
    )

    def compute(name: str, *follow: Action, like: str | None = None) -> Compute[str]:
        return Compute(lambda: name, lambda value: [*follow], like=like)

    server._do([compute("a", like="A"), compute("b", like="B"), compute("a")])
    server._take_events()
    assert (len(threads.waiting), computed) == (3, [])  # how long they take is not known
    threads.compute()
    server._take_events()
    assert computed == ["a", "b", "a"]
    server._do([compute("a", compute("a", like="A"), like="A"), compute("b", like="B"), compute("a")])
    server._take_events()  # with what follows from them
    assert (computed[3:], len(threads.waiting)) == (["a", "a"], 2)
    seconds["a"] = 1.0
    server._do([compute("a", like="A")])
    server._take_events()
    assert len(threads.waiting) == 2
    server._do([compute("a", like="A")])  # it was not short any more
    server._take_events()
    assert len(threads.waiting) == 3


def test_messages_are_looked_at_between_many_short_computations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTS_S", -1.0)
    server = object.__new__(Server)
    server.__dict__.update(
        hub=SimpleNamespace(),
        partition=SimpleNamespace(computed=lambda *_: []),
        _events=SimpleQueue(),
        _short=deque(),
        _took={"A": 0.0},
    )
    server._do([Compute(lambda: None, lambda value: [], like="A") for _ in range(3)])
    server._events.put((lambda: [], ()))
    server._take_events()
    assert server._events.empty()
    assert len(server._short) == 3
