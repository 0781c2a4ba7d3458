"""Issue 8, acceptance 6: an hour of training under light chaos. Memory and file descriptors of
every process stay what they were.

    python -m benchmarks.acceptance.soak                         an hour, citeseer on 2 graph servers, 2 parameter
                                                                 servers, 8 Lambdas
    python -m benchmarks.acceptance.soak --minutes 15 --mode pipe --json FILE

Light: a Lambda is killed every 20 s, a server stands still for up to a second every minute, one message in a thousand
(of workers, in a hundred) comes twice or again as if from an earlier attempt; links have keys and go through a proxy.
In the warm-up a graph server is killed, so that every process of the servers has been through a recovery, or was born
of one. Half of the Lambdas are never hit.

After the warm-up, a sixth of the time, each process that lives to the end is judged by its medians of a
minute each: none may be further from the first than ``FLAT`` in resident memory, nor have more than
``MORE_FDS`` more open files. What a process has mapped of shards counts as memory once it has been read. Exit
code 1 if any does, or if the run fails.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.acceptance import table
from benchmarks.chaos.schedule import Fault, MessageFaults, Schedule
from benchmarks.chaos.trial import HIT, Born, Trial, suffer

FLAT, MORE_FDS = 0.05, 2
LOOK_S, WINDOW_S = 5.0, 60.0
WARM_UP = 1 / 6
KILLED_EVERY_S, PAUSED_EVERY_S = 20.0, 60.0
MESSAGES = MessageFaults(twice=0.0005, late=0.0005, until_s=float("1e9"), seed=6)  # tenfold of workers


class Sample(NamedTuple):
    at_s: float
    memory_mb: float
    fds: int


@dataclass
class Watched:
    """A process, and what it was seen to hold."""

    process: Born
    samples: list[Sample] = field(default_factory=list)

    @property
    def name(self) -> str:
        whom = next((whom for whom in HIT if self.process.is_a(whom)), "launcher")
        words = self.process.words
        return f"{whom} {words[words.index('--index') + 1]}" if "--index" in words else whom

    def medians(self, from_s: float) -> list[Sample]:
        """Of each minute from then on."""
        minutes: dict[int, list[Sample]] = defaultdict(list)
        for sample in self.samples:
            if sample.at_s >= from_s:
                minutes[int((sample.at_s - from_s) / WINDOW_S)].append(sample)
        return [Sample(*(statistics.median(column) for column in zip(*some, strict=True))) for some in minutes.values()]


class Watch:
    """Keeps what is seen."""

    def __init__(self) -> None:
        self.seen: dict[Born, Watched] = {}
        self._began = time.monotonic()

    def look(self, alive: Sequence[Born]) -> None:
        for process in alive:
            with contextlib.suppress(OSError, StopIteration):  # it has just ended
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                resident_kb = int(next(line for line in status if line.startswith("VmRSS")).split()[1])
                fds = len(os.listdir(f"/proc/{process.pid}/fd"))
                at_s = time.monotonic() - self._began
                self.seen.setdefault(process, Watched(process)).samples.append(Sample(at_s, resident_kb / 1024, fds))


def schedule(seconds: float, mode: str) -> Schedule:
    """In order of time."""
    faults = [Fault(0.3 * WARM_UP * seconds, "kill graph server", 0.0, 0.0)]
    faults += [
        # Of those in the order of their age, one of the younger half.
        Fault(at_s, "kill Lambda", 0.0, 0.5 + 0.5 * (number * 0.381966 % 1.0))
        for number, at_s in enumerate(_every(KILLED_EVERY_S, seconds))
    ]
    faults += [
        Fault(at_s, "pause server", 0.2 + 0.8 * (number * 0.381966 % 1.0), number * 0.618034 % 1.0)
        for number, at_s in enumerate(_every(PAUSED_EVERY_S, seconds))
    ]
    return Schedule(6, mode, tuple(sorted(faults, key=lambda fault: fault.at_s)), MESSAGES, keys=True)


def _every(period_s: float, until_s: float) -> list[float]:
    return [period_s * number for number in range(1, int(until_s / period_s))]


def judged(watched: Watched, from_s: float) -> tuple[float, int]:
    """Of the minutes' medians: the furthest from the first in memory, as a share of it with its
    sign, and most additional files."""
    first, *others = watched.medians(from_s)
    off = max((one.memory_mb / first.memory_mb - 1 for one in others), key=abs, default=0.0)
    return off, int(max((one.fds - first.fds for one in others), default=0))


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    seconds = 60 * args.minutes
    arguments = [
        args.source,
        "--parts",
        "2",
        "--param-servers",
        "2",
        "--lambdas",
        "4",
        "--intervals",
        "4",
        "--epochs",
        "100000000",
        *(
            word
            for setting in (
                f"run.max_seconds={seconds}",
                "run.restarts=100",
                "run.checkpoint_seconds=30",
                "lambda.task_timeout_s=2",
                *args.set,
            )
            for word in ("--set", setting)
        ),
    ]
    watch = Watch()
    # that a Lambda which was killed does not answer is no news
    logging.getLogger("benchmarks.shaper").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        trial = suffer(
            schedule(seconds, args.mode),
            arguments,
            Path(folder) / "run",
            limit_s=seconds + 120,
            look=watch.look,
            look_s=LOOK_S,
        )
    return _report(args, trial, watch, WARM_UP * seconds, seconds)


def _report(args: argparse.Namespace, trial: Trial, watch: Watch, from_s: float, until_s: float) -> int:
    lasted = [
        watched
        for watched in watch.seen.values()
        if watched.samples[0].at_s <= from_s and watched.samples[-1].at_s >= until_s - WINDOW_S
    ]
    rows, shown = [], list[dict[str, str]]()
    for watched in sorted(lasted, key=lambda watched: watched.name):
        minutes, (off, more) = watched.medians(from_s), judged(watched, from_s)
        first, last = minutes[0], minutes[-1]
        flat = abs(off) <= FLAT and more <= MORE_FDS
        shown.append(
            {
                "process": watched.name,
                "MiB": f"{first.memory_mb:.1f}",
                "last": f"{last.memory_mb:.1f}",
                "furthest": f"{off:+.1%}",
                "files": f"{first.fds:.0f}",
                "more": f"{more:+d}",
                "flat": "yes" if flat else "NO",
            }
        )
        rows.append({"name": watched.name, "off": off, "more_fds": more, "flat": flat, "samples": watched.samples})
    table.show(shown)
    epochs = trial.result.get("epochs")
    print(f"{args.minutes:g} minutes, {epochs} epochs, {len(trial.restarts)} restarts; {dict(trial.faults)}")
    if trial.error:
        print(f"the run failed: {trial.error}", file=sys.stderr)
    told = {"error": trial.error, "faults": trial.faults, "restarts": trial.restarts, "epochs": epochs}
    table.record(args.json, {"rows": rows, **told})
    return 0 if lasted and not trial.error and all(row["flat"] for row in rows) else 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = table.parser(__doc__, minutes=60.0, set=([], "of the run"))
    parser.add_argument("source", nargs="?", default="citeseer")
    parser.add_argument("--mode", choices=("pipe", "async"), default="async")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
