"""Contenders, each in a process of its own, measured in rounds: A B C, A B C, ... so that all see the same machine.

A contender is a program that answers JSON lines: ``{"setup": {...}}`` loads and warms up, ``{"run": {...}}`` times one
repetition, ``{"check": {...}}`` tells what came out. While one runs, the others wait for input and use no core. Where
not all fit into memory together, each peer meets siafu's own contenders in rounds of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from siafu import variables

#: Threads that have nothing to do sleep instead of spinning; and DGL asks no question about its backend.
QUIET = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "DGLBACKEND": "pytorch", "TOKENIZERS_PARALLELISM": "false"}
MEMORY_SHARE = 0.8  # of what is available: the rest is for the page cache that holds the graph


class ContenderFailed(Exception):
    """A contender gave up, or died; the message says why in one line."""


@dataclass(frozen=True)
class Contender:
    """One way to do the work."""

    name: str
    program: tuple[str, ...]  # what answers the JSON lines
    setup: dict[str, Any]
    nbytes: int  # what it will need, about
    peer: bool  # someone else's
    blas_threads: int | None = None  # of its BLAS and OpenMP; None: as many as the setup's "threads"


@dataclass
class Times:
    """What was measured of one contender."""

    note: str = ""  # what it says of itself
    failed: str = ""  # why there is nothing
    seconds: list[float] = field(default_factory=list)  # one per round
    against: dict[str, list[float]] = field(default_factory=dict)  # seconds of siafu's contenders in the same rounds
    check: dict[str, Any] = field(default_factory=dict)

    @property
    def median_s(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    def ratio_to(self, name: str) -> float | None:
        """How many times longer than the named contender of siafu, median over the rounds that both ran in."""
        pairs = list(zip(self.seconds, self.against.get(name, ()), strict=False))
        return median(mine / its for mine, its in pairs) if pairs else None


class Process:
    """A contender at work. Raises ContenderFailed from any call."""

    def __init__(self, contender: Contender, memory_limit: int):
        self._contender, self._memory_limit = contender, memory_limit

    def __enter__(self) -> Process:
        threads = self._contender.blas_threads or self._contender.setup.get("threads", 1)
        environment = {**os.environ, **QUIET, **variables.threads(threads)}
        if self._contender.peer:
            environment.pop("PYTHONPATH", None)  # it leads to our packages
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._contender.program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def setup(self) -> str:
        """Loads and warms up. Returns what the contender says of itself."""
        return str(self.ask("setup", {**self._contender.setup, "memory_limit": self._memory_limit})["note"])

    def run(self, **options: Any) -> float:
        """Seconds of one repetition."""
        return float(self.ask("run", options)["seconds"])

    def ask(self, what: str, options: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps({what: options}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise ContenderFailed(f"{what}: died of {_end(self._process.wait())}{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ContenderFailed(f"{what}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        return f" ({lines[-1][:200]})" if lines else ""


def race(contenders: Sequence[Contender], rounds: int, run: dict[str, Any] | None = None) -> dict[str, Times]:
    """Times of every contender by name, over ``rounds`` interleaved rounds; ``run`` goes to every repetition.

    Those that fail are left out from then on, and say why.
    """
    times = {contender.name: Times() for contender in contenders}
    available = int(available_nbytes() * MEMORY_SHARE)
    for group in groups(contenders, available):
        _race(group, rounds, run or {}, available, times)
    return times


def groups(contenders: Sequence[Contender], available: int) -> list[list[Contender]]:
    """All at once if they fit; else siafu's own and as many peers as do, at least one."""
    own = [contender for contender in contenders if not contender.peer]
    room = available - sum(contender.nbytes for contender in own)
    made: list[list[Contender]] = []
    left = 0
    for peer in (contender for contender in contenders if contender.peer):
        if not made or peer.nbytes > left:
            made.append(list(own))
            left = room
        made[-1].append(peer)
        left -= peer.nbytes
    return made or [own]


def _race(
    group: Sequence[Contender], rounds: int, run: dict[str, Any], available: int, times: dict[str, Times]
) -> None:
    """One group's rounds, added to the times."""
    processes: dict[str, Process] = {}
    own = {contender.name for contender in group if not contender.peer}
    try:
        for contender in group:
            with _noted(times[contender.name]):
                process = Process(contender, available)
                processes[contender.name] = process.__enter__()
                _say(f"  {contender.name}: sets up")
                times[contender.name].note = process.setup()
        for _ in range(rounds):
            seconds: dict[str, float] = {}
            for name, process in processes.items():
                if not times[name].failed:
                    with _noted(times[name]):
                        seconds[name] = process.run(**run)
            for name, mine in seconds.items():
                times[name].seconds.append(mine)
                for other in own & set(seconds):
                    times[name].against.setdefault(other, []).append(seconds[other])
            _say("  " + "  ".join(f"{name} {1000 * value:.0f} ms" for name, value in seconds.items()))
        for name, process in processes.items():
            if not times[name].failed:
                with _noted(times[name]):
                    times[name].check = process.ask("check", {})
    finally:
        for process in processes.values():
            process.__exit__(None, None, None)


@contextmanager
def _noted(times: Times) -> Iterator[None]:
    """Keeps why a contender failed, and says it, instead of raising."""
    try:
        yield
    except ContenderFailed as error:
        times.failed = str(error)
        _say(f"  {error}")


def available_nbytes() -> int:
    """Memory that can be had without swapping."""
    with open("/proc/meminfo") as file:
        kilobytes = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    return kilobytes * 1024


def _end(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
