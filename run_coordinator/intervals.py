"""How many intervals a graph server has where nobody says. Pure.

Intervals are what a server's threads and Lambdas share, and what lets one's transfer overlap another's computing; each
costs the server its messages and bookkeeping, some 0.5 ms for each of an epoch's steps, whatever its rows. So:

1. On threads, a GPU, or environments of this machine, a tensor task reads ``VALUES`` values of rows on the mean, which
   takes it ten times as long as what an interval costs; more than ``MOST`` intervals nobody needs to keep busy.
2. Lambdas are many, and each has a link of its own: there are ``MOST``, however small.
3. There are no more than vertices: they would only be empty tasks.
"""

from __future__ import annotations

import math

from siafu.config import Config
from siafu.shards import Manifest, PartitionEntry

MOST = 16
VALUES = 1 << 20


def of(config: Config, manifest: Manifest) -> int:
    """``train.intervals`` of a run on these shards; by the rules above where it is 0."""
    smallest = min(entry.vertices for entry in manifest.partitions)
    if config.train.intervals:
        return min(config.train.intervals, smallest)
    if config.servers.backend == "lambda" and not config.lambdas.place.same_machine:
        return min(MOST, smallest)
    widths = list(config.model.widths)
    largest = max(_first_values(manifest, entry) + entry.vertices * sum(widths) for entry in manifest.partitions)
    return max(1, min(MOST, smallest, math.ceil(largest / (1 + len(widths)) / VALUES)))


def _first_values(manifest: Manifest, entry: PartitionEntry) -> float:
    """Of a partition's gathered features: a sparse row's are those of all its neighbours, at most."""
    if not manifest.sparse_features:
        return entry.vertices * manifest.num_features
    stored = entry.files["features_indices.npy"].bytes / 4
    return min(entry.vertices * manifest.num_features, stored * (1 + entry.in_edges / max(1, entry.vertices)))
