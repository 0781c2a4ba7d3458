"""siafu.allotment: cores and memory that are ours, read from files as Linux, Docker, Kubernetes and Slurm have them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from siafu import allotment

GIB = 2**30
Machine = Callable[..., None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes one of 64 cores and 256 GiB: its files, and the variables of a job on it."""

    def make(cgroup: str, files: dict[str, str], affinity: int = 64, **variables: str) -> None:
        statm = {"proc/self/statm": f"1000 {GIB // 4096} 0"}
        for name, text in {"proc/self/cgroup": cgroup, **statm, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setattr(allotment, "ROOT", tmp_path)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
        monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 256 * GIB // 4096}.__getitem__)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return make


#: A quota in the group above ours binds too: a pod's, or a systemd slice's.
V2 = {"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "250000 100000"}
V1 = {
    "sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_quota_us": "400000",
    "sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_period_us": "100000",
}
FREE = {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}
#: In a container the path is that of the host, and the mount's top is our group.
INSIDE = {"sys/fs/cgroup/cpu.max": "50000 100000"}


@pytest.mark.parametrize(
    ("cgroup", "files", "options", "expected"),
    [
        ("", {}, {}, 64),
        ("", {}, {"affinity": 3}, 3),
        ("0::/a/b", V2, {}, 3),
        ("0::/a/b", V2, {"affinity": 2}, 2),
        ("4:cpu,cpuacct:/d\n1:memory:/d", V1, {}, 4),
        ("4:cpu:/", FREE, {}, 64),
        ("0::/docker/123", INSIDE, {}, 1),
        ("", {}, {"SLURM_CPUS_ON_NODE": "16"}, 16),
        ("", {}, {"SLURM_CPUS_ON_NODE": "16", "SLURM_CPUS_PER_TASK": "4"}, 4),
        ("", {}, {"SLURM_CPUS_ON_NODE": "many"}, 64),
    ],
)
def test_cores(machine: Machine, cgroup: str, files: dict[str, str], options: dict[str, object], expected: int) -> None:
    machine(cgroup, files, **options)
    assert allotment.cores() == expected


@pytest.mark.parametrize(
    ("cgroup", "files", "options", "limit", "room"),
    [
        ("", {}, {}, 256 * GIB, 2**63),
        ("0::/a", {"sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/memory.current": "5"}, {}, 256 * GIB, 2**63),
        (
            "0::/a/b",
            {
                "sys/fs/cgroup/a/memory.max": f"{8 * GIB}",
                "sys/fs/cgroup/a/memory.current": f"{5 * GIB}",
                "sys/fs/cgroup/a/memory.stat": f"anon 1\ninactive_file {2 * GIB}",  # files that were read: they can go
            },
            {},
            8 * GIB,
            5 * GIB,
        ),
        (
            "4:memory:/job",
            {
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{4 * GIB}",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{1 * GIB}",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{90 * GIB}",
            },
            {},
            4 * GIB,
            3 * GIB,
        ),
        ("", {}, {"SLURM_MEM_PER_NODE": "6144"}, 6 * GIB, 5 * GIB),
        ("", {}, {"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "16"}, 16 * GIB, 15 * GIB),
        ("", {}, {"SLURM_MEM_PER_NODE": "0"}, 256 * GIB, 2**63),
    ],
)
def test_memory(
    machine: Machine, cgroup: str, files: dict[str, str], options: dict[str, str], limit: int, room: int
) -> None:
    machine(cgroup, files, **options)
    assert (allotment.memory_bytes(), allotment.memory_room()) == (limit, room)


def test_this_machine_has_something_for_us() -> None:
    assert 1 <= allotment.cores() <= (os.cpu_count() or 1)
    assert allotment.memory_bytes() > 0
    assert allotment.memory_room() > 0


def test_nobody_counts_the_cores_of_others() -> None:
    rooms = (
        "siafu",
        "graph_data",
        "graph_server",
        "lambda_funcs",
        "run_coordinator",
        "cost_planner",
        "gpu_baselines",
        "benchmarks",
    )
    root = Path(allotment.__file__).parents[1]
    found = {path.name for room in rooms for path in (root / room).rglob("*.py") if "cpu_count(" in path.read_text()}
    assert found == {"allotment.py"}


@pytest.mark.parametrize("is_glibc", [True, False])
def test_only_glibc_is_told_to_keep_what_is_freed(is_glibc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, int] = {}
    library = SimpleNamespace(mallopt=asked.__setitem__) if is_glibc else SimpleNamespace()
    monkeypatch.setattr(allotment.ctypes, "CDLL", lambda name: library)
    allotment.keep_freed_memory()
    m_trim_threshold, m_mmap_threshold = -1, -3  # of malloc.h
    assert asked == ({m_mmap_threshold: 32 << 20, m_trim_threshold: 64 << 20} if is_glibc else {})
