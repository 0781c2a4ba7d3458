"""The number of intervals of a graph server, unless the user sets it. Pure.

A server's threads and Lambdas share the intervals, and the transfers of one interval overlap the computing of another.
But each interval costs the server messages and bookkeeping, some 0.5 ms per step of an epoch, however few its rows. So:

1. On threads or a GPU, a tensor task reads ``VALUES`` values of rows on average. If there are fewer tasks than threads,
   all threads share one task's products; larger tasks would not fit the caches. More than ``MOST`` intervals gain
   nothing.
2. An environment on this machine has one thread. There are at least two environments, and each computes on one interval
   while the rows of another travel. So there are ``IN_ENVIRONMENTS`` intervals, as long as a task reads at least
   ``LEAST_VALUES``, which takes ten times as long as the fixed cost of an interval.
3. Lambdas elsewhere are many, and each has its own link: there are ``MOST`` intervals, however small.
4. There are no more intervals than vertices: further ones would be empty tasks.
"""

from __future__ import annotations

import math

from siafu import models, views
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.shards import Manifest, PartitionEntry
from siafu.tasks import Lane

MOST = 16
VALUES, LEAST_VALUES = 1 << 22, 1 << 20
IN_ENVIRONMENTS = 4


def of(config: Config, manifest: Manifest) -> int:
    """``train.intervals`` of a run on these shards; by the rules above if it is 0."""
    smallest = min(entry.vertices for entry in manifest.partitions)
    if config.train.intervals:
        return min(config.train.intervals, smallest)
    in_lambdas = config.servers.backend == "lambda"
    if in_lambdas and not config.lambdas.place.same_machine:
        return min(MOST, smallest)
    widths = list(config.model.widths)
    largest = max(
        _first_values(config, manifest, entry) + entry.vertices * sum(widths) for entry in manifest.partitions
    )
    values = largest / (1 + len(widths))
    wanted = math.ceil(values / VALUES)
    if in_lambdas:
        wanted = max(wanted, min(IN_ENVIRONMENTS, math.ceil(values / LEAST_VALUES)))
    return max(1, min(MOST, smallest, wanted))


def _first_values(config: Config, manifest: Manifest, entry: PartitionEntry) -> float:
    """Feature values of a partition that tasks read, in the lane that reads most. A sum of sparse rows has at most the
    words of all neighbours. But training may read few of these sums, and evaluations rows as they are (ADR 0043, 0044).
    """
    dense = entry.vertices * manifest.num_features
    if not manifest.sparse_features:
        return dense
    degree = entry.in_edges / max(1, entry.vertices)
    gathered = min(dense, entry.words * (1 + degree))
    model = models.kept(ModelSpec.of(config, manifest))
    training = model.program(Lane.TRAIN)
    if model.program(Lane.EVAL).constants or not training.of_loss:
        return gathered
    trains = manifest.splits[config.data.split].train / max(1, manifest.num_vertices)
    return max(entry.words, views.share_that_feeds(min(1.0, trains * (1 + degree))) * gathered)
