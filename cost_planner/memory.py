"""Predicts a run's peak memory before it starts: bytes by role and by kind. Pure.

Memory that grows with the graph is computed from the shards' manifest and the model's program. The rest (an interpreter
with its libraries) was measured once, with Python 3.11 and numpy 2 on Linux; ``python -m benchmarks measure memory``
compares.

A graph server maps its shard's files and holds three things per vertex: layer 0's aggregate, the published slots (rows
of inner vertices and ghosts), and the slots of its intervals between two steps. Those are counted by walking the
program as if all intervals were at the same step: in pipe they nearly are, in async it is the most there can be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cost_planner import reach
from cost_planner.plan.pairs import Scored
from graph_server.aggregate import SPARSE_BELOW
from graph_server.layer_zero import BLOCK_BYTES as AGGREGATE_BLOCK_BYTES
from graph_server.layer_zero import CONVERTED_BYTES
from siafu import allotment, models, views
from siafu.config import Config
from siafu.graph import MESSAGE
from siafu.kernels.rows import row_bytes
from siafu.machine import num_environments, num_threads
from siafu.models import Model, ModelSpec
from siafu.models.link_prediction import SCORED_BYTES, SCORES, TRUE
from siafu.shards import Manifest, PartitionEntry
from siafu.sparse import INDEX_BYTES
from siafu.tasks import GIVEN_SLOTS, TENSOR_KINDS, Lane, Program, is_of_edges
from siafu.tensor_task import KEPT_VERSIONS, PARTS, versions_kept

GRAPH_SERVERS, PARAM_SERVERS, LAMBDAS, LAUNCHER = (
    "graph servers",
    "parameter servers",
    "Lambda environments",
    "launcher",
)
ROLES = (GRAPH_SERVERS, PARAM_SERVERS, LAMBDAS, LAUNCHER)

MB, GIB = 1_000_000, 2**30
#: Private bytes of an interpreter that has imported what its role needs and done a little: measured.
INTERPRETER_BYTES = {GRAPH_SERVERS: 37 * MB, PARAM_SERVERS: 22 * MB, LAMBDAS: 21 * MB, LAUNCHER: 40 * MB}
#: Libraries, mapped by all processes and counted once, in equal shares: measured.
LIBRARY_BYTES = 22 * MB
#: Of the columns that the words of a vertex's neighbours would fill if they were drawn at random, the share that they
#: do: 0.52 to 0.80 in co-author and citation graphs.
WORDS_IN_COMMON = 0.65
#: Of a held-out pair, when all are ranked: its score 4, its row of a tally 12, and of all intervals' once more 12.
RANKED_BYTES = 28
#: Arrays of pairs' values that are made for the pairs that are scored together, by decoder: of one value for each pair,
#: or as wide as their rows.
SCORED_ARRAYS = {"dot": 4, "mlp": 7}
#: Of a pair: its other end, and of which type it is.
PAIR_BYTES = INDEX_BYTES + 1
#: What comes and goes leaves holes in an allocator's arenas.
FRAGMENTATION = 1.15
#: Of a product X^T D of dense rows, sums of ranges of rows are kept apart: one for so many rows, and no more than these
#: (siafu/kernels/src/dense.cpp). Of X W, the weights are kept once more.
RANGE_ROWS, RANGES, PARTIAL_BYTES = 2048, 64, 8 << 20
#: Copies of a stage's weights that an environment has of gradients, beside those of its parts: their sum, and what is
#: sent; and the message that weights came in.
GRADIENT_COPIES = 3
#: An interval's constants are with the worker that had it last, and still with the one that had it before.
HOMES = 2
#: Arrays of the size of a task's widest rows that a tensor step makes on its way.
TEMPORARIES = 3
#: Copies of the weights that a parameter server makes while it steps, beside what it keeps.
STEP_COPIES = 4


@dataclass(frozen=True)
class Part:
    """A kind of memory of a role, summed over its processes."""

    role: str
    name: str
    nbytes: int


@dataclass(frozen=True)
class Prediction:
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def by_role(self) -> dict[str, int]:
        """Bytes by role, without roles that have no process."""
        totals: Counter[str] = Counter()
        for part in self.parts:
            totals[part.role] += part.nbytes
        return {role: totals[role] for role in ROLES if totals[role]}


def predict(config: Config, manifest: Manifest, *, aggregated: bool = False, cores: int | None = None) -> Prediction:
    """The peak of a run on these shards. ``aggregated``: layer 0's aggregate was kept by an earlier run.

    ``cores``: of the machine, if the config leaves the number of threads or Lambdas to it.
    """
    cores = cores or allotment.cores()
    spec = ModelSpec.of(config, manifest)
    model = models.kept(spec)
    weights = sum(array.nbytes for array in models.shapes(model.spec).values())
    num_processes = processes(config, cores)
    parts = [
        *(Part(role, "interpreters", count * INTERPRETER_BYTES[role]) for role, count in num_processes.items()),
        *(
            Part(role, "shared libraries", LIBRARY_BYTES * count // num_processes.total())
            for role, count in num_processes.items()
        ),
        Part(LAUNCHER, "best and final weights", 4 * weights),
        *_param_servers(config, weights),
        *(
            part
            for entry in manifest.partitions
            for part in _graph_server(config, model, manifest, entry, weights, aggregated, cores)
        ),
        *(_lambdas(config, model, manifest, weights, cores) if config.servers.backend == "lambda" else ()),
    ]
    return Prediction(tuple(_merged(parts)))


def of_graph_server(config: Config, manifest: Manifest, *, cores: int | None = None) -> int:
    """The peak in bytes of the largest graph server, including libraries that it shares with others, as
    ``siafu.peak_memory`` measures it."""
    cores = cores or allotment.cores()
    model = models.kept(ModelSpec.of(config, manifest))
    weights = sum(array.nbytes for array in models.shapes(model.spec).values())
    return (
        INTERPRETER_BYTES[GRAPH_SERVERS]
        + LIBRARY_BYTES
        + max(
            sum(part.nbytes for part in _graph_server(config, model, manifest, entry, weights, False, cores))
            for entry in manifest.partitions
        )
    )


def processes(config: Config, cores: int) -> Counter[str]:
    """The number of processes of each role."""
    return Counter(
        {
            GRAPH_SERVERS: config.data.parts,
            PARAM_SERVERS: config.servers.param_servers,
            LAUNCHER: 1,
            LAMBDAS: config.data.parts * num_environments(config, cores) if config.servers.backend == "lambda" else 0,
        }
    )


def _merged(parts: list[Part]) -> list[Part]:
    """Merges parts of one role and name, in the order of the roles."""
    totals: dict[tuple[str, str], int] = {}
    for part in parts:
        totals[part.role, part.name] = totals.get((part.role, part.name), 0) + part.nbytes
    ordered = sorted(totals.items(), key=lambda item: ROLES.index(item[0][0]))
    return [Part(role, name, nbytes) for (role, name), nbytes in ordered if nbytes]


# --- graph servers ----------------------------------------------------------------------------------------------------


def _graph_server(
    config: Config, model: Model, manifest: Manifest, entry: PartitionEntry, weights: int, aggregated: bool, cores: int
) -> list[Part]:
    n, itemsize = entry.vertices, np.dtype(config.model.dtype).itemsize
    threads = num_threads(config, cores)
    programs = {lane: model.program(lane) for lane in Lane}
    # Evaluation computes while training waits, at the end of its epoch: when it holds the least.
    links = reach.Links.of(manifest)
    degree = (entry.in_edges * (links.edges[MESSAGE] if links else 1.0) + n) / max(1, n)
    on_card = config.servers.backend == "gpu"
    held = {x: round(n * _share_held(config, manifest, x, program, on_card)) for x, program in programs.items()}
    slots = max(slot_bytes(model, program, held[x], itemsize, degree) for x, program in programs.items())
    rows_per_task = -(-max(held.values()) // config.train.intervals)
    widest = int(max(_columns(model, p, slot, degree) for p in programs.values() for slot in p.last_reader))
    tables = table_bytes(config, model, entry, programs, held)
    # Some models, and evaluations of bags of words, transform features before they gather.
    gathering = [lane for lane, program in programs.items() if program.constants]
    inductive = manifest.edge_types == "inductive"  # then each lane has an aggregate of its own, which no run keeps
    making = 0 if (aggregated and not inductive) or not gathering else _making_bytes(manifest, entry, itemsize)
    on_server = config.servers.backend != "lambda"
    # What layer 0 is made from is gone before the first row is published, and before a pair is scored.
    at_work = tables + int(FRAGMENTATION * slots) + TEMPORARIES * threads * rows_per_task * widest * itemsize
    scoring = _scoring_bytes(config, model, manifest, entry, threads)
    versions = versions_kept(config.train.staleness) + 2 * threads  # weights, and as large gradients
    return [
        Part(GRAPH_SERVERS, "shard, mapped", _mapped_bytes(model, manifest, entry, programs)),
        Part(
            GRAPH_SERVERS,
            "edges of the loss",
            0 if on_card else sum(_edges_of_loss_bytes(config, manifest, entry, x, p) for x, p in programs.items()),
        ),
        Part(
            GRAPH_SERVERS,
            "rows that feed the loss",
            sum(_chosen_bytes(config, manifest, entry, x, program, on_card) for x, program in programs.items()),
        ),
        Part(
            GRAPH_SERVERS,
            "layer 0's aggregate",
            sum(
                aggregate_bytes(config, manifest, entry, lane)
                for lane in (gathering if inductive else gathering[:1])
                if inductive or len(gathering) > 1 or held[lane] == n  # else of the rows that it holds alone
            ),
        ),
        Part(GRAPH_SERVERS, "edges that training gathers along", _gathered_along_bytes(manifest, entry)),
        Part(GRAPH_SERVERS, "pairs", _pairs_bytes(manifest, entry, programs)),
        Part(GRAPH_SERVERS, "published rows", tables),
        Part(GRAPH_SERVERS, "rows between steps", max(at_work, making - scoring) - tables),
        Part(GRAPH_SERVERS, "rows and scores of pairs", scoring),
        Part(GRAPH_SERVERS, "factors and places", _vertex_bytes(entry, itemsize)),
        Part(GRAPH_SERVERS, "weights and gradients", versions * weights if on_server else 0),
        Part(
            GRAPH_SERVERS, "buffers of products", threads * _product_bytes(config, model, manifest) if on_server else 0
        ),
    ]


def slot_bytes(model: Model, program: Program, num_rows: int, itemsize: int, degree: float = 1.0) -> int:
    """The most bytes that intervals hold between two steps, if all are at the same step. ``degree``: edges of a row."""
    live: set[str] = set()
    most = 0.0
    for pc, step in enumerate(program.steps):
        live |= set(step.writes)
        live -= {slot for slot in live if program.last_reader[slot] <= pc}  # inside a step are only as many as threads
        most = max(most, sum(_columns(model, program, slot, degree) for slot in live))
    return int(most * num_rows * itemsize)


def table_bytes(
    config: Config, model: Model, entry: PartitionEntry, programs: dict[Lane, Program], held: Mapping[Lane, int]
) -> int:
    """Bytes of all published slots of both lanes. ``held``: number of vertices whose rows each lane holds."""
    stored = 2 if config.model.rows == "bfloat16" else np.dtype(config.model.dtype).itemsize
    total = 0
    for lane, program in programs.items():
        for slot, pc in program.publisher.items():
            backward = program[pc].backward
            num_rows = held[lane] + (entry.ghosts_out if backward else entry.ghosts_in)
            edges = (entry.out_edges if backward else entry.in_edges) / max(1, entry.vertices)
            total += num_rows * row_bytes(num_rows, model.width(slot), stored, edges)
    return total


def aggregate_bytes(config: Config, manifest: Manifest, entry: PartitionEntry, lane: Lane) -> int:
    """Bytes of layer 0's aggregate: dense as it is stored; for a bag of words that stays one, a column and a value for
    each word."""
    stored = 2 if config.model.rows == "bfloat16" else np.dtype(config.model.dtype).itemsize
    dense = int(share_aggregated(manifest, lane) * entry.vertices) * manifest.num_features * stored
    if not manifest.sparse_features:
        return dense
    return dense if (entries := aggregate_entries(manifest, entry, lane)) is None else entries * (INDEX_BYTES + stored)


def share_stored(manifest: Manifest, entry: PartitionEntry) -> float:
    """Share of a bag of words' values that are not zero."""
    return entry.words / max(1, entry.vertices * manifest.num_features)


