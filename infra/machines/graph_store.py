"""Prepared graphs in the bucket, by their digest: sent once, fetched by each machine as far as it needs them.

Downloaded files are compared with the manifest, and the manifest with the requested digest: nobody with write access to
the bucket can change a graph unnoticed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from infra.machines.mailbox import Mailbox, checked_path, shards_key
from siafu.errors import DatasetError
from siafu.run_files import draft_of, write_whole
from siafu.shards import MANIFEST, FileEntry, Manifest, ShardSet, folder_of

THREADS = 8
MAX_MANIFEST_BYTES = 64 << 20
#: What must stay free on a machine's disk beside a graph: logs, traces, layer 0's aggregate.
SPARE_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 20

Say = Callable[[int, int], None]  # bytes so far, of how many


def _parts(manifest: Manifest, partitions: Iterable[int]) -> dict[str, FileEntry]:
    """Files that must lie below the graph's folder, by path. RemoteProtocolError for a name that leads elsewhere."""
    return {
        checked_path(f"{folder_of(p)}/{name}"): entry
        for p in partitions
        for name, entry in manifest.partitions[p].files.items()
    }


def send(mailbox: Mailbox, shards: ShardSet, say: Say = lambda done, total: None) -> int:
    """Uploads a prepared graph to the bucket; returns the bytes that had to travel. Skips existing files."""
    digest = shards.manifest.digest
    last = shards_key(digest, MANIFEST)
    if any(entry.key == last for entry in mailbox.entries(last)):
        return 0
    there = {entry.key: entry.nbytes for entry in mailbox.entries(shards_key(digest))}
    files = _parts(shards.manifest, range(shards.manifest.num_partitions))
    missing = {path: entry for path, entry in files.items() if there.get(shards_key(digest, path)) != entry.bytes}
    total, sent = sum(entry.bytes for entry in missing.values()), 0
    with ThreadPoolExecutor(THREADS) as pool:

        def upload(path: str) -> str:
            mailbox.upload(shards.path / path, shards_key(digest, path))
            return path

        for path in pool.map(upload, missing):
            sent += missing[path].bytes
            say(sent, total)
    mailbox.upload(shards.path / MANIFEST, last)
    return total


def fetch(
    mailbox: Mailbox, digest: str, folder: Path, partitions: Collection[int], say: Say = lambda done, total: None
) -> Path:
    """Downloads the manifest and these partitions of a graph to ``folder/<digest>``; returns that. Existing files stay.

    ``say`` gets the progress at every block, so that a large file shows progress. Bytes that are not compared with the
    manifest yet count half. DatasetError if the graph is not in the bucket, does not match its digest, or does not fit
    on the disk.
    """
    graph = folder / digest
    graph.mkdir(parents=True, exist_ok=True)
    manifest = _manifest(mailbox, digest, graph)
    if not set(partitions) <= set(range(manifest.num_partitions)):
        raise DatasetError(f"graph {digest[:16]} has {manifest.num_partitions} partitions, not {max(partitions) + 1}")
    missing = {
        path: entry
        for path, entry in _parts(manifest, partitions).items()
        if not (graph / path).is_file() or (graph / path).stat().st_size != entry.bytes
    }
    total, halves, lock = sum(entry.bytes for entry in missing.values()), 0, threading.Lock()

    def count(nbytes: int) -> None:
        nonlocal halves
        with lock:
            halves += nbytes
            say(halves // 2, total)

    _make_room(folder, digest, total)
    with ThreadPoolExecutor(THREADS) as pool:
        coming = [
            pool.submit(_download, mailbox, shards_key(digest, path), graph / path, entry, count)
            for path, entry in missing.items()
        ]
        try:
            for future in as_completed(coming):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    os.utime(graph)  # used now: the last one that is let go
    return graph


def _manifest(mailbox: Mailbox, digest: str, graph: Path) -> Manifest:
    file = graph / MANIFEST
    if not file.is_file():
        data = mailbox.get(shards_key(digest, MANIFEST), MAX_MANIFEST_BYTES)
        if data is None:
            raise DatasetError(f"graph {digest[:16]} is not in bucket {mailbox.bucket}, or not whole")
        write_whole(file, data)
    manifest = Manifest.from_json(file.read_text(), file)
    if manifest.digest != digest:
        file.unlink()
        raise DatasetError(f"bucket {mailbox.bucket}: the graph at {digest[:16]} has digest {manifest.digest[:16]}")
    return manifest


def _download(mailbox: Mailbox, key: str, file: Path, entry: FileEntry, count: Callable[[int], None]) -> None:
    """Downloads a file and compares it with the manifest. ``count`` gets every byte twice: when it arrives, and when it
    is compared."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(file) as draft:
        mailbox.download(key, draft, count)
        nbytes, digest = _measure(draft, count)
        if (nbytes, digest) != (entry.bytes, entry.sha256):
            raise DatasetError(
                f"bucket {mailbox.bucket}: {key} has {nbytes} bytes, sha256 {digest[:16]}, must be "
                f"{entry.bytes}, {entry.sha256[:16]}"
            )


def _measure(file: Path, count: Callable[[int], None]) -> tuple[int, str]:
    digest, nbytes = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            nbytes += len(block)
            count(len(block))
    return nbytes, digest.hexdigest()


def _make_room(folder: Path, digest: str, nbytes: int) -> None:
    """Removes other graphs, the least recently used first. DatasetError if that is not enough."""
    needed = nbytes + SPARE_BYTES if nbytes else 0
    others = sorted((p for p in folder.iterdir() if p.is_dir() and p.name != digest), key=lambda p: p.stat().st_mtime)
    for other in others:
        if shutil.disk_usage(folder).free >= needed:
            return
        shutil.rmtree(other, ignore_errors=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DatasetError(f"{folder}: {free >> 20} MiB free, needs {needed >> 20} MiB for this part of the graph")
