"""A run with a given number of servers and threads, before its machines are chosen: its config, its estimated shards,
and the memory of its processes.

A server has as many intervals as ``siafu train`` would choose (``run_coordinator.intervals``), unless the user says.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from cost_planner import memory
from cost_planner.memory import GIB
from cost_planner.plan import card_memory
from cost_planner.plan.asked import Asked, Backend
from cost_planner.plan.work import Counts
from run_coordinator import intervals
from siafu.config import Config, Train
from siafu.shards import Manifest, PartitionEntry


@dataclass(frozen=True, eq=False)
class Fitted:
    """A number of servers and threads: the config, estimated shards, and memory."""

    config: Config
    manifest: Manifest
    counts: Counts
    shard_bytes: int  # of the largest shard
    largest: tuple[Config, Manifest, PartitionEntry]  # that shard's, as ``card_memory`` asks for it
    memory_gib: dict[str, float]  # of one process of each role
    trains: tuple[Train, ...]  # of the modes that are asked for, with the epochs that they need

    @classmethod
    def of(cls, asked: Asked, servers: int, backend: Backend, threads: int) -> Fitted:
        base, manifest = asked.config, asked.graph.manifest(servers)
        largest = max(manifest.partitions, key=lambda entry: entry.in_edges + entry.ghosts_in)
        shard_bytes = sum(file.bytes for file in largest.files.values())
        train = replace(base.train, intervals=asked.intervals or base.train.intervals, staleness=0, mode="pipe")
        roles = replace(base.servers, backend="gpu" if backend == "vanilla" else backend, threads=threads)
        config = replace(
            base,
            data=replace(base.data, parts=servers),
            servers=roles,
            run=replace(base.run, on="aws"),
            lambdas=replace(base.lambdas, on="aws"),
            train=train,
            cloud=replace(base.cloud, volume_gib=max(base.cloud.volume_gib, math.ceil(2 * shard_bytes / GIB))),
        )
        train = replace(train, intervals=intervals.of(config, manifest))
        config = replace(config, train=train)
        trains = tuple(
            replace(train, mode=mode, staleness=staleness, epochs=asked.epochs.of(mode, staleness))
            for mode, staleness in asked.modes
        )
        gib = _memory_gib(config, replace(manifest, partitions=(largest,)), threads)
        return cls(
            config,
            manifest,
            Counts.of(manifest, config.data.split),
            shard_bytes,
            (config, manifest, largest),
            gib,
            trains,
        )


def _memory_gib(config: Config, largest: Manifest, threads: int) -> dict[str, float]:
    """GiB of one process of each role; the manifest is of one partition. Environments keep as many constant rows as
    fit: none are counted."""
    bare = replace(config, lambdas=replace(config.lambdas, count=1, keep_constants=False))
    processes, found = memory.processes(bare, threads), Counter[str]()
    on_card = config.servers.backend == "gpu" and card_memory.holds_rows(config, largest)
    for part in memory.predict(bare, largest, cores=threads).parts:
        if on_card and part.name == "published rows":
            continue
        of_all = part.role != memory.GRAPH_SERVERS or part.name in ("interpreters", "shared libraries")
        found[part.role] += part.nbytes / (processes[part.role] if of_all else 1) / GIB  # type: ignore[assignment]
    return dict(found)
