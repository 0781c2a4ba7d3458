"""What a machine of EC2 does beside the one that was calibrated: its cores, how fast each is, and its network.
Pure but for reading ``cores.csv``.

1. A vCPU is a core on Graviton and on AMD from the seventh generation on; of Intel's and of older ones of AMD (machines
   with GPUs have them) two are one core. Threads are cores.
2. Speeds of cores are assumptions: the newest generation of every maker is taken for the calibrated core,
   older ones are slower by what AWS announced of each generation ("up to"). A family that is not in the
   table counts as the calibrated core. A Lambda's vCPU is a row too, by its architecture.
3. A link has its burst for ``BURST_S`` and its baseline for ever: over a run of known bytes it has the rate between the
   two that such a bucket gives. A TCP connection has ``scale.AWS.flow_gbps`` at most.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cost_planner.plan.parts import LinkRate
from cost_planner.scale import AWS, GB
from siafu.places import CORE_MB
from siafu.pricing.prices import Instance

FILE = Path(__file__).with_name("cores.csv")
#: AWS: bursts last "typically from 5 to 60 minutes, depending on the instance size". The least of it.
BURST_S = 300.0
#: How far off a speed of ``cores.csv`` may be: a guess.
SPEED_ERROR = 0.2
#: Paid for in CPU credits: at full load for hours they are something else.
BURSTABLE = ("t2", "t3", "t3a", "t4g")


@dataclass(frozen=True)
class Cores:
    """Of a family of instances."""

    speed: float  # beside the calibrated core
    vcpus_per_core: int
    source: str


def family(machine: Instance) -> str:
    return machine.name.partition(".")[0]


def cores_of(machine: Instance) -> Cores:
    unknown = Cores(1.0, 1 if machine.arch == "arm64" else 2, "not known: taken as the calibrated core")
    return _table().get(family(machine), unknown)


def of_lambda(memory_mb: int, arch: str) -> float:
    """The share of the calibrated core that an environment computes with."""
    return min(1.0, memory_mb / CORE_MB) * _table()[f"lambda {arch}"].speed


def threads_of(machine: Instance) -> int:
    return max(1, machine.vcpu // cores_of(machine).vcpus_per_core)


def link_of(machine: Instance, nbytes: float, *, connections: int) -> LinkRate:
    """A machine's link, one way, over a run that sends so much over it."""
    base = (machine.network_baseline_gbps or machine.network_gbps or 0.0) * GB / 8
    peak = max(base, (machine.network_gbps or 0.0) * GB / 8)
    most = max(1, connections) * AWS.flow_gbps * GB / 8
    fast = peak * BURST_S
    seconds = min(nbytes, fast) / peak + max(0.0, nbytes - fast) / base
    return LinkRate(min(most, nbytes / seconds if nbytes else peak))


@lru_cache(maxsize=1)
def _table() -> dict[str, Cores]:
    with FILE.open(newline="", encoding="utf-8") as file:
        return {
            row["family"]: Cores(float(row["speed"]), int(row["vcpus_per_core"]), row["source"])
            for row in csv.DictReader(file)
        }
