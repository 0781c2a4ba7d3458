"""How much memory a tree of processes holds: the sum of their proportional set sizes, by role.

A page that several processes map counts once, in equal shares (PSS): the shards that two graph servers map, the
libraries that every environment has. Linux alone tells (``/proc/PID/smaps_rollup``).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from siafu.errors import ConfigError

PROC = Path("/proc")
#: What a command line has in it -> the role of its process.
ROLES = {"graph_server": "graph servers", "param_server": "parameter servers", "awslambdaric": "Lambda environments"}
LAUNCHER = "launcher"
SAMPLE_S = 0.05


@dataclass(frozen=True)
class Pages:
    """Bytes of one process, or of several."""

    anonymous: int = 0
    mapped: int = 0  # file-backed and shared

    @property
    def nbytes(self) -> int:
        return self.anonymous + self.mapped

    def __add__(self, other: Pages) -> Pages:
        return Pages(self.anonymous + other.anonymous, self.mapped + other.mapped)


@dataclass
class Footprint:
    """The most that was seen at one time: of everything together, and of each role for itself."""

    peak_nbytes: int = 0
    at_peak: dict[str, Pages] = field(default_factory=dict)  # role -> its share of the peak
    by_role: dict[str, Pages] = field(default_factory=dict)  # role -> its own peak
    processes: Counter[str] = field(default_factory=Counter)  # at each role's peak
    num_samples: int = 0

    def add(self, sample: Mapping[str, Sequence[Pages]]) -> None:
        self.num_samples += 1
        totals = {role: sum(pages, Pages()) for role, pages in sample.items()}
        total = sum(pages.nbytes for pages in totals.values())
        if total > self.peak_nbytes:
            self.peak_nbytes, self.at_peak = total, totals
        for role, pages in totals.items():
            if pages.nbytes > self.by_role.get(role, Pages()).nbytes:
                self.by_role[role], self.processes[role] = pages, len(sample[role])


def watch(command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> Footprint:
    """Runs the command to its end, its output in ``log``. ConfigError if it fails, or if this is not Linux."""
    if not (PROC / "self" / "smaps_rollup").exists():
        raise ConfigError("memory is read from /proc/PID/smaps_rollup, which this system does not have")
    found = Footprint()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        try:
            while process.poll() is None:
                begun = time.monotonic()
                found.add(sample(process.pid))
                # Reading takes a while itself where much is mapped: no more than half of the time goes into it.
                time.sleep(max(SAMPLE_S, time.monotonic() - begun))
        finally:
            process.terminate()  # it ends its members by itself
            process.wait()
    if process.returncode:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise ConfigError(f"{' '.join(command)}: exit code {process.returncode}: {lines[-1] if lines else 'no output'}")
    return found


def sample(root: int) -> dict[str, list[Pages]]:
    """The pages of a process and of all that descend from it, by role."""
    found: dict[str, list[Pages]] = defaultdict(list)
    for pid in tree(root):
        if (pages := pages_of(pid)) is not None:
            found[LAUNCHER if pid == root else role_of(pid)].append(pages)
    return found


def tree(root: int) -> list[int]:
    """The process and its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and (parent := _parent(entry)) is not None:
            children[parent].append(int(entry.name))
    found = [root]
    for pid in found:  # which grows
        found += children[pid]
    return found


def role_of(pid: int) -> str:
    try:
        command = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        command = ""
    return next((role for word, role in ROLES.items() if word in command.split("\0")), "others")


def pages_of(pid: int) -> Pages | None:
    """None if the process is gone."""
    try:
        text = (PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return None
    sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in (x.partition(":") for x in text.splitlines()[1:])}
    return Pages(sizes["Pss_Anon"], sizes["Pss"] - sizes["Pss_Anon"]) if "Pss_Anon" in sizes else None


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
