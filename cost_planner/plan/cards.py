"""What the GPUs of EC2 machines do: their makers' figures, and how much of them a run is taken to get. Pure
but for reading ``cards.csv``. One card has been measured: on an H200, epochs of GCN and GraphSAGE (3 layers of 128,
a quarter of Reddit's shape, vanilla) took 0.65 and 0.72 of what is predicted here (docs/measured/gpu.md). An option
with a card is taken to be off by ``CARD_ERROR``, whatever was calibrated.

1. Sums over edges read a row of another vertex for each edge, and are limited by the card's memory: no cache is
   counted. Products take the longer of their arithmetic and the transfer of their operands through that memory.
2. Kernels get ``OF_PEAK`` of either figure, and of the links between cards.
3. Arrays go from the host's ordinary memory to the card, and back, at ``OF_PEAK`` of PCIe's rate and no faster
   than a core of the host copies them.
4. Every operation that the host starts takes ``ORDER_S`` of the card: Python, the launch, waiting for the result.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cost_planner.memory import GIB
from siafu.config import GPU_KEPT_SHARE
from siafu.pricing.prices import Instance

FILE = Path(__file__).with_name("cards.csv")
#: Assumed, as are those below. Published kernels for sparse sums reach a third to nine
#: tenths of a card's memory bandwidth.
OF_PEAK = 0.5
PAGEABLE_BYTES_PER_S = 4e9
ORDER_S = 1e-4
#: More than a server without: torch is read, CUDA and NCCL begin.
START_S = 15.0
#: Families of Arm machines with cards that torch's wheels for Arm are not built for. As
#: we remember it: nobody has tried.
NO_TORCH = ("g5g",)
#: Of times with a card, relative: half of it to twice as much.
CARD_ERROR = 1.0
#: Of a card's memory: what CUDA and torch take before there is any array.
CONTEXT_GIB = 0.75
#: Of an edge in CSR: its other end and its weight.
EDGE_BYTES = 8


@dataclass(frozen=True)
class Card:
    name: str
    bytes_per_s: float  # of its memory
    flops: float  # fp32
    host_bytes_per_s: float  # PCIe, one way
    peer_bytes_per_s: float  # to another card of the machine, one way
    memory_gib: float
    source: str
    as_of: str

    def gather_s(self, edges: float, rows: float, row_bytes: float) -> float:
        """Seconds to sum rows along ``edges`` into ``rows`` rows."""
        nbytes = edges * (row_bytes + EDGE_BYTES) + 2 * rows * row_bytes
        return ORDER_S + nbytes / (OF_PEAK * self.bytes_per_s)

    def product_s(self, flops: float, nbytes: float, orders: int) -> float:
        """Seconds of products. ``nbytes``: of operands and results."""
        return orders * ORDER_S + max(flops / self.flops, nbytes / self.bytes_per_s) / OF_PEAK

    def copy_s(self, nbytes: float) -> float:
        """Seconds of a copy between host and card."""
        return nbytes / min(OF_PEAK * self.host_bytes_per_s, PAGEABLE_BYTES_PER_S)

    @property
    def kept_bytes(self) -> float:
        """Bytes available for copies of constants (``graph_server.backends.gpu``)."""
        return GPU_KEPT_SHARE * (self.memory_gib - CONTEXT_GIB) * GIB

    @property
    def figures(self) -> str:
        return f"{self.name} {self.bytes_per_s / 1e9:g} GB/s and {self.flops / 1e12:g} TFLOPS"


def count_of(machine: Instance) -> int:
    """The number of cards in a machine."""
    found = re.match(r"(\d+)x ", machine.gpu)
    return int(found[1]) if found else 0


def card_of(machine: Instance) -> Card | None:
    """One card of a machine. None: no card, or a card without figures here."""
    row = _table().get(machine.gpu.partition(" NVIDIA ")[2])
    if row is None or machine.gpu_mem_gib is None:
        return None
    giga = {name: float(row[f"{name}_gb_per_s"]) * 1e9 for name in ("memory", "host", "peer")}
    return Card(
        row["card"],
        giga["memory"],
        float(row["fp32_tflops"]) * 1e12,
        giga["host"],
        giga["peer"],
        machine.gpu_mem_gib / count_of(machine),
        row["source"],
        row["as_of"],
    )


def gib(nbytes: float) -> float:
    """GiB on a card, including torch's own memory."""
    return CONTEXT_GIB + nbytes / GIB


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, str]]:
    with FILE.open(newline="", encoding="utf-8") as file:
        return {row["card"]: row for row in csv.DictReader(file)}
