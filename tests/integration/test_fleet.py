"""The central test: a fleet of several servers, in any order of delivery and through all
faults, trains as one machine does.

``tests.fleet`` runs the real state machines on one thread; ``tests.reference`` is the textbook. In ``pipe`` mode the
bits of a run depend on its configuration alone. In ``async`` mode they do not, and the test checks the rules: who may
be how far ahead, how old what is read may be, that each step is applied once, and that nothing is left over.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siafu.tensor_task
from graph_data.prepare import prepare
from graph_server import layer_zero
from graph_server.backends import Action, Compute, TensorTask
from graph_server.operators.linear import Linear
from graph_server.param_servers import run_of
from graph_server.partition import Partition
from siafu import views, wire
from siafu.address import COORDINATOR, Address, Send
from siafu.address import graph_server as graph_server_address
from siafu.config import Config
from siafu.graph import Graph
from siafu.metrics import SPLITS, counts, scores
from siafu.models.staged import FEATURES
from siafu.shards import ShardSet
from siafu.sparse import Array
from siafu.tasks import TENSOR_KINDS, Lane, TaskId
from siafu.training_state import TrainingState
from tests import reference
from tests.fleet import Faults, Fleet
from tests.toy_graphs import random_graph, with_sparse_features

pytestmark = pytest.mark.usefixtures("short_parts", "words_first")

FAULTS = Faults(kill=0.02, hang=0.01, stillborn=0.1, refuse=0.1, twice=0.05, lose=0.02)
GRAPHS: dict[str, Callable[[], Graph]] = {
    "directed": lambda: random_graph(1),
    "undirected": lambda: random_graph(2, directed=False, weighted=False),
    "sparse": lambda: with_sparse_features(random_graph(3)),
    "multi-label": lambda: random_graph(4, multilabel=True),
}
SETTINGS: dict[str, Any] = {
    "data.directed": True,
    "data.parts": 2,
    "model.hidden": 5,
    "model.dropout": 0.3,
    "model.dtype": "float64",
    "train.lr": 0.05,
    "train.weight_decay": 5e-4,
    "train.epochs": 3,
    "train.intervals": 2,
    "train.mode": "pipe",
    "train.eval_every": 2,
    "servers.backend": "cpu",
    "lambda.count": 2,
    "lambda.relaunches": 100,
}

Build = Callable[..., Fleet]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], ShardSet]:
    folder: Path = tmp_path_factory.mktemp("shards")

    @cache
    def shards(name: str, parts: int) -> ShardSet:
        graph = GRAPHS[name]()
        return prepare(
            graph,
            folder / f"{name}-{parts}",
            parts=parts,
            partitioner="random",
            order="random",
            directed=graph.directed,
        )

    return shards


@pytest.fixture
def fleet(prepared: Callable[[str, int], ShardSet]) -> Build:
    """A fleet by its settings; the seed is that of the postman."""

    def build(options: dict[str, Any], seed: int = 0, faults: Faults | None = None, graph: str = "directed") -> Fleet:
        config = Config().replace({**SETTINGS, **options})
        return Fleet(config, prepared(graph, config.data.parts), seed, faults)

    return build


def textbook(fleet: Fleet, graph: Graph, epochs: int | None = None) -> reference.Trained:
    """What one machine gets with the fleet's settings."""
    train = fleet.config.train
    return reference.train(
        graph,
        fleet.spec,
        epochs=train.epochs if epochs is None else epochs,
        lr=train.lr,
        weight_decay=train.weight_decay,
        optimizer=train.optimizer,
        split=fleet.config.data.split,
    )


def close(actual: dict[str, Array], expected: dict[str, Array], tolerance: float = 1e-9) -> None:
    assert set(actual) == set(expected)
    for name, W in expected.items():
        np.testing.assert_allclose(actual[name], W, rtol=tolerance, atol=tolerance, err_msg=name)


