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
from graph_server.backends.cpu import CpuBackend
from graph_server.lambdas import invoker as invokers
from graph_server.lambdas.backend import LambdaBackend
from graph_server.lambdas.invoker import Invoker
from graph_server.server import Server, _timed, largest_result
from siafu.address import COORDINATOR
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.wire import Stop


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
    monkeypatch.setattr(module, "TURN_S", -1.0)
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
    assert len(server._short) == 2


def test_threads_that_hand_over_more_than_is_taken_in_keep_neither_messages_nor_short_computations_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each event takes a millisecond, in which a thread hands over the next one."""
    now, taken, computed = [0.0], [0], list[str]()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0]))
    server = object.__new__(Server)

    def event() -> list[Action]:
        now[0] += 1e-3
        taken[0] += 1
        assert taken[0] < 1000, "it never comes back to its messages"
        server._events.put((event, ()))
        return []

    server.__dict__.update(
        hub=SimpleNamespace(),
        partition=SimpleNamespace(computed=lambda *_: computed.append("short") or []),
        _events=SimpleQueue(),
        _short=deque(),
        _took={"A": 0.0},
    )
    server._events.put((event, ()))
    for turn in range(1, 4):
        server._do([Compute(lambda: None, lambda value: [], like="A")])
        server._take_events()
        assert (computed, server._has_work) == (turn * ["short"], True)  # the next look at messages waits for none


class Ticking:
    """A hub, a presence and a clock in one: each look at messages takes ``TURN_S``, after so many comes Stop."""

    TURN_S = module.TICK_S / 8

    def __init__(self, turns: int):
        self.now, self.turns, self.ticks = 100.0, turns, list[float]()

    def monotonic(self) -> float:
        return self.now

    def poll(self, timeout_s: float) -> list[Any]:
        self.now += self.TURN_S
        self.turns -= 1
        return [] if self.turns else [(COORDINATOR, Stop(""))]

    def tick(self, now: float) -> list[Action]:
        self.ticks.append(now)
        return []


def test_the_partition_is_told_of_time_every_tick_and_not_at_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Ticking(turns=41)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=world.monotonic))
    monkeypatch.setattr(module, "Presence", lambda *_: world)
    server = object.__new__(Server)
    server.__dict__.update(
        hub=SimpleNamespace(counts={}, send=lambda to, said: None),
        config=Config(),
        index=0,
        roster=SimpleNamespace(graph_servers=(), param_servers=()),
        backend=None,
        _events=SimpleQueue(),
        _short=deque(),
        _invoker=None,
        _trace=None,
        partition=SimpleNamespace(greet=lambda now: [], tick=world.tick, usage={}),
    )
    server.run()
    assert world.ticks == pytest.approx([100.0 + module.TICK_S * n for n in range(1, 6)])


@pytest.mark.parametrize(("backend", "workers"), [(object.__new__(CpuBackend), 0), (Backend(), 2)])
def test_a_heartbeat_counts_the_workers_of_lambdas_alone(
    backend: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(backend), "in_flight", 3)
    monkeypatch.setattr(Backend, "num_workers", 2)
    server = object.__new__(Server)
    server.__dict__.update(
        hub=SimpleNamespace(counts={"lost": 4}), index=1, backend=backend, partition=SimpleNamespace(usage={"gb_s": 2})
    )
    said = server._usage()
    assert (said.server, said.tasks_in_flight, said.workers) == (1, 3, workers)
    assert json.loads(said.usage) == {"gb_s": 2, "lost": 4}
