"""Estimates what a preparation will take before it starts, and whether it fits in memory or goes over the disk.

The constants were measured on 2 shared vCPUs (EPYC Zen 5, AVX-512) and an SSD of 1.8 GB/s with edge lists of 1 to 20
million edges: expect times within a factor of two on a machine of this age, memory within 30%.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from graph_data.choice import AUTO, MAX_METIS_EDGES
from graph_data.greedy import PASSES
from graph_data.memory import Budget, available, show_bytes
from graph_data.options import Options
from graph_data.partitioners import RESTREAMING, split_name
from graph_data.sources.names import Source
from graph_data.sources.sizes import Sizes
from graph_data.stream.work import size_of
from siafu.errors import DatasetError
from siafu.graph import Graph

# bytes per entry (an edge as gathered: an undirected one counts twice) of memory, where the graph is held in it
TIDY_BYTES, WEIGHTED_TIDY_BYTES, METIS_BYTES = 55, 110, 110
VERTEX_BYTES = 48
# nanoseconds per entry: of everything in memory or over the disk, of reading it as text, of partitioners and orders
MEMORY_NS, DISK_NS, TEXT_NS, METIS_NS, CLUSTERS_NS, PASS_NS = 150, 100, 100, 450, 200, 18
FEATURE_NS = 1.5  # per byte
DISK_BYTES, WEIGHTED_DISK_BYTES = 16, 32  # per edge as listed: the most that lies there at once, the shards included


@dataclass(frozen=True)
class Estimate:
    """The estimate of one preparation; ``disk_bytes`` counts the shards and the work folder."""

    on_disk: bool
    num_vertices: int
    num_edges: int  # as listed
    seconds: float
    memory_bytes: int
    memory_in_memory: int  # what it takes, or would take, in memory
    disk_bytes: int
    budget: Budget

    def line(self) -> str:
        way = "over the disk" if self.on_disk else "in memory"
        return (
            f"estimate: {self.num_edges:,} edges, about {self.num_vertices:,} vertices: {way}, "
            f"{show_time(self.seconds)}, {show_bytes(self.memory_bytes)} of memory (limit "
            f"{show_bytes(self.budget.limit)}), {show_bytes(self.disk_bytes)} of disk"
        )

    def check_disk(self, folder: Path) -> None:
        """Raises: DatasetError if the disk has too little room, beside what an interrupted preparation left there."""
        there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        free = shutil.disk_usage(there).free + size_of(folder)
        if free < self.disk_bytes:
            raise DatasetError(
                f"{folder.parent}: {show_bytes(free)} of disk are free, this needs about {show_bytes(self.disk_bytes)}"
            )


def estimate_of(found: Source | Graph, options: Options, memory: str | int | None, stream: bool | None) -> Estimate:
    """The estimate for a source. Uses the disk if ``stream`` says so, or if memory is too small."""
    sizes = sizes_of(found)
    budget = Budget.of(memory)  # now that the libraries that read the source are there
    entries = sizes.num_edges * (1 if options.directed or sizes.mirrored else 2)
    if options.task == "link":  # messages, pairs and false pairs
        entries *= 2 + options.negatives
    cutting = options.parts > 1 and options.partitioner == "metis"
    ordering = options.order.startswith("metis") or (options.order == AUTO and entries <= MAX_METIS_EDGES)
    each = METIS_BYTES if cutting or ordering else WEIGHTED_TIDY_BYTES if sizes.weighted else TIDY_BYTES
    in_memory = budget.taken + 2 * sizes.feature_bytes + VERTEX_BYTES * sizes.num_vertices + each * entries
    on_disk = in_memory > budget.limit if stream is None else stream
    if stream is None and memory is None and not streams(options):  # our own limit is no reason to refuse
        on_disk = in_memory > budget.taken + available()
    disk = 2 * sizes.feature_bytes + 40 * sizes.num_vertices
    disk += (WEIGHTED_DISK_BYTES if sizes.weighted else DISK_BYTES) * sizes.num_edges if on_disk else 4 * entries
    ns = DISK_NS if on_disk else MEMORY_NS + (METIS_NS if ordering else 0)
    ns += CLUSTERS_NS if options.order == AUTO and not on_disk and not ordering else 0
    ns += (METIS_NS if cutting else 0) + (TEXT_NS if sizes.text else 0) + PASS_NS * _passes(options)
    return Estimate(
        on_disk=on_disk,
        num_vertices=sizes.num_vertices,
        num_edges=sizes.num_edges,
        seconds=1 + 1e-9 * (ns * entries + FEATURE_NS * sizes.feature_bytes),
        memory_bytes=min(in_memory, budget.limit) if on_disk else in_memory,
        memory_in_memory=in_memory,
        disk_bytes=disk,
        budget=budget,
    )


def streams(options: Options) -> bool:
    """Whether these options need no graph in memory."""
    return (options.parts == 1 or options.partitioner != "metis") and options.order in ("auto", "given")


def _passes(options: Options) -> int:
    """How many times a streaming partitioner reads the edges."""
    name, passes = split_name(options.partitioner)
    return (passes or PASSES) if options.parts > 1 and name in RESTREAMING else 0


def sizes_of(found: Source | Graph) -> Sizes:
    """Sizes of a source, from headers and tables alone."""
    if not isinstance(found, Graph):
        return found.sizes()
    return Sizes(
        found.num_vertices, found.num_edges, found.features.nbytes, found.weight is not None, not found.directed
    )


def show_time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
