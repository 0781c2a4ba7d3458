"""Counts the work of a run's steps: edges, values, products and bytes, from the model's own program and the graph's
counts.

1. An interval has its share of a partition's vertices and in-edges; partitions are taken to be alike.
2. Gather: so much for each value that it reads, in whole cache lines, and more for one of a row that the core's own
   cache does not hold; each value of a sum is written like one that is copied. Scatter: for each value that it copies,
   its own rows and those for peers. Every task: so much whatever its size.
3. Tensor task: the products that its model computes (``cost_planner.plan.products``), 2 in out operations of a row
   each. What no product is part of is not counted.
4. Bytes of a tensor task are the rows that its step reads and writes, but for what never changes: that stays with the
   worker, as far as a server's environments have room, but for the aggregate of an inductive evaluation. Of a Scatter:
   the ghosts' share of the rows, to each peer.

5. Graph threads move bytes to and from memory while they work (``memory_traffic``), as fast as the machine's memory
   lets all of them together. Environments of the same machine do so too; elsewhere they have their own memory.
6. Threads that have no task of their own help with others' sums and products, and with the rows that a Scatter writes
   (``siafu.kernels``).
7. With a GPU (``card``; ``graph_server.backends.gpu``) sums over edges and products are its: sums come back to the
   host, a product's operands go there and its result comes back, but for what never changes, where half of the card's
   memory has room for it. The host keeps the rest of a tensor task, and all of an operator that the card does not have.

8. A bag of words (``counts.stored``) and its aggregate (``counts.filled_of``) are read and multiplied by their stored
   values: a product adds a row of weights for each, a transposed one a row of gradients. A product of several slots
   has a part of each, by their columns.
9. Attention's gather adds two sums for each value, and makes a weight of each edge and head. Dropout of edges is not
   counted.
10. ApplyEdge reads, beside its own slots, values of all its edges, which a graph thread has cut out of what others
    published: scores for attention; for pairs that are to be predicted (``pairs``) which row each has, and those rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from cost_planner import memory, reach
from cost_planner.plan.cards import ORDER_S, Card
from cost_planner.plan.memory_traffic import Bandwidth
from cost_planner.plan.pairs import Scored
from cost_planner.plan.parts import LinkRate
from cost_planner.plan.products import Products, products_of
from cost_planner.plan.simulated_run import Environments, Plan, StepWork
from cost_planner.plan.speeds import Speeds
from graph_server.backends import BACKENDS
from graph_server.operators.attention import BACKWARD, FORWARD
from siafu import models, views
from siafu.config import Config
from siafu.graph import MESSAGE
from siafu.kernels.caches import LINE_BYTES
from siafu.models import Model, ModelSpec
from siafu.models.link_prediction import TRUE
from siafu.shards import Manifest
from siafu.sparse import INDEX_BYTES
from siafu.tasks import GIVEN_SLOTS, TENSOR_KINDS, Kind, Lane, Step, is_of_edges
from siafu.tensor_task import PARTS

#: Operators that a card computes.
ON_GPU = BACKENDS["gpu"].on_device
#: Bytes of a vertex, or a pair, in the slots that are no rows of the model.
OTHERS = {"vertex": 8, "label": 8, "train": 1, TRUE: 1}
#: Of a slot of edges: where each row's begin.
INDPTR_BYTES = 8
#: Of a cache line, which rows are read by: of four columns as long as of sixteen.
LINE_VALUES = LINE_BYTES // 4
#: Between two machines of one zone, one way.
LATENCY_S = 0.0002


#: Of counts that say nothing of edges between partitions: every vertex has one.
ONE_EACH = reach.Crossing(1.0, 1.0)


@dataclass(frozen=True)
class Counts:
    """Counts of one partition, on average."""

    parts: int
    vertices: float
    edges: float  # in-edges: an undirected edge counts twice
    ghosts: float  # rows that come from others
    filled: float = 1.0  # of the features, gathered once, the share that is stored; 1: they are dense
    stored: float = 1.0  # and of the features themselves
    crossing: reach.Crossing = ONE_EACH
    judged: float = 1.0  # share of the vertices that evaluations judge
    among: float | None = None  # inductive: share of the edges that training gathers along; None: it is not
    links: reach.Links | None = None  # None: no edges are predicted
    filled_among: float = 1.0  # as ``filled``, where training gathers along edges of its own

    @classmethod
    def of(cls, manifest: Manifest, split: int = 0) -> Counts:
        entries = manifest.partitions
        words, filled = 1.0, dict.fromkeys(Lane, 1.0)
        if manifest.sparse_features:
            words = float(np.mean([memory.share_stored(manifest, entry) for entry in entries]))
            filled = {lane: _share_filled(manifest, lane) for lane in Lane}
        return cls(
            len(entries),
            manifest.num_vertices / len(entries),
            float(np.mean([entry.in_edges for entry in entries])),
            float(np.mean([entry.ghosts_in for entry in entries])),
            filled[Lane.EVAL],
            words,
            reach.Crossing.of(manifest),
            reach.share_that_counts(manifest, split, Lane.EVAL),
            reach.share_among_training(manifest),
            reach.Links.of(manifest),
            filled[Lane.TRAIN],
        )

    def filled_of(self, lane: Lane) -> float:
        """Share of stored values in a lane's aggregate of layer 0."""
        return self.filled_among if self.among is not None and lane is Lane.TRAIN else self.filled

    def gathered(self, lane: Lane) -> float:
        """Share of the edges that a lane gathers along."""
        if self.links:
            return self.links.edges[MESSAGE]
        return self.among if self.among is not None and lane is Lane.TRAIN else 1.0

    def travelling(self, step: Step, lane: Lane, train: float) -> float:
        """Share of the ghosts whose rows a Scatter of the lane sends. train: share of vertices that count."""
        if self.links:
            return self.links.share_of_ghosts(step, lane, self.crossing)
        if self.among is not None and lane is Lane.TRAIN:
            return reach.share_of_ghosts_among(train, self.among, self.crossing)
        return reach.share_of_ghosts(step, train, self.crossing)