def aggregate_entries(manifest: Manifest, entry: PartitionEntry, lane: Lane) -> int | None:
    """Stored values of a lane's aggregate of layer 0 of a bag of words; None if it is made dense."""
    filled = _share_filled(manifest, entry, lane)
    rows = share_aggregated(manifest, lane) * entry.vertices
    return None if filled > SPARSE_BELOW else int(filled * rows * manifest.num_features)


def share_aggregated(manifest: Manifest, lane: Lane) -> float:
    """Share of all vertices in a lane's aggregate of layer 0 (ADR 0043)."""
    if not _sees_training_alone(manifest, lane):
        return 1.0
    return views.share_of_loss(reach.share_that_counts(manifest, manifest.inductive_split, lane))


def _share_filled(manifest: Manifest, entry: PartitionEntry, lane: Lane) -> float:
    """Share of non-zero values in a lane's aggregate of layer 0, for a bag of words."""
    share, links, gathering = share_stored(manifest, entry), reach.Links.of(manifest), 1.0
    edges = links.edges[MESSAGE] if links else 1.0  # of links, pairs are not gathered along
    if _sees_training_alone(manifest, lane):  # other vertices, if they are there at all, have their own words alone
        gathering = reach.share_that_counts(manifest, manifest.inductive_split, lane)
        edges = reach.share_among_training(manifest) or 0.0
    degree = edges * entry.in_edges / max(1.0, gathering * entry.vertices)
    of_neighbours = max(share, WORDS_IN_COMMON * (1 - (1 - share) ** (1 + degree)))
    if share_aggregated(manifest, lane) < 1:
        return float(of_neighbours)
    return float(gathering * of_neighbours + (1 - gathering) * share)


