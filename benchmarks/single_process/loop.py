"""Full-batch training in one process without scheduler, interval or message: what the servers are measured against.

The same mathematics as ``siafu.models`` with nothing in the way of speed. An epoch alternates two kinds of phases:

    rows     every thread passes over blocks of rows that stay in its cache: products, activation, loss, gradients
    gather   the compiled kernel, over all edges

so that per layer one of these is done (``benchmarks.single_process.layers.made`` chooses):

    cached            layer 0: A X of the constant features is made once, P = (A X) W + b          no gather at all
    transform first   where the output is not wider: P = A (H W) + b                               gathers F_out columns
    aggregate first   P = (A H) W + b                                                              gathers F_in columns

GraphSAGE adds H W_self to P. With ``dtype="bfloat16"`` the rows that are gathered, the activations and
layer 0's aggregate are stored in 16 bits; sums, weights and gradients of weights stay float32. All
arrays are made before the first epoch.
"""

from __future__ import annotations

import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.single_process.layers import Layer, made
from benchmarks.single_process.workspace import Memory, Worker
from param_server import optimisers
from siafu import models
from siafu.config import Train
from siafu.errors import ConfigError
from siafu.graph import TEST, TRAIN
from siafu.kernels.passes import softmax_cross_entropy
from siafu.models import ModelSpec
from siafu.shards import Shard
from siafu.sparse import Array, SparseRows

#: Rows that a thread works on at once: their activations stay in its level-2 cache.
BLOCK_ROWS = 1024
DENSE_LIMIT_BYTES = 8 << 30  # of bag-of-words features made dense