def test_a_server_expects_every_tensor_task_whose_interval_does_the_step_before_it(fleet: Build) -> None:
    """Behind a graph task and, unless the loss is fused, behind a tensor task: workers are asked for meanwhile."""
    run = fleet({"servers.backend": "lambda", "lambda.fuse": False})
    for partition in run.partitions:
        backend, events = partition.backend, []  # type: ignore[var-annotated]
        expect, submit = backend.expect, backend.submit

        def expected(task: Any, now: float, events: Any = events, expect: Any = expect) -> Any:
            events.append((task, False))
            return expect(task, now)

        def submitted(task: Any, now: float, events: Any = events, submit: Any = submit) -> Any:
            events.append((task.id, True))
            return submit(task, now)

        backend.expect, backend.submit = expected, submitted  # type: ignore[method-assign]
        partition.events = events  # type: ignore[attr-defined]
    run.train()
    for partition in run.partitions:
        events = partition.events  # type: ignore[attr-defined]
        kinds = {lane: [step.kind in TENSOR_KINDS for step in partition.programs[lane].steps] for lane in Lane}
        assert any(first and second for first, second in itertools.pairwise(kinds[Lane.TRAIN]))
        known: set[TaskId] = set()
        begun: set[tuple[Lane, int, int]] = set()  # an interval's first step of an epoch has none before it
        for task, is_submitted in events:
            if is_submitted:
                assert task in known or (task.lane, task.epoch, task.interval) not in begun, task
                begun.add((task.lane, task.epoch, task.interval))
            else:
                assert kinds[task.lane][task.pc], task
                known.add(task)
        assert known <= {task for task, is_submitted in events if is_submitted}


