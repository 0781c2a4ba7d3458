"""The stages of a preparation on disk. A stage that an interrupted preparation has finished is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.ahead import ahead
from graph_data.census import Block, Census, Input, Numbering, take_census
from graph_data.counts import check_labels_met
from graph_data.memory import Budget
from graph_data.options import Options
from graph_data.partitioners import check_parts, owners
from graph_data.sources.ids import Ids, NamedIds
from graph_data.sources.ids import load as load_ids
from graph_data.sources.ids import save as save_ids
from graph_data.stream.buckets import Buckets, bucket_limits, keys_of, most_keys, turned
from graph_data.stream.deal import deal, deal_whole, dealt_edges, row_blocks
from graph_data.stream.localise import columns_of, ghosts_of, link_rows, weighted_degree, write_rows
from graph_data.stream.merge import Stack, merge
from graph_data.stream.vertexrows import check_features, tidy_vertices, write_vertex_rows
from graph_data.stream.work import Work
from graph_data.writer import ShardWriter, write_array
from siafu.errors import ConfigError
from siafu.features import Standard
from siafu.graph import Graph, check_edges
from siafu.shards import FileEntry, PartitionEntry, ShardSet, folder_of
from siafu.sparse import Array

THREADS = 2
BYTES_PER_VERTEX = 56  # of memory, at the most: indptr, labels, owner, columns, degrees
BYTES_PER_ID = 8  # beside, where ids are not vertex numbers
BYTES_PER_EDGE = 160  # of memory, of a block of edges as listed, with the next one being decoded
BYTES_PER_ENTRY = 48  # of memory, of a block of a CSR
MIN_BLOCK, MAX_BLOCK = 1 << 12, 1 << 21  # edges; larger blocks leave the cache
ORDER = "given"


@dataclass(frozen=True)
class InMemory:
    """A graph in memory as an input, whose edges are one piece."""

    graph: Graph

    @property
    def pieces(self) -> tuple[str, ...]:
        return (self.graph.name,)

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        if self.graph.weight is None:
            return None
        return np.dtype(np.float32 if self.graph.weight.dtype == np.float32 else np.float64)

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        graph, dtype = self.graph, self.weight_dtype
        for start in range(0, graph.num_edges, rows):
            chosen = slice(start, start + rows)
            weight = None if graph.weight is None else graph.weight[chosen].astype(dtype, copy=False)
            yield graph.src[chosen].astype(np.int64), graph.dst[chosen].astype(np.int64), weight

    def census(self, rows: int, dense_ids: int) -> Census:
        check_edges(self.graph)  # before they are cut to int64
        return take_census(self, self.graph.num_vertices, rows, dense_ids)

    def vertices(self, census: Census, scratch: Path | None) -> Graph:
        return self.graph


def check_options(options: Options, needs: str) -> None:
    """Raises: ConfigError for options that need the graph in memory; ``needs``: the memory that it would take."""
    if options.task == "link" or options.inductive is not None:
        what = "task link" if options.task == "link" else "inductive training"
        raise ConfigError(f"{what} needs the graph in memory, which takes about {needs}: raise the memory limit")
    if options.partitioner == "metis" and options.parts > 1:
        raise ConfigError(
            f"partitioner 'metis' holds the graph in memory, which takes about {needs}: choose fennel, ldg, chunk, "
            "random or hash, or raise the memory limit"
        )
    if options.order not in ("auto", ORDER):
        raise ConfigError(
            f"order {options.order!r} holds the graph in memory, which takes about {needs}: choose given, "
            "or raise the memory limit"
        )


def prepare_on_disk(source: Input, options: Options, writer: ShardWriter, work: Work, budget: Budget) -> ShardSet:
    """Writes the shards of ``source``; every array stays within ``budget``. Leaves
    ``work`` for the caller to delete."""
    return _Preparation(source, options, work, budget).run(writer)


class _Preparation:
    """The stages of a preparation. Every stage reads files and records of those before it, and writes its own."""

    def __init__(self, source: Input, options: Options, work: Work, budget: Budget) -> None:
        self.source, self.options, self.work, self.budget = source, options, work, budget
        self.weighted = source.weight_dtype is not None
        self.flagged = self.weighted and not options.directed
        self.room = budget.working  # bytes for blocks; less once the number of vertices is known
        self.sides = ("in", "out") if options.directed else ("in",)

    def run(self, writer: ShardWriter) -> ShardSet:
        self.census()
        graph = self.vertices()
        if not self.work.get("deal"):
            self.stacks()
            self.partition_owners()
            self.deal(graph)
        check_labels_met(graph, self.met())
        entries = [self.partition(p) for p in range(self.options.parts)]
        for p, entry in enumerate(entries):
            writer.adopt(self.work.path(f"shards/{folder_of(p)}"), entry)
        for note in graph.notes:
            self.work.say(note)
        writer.add_names(graph)
        writer.add_standard(Standard.load(self.work.folder))
        num_edges = sum(entry.in_edges for entry in entries)
        return writer.finish(self.options.manifest(graph, ORDER, num_edges, entries))

    def met(self) -> Array:
        """Whether each vertex is in an edge, bool [N]."""
        found = np.zeros(self.num_vertices, bool)
        for side in self.sides:
            found |= np.diff(self.stack(side).indptr()) > 0
        return found

    # --- vertices -----------------------------------------------------------------------------------------------------

    def census(self) -> None:
        """Writes ids.npy or ids.parquet (if ids are not vertex numbers) and sample.npy."""
        work = self.work
        if not work.get("census"):
            work.say("census: which vertices there are")
            found = self.source.census(self.rows(BYTES_PER_EDGE), self.room // 8)
            if found.ids is not None:
                save_ids(work.folder, found.ids)
            np.save(work.path("sample.npy"), np.stack([found.src, found.dst]))
            counts = {
                "vertices": found.num_vertices,
                "edges": found.num_edges,
                "ids": self.bytes_per_id(found),
                "apart": found.apart,
            }
            work.record("census", counts)
        counts = work.get("census")
        self.num_vertices, self.num_listed = int(counts["vertices"]), int(counts["edges"])
        each = BYTES_PER_VERTEX + counts["ids"]
        self.room = self.budget.beside(each * self.num_vertices, f"{self.num_vertices} vertices at {each} bytes each")

    def bytes_per_id(self, census: Census) -> int:
        """Memory bytes per vertex for its id, beside BYTES_PER_VERTEX; 0 if ids are vertex numbers."""
        if isinstance(census.ids, NamedIds):
            return -(-census.ids.nbytes // census.num_vertices)
        return BYTES_PER_ID if census.ids is not None else 0

    def ids(self) -> Ids | None:
        return load_ids(self.work.folder)

    def vertices(self) -> Graph:
        """The graph without its edges, checked, with a split."""
        nothing = np.empty(0, np.int64)
        census = Census(
            self.num_vertices, self.num_listed, self.ids(), nothing, nothing, self.work.get("census")["apart"]
        )
        graph = self.options.with_columns(self.source.vertices(census, self.work.path("features.npy")))
        if graph.num_edge_types > 1:
            raise ConfigError(f"{graph.name}: edges with types need the graph in memory: raise the memory limit")
        check_parts(graph.name, graph.num_vertices, self.options.partitioner, self.options.parts)
        if not self.work.get("vertices"):
            self.work.say("vertices: features and labels")
            check_features(graph)
            self.work.record("vertices", True)
        return self.options.with_split(tidy_vertices(graph, self.options.feature_norm))

    # --- edges --------------------------------------------------------------------------------------------------------

    def stacks(self) -> None:
        """Writes the CSR of the in-edges, and of the out-edges of a directed graph."""
        self.merged("in", self.spread)
        if "out" in self.sides:
            self.merged("out", self.turn)

    def merged(self, side: str, fill: Callable[[Buckets], None]) -> None:
        buckets = self.buckets(side)
        if not self.work.get(f"spread {side}"):
            fill(buckets)
            self.work.record(f"spread {side}", {"buckets": len(buckets)})
        if not self.work.get(f"merged {side}"):
            self.work.say(f"merge: {len(buckets)} buckets of {side}-edges")
            merge(self.work, f"merge {side}", buckets, self.stack(side), THREADS)
            self.work.record(f"merged {side}", True)

    def buckets(self, side: str) -> Buckets:
        """The buckets of a side; their limits are chosen the first time."""
        folder, flagged = self.work.path(f"buckets-{side}"), self.flagged and side == "in"
        if not self.work.get(f"buckets {side}"):
            src, dst = np.load(self.work.path("sample.npy"))
            ends = src if side == "out" else dst if self.options.directed else np.concatenate([src, dst])
            numbers = Numbering(self.ids(), 0).of(ends)
            keys = self.num_listed * (1 if self.options.directed else 2)
            limits = bucket_limits(
                numbers, keys, self.num_vertices, most_keys(self.room // (THREADS + 1), self.weighted)
            )
            self.work.record(f"buckets {side}", limits.tolist())
        firsts = np.array(self.work.get(f"buckets {side}"), np.int64)
        dtype = self.source.weight_dtype if side == "in" else np.dtype(np.float32) if self.weighted else None
        return Buckets(folder, firsts, self.num_vertices, dtype, flagged)

    def stack(self, side: str) -> Stack:
        return Stack(self.work.folder, side, self.weighted)

    def spread(self, buckets: Buckets) -> None:
        """Reads the edge list, piece by piece, into the buckets of the in-edges."""
        numbering = Numbering(self.ids(), self.room // 16)
        rows, edges = self.rows(BYTES_PER_EDGE), self.source
        done = self.work.get("pieces") or {"pieces": 0, "sizes": [0] * len(buckets)}
        buckets.truncate(done["sizes"])
        for piece in range(done["pieces"], len(edges.pieces)):
            self.work.say(f"spread: {edges.pieces[piece]}")
            blocks = keys_of(
                numbering.blocks(edges, piece, rows), self.num_vertices, self.options.directed, self.flagged
            )
            self.fill(buckets, blocks)
            self.work.record("pieces", {"pieces": piece + 1, "sizes": buckets.sizes()})

    def turn(self, buckets: Buckets) -> None:
        """Reverses the in-edges, into the buckets of the out-edges."""
        self.work.say("turn: out-edges of a directed graph")
        buckets.truncate([0] * len(buckets))
        edges = self.stack("in").edges()
        blocks = row_blocks(edges.indptr, self.rows(BYTES_PER_EDGE))
        self.fill(buckets, (turned(edges, start, stop, self.num_vertices) for start, stop in blocks))

    def fill(self, buckets: Buckets, blocks: Iterator[tuple[Array, Array | None]]) -> None:
        """Adds all blocks in their order, sorting one while the next is being read."""
        for _ in ahead(lambda block: buckets.add(*block), blocks, 1):
            pass

    # --- partitions ---------------------------------------------------------------------------------------------------

    def partition_owners(self) -> None:
        """Writes owner.npy."""
        if self.work.get("owners"):
            return
        self.work.say(f"owners: {self.options.partitioner}")
        sides = [self.stack(side).edges() for side in self.sides]
        owner = owners(sides, self.options.partitioner, self.options.parts, self.options.seed)
        np.save(self.work.path("owner.npy"), owner)
        self.work.record("owners", True)

    def deal(self, graph: Graph) -> None:
        """Writes the data of every partition: rows of edges with global columns, rows of vertices, and all degrees."""
        work, parts, entries = self.work, self.options.parts, self.rows(BYTES_PER_ENTRY)
        folder, owner = work.path("dealt"), np.load(work.path("owner.npy"))
        folder.mkdir(exist_ok=True)
        for side in self.sides:
            work.say(f"deal: {side}-edges to {parts} partition(s)")
            edges = self.stack(side).edges()
            if parts == 1:
                deal_whole(folder, side, self.stack(side).entries())
            else:
                deal(folder, side, edges, owner, parts, entries, THREADS)
            if side == "in" and self.weighted:
                np.save(work.path("degree.npy"), weighted_degree(edges, entries))
        work.say("deal: vertex rows")
        norm = self.options.feature_norm
        standard = self.options.standard(graph) if norm == "standard" else None
        if standard is not None:
            standard.save(work.folder)
        files = write_vertex_rows(work.path("shards"), graph, owner, parts, norm, standard)
        work.record("deal", [{name: asdict(entry) for name, entry in of_part.items()} for of_part in files])
        for side in self.sides:
            for file in self.stack(side).entries().values():
                file.unlink()

    def partition(self, p: int) -> PartitionEntry:
        """The shard of partition p, in the folder shards/."""
        step = f"partition {p}"
        if not self.work.get(step):
            self.work.say(f"localise: partition {p}")
            self.work.record(step, asdict(self.localised(p)))
            for file in self.work.path("dealt").glob(f"*-{p:05d}.*"):
                file.unlink()
        found = self.work.get(step)
        return PartitionEntry(
            **{**found, "files": {name: FileEntry(**entry) for name, entry in found["files"].items()}}
        )

    def localised(self, p: int) -> PartitionEntry:
        owner = np.load(self.work.path("owner.npy"))
        vertices = np.flatnonzero(owner == p)
        folder = self.work.path(f"shards/{folder_of(p)}")
        files = {name: FileEntry(**entry) for name, entry in self.work.get("deal")[p].items()}
        files["degree.npy"] = write_array(folder / "degree.npy", self.degree(vertices))
        counts: dict[str, int] = {}
        for side in self.sides:
            indptr = self.stack(side).indptr()
            edges = dealt_edges(self.work.path("dealt"), side, p, indptr, vertices, self.weighted)
            one = self.options.parts == 1  # then nothing is foreign, and local columns are global ones
            ghosts = vertices[:0] if one else ghosts_of(edges, p, owner, self.rows(BYTES_PER_ENTRY), THREADS)
            arrays = {
                f"{side}_indptr": edges.indptr,
                f"ghosts_{side}": ghosts,
                f"ghosts_{side}_owner": owner[ghosts],
                f"degree_ghosts_{side}": self.degree(ghosts),
            }
            files |= {f"{name}.npy": write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
            if one:
                written, cut = link_rows(self.work.path("dealt"), folder, side, self.weighted), 0
            else:
                column = columns_of(vertices, ghosts, self.num_vertices)
                width = len(vertices) + len(ghosts)
                written, cut = write_rows(folder, side, edges, column, width, self.rows(BYTES_PER_ENTRY), THREADS)
            files |= written
            counts |= {f"{side}_edges": int(edges.indptr[-1]), f"ghosts_{side}": len(ghosts)}
            counts.setdefault("cut_edges", cut)  # of the in-edges
        if len(self.sides) == 1:
            counts |= {"out_edges": counts["in_edges"], "ghosts_out": counts["ghosts_in"]}
        return PartitionEntry(vertices=len(vertices), files=files, **counts)

    def degree(self, vertices: Array) -> Array:
        """In-degree of these vertices in the whole graph, float64 [k]."""
        if self.weighted:
            found: Array = np.load(self.work.path("degree.npy"))[vertices]
            return found
        return self.stack("in").counts()[vertices].astype(np.float64)

    def rows(self, nbytes: int) -> int:
        """Number of edges of ``nbytes`` each in a block."""
        return min(max(self.room // (nbytes * (THREADS + 1)), MIN_BLOCK), MAX_BLOCK)