class Loop:
    """A model in training on a whole graph: a prepared graph's only partition."""

    def __init__(
        self,
        shard: Shard,
        spec: ModelSpec,
        *,
        threads: int = 1,
        dtype: str = "float32",
        cache: bool = True,
        lr: float = 0.01,
        weights: dict[str, Array] | None = None,
        heads: int = 8,
        split: int = 0,
    ):
        """Makes all buffers, and layer 0's aggregate if ``cache``. Raises: ConfigError
        for a graph it is not made for."""
        if shard.num_partitions > 1 or spec.multilabel:
            what = "a multi-label graph" if spec.multilabel else f"{shard.num_partitions} partitions"
            raise ConfigError(f"the single-process loop trains one partition with one label per vertex, not {what}")
        self.spec, self.threads = spec, threads
        self.weights = dict(first_weights(spec, heads) if weights is None else weights)
        self._optimiser, self._lr = optimisers.build(Train(lr=lr)), lr
        self._pool = ThreadPoolExecutor(threads)
        n = len(shard.vertices)
        self._blocks = [slice(start, min(start + BLOCK_ROWS, n)) for start in range(0, n, BLOCK_ROWS)]
        memory = Memory(shard, _dense(shard), threads, dtype)
        self._workers = [Worker(self.weights, memory.rounds) for _ in range(threads)]
        self.layers = _attention().made(spec, memory, heads) if spec.name == "gat" else made(spec, memory, cache=cache)
        role = np.asarray(shard.split)[:, split]
        self._labels, self._train, self._test = np.asarray(shard.labels), role == TRAIN, role == TEST
        self.phases: dict[str, float] = defaultdict(float)  # seconds since the start, by phase

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def epoch(self) -> float:
        """Forward, backward and a step of Adam. Returns the loss before the step."""
        loss, gradients = self.loss_and_gradients()
        with self._timed("adam"):
            self.weights.update(self._optimiser.step(self.weights, gradients, self._lr))
        return loss

    def loss_and_gradients(self) -> tuple[float, dict[str, Array]]:
        """Of the present weights: the mean loss over the training vertices."""
        for worker in self._workers:
            worker.reset()
        self._forward(self._loss)
        self._backward()
        gradients = {
            name: np.asarray(
                sum(worker.gradients[name] for worker in self._workers[1:]) + self._workers[0].gradients[name]
            )
            for name in self.weights
        }
        return sum(worker.loss for worker in self._workers) / self.spec.num_train, gradients

    def test_accuracy(self) -> float:
        """Of the present weights."""
        for worker in self._workers:
            worker.reset()
        self._forward(self._score)
        return sum(worker.hits for worker in self._workers) / max(1, int(self._test.sum()))

    # --- an epoch -------------------------------------------------------------------------------------------------

    def _forward(self, last: Callable[[slice, Worker, Array], None]) -> None:
        """All layers; ``last`` takes the logits of each block."""
        before = None
        for layer in self.layers:
            if before is not None or layer.gathers:
                self._start(before, layer)
            if layer.gathers:
                with self._timed(f"gather {layer.number}"):
                    layer.gather(self.weights)
            before = layer
        final = self.layers[-1]
        with self._timed("loss"):
            self._over(lambda b, worker: last(b, worker, final.finish(b, worker, self.weights)))

    def _start(self, before: Layer | None, layer: Layer) -> None:
        """Ends the layer before and begins this one, block by block."""

        def rows(b: slice, worker: Worker) -> None:
            layer.start(b, worker, self.weights, None if before is None else before.finish(b, worker, self.weights))

        with self._timed(f"rows {layer.number}"):
            self._over(rows)

    def _backward(self) -> None:
        """From the last layer, whose backward pass began with the loss, down to the first that has a gradient below."""
        for layer, below in zip(reversed(self.layers), [*reversed(self.layers[:-1]), None], strict=True):
            if layer.gathers_back:
                with self._timed(f"gather {layer.number}'"):
                    layer.gather_back(self.weights)
                self._descend(layer, below)

    def _descend(self, layer: Layer, below: Layer | None) -> None:
        """Ends a layer's backward pass and begins the one below, block by block."""

        def rows(b: slice, worker: Worker) -> None:
            dH = layer.back_finish(b, worker, self.weights)
            if below is not None:
                below.back_start(b, worker, self.weights, below.through_activation(b, dH))

        with self._timed(f"rows {layer.number}'"):
            self._over(rows)

    def _loss(self, b: slice, worker: Worker, logits: Array) -> None:
        """Adds the block's loss and begins the last layer's backward pass."""
        scale = 1 / self.spec.num_train
        loss, dP = softmax_cross_entropy(logits, self._labels[b], self._train[b], scale=scale)  # in place
        worker.loss += loss
        self.layers[-1].back_start(b, worker, self.weights, dP)

    def _score(self, b: slice, worker: Worker, logits: Array) -> None:
        chosen = self._test[b]
        worker.hits += int((logits[chosen].argmax(1) == self._labels[b][chosen]).sum())

    # --- threads --------------------------------------------------------------------------------------------------

    def _over(self, rows: Callable[[slice, Worker], None]) -> None:
        """Every block once; which thread takes which is fixed, so that sums do not depend on who is faster."""

        def share(number: int) -> None:
            for b in self._blocks[number :: self.threads]:
                rows(b, self._workers[number])

        for done in [self._pool.submit(share, number) for number in range(self.threads)]:
            done.result()

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.phases[phase] += time.perf_counter() - start


def first_weights(spec: ModelSpec, heads: int = 8) -> dict[str, Array]:
    """By name, a function of the spec's seed."""
    return _attention().first_weights(spec, heads) if spec.name == "gat" else models.build(spec).init()


def _attention() -> Any:
    return importlib.import_module("benchmarks.single_process.attention")


def _dense(shard: Shard) -> Any:
    """The features as a matrix [n, F] of their own dtype, mapped where they are."""
    features = shard.features
    if not isinstance(features, SparseRows):
        return features
    nbytes = 4 * features.shape[0] * features.shape[1]
    if nbytes > DENSE_LIMIT_BYTES:
        raise ConfigError(
            f"features {features.shape[0]} x {features.shape[1]} take {nbytes} bytes when made dense, "
            f"the limit of the single-process loop is {DENSE_LIMIT_BYTES}"
        )
    return features.dense()
