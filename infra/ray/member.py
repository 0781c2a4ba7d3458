"""What runs on a node of a Ray cluster for each server of a run: an actor that has the server as a child.

The server is a process of its own, as everywhere: the same command, one log, ended by its group, and gone with the
actor, however that ends (``siafu.leash``). Nothing is shared with the driver's machine: the graph's files come through
Ray's object store if the node lacks them, and the server's files stay here until the driver asks for them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from run_coordinator.hosts.child import Child
from siafu import config as configs
from siafu import ray_cluster
from siafu.address import Address
from siafu.errors import DatasetError, GnnError, PeerLost
from siafu.keys import Ring
from siafu.run_files import CONFIG, draft_of, write_whole
from siafu.shards import MANIFEST, FileEntry, Manifest, ShardSet, folder_of
from siafu.variables import KERNELS, kernels

#: Of a file on its way; the store of a small node holds a few of them.
PIECE_BYTES = 8 << 20
#: Of the log that comes with a sign of life.
_LOG_BYTES = 256 << 10
#: How long ``close`` waits for the child to have been started, or not.
_START_S = 5.0
#: What Ray gives its workers, and what would mislead a driver among their children.
_WORKERS_OWN = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS")

Read = Callable[[str, int], bytes]  # path on the driver's machine, offset -> a piece, shorter only at the file's end


@dataclass(frozen=True)
class Order:
    """The data that a node needs to run a member."""

    member: Address
    coordinator: str
    run_id: bytes
    config: str  # TOML
    shards: str  # where the graph lies on the driver's machine
    manifest: str  # its manifest
    listen: str  # the node's own address
    cluster: str  # the cluster's address, for servers that start Lambdas there
    driver_node: str  # Ray's id of the driver's machine
    keys: Ring | None = None
    # the run's choice of kernels, which replaces the node's
    variables: Mapping[str, str] = field(default_factory=kernels)


@dataclass(frozen=True)
class Pulse:
    """A sign of life."""

    code: int | None  # of the member's end; None while it lives, or is about to
    last_line: str  # at its end
    log: bytes  # what it wrote, from where the driver had it


class Member:
    """One member. Ray calls each method in a thread of its own."""

    def __init__(self, order: Order):
        self.order = order
        self._home = Path(tempfile.mkdtemp(prefix="siafu-ray-"))
        # All mutable state:
        self._child: Child | None = None
        self._doomed = False
        self._begun = threading.Event()  # there is a child, or there will be none

    def run(self, read: Read | None = None) -> None:
        """Fetches the graph and starts the server. Raises the error that prevents this. ``read``: reads files; through
        Ray."""
        order = self.order
        try:
            (self._home / CONFIG).write_text(order.config)
            cache = configs.cache_folder(configs.load(self._home / CONFIG).data.cache_dir) / "nodes"
            graph = graph_of(order, cache, read or reader(order.driver_node), lambda: self._doomed)
            for name in (*_WORKERS_OWN, *KERNELS):
                os.environ.pop(name, None)
            os.environ.update({**order.variables, "RAY_ADDRESS": order.cluster})
            if not self._doomed:
                self._child = Child.member(
                    order.member,
                    order.coordinator,
                    order.run_id,
                    shards=graph,
                    run_dir=self._home,
                    listen=order.listen,
                    keys=order.keys,
                )
            if self._doomed and self._child is not None:  # meanwhile
                self._child.kill()
        finally:
            self._begun.set()

    def pulse(self, offset: int, within_s: float) -> Pulse:
        """Answers once the member has ended, or after ``within_s``. ``offset``: position in its log."""
        if not self._begun.wait(within_s):
            return Pulse(None, "", b"")
        if self._child is None:
            return Pulse(-signal.SIGKILL, "it was killed before it had started", b"")
        ended = self._child.wait(within_s)
        with self._child.log.open("rb") as log:
            log.seek(offset)
            written = log.read(_LOG_BYTES)
        return Pulse(self._child.poll(), self._child.last_line(), written) if ended else Pulse(None, "", written)

    def kill(self) -> None:
        """Kills the member at once, whether it has started or is about to."""
        self._doomed = True
        if self._child is not None:
            self._child.kill()

    def outputs(self) -> dict[str, int]:
        """Bytes of each file that the member has written."""
        files = (path for path in self._home.rglob("*") if path.is_file() and path != self._home / CONFIG)
        return {path.relative_to(self._home).as_posix(): path.stat().st_size for path in files}

    def piece(self, name: str, offset: int) -> bytes:
        """A piece of one of the outputs."""
        return read_piece(str(self._home / name), offset)

    def close(self) -> None:
        """Ends the member, and removes its files."""
        self.kill()
        self._begun.wait(_START_S)
        if self._child is not None:
            self._child.close()
        shutil.rmtree(self._home, ignore_errors=True)


# --- the graph --------------------------------------------------------------------------------------------------------


def graph_of(order: Order, cache: Path, read: Read, given_up: Callable[[], bool] = lambda: False) -> Path:
    """The folder with the parts of the graph that the member needs. It is the driver's path if this machine has the
    same graph there, else ``cache/<digest>``, which keeps the graph for later runs.

    DatasetError if a received file does not match the manifest; PeerLost if ``given_up`` becomes true.
    """
    manifest = Manifest.from_json(order.manifest, Path(order.shards) / MANIFEST)
    partitions = (order.member.index,) if order.member.role == "graph_server" else ()
    for folder in (Path(order.shards), cache / manifest.digest):
        if _holds(folder, manifest.digest, partitions):
            return folder
    graph = cache / manifest.digest
    try:
        for p in partitions:
            for name, entry in manifest.partitions[p].files.items():
                file = graph / folder_of(p) / name
                if not file.is_file() or file.stat().st_size != entry.bytes:
                    _bring(f"{order.shards}/{folder_of(p)}/{name}", file, entry, read, given_up)
        graph.mkdir(parents=True, exist_ok=True)
        write_whole(graph / MANIFEST, order.manifest.encode())
    except OSError as error:
        raise DatasetError(f"{graph}: {error.strerror}") from error
    return graph


def read_piece(path: str, offset: int) -> bytes:
    """At most ``PIECE_BYTES`` of a file."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(PIECE_BYTES)


def reader(node: str) -> Read:
    """A function that reads files of another node, in a task there; the result comes through the object store."""

    def read(path: str, offset: int) -> bytes:
        ray = ray_cluster.load()
        there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        task = ray.remote(read_piece).options(num_cpus=0, scheduling_strategy=there)
        piece: bytes = ray.get(task.remote(path, offset))
        return piece

    return read


def _holds(folder: Path, digest: str, partitions: tuple[int, ...]) -> bool:
    try:
        return ShardSet.open(folder, partitions).manifest.digest == digest
    except GnnError:
        return False


def _bring(path: str, file: Path, entry: FileEntry, read: Read, given_up: Callable[[], bool]) -> None:
    """Fetches one file, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    digest, nbytes = hashlib.sha256(), 0
    with draft_of(file) as draft:
        with draft.open("wb") as out:
            while nbytes < entry.bytes and (piece := read(path, nbytes)):
                if given_up():
                    raise PeerLost("the run ended while the graph was on its way")
                out.write(piece)
                digest.update(piece)
                nbytes += len(piece)
        if (nbytes, digest.hexdigest()) != (entry.bytes, entry.sha256):
            raise DatasetError(
                f"{path}: {nbytes} bytes, sha256 {digest.hexdigest()[:16]} have come, must be "
                f"{entry.bytes}, {entry.sha256[:16]}"
            )
