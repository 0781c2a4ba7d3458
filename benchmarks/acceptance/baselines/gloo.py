"""What Gloo sends between two processes of one machine: bytes/s that each of them sends while it receives as many.

    python -m benchmarks.acceptance.baselines.gloo

Messages have 8 MiB, and each process one thread.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing

VALUES, MESSAGES = 2 << 20, 20  # float32


def bytes_per_s() -> float:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_exchange, (folder,), 2)  # type: ignore[attr-defined, no-untyped-call]
        return float(Path(folder, "0").read_text())


def _exchange(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/begun", rank=rank, world_size=2)
    sent, received = torch.ones(2, VALUES)
    seconds = []
    for _ in range(1 + MESSAGES):
        began = time.perf_counter()
        work = dist.isend(sent, 1 - rank)
        dist.recv(received, 1 - rank)
        assert work is not None
        work.wait()
        seconds.append(time.perf_counter() - began)
    Path(folder, str(rank)).write_text(str(MESSAGES * sent.nbytes / sum(seconds[1:])))  # the first connects
    dist.destroy_process_group()


if __name__ == "__main__":
    print(f"Gloo: {bytes_per_s() / 1e9:.2f} GB/s")
    sys.exit(0)
