"""Epochs of vanilla partition-parallel training that others published, beside what the planner says of such a run:
``published.csv`` has them, of PipeGCN (Wan et al., ICLR 2022, Table 4; "GCN" there) and AdaQP (Wan et al., MLSys 2023,
Table 4; rows that the text of the PDF gives without doubt). No constant of the planner is fitted to them.

    python -m benchmarks.published [--json FILE]

1. Edges are as gathered: twice those of an undirected graph. Sizes are Table 3 of either paper. ``trains``: PipeGCN's
   scripts (RICE-EIC/PipeGCN, beac94c) train on Reddit's and Yelp's training vertices alone, which are taken to lie
   anywhere; and two of Yelp's four layers are linear: they are counted as one that gathers.
2. ``remote``: rows of others that a part reads, for each of its own (AdaQP, Table 1; of ogbn-products in 5 and 10
   parts, on the line through those of 4 and 8 over the logarithm of the parts). Where nobody published them, they are
   those that the planner assumes of a graph that nobody has cut.
3. PipeGCN keeps layer 0's aggregate, as siafu does; AdaQP sends and gathers the features in every epoch (section 2).
4. Rows travel as in both systems' code (RICE-EIC/PipeGCN, beac94c, whose default is Gloo; raywan-110/AdaQP, 6bb6701,
   which refuses any other): from the card into the host's memory over PCIe 3.0 x16, to the other process with Gloo over
   TCP, and onto the other card, one after the other. A process sends with ``GLOO``, as measured between two processes
   of one machine (``benchmarks.acceptance.baselines.gloo``). AdaQP's two machines share 100 Gb/s for all their cards.
5. ``communication``: its share of an epoch (PipeGCN, Table 2; AdaQP, Table 1, of its GCN). The rest is computing. It is
   predicted with links that take no time.
6. Without evaluations: neither paper counts them.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.acceptance import table
from cost_planner.plan import graphs, vanilla
from cost_planner.plan.cards import OF_PEAK, Card
from cost_planner.plan.simulator import simulated
from cost_planner.plan.work import Counts
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.shards import Manifest

FILE = Path(__file__).with_name("published.csv")
PCIE, NETWORK = 16e9, 100e9 / 8
#: bytes/s that each of two processes sends and receives at once: two cores of an Intel Xeon, torch 2.13, 2026-11-28.
GLOO = 1.4e9
CARDS = {
    "RTX 2080 Ti": Card("RTX 2080 Ti", 616e9, 13.4e12, PCIE, PCIE, 11, "NVIDIA RTX 2080 Ti data sheet", "2026-11-28"),
    "V100": Card("V100", 900e9, 15.7e12, PCIE, 150e9, 32, "NVIDIA V100 data sheet (SXM2)", "2026-11-22"),
}
FLOAT_BYTES = 4
#: Half of it to twice as much.
CLOSE = 2.0


@dataclass(frozen=True)
class Published:
    """A row of the file."""

    paper: str
    graph: str
    vertices: int
    edges: int
    trains: float  # share of the vertices that the run sees
    features: int
    classes: int
    model: str
    layers: int
    hidden: int
    machines: int
    parts: int
    card: str
    remote: float | None
    epochs_per_s: float
    communication: float | None

    @property
    def words(self) -> str:
        shape = f"{self.model} {self.layers} x {self.hidden}"
        return f"{self.paper}: {self.graph}, {shape}, {self.parts} x {self.card}"

    @property
    def epoch_s(self) -> float:
        return 1 / self.epochs_per_s

    @cached_property
    def manifest(self) -> Manifest:
        vertices, edges = round(self.trains * self.vertices), round(self.trains**2 * self.edges)
        found = graphs.of_counts(vertices, edges, self.features, self.classes).manifest(self.parts)
        if self.remote is None:
            return found
        ghosts = round(self.remote * self.vertices / self.parts)
        alike = replace(found.partitions[0], ghosts_in=ghosts, ghosts_out=ghosts)
        return replace(found, partitions=(alike,) * self.parts)

    @property
    def joined(self) -> Card:
        """A card as the others see it (rule 4): of its messages, those that leave the machine share the network."""
        card, each, rate = CARDS[self.card], self.parts // self.machines, GLOO
        if self.machines > 1:
            leaves = (self.parts - each) / (self.parts - 1)
            rate = min(rate, OF_PEAK * NETWORK / each / leaves)
        seconds = 2 / (OF_PEAK * card.host_bytes_per_s) + 1 / rate  # of a byte
        return replace(card, peer_bytes_per_s=1 / seconds / OF_PEAK)  # of which the planner takes OF_PEAK

    @property
    def computing_s(self) -> float | None:
        return None if self.communication is None else self.epoch_s * (1 - self.communication)

    def predicted_s(self, *, travels: bool = True) -> float:
        """``travels``: whether rows take time on their way."""
        config = Config().replace(
            {
                "model.name": self.model,
                "model.layers": self.layers,
                "model.hidden": (self.hidden,),
                "train.eval_every": 0,
            }
        )
        counts, card = Counts.of(self.manifest), self.joined
        if not travels:
            card = replace(card, peer_bytes_per_s=math.inf)
        plan = vanilla.plan_of(config, ModelSpec.of(config, self.manifest), counts, card)
        seconds = simulated(plan, 4, Random(0)).epoch_s
        if self.paper != "AdaQP":
            return seconds
        row_bytes = self.features * FLOAT_BYTES  # rule 3
        sent_s = counts.ghosts * row_bytes / (OF_PEAK * card.peer_bytes_per_s)
        return seconds + sent_s + card.gather_s(counts.edges, counts.vertices, row_bytes)


def published() -> list[Published]:
    with FILE.open() as file:
        return [_of(row) for row in csv.DictReader(file)]


def _of(row: dict[str, str]) -> Published:
    counts = ("vertices", "edges", "features", "classes", "layers", "hidden", "machines", "parts")
    told: dict[str, Any] = {**row, **{name: int(row[name]) for name in counts}}
    shares = {name: float(row[name]) if row[name] else None for name in ("remote", "communication")}
    numbers = {name: float(row[name]) for name in ("trains", "epochs_per_s")}
    return Published(**{**told, **shares, **numbers})


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(__doc__).parse_args(argv)
    rows = [
        {
            "run": one.words,
            "published epoch, s": round(one.epoch_s, 2),
            "predicted / published": round(one.predicted_s() / one.epoch_s, 2),
            "computing alone": (
                round(one.predicted_s(travels=False) / one.computing_s, 2) if one.computing_s is not None else ""
            ),
        }
        for one in published()
    ]
    table.show(rows)
    table.markdown(rows)
    table.record(args.json, rows)
    close = sum(1 / CLOSE <= float(row["predicted / published"]) <= CLOSE for row in rows)
    print(f"within a factor of {CLOSE:g}: {close} of {len(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
