"""Starts the ranks of a baseline as processes of this machine, follows what rank 0 writes, and leaves none behind."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from run_coordinator.actions import Status
from run_coordinator.hosts.child import Child
from siafu import allotment, errors, run_files, start
from siafu.baseline import MEETING, BaselineConfig
from siafu.errors import GnnError, PeerLost
from siafu.evaluation import by_split
from siafu.member import allow_open_files
from siafu.pricing import cost
from siafu.run_files import CONFIG, RESULT, GrowingLines, Record, Trained
from siafu.sockets import check_loopback
from siafu.variables import threads

POLL_S = 0.1
#: How long after the first rank has ended others may say that it was their fault: a rank that
#: missed another says so at once.
LAST_WORDS_S = 3.0
#: What NCCL says before it aborts a process that another one has not answered.
WATCHDOG = "Watchdog caught collective operation timeout"


def run(
    config: BaselineConfig, shards: Path, run_dir: Path, on_status: Callable[[Any], None], *, resume: bool = False
) -> Trained:
    """Trains in one process per rank; returns the result of rank 0.

    ``run_dir`` has config.toml already; metrics, weights, checkpoints and ``logs/rank-<N>.log`` go there. Raises: the
    error of the rank that failed first for its own reason; PeerLost naming a rank that was killed, or for which the
    others wait in vain.
    """
    allow_open_files()
    check_loopback()
    for old in (*run_dir.glob("failed-*.json"), run_dir / RESULT):
        old.unlink(missing_ok=True)
    with _started(config, shards, run_dir, resume=resume) as ranks:
        status, lines = Status(tasks_in_flight=None), GrowingLines(run_dir, from_end=resume)
        while not ranks.ended:
            for record in lines.new():
                _read(status, record, config)
            on_status(status)
            ranks.check()
            time.sleep(POLL_S)
        for record in lines.new():
            _read(status, record, config)
        status.phase = "saving"
        on_status(status)
    if (found := run_files.result(run_dir)) is None:
        raise GnnError(f"{run_dir / RESULT}: rank 0 has ended and left none")
    return found


def _read(status: Status, record: Record, config: BaselineConfig) -> None:
    """Updates the status from a record of metrics.jsonl; with dollars if the config names the ranks' machine."""
    status.phase = "training"
    if record["event"] == "epoch":
        status.epoch, status.loss = record["epoch"], record["loss"]
        status.epoch_s, status.ghost_bytes = record["epoch_s"], record["ghost_bytes"]
    elif record["event"] == "evaluation":
        status.evaluation = by_split(record)
    else:
        return
    spent = cost.of_baseline(config, seconds=record["time_s"] + record["evaluation_s"])
    status.usd = spent.usd if spent else 0.0


class Ranks:
    """The processes of the ranks, in their order."""

    def __init__(self, children: list[Child], run_dir: Path, timeout_s: float, *, nccl: bool = False):
        """nccl: whether ranks may use NCCL, whose watchdog aborts a rank that waits in vain."""
        self._children, self._dir, self._timeout_s, self._nccl = children, run_dir, timeout_s, nccl

    @property
    def ended(self) -> bool:
        """Whether all ranks have ended with exit code 0."""
        return all(child.poll() == 0 for child in self._children)

    def check(self) -> None:
        """Raises the cause if a rank has failed. Waits up to ``LAST_WORDS_S`` for the failure that made the others
        fail."""
        if not self._failed():
            return
        deadline = time.monotonic() + LAST_WORDS_S
        while (cause := self._cause()) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        raise cause or self._nobodys()

    def _failed(self) -> dict[int, int]:
        """Exit code of each failed rank."""
        codes = {rank: child.poll() for rank, child in enumerate(self._children)}
        return {rank: code for rank, code in codes.items() if code}

    def _cause(self) -> GnnError | None:
        """The error of a killed rank, else of the rank that failed first for its own reason; None: not known yet."""
        failed = {rank: code for rank, code in self._failed().items() if not self._gave_up(rank, code)}
        for rank, code in failed.items():
            if code < 0:
                return PeerLost(f"rank {rank} died: killed by {signal.Signals(-code).name}")
        own: list[tuple[float, int, GnnError]] = []
        for rank, code in failed.items():
            file = self._dir / f"failed-{rank}.json"
            if not file.is_file():  # it never came as far as to say why
                return PeerLost(f"rank {rank} died: exit code {code}; {self._children[rank].last_line()}")
            said = json.loads(file.read_text())
            if not said["lost"]:
                own.append((file.stat().st_mtime_ns, rank, _error(rank, said)))
        return min(own)[2] if own else None

    def _gave_up(self, rank: int, code: int) -> bool:
        """Whether NCCL's watchdog aborted the rank because another rank did not answer. Reads the last 64 KiB of its
        log."""
        if not self._nccl or code != -signal.SIGABRT:
            return False
        return WATCHDOG in self._children[rank].tail(1 << 16)

    def _nobodys(self) -> GnnError:
        """The error if every failed rank only lost a peer: names the ranks that are silent."""
        failed = self._failed()
        silent = [rank for rank, child in enumerate(self._children) if child.poll() is None]
        if silent:
            which = f"rank {silent[0]} is" if len(silent) == 1 else f"ranks {', '.join(map(str, silent))} are"
            return PeerLost(f"{which} silent for more than {self._timeout_s:g} s (--timeout-s)")
        if aborted := [rank for rank, code in failed.items() if self._gave_up(rank, code)]:
            return PeerLost(f"rank {aborted[0]} died: killed by SIGABRT")
        rank = min(failed)
        return PeerLost(json.loads((self._dir / f"failed-{rank}.json").read_text())["message"])


def _error(rank: int, said: Mapping[str, Any]) -> GnnError:
    """A rank's failure, as the error that it raised there. A user error does not name the rank."""
    cls = getattr(errors, said["type"], GnnError)
    cls = cls if isinstance(cls, type) and issubclass(cls, GnnError) else GnnError
    first = str(said["message"]).strip().splitlines()[0] if str(said["message"]).strip() else said["type"]
    return cls(first if cls.exit_code == 2 else f"rank {rank}: {first}")


@contextmanager
def _started(config: BaselineConfig, shards: Path, run_dir: Path, *, resume: bool) -> Iterator[Ranks]:
    """Starts every rank, and kills all when the block ends."""
    size = config.baseline.ranks
    command = start.command(*words(shards, run_dir), *(["--resume"] if resume else []))
    shared = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        **threads(max(1, allotment.cores() // size)),
    }
    children: list[Child] = []
    with socket.create_server(("127.0.0.1", 0), backlog=size + 16) as meeting:
        shared |= {"MASTER_PORT": str(meeting.getsockname()[1]), MEETING: str(meeting.fileno())}
        try:
            for rank in range(size):
                mine = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                log = run_dir / "logs" / f"rank-{rank}.log"
                children.append(Child(command, log, {**shared, **mine}, inherited=[] if rank else [meeting.fileno()]))
            nccl = config.baseline.transport != "gloo" and config.baseline.device != "cpu"
            yield Ranks(children, run_dir, config.baseline.timeout_s, nccl=nccl)
        finally:
            for child in children:
                child.kill()
            for child in children:
                child.close()


def words(shards: Path, run_dir: Path) -> list[str]:
    """A rank's module and its arguments."""
    return [
        "gpu_baselines",
        "--config",
        str(run_dir / CONFIG),
        "--shards",
        str(shards),
        "--run-dir",
        str(run_dir),
    ]
