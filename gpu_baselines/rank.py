"""One rank of a baseline: the program that torchrun, or ``siafu baseline``, starts once for each rank.

    torchrun --nproc-per-node 2 -m gpu_baselines --config runs/x/config.toml --shards DIR --run-dir runs/x [--resume]

``siafu baseline METHOD SOURCE … --torchrun`` prepares the files and prints the command. RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and MASTER_PORT are torchrun's. Rank 0 writes result.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from gpu_baselines import runner
from gpu_baselines.clock import Clock
from gpu_baselines.group import SETUP_S, TorchGroup
from gpu_baselines.network_links import Link
from gpu_baselines.run import Run
from siafu import config as configs
from siafu import run_files
from siafu.baseline import MEETING, Baseline, BaselineConfig
from siafu.errors import ConfigError, GnnError, PeerLost
from siafu.member import allow_open_files
from siafu.models import ModelSpec
from siafu.run_files import METRICS, Trained
from siafu.shards import ShardSet

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None, *, begun: float | None = None) -> int:
    """Runs a rank. Returns 0 when trained; 1 for a failure, 2 for a user error: in one line on stderr and in
    failed-<rank>.json. ``begun``: start of the process, by ``time.monotonic``; None: now."""
    begun = time.monotonic() if begun is None else begun
    parser = argparse.ArgumentParser(
        prog="python -m gpu_baselines", description="One rank of a baseline; see siafu baseline."
    )
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--shards", required=True, metavar="DIR", type=Path)
    parser.add_argument("--run-dir", required=True, metavar="DIR", type=Path)
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in the run directory")
    args = parser.parse_args(argv)
    rank = int(os.environ.get("RANK", "0"))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    allow_open_files()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(name)s: %(message)s")
    try:
        _take_place(args.run_dir, resume=args.resume)
        _serve(args, rank, begun)
    except Exception as error:  # the edge of the process: the parent must learn the reason
        text = str(error) if isinstance(error, GnnError) else f"{type(error).__name__}: {error}"
        code = error.exit_code if isinstance(error, GnnError) else 1
        if code != 2:
            logger.error("%s", traceback.format_exc())
        failed = {
            "type": type(error).__name__,
            "message": text[:4000],
            "code": code,
            "lost": isinstance(error, PeerLost),
        }
        with contextlib.suppress(OSError):  # where that is the reason, the line below says it
            (args.run_dir / f"failed-{rank}.json").write_text(json.dumps(failed))
        print(f"gpu_baselines: rank {rank}: {text}", file=sys.stderr, flush=True)
        os._exit(code)  # a thread may still wait for a rank that is gone
    return 0


def _take_place(run_dir: Path, *, resume: bool) -> None:
    """Makes the run directory unless it exists: each of several machines may have its own. ConfigError if it holds a
    run."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--run-dir {run_dir}: {error.strerror}") from None
    if not resume and (run_dir / METRICS).exists():
        raise ConfigError(f"--run-dir {run_dir}: a run was there; --resume goes on with it")


def _serve(args: argparse.Namespace, rank: int, begun: float) -> None:
    config = BaselineConfig.from_dict(configs.sections_of(args.config))
    shards = ShardSet.open(args.shards)
    baseline, size = config.baseline, int(os.environ.get("WORLD_SIZE", "1"))
    if size != baseline.ranks:
        raise ConfigError(f"baseline.ranks = {baseline.ranks}: there are {size} ranks")
    if shards.manifest.num_partitions != config.partitions:
        raise ConfigError(
            f"{args.shards}: {shards.manifest.num_partitions} partitions, {baseline.method} on {size} ranks "
            f"needs {config.partitions}"
        )
    device = _device(baseline)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    transport = _transport(baseline.transport, device, int(os.environ.get("LOCAL_WORLD_SIZE", str(size))))
    try:
        dist.init_process_group(
            transport,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=max(SETUP_S, baseline.timeout_s)),
            device_id=device if transport == "nccl" else None,
            store=_store(rank, size, baseline.timeout_s),
        )
    except (RuntimeError, ValueError) as error:
        raise _not_met(rank, transport, baseline.timeout_s, str(error)) from error
    group = TorchGroup(timeout_s=baseline.timeout_s, link=Link(baseline.link_rate, baseline.link_delay_s))
    # Not the whole device: what a channel carries meanwhile on its own stream is
    # nothing that the main thread waits for.
    clock = Clock(lambda: torch.cuda.current_stream().synchronize()) if device.type == "cuda" else Clock()
    run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), device, clock)
    torch.set_num_threads(run.threads)
    result = runner.train(run, args.run_dir, resume=args.resume, begun=begun)
    if not rank:
        result["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        result["transport"] = transport
        run_files.write_result(args.run_dir, cast(Trained, result))
    with contextlib.suppress(PeerLost):  # a rank that left first has its result too
        group.barrier()


def _store(rank: int, size: int, timeout_s: float) -> Any:
    """The store through which ranks meet, if ``siafu baseline`` started us; None: torch makes one from torchrun's
    variables.

    Rank 0 has inherited a socket that listens already: a port that was only chosen could be another's by the time that
    torch is imported.
    """
    if MEETING not in os.environ:
        return None
    return dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        size,
        is_master=not rank,
        timeout=timedelta(seconds=timeout_s),
        master_listen_fd=None if rank else int(os.environ[MEETING]),
    )


def _device(baseline: Baseline) -> torch.device:
    there = torch.cuda.is_available()
    if baseline.device == "cuda" and not there:
        raise ConfigError("baseline.device = cuda: torch sees no GPU")
    if baseline.device == "cpu" or not there:
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def _transport(asked: str, device: torch.device, local_ranks: int) -> str:
    """The transport. NCCL needs a GPU for each rank of a machine. Raises: ConfigError if it was asked for and is
    impossible."""
    cards = torch.cuda.device_count() if device.type == "cuda" else 0
    if asked != "nccl":
        return asked if asked != "auto" else "nccl" if cards >= local_ranks else "gloo"
    if not cards:
        raise ConfigError("baseline.transport = nccl: it is between GPUs, and this rank computes on the CPU")
    if cards < local_ranks:
        raise ConfigError(
            f"baseline.transport = nccl: {local_ranks} ranks of this machine have {cards} GPUs, each needs one of its "
            "own; gloo lets them share"
        )
    return asked


def _not_met(rank: int, transport: str, timeout_s: float, why: str) -> GnnError:
    """The error of ranks that could not connect: PeerLost if the others did not come in time, else the transport's own
    reason."""
    first = why.strip().splitlines()[0][:200] if why.strip() else "no reason given"
    if "timeout" in why.lower() or "timed out" in why.lower():
        return PeerLost(f"rank {rank}: the others did not come within {timeout_s:g} s: {first}")
    return GnnError(f"{transport} does not start: {first}")
