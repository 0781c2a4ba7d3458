"""Speeds of EC2 machines relative to the calibrated one: number and speed of cores, memory, network. Pure but for
reading ``cores.csv`` and ``chips.csv``.

1. A vCPU is a core on Graviton, and on AMD from the seventh generation on. On Intel and older AMD (machines with GPUs
   have them), two vCPUs are one core. There are as many threads as cores.
2. Speeds of cores are assumptions. The newest generation of every maker counts as the calibrated core; older ones are
   slower by AWS's announcements of each generation ("up to"). A family that is not in the table counts as the
   calibrated core. A Lambda's vCPU is a row too, by its architecture.
3. ``chips.csv`` has published figures of the processors: peak flop/s of a core, bandwidth of a socket's memory, and the
   last-level cache. Products run no faster than the peak, whatever rule 2 says. A machine has the same share of the
   socket's bandwidth as of its vCPUs: other machines use the rest. An unpublished figure limits nothing.
4. A link has its burst for ``BURST_S`` and then its baseline: over a run of known bytes it has the mean rate that such
   a bucket gives. A TCP connection has ``FLOW_GBPS`` at most, outside a placement group.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from cost_planner.plan.memory_traffic import Bandwidth
from cost_planner.plan.parts import LinkRate
from cost_planner.plan.speeds import Speeds
from siafu.places import CORE_MB
from siafu.pricing.prices import Instance

FILE, CHIPS = (Path(__file__).with_name(name) for name in ("cores.csv", "chips.csv"))
#: AWS: bursts last "typically from 5 to 60 minutes, depending on the instance size". The least of it.
BURST_S = 300.0
FLOW_GBPS = 5.0
#: How far off a speed of ``cores.csv`` may be: a guess.
SPEED_ERROR = 0.2
#: Paid for in CPU credits: at full load for hours they are something else.
BURSTABLE = ("t2", "t3", "t3a", "t4g")


@dataclass(frozen=True)
class Chip:
    """A processor: figures that its makers, or others, publish."""

    name: str
    cores: int  # of a socket
    flops: float  # float32, at most, of a core; inf: not known
    bytes_per_s: float  # of a socket's memory
    cache_bytes: float  # the last-level cache that a core sees
    source: str
    as_of: str  # date on which the source was read
    watts_per_vcpu: float | None = None  # at full load; None: not known


@dataclass(frozen=True)
class Cores:
    """The cores of a family of instances."""

    speed: float  # beside the calibrated core
    vcpus_per_core: int
    source: str
    chip: Chip | None = None  # None: nothing is known of it

    def speeds(self, calibrated: Speeds) -> Speeds:
        """Speeds of one of these cores, by rules 2 and 3."""
        found = calibrated.scaled(1 / self.speed)
        return replace(found, flop_ns=max(found.flop_ns, 1e9 / self.chip.flops)) if self.chip else found


def family(machine: Instance) -> str:
    return machine.name.partition(".")[0]


def cores_of(machine: Instance) -> Cores:
    unknown = Cores(1.0, 1 if machine.arch == "arm64" else 2, "not known: taken as the calibrated core")
    return _table().get(family(machine), unknown)


def of_lambda(arch: str) -> Cores:
    """A vCPU of Lambda, on which an environment of ``places.CORE_MB`` computes."""
    return _table()[f"lambda {arch}"]


def lambda_share(memory_mb: int) -> float:
    """An environment's share of a vCPU."""
    return min(1.0, memory_mb / CORE_MB)


def memory_of(machine: Instance, random_share: float = 1.0) -> Bandwidth:
    """A machine's memory, which all its cores share: rule 3. ``random_share``: share of its rate that random rows
    get."""
    found = cores_of(machine)
    if found.chip is None:
        return Bandwidth()
    share = machine.vcpu / (found.chip.cores * found.vcpus_per_core)
    return Bandwidth(share * found.chip.bytes_per_s, found.chip.cache_bytes, random_share)


def threads_of(machine: Instance) -> int:
    return max(1, machine.vcpu // cores_of(machine).vcpus_per_core)


def link_of(machine: Instance, nbytes: float, *, connections: int) -> LinkRate:
    """One direction of a machine's link, in a run that sends ``nbytes`` over it."""
    base = (machine.network_baseline_gbps or machine.network_gbps or 0.0) * 1e9 / 8
    peak = max(base, (machine.network_gbps or 0.0) * 1e9 / 8)
    most = max(1, connections) * FLOW_GBPS * 1e9 / 8
    fast = peak * BURST_S
    seconds = min(nbytes, fast) / peak + max(0.0, nbytes - fast) / base
    return LinkRate(min(most, nbytes / seconds if nbytes else peak))


@lru_cache(maxsize=1)
def _table() -> dict[str, Cores]:
    chips = {chip.name: chip for chip in map(_chip, _rows(CHIPS))}
    return {
        row["family"]: Cores(
            float(row["speed"]), int(row["vcpus_per_core"]), row["source"], chips[row["chip"]] if row["chip"] else None
        )
        for row in _rows(FILE)
    }


def _chip(row: dict[str, str]) -> Chip:
    return Chip(
        row["chip"],
        int(row["cores"]),
        float(row["gflops_per_core"] or math.inf) * 1e9,
        float(row["memory_gb_per_s"]) * 1e9,
        float(row["cache_mib"]) * 2**20,
        row["source"],
        row["as_of"],
        float(row["watts_per_vcpu"]) if row["watts_per_vcpu"] else None,
    )


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