def _mapped_bytes(model: Model, manifest: Manifest, entry: PartitionEntry, programs: dict[Lane, Program]) -> int:
    """Bytes of the shard's files that stay in memory. Pages of dense features are released once read, unless layer 0
    has own rows."""
    own = any("H0" in step.reads for program in programs.values() for step in program.steps)
    skip = not own and not manifest.sparse_features
    return sum(file.bytes for name, file in entry.files.items() if not (skip and name.startswith("features")))


def _edges_of_loss_bytes(
    config: Config, manifest: Manifest, entry: PartitionEntry, lane: Lane, program: Program
) -> int:
    """Bytes of ``views.into_training``, both directions."""
    if _sees_training_alone(manifest, lane) or not any(step.of_loss for step in program.steps):
        return 0
    share = views.share_of_loss(reach.share_that_counts(manifest, config.data.split, lane))
    if share == 1.0:
        return 0
    edges = share * (entry.in_edges + entry.out_edges)
    return int(edges * (8 if manifest.weighted else 4)) + 2 * 8 * entry.vertices


def _gathered_along_bytes(manifest: Manifest, entry: PartitionEntry) -> int:
    """Bytes of ``views.view`` if training is inductive or predicts edges: in-edges, and out-edges where they differ."""
    links = reach.Links.of(manifest)
    share = links.edges[MESSAGE] if links else reach.share_among_training(manifest)
    if share is None:
        return 0
    ways = 1 + manifest.directed
    edges = share * (entry.in_edges + manifest.directed * entry.out_edges)
    rows = int(share_aggregated(manifest, Lane.TRAIN) * entry.vertices)
    return int(edges * (8 if manifest.weighted else 4)) + ways * 8 * rows