def _share_filled(manifest: Manifest, lane: Lane) -> float:
    """Share of stored values in layer 0's aggregate of a bag of words: 1 if it is made dense."""
    stored = [memory.aggregate_entries(manifest, entry, lane) for entry in manifest.partitions]
    if None in stored:
        return 1.0
    values = memory.share_aggregated(manifest, lane) * manifest.num_vertices * manifest.num_features
    return min(1.0, sum(n for n in stored if n) / max(1.0, values))


def work_of(
    config: Config,
    model: Model,
    counts: Counts,
    speeds: Speeds,
    lane: Lane = Lane.TRAIN,
    card: Card | None = None,
    *,
    there: Speeds | None = None,
    bandwidth: Bandwidth | None = None,
    keeps: bool = True,
) -> list[StepWork]:
    """The work of one interval, by step of a lane's program. ``card``: of each server, if its backend is gpu.
    ``there``: speeds of a Lambda's core, None: as a server's. ``bandwidth``: of each server's memory. ``keeps``:
    whether environments have room for constants."""
    steps = _Steps(config, model, counts, speeds, lane, card, there or speeds, bandwidth or Bandwidth(), keeps)
    return [steps.work(step) for step in steps.program.steps]


@dataclass(frozen=True)
class _Shares:
    """Shares of a partition's rows that a lane holds, and of the rows and edges that its steps compute (ADR 0038, 0039,
    0043)."""

    counted: float  # of all rows: those with a loss, or that are judged
    held: float  # of all rows
    train: float  # rows: with a loss; when evaluating, rows that metrics read
    judged: float  # rows: of the last stage without a loss
    feeding: float  # rows: before the loss's gather, rows with an edge into these
    loss: float  # rows: that a last stage is sent
    edges_of_loss: float  # edges: along which the loss's gather passes rows
    edges: float  # edges: along which others do

    @classmethod
    def of(cls, model: Model, counts: Counts, lane: Lane, has_card: bool) -> _Shares:
        counted = model.spec.num_train / (counts.parts * counts.vertices) if lane is Lane.TRAIN else counts.judged
        among = counts.among is not None and lane is Lane.TRAIN
        edges, degree = counts.gathered(lane), counts.edges / max(1.0, counts.vertices)
        held = 1.0
        if among or not has_card:
            held = reach.share_held(model.program(lane), counted, degree, among=among)
        train = counted / held
        loss = views.share_of_loss(train)
        if has_card:  # all edges are gathered along, and all rows read
            return cls(counted, held, train, 1.0, 1.0, loss, edges, edges)
        feeding = 1.0 if held < 1 else views.share_that_feeds(reach.share_that_feeds(counted, degree))
        of_loss = edges if among else views.share_of_loss(counted) * edges
        return cls(counted, held, train, views.share_that_feeds(train), feeding, loss, of_loss, edges)


