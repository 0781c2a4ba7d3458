"""Observes a real run on this machine: wall time of its epochs, and processor time by kind of process and thread.

Seconds are read from /proc at the ends of two epochs, so they exclude starting, loading and the first epochs. Linux
only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from run_coordinator import api
from run_coordinator.actions import Status
from siafu.errors import ConfigError

#: Epochs that do not count: environments start, layer 0 is gathered, asynchrony warms up.
WARMUP_EPOCHS = 3
#: Of a process' command line -> its role; the word behind it in a thread's name -> what the thread does.
ROLES = ("graph_server", "param_server", "lambda_funcs")


@dataclass(frozen=True)
class Observed:
    """Means over the counted epochs; ``epoch_s`` is their median."""

    epoch_s: float
    spread: float  # of the epochs' times: half of their interquartile range, relative
    # (role, "main" | "io" | "pool") -> processor seconds per epoch, of all its processes
    cpu_s: Mapping[tuple[str, str], float]
    usage: Mapping[str, float]  # what the backend counts, per epoch


def observed(source: str, settings: Mapping[str, Any], epochs: int = 13) -> Observed:
    """Trains and observes a run. ConfigError if the system does not report threads' processor time."""
    if not Path(f"/proc/self/task/{os.getpid()}/schedstat").is_file():
        raise ConfigError("calibration reads processor times from /proc/PID/task/*/schedstat: this system has none")
    samples: dict[int, Mapping[tuple[str, str], float]] = {}  # epochs done -> processor seconds so far
    ends = WARMUP_EPOCHS, epochs - 1  # at the end of the last one everybody may be leaving
    folder = Path(tempfile.mkdtemp(prefix="siafu-calibrate-"))
    members: list[tuple[int, str]] = []

    def watch(status: Status) -> None:
        # Epochs that end meanwhile are taken for shorter than they are, and looking at all processes of a machine may
        # take as long as many epochs: before those that count, and after them.
        if (status.epoch >= 1 and not members) or (status.epoch >= ends[1] not in samples):
            members[:] = _members()
        for end in ends:
            if status.epoch >= end and end not in samples:
                samples[end] = _sampled(members)

    try:
        run = api.train(
            source, run_dir=str(folder / "run"), on_status=watch, settings={**settings, "train.epochs": epochs}
        )
        lines = [line for line in run.metrics() if line["event"] == "epoch"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = sorted(line["epoch_s"] for line in lines[WARMUP_EPOCHS:])
    first, last = (samples[end] for end in ends)
    counted = ends[1] - ends[0]
    before, after = lines[WARMUP_EPOCHS - 1]["usage"], lines[epochs - 2]["usage"]
    return Observed(
        median(seconds),
        (seconds[3 * len(seconds) // 4] - seconds[len(seconds) // 4]) / 2 / median(seconds),
        {key: (last[key] - first.get(key, 0.0)) / counted for key in last},
        {key: (after[key] - before.get(key, 0)) / counted for key in after if isinstance(after[key], (int, float))},
    )


def _sampled(members: Sequence[tuple[int, str]]) -> defaultdict[tuple[str, str], float]:
    """Processor seconds of these processes so far."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for pid, role in members:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            read = _quietly(lambda thread=thread: [(thread / file).read_text() for file in ("comm", "schedstat")])  # type: ignore[misc]
            if read:
                name, spent = read
                kind = "main" if thread.name == str(pid) else "io" if name.startswith("ZMQ") else "pool"
                found[role, kind] += int(spent.split()[0]) * 1e-9  # ``stat`` counts hundredths of a second
    return found


def _members() -> list[tuple[int, str]]:
    """Process ids and roles of this process' descendants that have one."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        read = _quietly(lambda folder=folder: (folder / "stat").read_text())  # type: ignore[misc]
        if read:
            parents[int(folder.name)] = int(read.rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    found = []
    for pid in ours - {os.getpid()}:
        words = _quietly(lambda pid=pid: Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0"))  # type: ignore[misc]
        role = next((word.partition(".")[0] for word in words or () if word.partition(".")[0] in ROLES), "")
        if role:
            found.append((pid, role))
    return found


def _quietly(read: Callable[[], Any]) -> Any:
    """The value of ``read``; None if its process has ended meanwhile."""
    try:
        return read()
    except OSError:
        return None