def _pairs_bytes(manifest: Manifest, entry: PartitionEntry, programs: dict[Lane, Program]) -> int:
    """Bytes of ``graph_server.operators.pairs`` for every lane: other end and type of each pair, and vertices' ids."""
    if (links := reach.Links.of(manifest)) is None:
        return 0
    pairs = sum(links.edges[kind] for lane in programs for kind in views.PAIRS[lane]) * entry.in_edges
    return int(pairs * PAIR_BYTES) + len(programs) * 8 * (2 * entry.vertices + entry.ghosts_in)


def _scoring_bytes(config: Config, model: Model, manifest: Manifest, entry: PartitionEntry, threads: int) -> int:
    """Bytes that a server holds for scored pairs, in the lane that has most."""
    if (links := reach.Links.of(manifest)) is None:
        return 0
    itemsize, most = np.dtype(config.model.dtype).itemsize, 0.0
    rows_per_task = -(-entry.vertices // config.train.intervals)
    at_a_time = min(threads, config.train.intervals)
    for lane in Lane:
        scored = Scored.of(links, entry.in_edges / max(1, entry.vertices), lane, model.spec.negatives)
        rows, others = _pairs_of_task(model, scored, lane, rows_per_task, entry.vertices + entry.ghosts_in, itemsize)
        if config.servers.backend == "lambda":  # every interval waits for its result; of what is sent there are copies
            nbytes = config.train.intervals * (others + rows) + at_a_time * (others + rows)
        else:  # rows are read tile by tile, and put side by side
            width = _width_of_pairs(model) if model.spec.decoder == "mlp" else 1
            block = min(float(SCORED_BYTES), scored.pairs * rows_per_task / PARTS * width * itemsize)
            nbytes = at_a_time * (others + 2 * rows + SCORED_ARRAYS[model.spec.decoder] * block)
        if lane is Lane.TRAIN:  # while an epoch's are drawn
            nbytes += at_a_time * PAIR_BYTES * scored.pool * rows_per_task
        if lane is Lane.EVAL:
            nbytes += RANKED_BYTES * scored.pairs * entry.vertices
        most = max(most, nbytes)
    return int(most)


def _pairs_of_task(
    model: Model, scored: Scored, lane: Lane, vertices: float, table_rows: float, itemsize: int
) -> tuple[float, float]:
    """Bytes of the rows that the pairs of ``vertices`` share, and of each pair's own data: its row number, and in
    training its type."""
    pairs = scored.pairs * vertices
    return (
        scored.rows_read(vertices, table_rows) * _width_of_pairs(model) * itemsize,
        pairs * (INDEX_BYTES + (lane is Lane.TRAIN)),
    )


def _width_of_pairs(model: Model) -> int:
    steps = model.program(Lane.TRAIN).steps
    return next(model.width(f"E{step.gathers}") for step in steps if step.operator == "pairs" and step.gathers)


def _chosen_bytes(
    config: Config,
    manifest: Manifest,
    entry: PartitionEntry,
    lane: Lane,
    program: Program,
    on_card: bool,
) -> int:
    """Bytes of constants cut out of all rows' for the rows that a lane holds or its marked steps compute (ADR 0039,
    0040, 0043). An inductive lane's aggregate has only these rows."""
    among = _sees_training_alone(manifest, lane)
    counted = reach.share_that_counts(manifest, config.data.split, lane)
    feeding = counted if among else reach.share_that_feeds(counted, manifest.num_edges / manifest.num_vertices)
    held = _share_held(config, manifest, lane, program, on_card)

    def nbytes(read: set[str], *, aggregate: bool) -> float:
        gathered = aggregate and not read.isdisjoint(program.constants)
        own = sum(file.bytes for name, file in entry.files.items() if name.startswith("features")) * ("H0" in read)
        return own + (aggregate_bytes(config, manifest, entry, lane) if gathered else 0)

    total = 0.0
    if held < 1:
        read = {slot for step in program.steps for slot in step.reads}
        total += held * nbytes(read, aggregate=not among)
    for mark, share in (("feeds_loss", feeding / held), ("judged", counted / held)):
        if views.share_that_feeds(share) == 1.0 or on_card:
            continue
        total += (
            share
            * held
            * nbytes({slot for step in program.steps if getattr(step, mark) for slot in step.reads}, aggregate=True)
        )
    return int(total)


def _share_held(config: Config, manifest: Manifest, lane: Lane, program: Program, on_card: bool) -> float:
    """Share of a partition's vertices whose rows a lane holds (ADR 0043)."""
    counted, among = reach.share_that_counts(manifest, config.data.split, lane), _sees_training_alone(manifest, lane)
    if on_card and not among:
        return 1.0
    return reach.share_held(program, counted, manifest.num_edges / manifest.num_vertices, among=among)


def _sees_training_alone(manifest: Manifest, lane: Lane) -> bool:
    """Whether a lane gathers only along edges between training vertices."""
    return manifest.edge_types == "inductive" and lane is Lane.TRAIN


def _making_bytes(manifest: Manifest, entry: PartitionEntry, itemsize: int) -> int:
    """Bytes that layer 0's aggregate is made from, beside the shard. At first, ghosts' features are there three times:
    as received, stacked, and copies for peers. Then one copy stays, with a block of columns, and the rows converted and
    summed for it."""
    if manifest.sparse_features:
        return _sparse_product_bytes(manifest, entry, itemsize)
    stored = sum(file.bytes for name, file in entry.files.items() if name.startswith("features"))  # as they travel, too
    ghosts = entry.ghosts_in * stored // max(1, entry.vertices)
    block = min(AGGREGATE_BLOCK_BYTES, (entry.vertices + entry.ghosts_in) * manifest.num_features * itemsize)
    return max(3 * ghosts, ghosts + block + 2 * min(CONVERTED_BYTES, block))


def _sparse_product_bytes(manifest: Manifest, entry: PartitionEntry, itemsize: int) -> int:
    """Bytes of the product for a bag of words (``Gather.sparse``): words in the model's dtype, ghosts' behind
    vertices', and a value for each edge and each vertex's own row. A product that stays sparse is the aggregate: the
    kernel counts each row's entries first. If not, both are there."""
    links = reach.Links.of(manifest)
    words = share_stored(manifest, entry) * manifest.num_features * entry.vertices
    as_stored = entry.files["features_data.npy"].bytes // max(1, round(words)) == itemsize
    if entry.ghosts_in:
        of_words = words * (1 + entry.ghosts_in / max(1, entry.vertices)) * (INDEX_BYTES + itemsize)
    else:  # the shard's own, but for their dtype
        of_words = 0.0 if as_stored else words * itemsize
    edges = entry.in_edges * (links.edges[MESSAGE] if links else 1.0) + entry.vertices
    product = 0.0
    if aggregate_entries(manifest, entry, Lane.EVAL) is None:
        product = _share_filled(manifest, entry, Lane.EVAL) * entry.vertices * manifest.num_features
    return int(of_words + (edges + product) * (INDEX_BYTES + itemsize))


def _vertex_bytes(entry: PartitionEntry, itemsize: int) -> int:
    """Bytes of Gather's factors, and of the numbers of ghosts and of the rows that peers need."""
    ghosts = entry.ghosts_in + entry.ghosts_out
    return (entry.vertices + ghosts) * itemsize + 4 * 8 * ghosts + 8 * (entry.vertices + entry.ghosts_in)


def _columns(model: Model, program: Program, slot: str, degree: float) -> float:
    """Columns of a slot in a row; of all its edges for a slot of edges. 0 for a slot that never changes, and for slots
    of pairs, which are counted apart."""
    if slot in program.constants | GIVEN_SLOTS or slot in (TRUE, SCORES):
        return 0
    return model.width(slot) * (degree if is_of_edges(slot) else 1)


# --- the others -------------------------------------------------------------------------------------------------------


def _product_bytes(config: Config, model: Model, manifest: Manifest) -> int:
    """Bytes that a thread keeps between products, for the largest float32 product. Products of words need none."""
    if config.model.dtype != "float32":
        return 0
    num_rows, most = manifest.num_vertices // (config.data.parts * config.train.intervals), 0
    for array in models.shapes(model.spec).values():
        if array.ndim < 2 or (manifest.sparse_features and manifest.num_features in array.shape):
            continue
        ranges = min(RANGES, PARTIAL_BYTES // max(1, array.nbytes), -(-num_rows // RANGE_ROWS))
        most = max(most, max(1, ranges) * array.nbytes)
    return most


def _largest_stage(model: Model) -> int:
    """Bytes of the largest stage's weights."""
    stages = Counter[int]()
    for name, array in models.shapes(model.spec).items():
        stages[model.stage(name)] += array.nbytes
    return max(stages.values(), default=0)


def _param_servers(config: Config, weights: int) -> list[Part]:
    count = config.servers.param_servers
    versions = 3 + config.train.staleness  # versions in use, and versions that evaluation still reads
    moments = 2 if config.train.optimizer == "adam" else 1
    sums = math.ceil(math.log2(config.data.parts * config.train.intervals + 1)) + 1
    return [
        Part(PARAM_SERVERS, "weights, versions and moments", count * (versions + moments + 1) * weights),
        Part(PARAM_SERVERS, "gradient sums and the step", count * (sums + STEP_COPIES) * weights),
    ]


def _lambdas(config: Config, model: Model, manifest: Manifest, weights: int, cores: int) -> list[Part]:
    lambdas, parts, itemsize = config.lambdas, config.data.parts, np.dtype(config.model.dtype).itemsize
    count = processes(config, cores)[LAMBDAS]
    programs, edges = {lane: model.program(lane) for lane in Lane}, manifest.num_edges + manifest.num_vertices
    program, constants = programs[Lane.TRAIN], 0
    gathering = [lane for lane, one in programs.items() if one.constants]
    # Training's of some rows alone have another name than an evaluation's of all.
    inductive = manifest.edge_types == "inductive"
    apart = gathering if share_aggregated(manifest, Lane.TRAIN) < 1 else gathering[:1]
    alone = len(gathering) == 1 and not inductive  # else evaluations keep that of all rows
    held = _share_held(config, manifest, Lane.TRAIN, program, on_card=False) if alone else 1.0
    constants += sum(int(held * aggregate_bytes(config, manifest, e, x)) for e in manifest.partitions for x in apart)
    if any("H0" in step.reads for one in programs.values() for step in one.steps):
        constants += sum(
            file.bytes for e in manifest.partitions for name, file in e.files.items() if name.startswith("features")
        )
    rows_per_task = -(-manifest.num_vertices // (parts * config.train.intervals))
    widths = [
        sum(_columns(model, program, slot, edges / manifest.num_vertices) for slot in (*step.reads, *step.writes))
        for step in program.steps
        if step.kind in TENSOR_KINDS
    ]
    task = int(rows_per_task * max(widths) * itemsize)
    if links := reach.Links.of(manifest):
        degree, table_rows = manifest.num_edges / manifest.num_vertices, manifest.num_vertices / parts
        of_pairs = []
        for lane in Lane:
            scored = Scored.of(links, degree, lane, model.spec.negatives)
            of_pairs.append(sum(_pairs_of_task(model, scored, lane, rows_per_task, table_rows, itemsize)))
        task = max(task, int(max(of_pairs)) + SCORED_ARRAYS[model.spec.decoder] * SCORED_BYTES)
    # An interval has one task at a time, and no more homes than its server has environments.
    tasks = min(count * ((lambdas.prefetch or 2) + 1), parts * config.train.intervals)
    kept = min(min(HOMES, count // parts) * constants, count * lambdas.keep_bytes)
    return [
        Part(LAMBDAS, "buffers of products", count * _product_bytes(config, model, manifest)),
        Part(LAMBDAS, "rows that never change", kept),
        Part(LAMBDAS, "tasks at hand", tasks * task),
        Part(LAMBDAS, "weights", count * KEPT_VERSIONS * weights),
        Part(LAMBDAS, "gradients", count * (PARTS + GRADIENT_COPIES) * _largest_stage(model)),
    ]