class _Steps:
    """Work of the steps of one lane."""

    def __init__(
        self,
        config: Config,
        model: Model,
        counts: Counts,
        speeds: Speeds,
        lane: Lane,
        card: Card | None,
        there: Speeds,
        bandwidth: Bandwidth,
        keeps: bool,
    ) -> None:
        self.model, self.counts, self.lane = model, counts, lane
        self.speeds, self.there, self.card, self.bandwidth = speeds, there, card, bandwidth
        self.program = model.program(lane)
        self.intervals = config.train.intervals
        self.shares = _Shares.of(model, counts, lane, card is not None)
        self.n = self.shares.held * counts.vertices / self.intervals
        self.table_rows = self.shares.held * counts.vertices + counts.ghosts
        self.to_peers = counts.ghosts / self.intervals  # rows of an interval that others gather, each peer's counted
        self.item = np.dtype(config.model.dtype).itemsize
        self.stored = 2 if config.model.rows == "bfloat16" else self.item
        self.remote = config.servers.backend == "lambda"
        constant = GIVEN_SLOTS | self.program.constants
        if counts.among is not None and lane is Lane.EVAL:
            training = _Shares.of(model, counts, Lane.TRAIN, card is not None)
            if training.held == 1.0:  # workers keep training's aggregate, by the same name
                constant = GIVEN_SLOTS
        self.kept = constant if config.lambdas.keep_constants and keeps else frozenset()
        has_room = card is not None and constant_bytes(config, model, counts) <= card.kept_bytes
        self.stays = constant if has_room else frozenset()
        filled = {**dict.fromkeys(self.program.constants, counts.filled_of(lane)), "H0": counts.stored}
        self.words = {slot: share for slot, share in filled.items() if share < 1}  # of the slots that are sparse
        products = zip(self.program.steps, products_of(model, lane), strict=True)
        self.products = {step: found if step.parameters else Products() for step, found in products}
        degree = counts.edges / max(1.0, counts.vertices)  # of all rows
        self.scored = Scored.of(counts.links, degree, lane, model.spec.negatives) if counts.links else None
        self.degree = counts.gathered(lane) * degree / self.shares.held
        #: Slots of edges that share rows (``Pairs``).
        self.sharing = {f"E{step.gathers}" for step in self.program.steps if self._scores_pairs(step)}
        #: Slot of edges -> edges of a row.
        self.per_row = {
            slot: self._edges(step)
            for step in self.program.steps
            for slot in (*self._read(step), *step.writes)
            if is_of_edges(slot)
        }
        self.weights = weight_bytes(model)
        self.first = next((step for step in self.program.steps if step.kind in TENSOR_KINDS and step.parameters), None)

    def work(self, step: Step) -> StepWork:
        if step.kind in TENSOR_KINDS:
            return self._tensor(step)
        if step.publishes:
            return self._scatter(step, self.model.width(step.publishes))
        if step.kind is Kind.WU or step.gathers not in self.program.publisher:
            return StepWork()
        return self._gather(step, self.model.width(str(step.gathers)))

    # --- tensor tasks -------------------------------------------------------------------------------------------------

    def _tensor(self, step: Step) -> StepWork:
        if self.card is not None:
            return self._on_card(step, self.card)
        return self._on_lambda(step) if self.remote else self._on_server(step)

    def _on_card(self, step: Step, card: Card) -> StepWork:
        products = self.products[step]
        rows = self.n * self._edges(step)
        operands = rows * self.item * products.columns
        kept = (self._nbytes(step.reads) - self._nbytes(step.reads, self.stays)) * (1 + step.has_gradient)
        product_s = card.product_s(rows * products.flops, operands, orders=products.calls)
        seconds = self.speeds.tensor_s + self._values_s(step, self.speeds) + self._drawn_s(step)
        asked = self._weights_asked(step)
        cut = self._cut_s(step)
        return replace(asked, seconds=seconds, cut=cut, card=product_s + card.copy_s(max(0.0, operands - kept)))

    def _on_server(self, step: Step) -> StepWork:
        return replace(
            self._weights_asked(step),
            seconds=self._arithmetic_s(step, self.speeds) + self._drawn_s(step),
            shared=True,
            cut=self._cut_s(step),
            held=self.speeds.tensor_s,
            memory=self._values(step, *self._read(step), *step.writes) * self.item,
        )

    def _on_lambda(self, step: Step) -> StepWork:
        speeds, there = self.speeds, self.there
        sent = self.shares.loss if "train" in step.reads else self._rows(step)
        down, up = sent * self._nbytes(self._read(step), self.kept), sent * self._nbytes(step.writes)
        weights = float(self.weights[step.layer])
        moved = down + up + weights * step.has_gradient
        there_s = there.tensor_s + there.lambda_task_s + moved * there.lambda_byte_ns * 1e-9
        return StepWork(
            self._arithmetic_s(step, there) + there_s,
            cut=self._cut_s(step) + self._drawn_s(step),
            down=down,
            up=up,
            main=speeds.main_task_s + speeds.main_tensor_s + (down + up) * speeds.main_byte_ns * 1e-9,
            io=2 * speeds.io_message_s + (down + up) * speeds.io_byte_ns * 1e-9,
            remote_io=there.lambda_io_s + moved * there.lambda_io_byte_ns * 1e-9,
            weights=weights,
            memory=self._values(step, *self._read(step), *step.writes) * self.item,
        )

    def _weights_asked(self, step: Step) -> StepWork:
        """Work of asking for weights. A server's thread asks once for the weights of all layers (ADR 0041), and gets an
        answer."""
        asks = step is self.first
        return StepWork(
            main=(1 + 2 * asks) * self.speeds.main_task_s, weights=float(self.weights[step.layer]), asks=asks
        )

    def _rows(self, step: Step) -> float:
        """Share of the rows that a step computes."""
        if "train" in step.reads:
            return self.shares.train
        if step.feeds_loss:
            return self.shares.feeding
        return self.shares.judged if step.judged else 1.0

    def _values(self, step: Step, *slots: str) -> float:
        return self._rows(step) * self._nbytes(slots) / self.item

    def _values_s(self, step: Step, speeds: Speeds) -> float:
        """Seconds of a core for the values that a step reads and makes, in products and beside them."""
        read, of_products = self._values(step, *self._read(step)), self.products[step].made * self._edges(step)
        made = self._values(step, *step.writes) + self._rows(step) * self.n * of_products
        if self._scores_pairs(step):
            assert self.scored is not None
            width, decoder = self.model.width(str(step.gathers)), self.model.spec.decoder
            speeds = replace(speeds, value_ns=self._gathered_ns(width, speeds))
            return self.n * self.scored.scored_ns(width, decoder, self.lane is Lane.TRAIN, speeds) * 1e-9
        return (read * speeds.read_ns + made * speeds.element_ns) * 1e-9

    def _arithmetic_s(self, step: Step, speeds: Speeds) -> float:
        """Seconds of a core for a step's products, and the values that it reads and makes."""
        flop_ns = speeds.flop_ns
        if not self.words.keys().isdisjoint(step.reads):  # rule 8
            factors = [slot for slot in step.reads if slot in self.words or slot in self.program.constants]
            word_ns = speeds.word_back_ns if step.has_gradient else speeds.word_ns
            each = {slot: self.words[slot] / 2 * word_ns if slot in self.words else flop_ns for slot in factors}
            widths = {slot: self.model.width(slot) for slot in factors}
            flop_ns = sum(each[slot] * width for slot, width in widths.items()) / sum(widths.values())
        flops = self._rows(step) * self.n * self._edges(step) * self.products[step].flops
        return flops * flop_ns * 1e-9 + self._values_s(step, speeds)

    # --- rule 10 ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _scores_pairs(step: Step) -> bool:
        return step.kind is Kind.AE and step.operator == "pairs"

    def _edges(self, step: Step) -> float:
        """Edges per row that an ApplyEdge computes on; 1 for all other steps, which compute on rows."""
        if step.kind not in (Kind.AE, Kind.AE_B):
            return self.degree + 1 if any(map(is_of_edges, (*step.reads, *step.writes))) else 1.0
        if step.operator != "pairs":
            return self.degree + 1  # and to itself
        assert self.scored is not None
        return self.scored.pairs

    def _read(self, step: Step) -> tuple[str, ...]:
        """Slots that a step reads, or that an ApplyEdge is sent."""
        if step.kind not in (Kind.AE, Kind.AE_B):
            return step.reads
        true = (TRUE,) if step.operator == "pairs" and self.lane is Lane.TRAIN else ()
        return (*step.reads, f"E{step.gathers}", *true)

    def _cut_s(self, step: Step) -> float:
        """Seconds of a graph thread before an ApplyEdge is sent what its edges need."""
        if step.kind not in (Kind.AE, Kind.AE_B):
            return 0.0
        speeds, width = self.speeds, self.model.width(f"E{step.gathers}")
        if step.operator == "pairs":
            assert self.scored is not None
            rows = self.scored.rows_read(self.n, self.counts.vertices + self.counts.ghosts)
            found = self.n * self.scored.numbered_ns(speeds.score_ns) + rows * width * speeds.element_ns
            if self.lane is Lane.EVAL:  # afterwards, but by such a thread
                found += self.n * self.scored.ranked_ns(speeds.score_ns)
            return speeds.task_s + found * 1e-9
        return speeds.task_s + self.n * self._edges(step) * width * speeds.copy_ns * 1e-9

    def _drawn_s(self, step: Step) -> float:
        if not self._scores_pairs(step):
            return 0.0
        assert self.scored is not None
        return self.n * self.scored.drawn_ns(self.speeds.score_ns) * 1e-9

    def _nbytes(self, slots: Sequence[str], known: frozenset[str] = frozenset()) -> float:
        return self.n * sum(self._row_bytes(slot) for slot in slots if slot not in known)

    def _row_bytes(self, slot: str) -> float:
        if slot in self.sharing:
            return self._shared_bytes(slot) + INDPTR_BYTES
        if slot in self.per_row:
            return self.per_row[slot] * (OTHERS.get(slot) or self.model.width(slot) * self.item) + INDPTR_BYTES
        if slot in OTHERS:
            return OTHERS[slot]
        stored = self.words[slot] * (self.item + INDEX_BYTES) if slot in self.words else self.item
        return self.model.width(slot) * stored

    def _shared_bytes(self, slot: str) -> float:
        """Bytes per vertex of its pairs' row numbers, and of its share of those rows: a task's part has each row
        once."""
        assert self.scored is not None
        vertices = max(1.0, self.n / PARTS)
        rows = self.scored.rows_read(vertices, self.counts.vertices + self.counts.ghosts) / vertices
        return self.scored.pairs * INDEX_BYTES + rows * self.model.width(slot) * self.item

    # --- graph tasks --------------------------------------------------------------------------------------------------

    def _scatter(self, step: Step, columns: int) -> StepWork:
        speeds, others = self.speeds, max(1, self.counts.parts - 1)
        nbytes = columns * self.stored + self._scores(step) * self.item  # of a row that travels
        to_peers = self.to_peers * self.counts.travelling(step, self.lane, self.shares.counted)
        peers = to_peers * nbytes / others if self.counts.parts > 1 else 0.0
        host, on_card = self.n + to_peers, 0.0
        if self.card is not None and step.operator in ON_GPU:
            # Own rows go there, those for peers come back, and those of ghosts go there.
            moved = (self.n + 2 * to_peers) * columns * self.item
            host, on_card = to_peers, 3 * ORDER_S + self.card.copy_s(moved)
        return StepWork(
            (host * speeds.copy_ns + self.n * _made_beside(step) * speeds.element_ns) * columns * 1e-9,
            shared=self.card is None,
            held=speeds.task_s,
            peers=peers,
            main=speeds.main_task_s + peers * others * speeds.main_byte_ns * 1e-9,
            io=speeds.io_message_s + peers * speeds.io_byte_ns * 1e-9,
            pasted=speeds.main_task_s + peers * speeds.main_byte_ns * 1e-9,
            card=on_card,
            memory=host * columns * (self.item + self.stored),
        )

    def _scores(self, step: Step) -> int:
        """Columns that travel beside a row, in the model's dtype."""
        if step.operator != "attention":
            return 0
        return (BACKWARD if step.backward else FORWARD) * self.model.width(step.reads[-1])  # of each head

    def _gather(self, step: Step, columns: int) -> StepWork:
        speeds, n = self.speeds, self.n
        share = self.shares.edges_of_loss if step.of_loss else self.shares.edges
        edges = share * self.counts.edges / self.intervals
        if self.card is not None and step.operator in ON_GPU:
            on_card = self.card.gather_s(edges, n, columns * self.item) + self.card.copy_s(n * columns * self.item)
            host = n * columns * speeds.element_ns * 1e-9
            return StepWork(host, held=speeds.task_s, main=speeds.main_task_s, card=on_card)
        read = LINE_VALUES * -(-columns // LINE_VALUES)
        value_ns = self._gathered_ns(columns, speeds)
        ns = read * value_ns
        if step.operator == "attention":  # rule 9
            heads = min(self.model.width(slot) for slot in (*step.reads, *step.writes))
            ns += read * value_ns + heads * speeds.score_ns
        seconds = (edges * ns + n * columns * (speeds.copy_ns + _made_beside(step) * speeds.element_ns)) * 1e-9
        moved = self.bandwidth.gathered(edges, n, self.table_rows, columns * self.stored, columns * self.item)
        return StepWork(seconds, shared=True, held=speeds.task_s, main=speeds.main_task_s, memory=moved)

    def _gathered_ns(self, columns: int, speeds: Speeds) -> float:
        """Nanoseconds for a value read from a table of ``columns`` columns."""
        missed = self.bandwidth.missed_by_core(self.table_rows, columns * self.stored)
        return speeds.value_ns + missed * speeds.missed_ns


def _made_beside(step: Step) -> int:
    """Number of arrays that a linear Gather or Scatter makes from the interval's own rows
    (``graph_server.operators``)."""
    if step.operator != "linear":
        return 0
    own = step.reads if step.gathers else step.writes
    scaled = len(own) * (step.own != 1.0)
    return scaled + (max(0, len(own) - 1) if step.gathers else 0)


def plan_of(
    config: Config,
    spec: ModelSpec,
    counts: Counts,
    speeds: Speeds,
    *,
    threads: int,
    link: LinkRate,
    environments: Environments | None = None,
    there: Speeds | None = None,
    bandwidth: Bandwidth | None = None,
    together: float = 0.0,
    card: Card | None = None,
) -> Plan:
    """The run of a config on a graph. threads: of each server. environments: those of each server, if its backend is
    lambda; there: speeds of their cores, None: a server's. bandwidth: of each machine's memory, None: no limit. card:
    that of each server, if it is gpu. together: processors of the one machine that all processes share, 0 if each
    server has its own."""
    model = models.kept(spec)
    train, remote = config.train, config.servers.backend == "lambda"
    weights = float(sum(array.nbytes for array in models.shapes(model.spec).values()))
    (work, evaluates), *resent = (
        [
            work_of(config, model, counts, speeds, lane, card, there=there, bandwidth=bandwidth, keeps=keeps)
            for lane in (Lane.TRAIN, Lane.EVAL)
        ]
        for keeps in ((True, False) if remote else (True,))
    )
    plan = Plan(
        model.program(Lane.TRAIN),
        work,
        eval_program=model.program(Lane.EVAL),
        eval_work=evaluates,
        eval_every=train.eval_every,
        servers=counts.parts,
        param_servers=config.servers.param_servers,
        threads=threads,
        intervals=train.intervals,
        mode=train.mode,
        staleness=train.staleness,
        freshness=train.freshness,
        ahead=train.ahead,
        warmup_epochs=train.warmup_epochs,
        link=link,
        memory_bytes_per_s=(bandwidth or Bandwidth()).bytes_per_s,
        latency_s=speeds.hop_s if together else LATENCY_S,
        wake_s=speeds.wake_s,
        cores=together * (speeds.usable_among if counts.parts > 1 or remote else speeds.usable),
        together=bool(together),
        exchange_s=speeds.exchange_s,
        exchange_byte_s=speeds.exchange_byte_ns * 1e-9,
        update_s=speeds.update_s + weights * speeds.update_byte_ns * 1e-9,
        judge_s=_judge_s(model, counts, speeds),
        environments=None,
    )
    for again, evaluates_again in resent:
        plan = replace(plan, resent_work=again, resent_eval_work=evaluates_again)
        plan = plan.with_environments(environments or Environments())
    return plan


def _judge_s(model: Model, counts: Counts, speeds: Speeds) -> float:
    """Seconds of the coordinator for an evaluation: 0 unless edges are predicted, whose scores it receives."""
    if counts.links is None:
        return 0.0
    degree = counts.edges / max(1.0, counts.vertices)
    scored = Scored.of(counts.links, degree, Lane.EVAL, model.spec.negatives)
    return counts.parts * counts.vertices * scored.judged_ns(speeds.score_ns) * 1e-9


def processor_s(plan: Plan) -> dict[str, float]:
    """Processor seconds of an epoch with its share of an evaluation, by kind of thread: all servers' "pool", "main" and
    "io" threads, all environments' "lambda" (main) and "remote io" threads, and all "param" servers."""
    found: defaultdict[str, float] = defaultdict(float)
    training = ((step, work, 1.0) for step, work in zip(plan.program.steps, plan.work, strict=True))
    evaluation: Iterable[tuple[Step, StepWork, float]] = ()
    if plan.eval_every and plan.eval_program:
        each = zip(plan.eval_program.steps, plan.eval_work, strict=True)
        evaluation = ((step, work, 1 / plan.eval_every) for step, work in each)
    for step, work, share in chain(training, evaluation):
        tensor, tasks = step.kind in TENSOR_KINDS, share * plan.servers * plan.intervals
        found["lambda" if tensor and plan.environments else "pool"] += tasks * (work.seconds + work.held)
        found["pool"] += tasks * work.cut
        found["main"] += tasks * (work.main + work.pasted * (plan.servers - 1))
        found["io"] += tasks * work.io * (plan.servers if step.publishes else 1)
        if tensor and plan.environments:
            found["remote io"] += tasks * work.remote_io
        if tensor:
            found["param"] += tasks * plan.param_server_s(step, work)
    found["param"] += plan.update_s * plan.param_servers
    return dict(found)


def weight_bytes(model: Model) -> Counter[int]:
    """Bytes of each stage's weights."""
    nbytes = Counter[int]()
    for name, array in models.shapes(model.spec).items():
        nbytes[model.stage(name)] += array.nbytes
    return nbytes


def constant_bytes(config: Config, model: Model, counts: Counts) -> float:
    """Bytes of a partition's constant rows that tensor tasks of training read."""
    program, item = model.program(Lane.TRAIN), np.dtype(config.model.dtype).itemsize
    slots = {slot for step in program.steps if step.kind in TENSOR_KINDS for slot in step.reads}
    return counts.vertices * item * sum(model.width(slot) for slot in slots & (program.constants | {"H0"}))
