"""Predicts the bytes on a GPU: of a graph server with the backend gpu, and of a rank of the baseline vanilla. Pure.

1. A graph server's card (``graph_server.backends.gpu``) holds published rows, those of ghosts too, as wide as the
   host's numbers, for operators that it knows. It holds the edges of either direction; copies of constants, up to half
   of its room; and the data that threads work on.
2. A rank (``gpu_baselines``) holds everything: features, their sums, edges of either direction, every layer's rows with
   those of its halo, and their gradients. This is counted from widths, with ``SPARE`` for temporary data: nobody has
   measured it. Attention holds its edges by both ends (``gpu_baselines.graph.AttentionEdges``), and with dropout a
   factor for each edge and head.
"""

from __future__ import annotations

import numpy as np

from cost_planner.plan.cards import EDGE_BYTES, Card
from cost_planner.plan.work import Counts, constant_bytes
from graph_server.backends import BACKENDS
from siafu import models
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.shards import Manifest, PartitionEntry
from siafu.tasks import TENSOR_KINDS, Lane

#: Operators that a card computes.
ON_GPU = BACKENDS["gpu"].on_device
#: Arrays of a task at once, for every thread: operands, result, and what is copied.
AT_WORK = 4
#: Of a layer's rows on a rank: what autograd keeps of each (summed, multiplied, activated, masked), and its gradient;
#: and of rows of the halo: as they came, behind the inner ones, and their gradient.
COPIES, HALO_COPIES = 5, 3
#: Of an edge for attention: both ends in 64 bits, the other end from either side in 32, its number in 64.
ATTENTION_EDGE_BYTES = 32
#: Of an edge and layer while attention's dropout is drawn: what its noise is hashed from, in 64 bits, for four heads.
HASHED_BYTES = 3 * 8
SPARE = 1.2


def of_graph_server(config: Config, manifest: Manifest, entry: PartitionEntry, threads: int, card: Card) -> float:
    model, item = models.kept(ModelSpec.of(config, manifest)), np.dtype(config.model.dtype).itemsize
    programs = [model.program(lane) for lane in Lane]
    published = backward = 0.0
    for program in programs:
        for step in program.steps:
            if step.publishes and step.operator in ON_GPU:
                ghosts = entry.ghosts_out if step.backward else entry.ghosts_in
                published += (entry.vertices + ghosts) * model.width(step.publishes) * item
            backward += step.backward and bool(step.gathers) and step.operator in ON_GPU
    gathers = any(step.gathers and step.operator in ON_GPU for program in programs for step in program.steps)
    twice = backward and (manifest.directed or model.aggregate == "mean")
    edges = gathers * (1 + bool(twice)) * entry.in_edges * EDGE_BYTES
    counts = Counts(1, entry.vertices, entry.in_edges, entry.ghosts_in)
    kept = min(card.kept_bytes, constant_bytes(config, model, counts))
    slots = {slot for step in programs[0].steps if step.kind in TENSOR_KINDS for slot in (*step.reads, *step.writes)}
    widest = max(model.width(slot) for slot in slots if slot not in ("label", "train", "vertex"))
    at_work = threads * AT_WORK * -(-entry.vertices // config.train.intervals) * widest * item
    return published + edges + kept + at_work


def holds_rows(config: Config, manifest: Manifest) -> bool:
    """Whether a graph server's card has all published rows, and the host none."""
    model = models.kept(ModelSpec.of(config, manifest))
    return all(step.operator in ON_GPU for lane in Lane for step in model.program(lane).steps if step.publishes)


def of_rank(config: Config, manifest: Manifest, entry: PartitionEntry) -> float:
    model, item = models.kept(ModelSpec.of(config, manifest)), np.dtype(config.model.dtype).itemsize
    forward = [step for step in model.program(Lane.TRAIN).steps if step.publishes and not step.backward]
    halo = sum(model.width(str(step.publishes)) for step in forward)
    features = (2 * entry.vertices + entry.ghosts_in) * manifest.num_features
    rows = (
        COPIES * entry.vertices * sum((*config.model.widths, manifest.num_classes))
        + HALO_COPIES * entry.ghosts_in * halo
    )
    edge_bytes: float = 2 * EDGE_BYTES
    if num_attentions := sum(step.operator == "attention" for step in forward):
        edge_bytes += ATTENTION_EDGE_BYTES
        if config.model.attn_dropout:
            edge_bytes += num_attentions * config.model.heads * item + HASHED_BYTES * -(-config.model.heads // 4)
    return entry.in_edges * edge_bytes + SPARE * item * (features + rows)