# --- exactness --------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize("param_servers", [1, 3])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_pipe_equals_full_batch_training(fleet: Build, parts: int, param_servers: int, backend: str, model: str):
    run = fleet(
        {
            "data.parts": parts,
            "servers.param_servers": param_servers,
            "servers.backend": backend,
            "model.name": model,
            "train.epochs": 8,
            "train.intervals": 3,
        }
    )
    result = run.train()
    expected = textbook(run, GRAPHS["directed"]())
    np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
    close(run.weights("final"), expected.weights)


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
def test_pipe_in_float32_equals_full_batch_training_to_single_precision(fleet: Build, backend: str, model: str):
    options = {"servers.param_servers": 3, "model.dtype": "float32", "train.epochs": 8}
    run = fleet({**options, "servers.backend": backend, "model.name": model})
    np.testing.assert_allclose(run.train()["loss_history"], textbook(run, GRAPHS["directed"]()).losses, rtol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("graph", "options"),
    [
        ("directed", {"model.layers": 1, "model.hidden": 5}),
        ("directed", {"model.layers": 3, "model.hidden": "6 4"}),
        ("directed", {"model.layers": 3, "model.hidden": "6 4", "model.norm": "layer", "model.activation": "tanh"}),
        ("directed", {"model.bias": False, "model.init": "he", "train.optimizer": "sgd"}),
        ("directed", {"data.split": 1, "model.dropout": 0.0}),
        ("undirected", {"data.directed": False, "model.activation": "tanh"}),
        ("undirected", {"data.directed": False, "model.layers": 3, "model.hidden": 4, "model.norm": "layer"}),
        ("sparse", {"model.norm": "layer"}),
        ("multi-label", {"model.layers": 3, "model.hidden": "6 4"}),
        ("directed", {"data.parts": 4, "train.intervals": 9}),  # more intervals than vertices: some are empty
    ],
)
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_every_kind_of_model_and_graph_equals_full_batch_training(
    fleet: Build, model: str, graph: str, options: dict[str, Any]
):
    expected: reference.Trained | None = None
    for backend in ("cpu", "lambda"):
        run = fleet({"model.name": model, "servers.backend": backend, "train.epochs": 5, **options}, graph=graph)
        expected = expected or textbook(run, GRAPHS[graph]())
        np.testing.assert_allclose(run.train()["loss_history"], expected.losses, rtol=1e-9)
        close(run.weights("final"), expected.weights)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_no_pipe_has_the_bits_of_pipe(fleet: Build, parts: int, model: str, backend: str):
    options = {"data.parts": parts, "model.name": model, "servers.backend": backend, "servers.param_servers": 2}
    pipe, no_pipe = (
        fleet({**options, "train.mode": mode}, seed).train() for seed, mode in enumerate(["pipe", "no-pipe"])
    )
    assert pipe["weights_digest"] == no_pipe["weights_digest"]
    assert pipe["loss_history"] == no_pipe["loss_history"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_lambdas_have_the_bits_of_the_servers_own_threads(fleet: Build, model: str, stream: bool):
    results = [
        fleet({"model.name": model, "servers.backend": backend, "lambda.stream": stream}, seed).train()
        for seed, backend in enumerate(["cpu", "lambda"])
    ]
    assert results[0]["weights_digest"] == results[1]["weights_digest"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("option", ["fuse", "rematerialise", "stream"])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_each_optimisation_can_be_switched_off(fleet: Build, model: str, backend: str, option: str):
    options = {"model.name": model, "servers.backend": backend, "model.layers": 3, "model.hidden": "6 4"}
    values = ("always", "never") if option == "rematerialise" else (True, False)
    with_it, without = (fleet({**options, f"lambda.{option}": value}).train() for value in values)
    np.testing.assert_allclose(without["loss_history"], with_it["loss_history"], rtol=1e-12)


# --- evaluation and its verdicts --------------------------------------------------------------------------------------


def expected_scores(graph: Graph, run: Fleet, weights: dict[str, Array]) -> dict[str, Any]:
    """The loss is the textbook's, and equal but for rounding; what is counted is equal."""
    logits, split = reference.predict(graph, run.spec, weights), graph.split[:, run.config.data.split]
    expected = scores(counts(logits, graph.labels, split), multilabel=run.spec.multilabel)
    for number, name in enumerate(SPLITS):
        rows = np.flatnonzero(split == number + 1)
        spec = dataclasses.replace(run.spec, num_train=len(rows), label_smoothing=0.0)
        loss, _ = reference.loss_and_gradient(graph, spec, logits, rows)
        expected[name]["loss"] = pytest.approx(loss, rel=1e-9)
    return expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("graph", ["directed", "multi-label"])
@pytest.mark.parametrize("mode", ["pipe", "no-pipe"])
@pytest.mark.parametrize(("backend", "faults"), [("cpu", None), ("lambda", FAULTS)])
def test_an_evaluation_sees_the_weights_of_its_epoch(
    fleet: Build, backend: str, faults: Faults | None, mode: str, graph: str
):
    source = GRAPHS[graph]()
    run = fleet({"servers.backend": backend, "train.mode": mode, "train.epochs": 5}, 3, faults, graph)
    run.train()
    evaluations = {record["epoch"]: record for record in run.records if record["event"] == "evaluation"}
    assert set(evaluations) == {2, 4, 5}
    for epoch, record in evaluations.items():
        expected = expected_scores(source, run, textbook(run, source, epoch).weights)
        assert {split: record[split] for split in expected} == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize("rule", ["target", "score", "loss", "both"])
def test_an_early_stop_gives_the_weights_of_the_verdict_whatever_the_order(fleet: Build, rule: str, backend: str):
    graph = GRAPHS["directed"]()
    options = {"train.epochs": 8, "train.eval_every": 1, "servers.backend": backend, "servers.param_servers": 2}
    options["train.seed"] = 6
    run = fleet(options)
    weights = [textbook(run, graph, epoch + 1).weights for epoch in range(8)]
    expected = [expected_scores(graph, run, W)["val"] for W in weights]
    accuracy, loss = [val["acc"] for val in expected], [val["loss"].expected for val in expected]
    assert np.round(accuracy, 2).tolist() == [0.17, 0.17, 0.17, 0.33, 0.33, 0.17, 0.17, 0.17]
    assert np.round(loss, 3).tolist() == [1.448, 1.419, 1.400, 1.396, 1.399, 1.412, 1.432, 1.460]
    if rule == "target":
        options["train.target_acc"] = max(accuracy)
        last = best = 3
    else:
        options |= {"train.patience": 2, "train.stop_on": rule}
        last, best = {"score": (2, 0), "loss": (5, 3), "both": (6, 3)}[rule]
    digests = set()
    for seed in range(4):
        run = fleet(options, seed, FAULTS if backend == "lambda" else None)
        result = run.train()
        assert (result["epochs"], result["best_epoch"]) == (last + 1, best + 1)
        assert len(result["loss_history"]) == last + 1
        close(run.weights("final"), weights[last])
        close(run.weights("best"), weights[best])
        assert result["val_loss"] == pytest.approx(loss[best], rel=1e-9)
        digests.add((result["weights_digest"], result["val_loss"]))  # to the bit
    assert len(digests) == 1


# --- any order, any fault ---------------------------------------------------------------------------------------------


class Ledger(list[dict[str, Any]]):
    """A partition's trace that checks every line against the rules at the moment it is written."""

    def __init__(self, run: Fleet, partition: Partition, sources: dict[bool, dict[int, set[int]]]):
        super().__init__()
        self.run, self.partition, self.sources = run, partition, sources
        self.seen: set[tuple[Any, ...]] = set()
        self.staleness = run.config.train.staleness
        self.is_async = run.config.train.mode == "async"

    def append(self, line: dict[str, Any]) -> None:
        super().append(line)
        key = line["event"], line["lane"], line["epoch"], line["interval"], line["pc"]
        assert key not in self.seen, f"twice: {line}"
        self.seen.add(key)
        if line["event"] != "start":
            return
        lane, epoch = Lane(line["lane"]), line["epoch"] - 1  # a trace counts from 1
        if lane is Lane.TRAIN and line["pc"] == 0:
            assert epoch <= self.run.slowest() + self.staleness, line
        program = self.partition.programs[lane]
        step = program[line["pc"]]
        if program.waits_for[line["pc"]] is None:
            return
        assert step.gathers is not None
        written = self.partition.published[lane, step.gathers].epoch_of
        limit = 1 + self.staleness if self.is_async and lane is Lane.TRAIN else 0
        for source in self.sources[step.backward][line["interval"]]:
            assert epoch - written[source] <= limit, (line, source, written[source])


def sources(graph: Graph, run: Fleet) -> dict[bool, dict[int, set[int]]]:
    """Backward? -> interval -> the other intervals whose rows it gathers, from the edges of the graph."""
    interval_of = np.empty(graph.num_vertices, np.int64)
    for partition in run.partitions:
        for interval, (start, stop) in zip(partition.intervals, partition.bounds, strict=True):
            interval_of[np.asarray(partition.shard.vertices[start:stop])] = interval
    found: dict[bool, dict[int, set[int]]] = {
        b: {i: set() for i in range(interval_of.max() + 1)} for b in (False, True)
    }
    for u, v in zip(interval_of[graph.src], interval_of[graph.dst], strict=True):
        if u != v:
            found[False][int(v)].add(int(u))
            found[True][int(u)].add(int(v))
    return found


def ordeal(run: Fleet) -> dict[str, Any]:
    """Trains, and checks all that must hold of every run in every order."""
    needs = sources(GRAPHS["directed"](), run)
    ledgers = [Ledger(run, partition, needs) for partition in run.partitions]
    for partition, ledger in zip(run.partitions, ledgers, strict=True):
        partition.trace = ledger
    result = run.train()
    config = run.config
    epochs, staleness = config.train.epochs, config.train.staleness
    evaluated = len(run.partitions[0].evaluated)
    for partition, ledger in zip(run.partitions, ledgers, strict=True):
        steps = {lane: len(partition.programs[lane]) * len(partition.intervals) for lane in Lane}
        for event in ("start", "done"):
            number = Counter(key[1] for key in ledger.seen if key[0] == event)
            assert number == {"train": steps[Lane.TRAIN] * epochs, "eval": steps[Lane.EVAL] * evaluated}
        assert all(scheduler.finished for scheduler in partition.schedulers.values())
        assert partition.backend.in_flight == 0
        assert partition.param_servers.stashes == 0
    for replica in run.replicas:
        assert replica.version == epochs
        assert replica.stash_references == {}
        assert replica.num_pending == 0
        assert len(replica.versions_held) <= 2  # final and best
    assert result["stash_peak_versions"] <= staleness + 2
    assert len(result["loss_history"]) == epochs
    reading = [step for step in run.partitions[0].programs[Lane.TRAIN].steps if step.gathers not in (None, FEATURES)]
    gathers = len(reading) * sum(len(partition.intervals) for partition in run.partitions)
    for record in run.records:
        if record["event"] == "epoch":
            assert sum(record["staleness"]) == gathers
            assert len(record["staleness"]) <= (staleness + 2 if config.train.mode == "async" else 1)
    return result


def pipe_options(seed: int) -> dict[str, Any]:
    """One of 24 settings, in turn."""
    return {
        "data.parts": (2, 4, 1)[seed % 3],
        "servers.param_servers": (1, 3)[seed // 3 % 2],
        "model.name": ("gcn", "sage")[seed // 6 % 2],
        "train.mode": ("pipe", "pipe", "no-pipe")[seed // 12 % 3],
    }


def async_options(seed: int, staleness: int) -> dict[str, Any]:
    """Settings drawn at random."""
    rng = random.Random(-1 - seed)
    return {
        **pipe_options(seed),
        "train.mode": "async",
        "train.epochs": 4,
        "train.ahead": rng.choice([0.1, 0.5, 1.0]),
        "train.warmup_epochs": rng.choice([0, 1, 1, 2]),
        "train.freshness": rng.choice([0, 0, 0, 0.5, 0.9]),
    }


class Tally:
    """What a series of runs amounts to."""

    def __init__(self) -> None:
        self.seeds = self.deliveries = 0
        self.injected: Counter[str] = Counter()
        self.bits: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}  # settings -> outcomes

    def add(self, run: Fleet, result: dict[str, Any], settings: tuple[Any, ...]) -> None:
        self.seeds += 1
        self.deliveries += run.deliveries
        self.injected.update(run.injected)
        self.bits.setdefault(settings, set()).add((result["weights_digest"], *result["loss_history"]))

    def __str__(self) -> str:
        return f"{self.seeds} seeds, {self.deliveries} deliveries, {dict(self.injected)}"


def pipe_in_any_order(fleet: Build, backend: str, seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        options = pipe_options(seed)
        run = fleet(
            {**options, "servers.backend": backend}, seed, FAULTS if backend == "lambda" and seed >= 12 else None
        )
        result = ordeal(run)
        settings = tuple(options[name] for name in ("data.parts", "model.name"))  # what the bits may depend on
        tally.add(run, result, settings)
    assert all(len(outcomes) == 1 for outcomes in tally.bits.values()), {k: len(v) for k, v in tally.bits.items()}
    return tally


def async_in_any_order(fleet: Build, backend: str, staleness: int, seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        options = {**async_options(seed, staleness), "servers.backend": backend, "train.staleness": staleness}
        run = fleet(options, seed, FAULTS if backend == "lambda" and seed % 6 else None)
        tally.add(run, ordeal(run), (seed,))
    return tally


#: The first seeds stand for the others, which make test-long tries: a fault of the
#: scheduler shows itself in many of them.
FEW = pytest.param(0, id="few")
MORE = pytest.param(1, id="more", marks=pytest.mark.long)


@pytest.mark.parametrize("more", [FEW, MORE])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
def test_pipe_has_the_same_bits_in_any_order_and_through_any_faults(fleet: Build, backend: str, more: int):
    tally = pipe_in_any_order(fleet, backend, range(36, 96) if more else range(36))  # every fault among the few
    assert len(tally.bits) == 6
    assert backend == "cpu" or all(tally.injected.values()), tally.injected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("more", [FEW, MORE])
@pytest.mark.parametrize("staleness", [0, 1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
def test_async_keeps_its_bounds_in_any_order_and_through_any_faults(
    fleet: Build, backend: str, staleness: int, more: int
):
    seeds = range(8, 40) if more else range(8)
    tally = async_in_any_order(fleet, backend, staleness, seeds)
    assert len(set.union(*tally.bits.values())) > len(seeds) // 2  # they do differ


def test_a_server_asks_for_the_weights_of_an_interval_once_an_epoch_however_far_others_are_ahead(fleet: Build):
    """Also of an evaluation that trails by many versions: its weights are not pushed out by newer ones."""
    options = {"train.mode": "async", "train.staleness": 6, "train.ahead": 1.0, "train.warmup_epochs": 0}
    run = fleet({**options, "train.freshness": 0.0, "train.epochs": 20, "train.intervals": 3, "train.eval_every": 1}, 3)
    (replica,) = run.replicas
    take, asked, trailed = replica.handle, Counter[tuple[str, int, int]](), [0]

    def handle(sender: Address, message: wire.Message) -> list[Send]:
        if isinstance(message, wire.FetchWeights):
            asked[message.lane, message.epoch, message.interval] += 1
            trailed.append(replica.version - message.epoch - 1 if message.lane == "eval" else 0)
        return take(sender, message)

    replica.handle = handle  # type: ignore[method-assign]
    run.train()
    assert Counter(asked.values()) == {1: 2 * 20 * 6}
    assert max(trailed) > siafu.tensor_task.KEPT_VERSIONS  # else nothing was shown


@pytest.mark.parametrize("rows", ["exact", "bfloat16"])
def test_features_go_to_workers_in_the_width_of_rows(fleet: Build, rows: str):
    run = fleet({"model.name": "sage", "model.dtype": "float32", "model.rows": rows})
    found = set()
    for partition in run.partitions:

        def submit(task: TensorTask, now: float, submit: Any = partition.backend.submit) -> Any:
            found.update(np.asarray(task.rows[slot]).dtype.name for slot in task.rows if slot == "H0")
            return submit(task, now)

        partition.backend.submit = submit  # type: ignore[method-assign]
    run.train()
    assert found == {"uint16" if rows == "bfloat16" else "float32"}


# --- parameter servers ------------------------------------------------------------------------------------------------


def chosen_of(run: Fleet) -> Counter[tuple[int, int, int]]:
    """Trains; how many intervals chose which parameter server: by (epoch, graph server, parameter server)."""
    chosen: Counter[tuple[int, int, int]] = Counter()
    post = run._post

    def watched(sender: Address, sends: list[Send]) -> None:
        for send in sends:
            if isinstance(send.message, wire.IntervalDone):
                chosen[send.message.epoch, sender.index, send.to.index] += 1
        post(sender, sends)

    run._post = watched  # type: ignore[method-assign]
    run.train()
    return chosen


PARAM_SERVERS = {"servers.param_servers": 3, "train.intervals": 6}


def test_every_parameter_server_gets_its_share_of_intervals(fleet: Build):
    chosen = chosen_of(fleet(PARAM_SERVERS))
    assert set(chosen.values()) == {2}  # of 6 intervals and 3 parameter servers
    assert len(chosen) == 3 * 2 * 3


def test_a_parameter_server_that_others_load_is_avoided_and_weights_are_the_same_bits(fleet: Build):
    quiet, run = fleet(PARAM_SERVERS), fleet(PARAM_SERVERS)
    quiet.train()
    handle = run.replicas[1].handle

    def loaded(sender: Address, message: wire.Message) -> list[Send]:
        return [
            Send(send.to, dataclasses.replace(send.message, load=100))
            if isinstance(send.message, wire.WeightsReady)
            else send
            for send in handle(sender, message)
        ]

    run.replicas[1].handle = loaded  # type: ignore[method-assign]
    chosen = chosen_of(run)
    assert {epoch for epoch, _, server in chosen if server == 1} == {0}  # before it had told of its load
    for name, W in quiet.final_weights().items():
        assert W.tobytes() == run.final_weights()[name].tobytes()


def test_graph_servers_with_one_interval_each_spread(fleet: Build):
    chosen = chosen_of(fleet({"servers.param_servers": 2, "train.intervals": 1}))
    assert set(chosen) == {(epoch, server, server) for epoch in range(3) for server in range(2)}


@pytest.mark.parametrize(
    ("intervals", "param_servers", "run"), [(16, 2, 4), (16, 3, 2), (16, 8, 1), (1, 1, 1), (6, 3, 1), (16, 1, 8)]
)
def test_intervals_share_a_parameter_server_by_subtrees_of_the_sum(intervals: int, param_servers: int, run: int):
    assert run_of(intervals, param_servers) == run


# --- staleness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_rows_that_are_late_hold_the_next_epoch_back(fleet: Build, staleness: int):
    #  rows take the link between two graph servers, the news that an epoch is over goes through the parameter server:
    #  on a slow link the news comes first, and rows would be read that are more than s + 1 epochs old
    options = {"train.mode": "async", "train.freshness": 0, "train.staleness": staleness, "train.ahead": 1}
    for seed in range(10):
        run = fleet({**options, "train.warmup_epochs": 0, "train.epochs": 5, "train.eval_every": 0}, seed)
        run.slow = graph_server_address(0), graph_server_address(1)
        ordeal(run)


def test_a_server_may_hear_of_the_start_after_the_others_are_through_their_first_epoch(fleet: Build):
    options = {"train.mode": "async", "train.freshness": 0, "train.warmup_epochs": 0, "train.ahead": 1}
    heard_before = 0
    for seed in range(5):
        run = fleet(options, seed)
        run.slow = COORDINATOR, graph_server_address(1)
        late, opens = run.partitions[1], run.partitions[1]._open_epochs

        def opened(late: Partition = late, opens: Callable[[], list[Action]] = opens) -> list[Action]:
            nonlocal heard_before
            heard_before += not late._started
            return opens()

        late._open_epochs = opened  # type: ignore[method-assign]
        ordeal(run)
    assert heard_before


def test_a_run_that_goes_on_computes_nothing_of_an_epoch_that_is_over(
    fleet: Build, prepared: Callable[[str, int], ShardSet]
):
    first = fleet({"run.checkpoint_every": 1, "train.epochs": 4})
    first.train()
    assert first.saved is not None
    assert 0 < first.saved.version < 6
    again = Fleet(first.config.replace({"train.epochs": 6}), prepared("directed", 2), 1, before=first.saved)
    again.train()
    trained = {line["epoch"] for line in again.trace if line["lane"] == "train"}
    assert trained == set(range(first.saved.version + 1, 6 + 1))  # a trace counts epochs from 1
    assert again.coordinator.result()["loss_history"][:4] == first.coordinator.result()["loss_history"]


def test_the_best_weights_of_a_run_that_goes_on_have_the_scores_that_are_told_of_them(
    fleet: Build, prepared: Callable[[str, int], ShardSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its only parameter server dies when later weights than those of the checkpoint have been judged the best. In
    async, others take their place."""
    options = {"train.mode": "async", "train.freshness": 0.0, "train.epochs": 8, "train.eval_every": 1}
    first = fleet({**options, "run.checkpoint_every": 1, "train.stop_on": "loss"})
    saved: dict[int, TrainingState] = {}
    settle = first.coordinator._settle

    def settled(now: float) -> list[Any]:
        actions = settle(now)
        saved.update({action.state.version: action.state for action in actions})
        return actions

    monkeypatch.setattr(first.coordinator, "_settle", settled)
    told_first = first.train()
    assert told_first["best_epoch"] > 1
    again = Fleet(first.config, prepared("directed", 2), 1, before=first.coordinator.gone_on(saved[1], 9.0))
    told = again.train()
    assert told["val_loss"] != told_first["val_loss"]
    scores = expected_scores(GRAPHS["directed"](), again, again.weights("best"))["val"]
    assert told["val_loss"] == pytest.approx(scores["loss"].expected, rel=1e-9)


def test_computations_that_are_alike_are_of_one_step_of_one_interval(
    fleet: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long the last one took says where the next one is computed, and of two intervals one may have all training
    vertices: each comes once an epoch."""
    run = fleet({"data.parts": 1, "train.epochs": 3, "train.intervals": 3, "train.eval_every": 1})
    finish, seen = run._finish, Counter[Any]()

    def finished(index: int, job: Compute[Any]) -> None:
        seen[job.like] += job.like is not None
        finish(index, job)

    monkeypatch.setattr(run, "_finish", finished)
    run.train()
    assert max(seen.values()) == 3
    assert len(seen) > 3 * len(run.partitions[0].programs[Lane.TRAIN])


def test_rows_that_are_not_there_yet_are_as_old_in_a_run_that_goes_on_as_in_a_new_one(
    fleet: Build, prepared: Callable[[str, int], ShardSet]
) -> None:
    """One epoch at first, not as many as the run has behind it."""
    options = {"train.mode": "async", "train.freshness": 0.0, "train.warmup_epochs": 0, "run.checkpoint_every": 1}
    first = fleet({**options, "train.epochs": 6})
    first.train()
    assert first.saved is not None
    again = Fleet(first.config.replace({"train.epochs": 8}), prepared("directed", 2), 1, before=first.saved)
    again.train()
    ages = [[len(r["staleness"]) for r in run.records if r["event"] == "epoch"] for run in (first, again)]
    assert ages == [6 * [2], 2 * [2]]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
def test_pipe_has_the_same_bits_over_hundreds_of_seeds(fleet: Build, backend: str):
    print("pipe", backend, pipe_in_any_order(fleet, backend, range(1000, 1500)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
def test_async_keeps_its_bounds_over_hundreds_of_seeds(fleet: Build, backend: str, staleness: int):
    print("async", staleness, backend, async_in_any_order(fleet, backend, staleness, range(1000, 1200)))


@pytest.mark.parametrize("staleness", [0, 1])
def test_training_runs_ahead_of_the_next_evaluation_by_1_plus_s_epochs_and_no_more(
    fleet: Build, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that parameter servers keep few versions for it. Here its verdict never comes."""
    mode = "async" if staleness else "pipe"
    run = fleet({"train.epochs": 12, "train.eval_every": 3, "train.mode": mode, "train.staleness": staleness})
    deliver = run._deliver

    def without_verdicts(sender: Address, to: Address, message: Any) -> None:
        if not isinstance(message, wire.Judged):
            deliver(sender, to, message)

    monkeypatch.setattr(run, "_deliver", without_verdicts)
    with pytest.raises(AssertionError, match="deadlock"):
        run.train()
    begun = max(line["epoch"] for line in run.trace if line["lane"] == "train") - 1
    due = run.partitions[0].evaluated.after(-1)
    assert begun == due + 1 + staleness < 11


def test_both_lanes_share_the_operator_of_linear_gathers_where_they_look_along_the_same_edges(
    fleet: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the edges: a second one would hold them twice."""
    monkeypatch.setattr(views, "MOST_THAT_FEED", -1.0)
    run = fleet({"train.epochs": 1})
    run.train()
    for partition in run.partitions:
        operators = partition._operators.made
        assert operators[Lane.TRAIN, "linear", False] is operators[Lane.EVAL, "linear", False]


@pytest.mark.parametrize(("ahead", "intervals", "most"), [(0.0, 4, 0), (0.1, 4, 1), (0.5, 4, 2), (1.0, 4, 4)])
def test_so_many_of_a_servers_intervals_may_run_ahead(fleet: Build, ahead: float, intervals: int, most: int) -> None:
    """A share of them, and one at least unless it is 0."""
    run = fleet({"train.mode": "async", "train.ahead": ahead, "train.intervals": intervals})
    run.train()
    for partition in run.partitions:
        assert partition.schedulers[Lane.TRAIN].max_ahead == most


def test_an_evaluation_comes_behind_the_training_of_the_next_epoch_and_before_that_of_the_one_after(
    fleet: Build,
) -> None:
    (partition,) = fleet({"data.parts": 1}).partitions
    in_turn = [
        TaskId(Lane.TRAIN, 3, 0, 5),
        TaskId(Lane.TRAIN, 3, 1, 5),
        TaskId(Lane.EVAL, 2, 0, 0),
        TaskId(Lane.EVAL, 2, 0, 1),
        TaskId(Lane.TRAIN, 4, 0, 0),
    ]
    mixed = random.Random(1).sample(in_turn, len(in_turn))
    assert sorted(mixed, key=partition._priority) == in_turn


def test_layer_0_is_aggregated_once_for_both_lanes(fleet: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    really = layer_zero.aggregate

    def aggregate(gather: Any, *rest: Any) -> Any:
        made.append(gather)
        return really(gather, *rest)

    monkeypatch.setattr("graph_server.layer_zero.aggregate", aggregate)
    run = fleet({"train.epochs": 2})
    run.train()
    assert run.partitions[0].evaluated.after(-1) is not None
    assert len(made) == len(run.partitions)


@pytest.mark.parametrize("settings", [{}, {"train.mode": "async"}])
def test_gathers_of_the_loss_pass_along_edges_into_training_vertices_alone_and_learn_the_same(
    fleet: Build, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"model.dtype": "float64", "train.epochs": 4, **settings}
    monkeypatch.setattr(views, "LEAST_LEFT_OUT", 0.0)
    monkeypatch.setattr(views, "MOST_THAT_FEED", -1.0)  # else nobody holds the others
    run = fleet(settings)
    run.train()
    for partition in run.partitions:
        of_loss, all_of_them = (partition._operators.made[Lane.TRAIN, "linear", kind] for kind in (True, False))
        assert isinstance(of_loss, Linear)
        assert isinstance(all_of_them, Linear)
        for backward in (False, True):
            edges, fewer = (operator.gathers[backward].edges for operator in (all_of_them, of_loss))
            assert 0 < len(fewer.indices) < len(edges.indices)
    if settings.get("train.mode") == "async":  # what is stale depends on the order of events
        return
    monkeypatch.setattr(views, "LEAST_LEFT_OUT", 1.0)
    whole = fleet(settings)
    whole.train()
    for name, W in run.final_weights().items():
        np.testing.assert_allclose(W, whole.final_weights()[name], rtol=1e-11, atol=1e-14)
