"""Issue 6, acceptance 4: what one GPU does, by one command. Without one it says so and measures nothing.

    python -m benchmarks.acceptance.baselines.gpu --json gpu.json
    python -m benchmarks.acceptance.baselines.gpu --only kernels methods --graphs 'synthetic:reddit-small?scale=0.1'
    python -m benchmarks.acceptance.baselines.gpu --device cpu --graphs digits --epochs 2     tries the program out

epochs    of GCN, GraphSAGE and GAT, full graph, our layers beside PyG's and plain torch's (``tests/gpu_reference.py``)
kernels   sums over edges and the quantiser, as a share of the card's own copy bandwidth; the quantiser's bar is 80%
methods   every method on one rank over NCCL, and on several ranks over Gloo that share the card, each with the losses
          that it has on the CPU
servers   epochs of ``siafu train --backend gpu`` beside ``--backend cpu`` on the same machine, one graph server each
tests     pytest -m gpu: that the card gives the CPU's bytes, and trains as the CPU does

Graphs are reddit-small and ogbn-products in full size: preparing them takes minutes, and 20 GB of memory. What cannot
be measured (no PyG) is listed at the end as skipped, with its reason, and what ran out of
the card's memory as missed. Exit code 1 if anything is missed or fails. ``benchmarks/gpu.sh`` runs all of it in parts
of minutes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.acceptance import table
from benchmarks.acceptance.baselines.measured import measure
from run_coordinator import prepared
from siafu import start, train
from siafu.baseline import METHODS
from siafu.config import Config
from siafu.errors import GnnError

QUANTISER_SHARE = 0.80
LAYERS, HIDDEN, HEADS = 3, 128, 4
#: What a method needs on few ranks.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "gnnpipe": {"model.name": "gcnii", "model.layers": 4, "model.hidden": 32},
    "allreduce": {"baseline.subgraphs": 8},
    "gossip": {"baseline.subgraphs": 8},
    "cluster": {"baseline.subgraphs": 8},
    "sampling": {"baseline.fanouts": (10, 5), "baseline.batch": 2000},
}
#: How far a method's loss after some epochs on the card may be from that on the CPU, as a share of it: sums of float32
#: in another order.
SAME_LOSS = 2e-3
LIMIT_S = 1800.0
TESTS = ("tests/gpu_baselines", "tests/graph_server/backends")


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    if args.device == "cuda" and shutil.which("nvidia-smi") is None:
        print("no GPU here (there is no nvidia-smi): nothing was measured")
        return 0
    found: dict[str, Any] = {"skipped": [], "missed": [], "failed": []}
    for what in args.only:
        _PARTS[what](args, found)
        table.record(args.json, found)
    for kind in ("skipped", "missed", "failed"):
        for line in found[kind]:
            print(f"{kind}: {line}")
    return 1 if found["missed"] or found["failed"] else 0


def _epochs(args: argparse.Namespace, found: dict[str, Any]) -> None:
    rows = found["epochs"] = []
    for graph in args.graphs:
        for model in ("gcn", "sage", "gat"):
            row: dict[str, Any] = {"graph": graph, "model": model}
            settings = {
                "model.name": model,
                "model.layers": LAYERS,
                "model.hidden": HIDDEN,
                "model.dropout": 0.5,
                **({"model.heads": HEADS} if model == "gat" else {}),
                "baseline.ranks": 1,
                "baseline.device": args.device,
            }
            try:
                row["ours"] = measure("vanilla", graph, settings, args.epochs).epoch_s
            except GnnError as error:
                found[_kind(str(error))].append(f"{model} on {graph}, ours: {error}")
            for library in ("torch", "pyg"):
                if library == "torch" and model == "gat":
                    continue
                if library == "pyg" and importlib.util.find_spec("torch_geometric") is None:
                    found["skipped"].append(f"{model} on {graph}, PyG: torch_geometric is not installed")
                    continue
                flags = ["--library", library, "--model", model, "--hidden", str(HIDDEN), "--layers", str(LAYERS)]
                flags += ["--heads", str(HEADS), "--epochs", str(args.epochs)]
                said = _reference(args, found, graph, "epoch", *flags)
                row[library] = said.get("epoch_s")
            rows.append(row)
            table.show([row], "seconds per epoch")


def _kernels(args: argparse.Namespace, found: dict[str, Any]) -> None:
    for graph in args.graphs:
        said = _reference(args, found, graph, "kernels", "--width", str(HIDDEN))
        found.setdefault("kernels", {})[graph] = said
        rows = []
        for name, one in said.items():
            if not isinstance(one, dict):
                continue
            share = one["share"] if "share" in one else one["share_per_edge"]
            rows.append({"kernel": name, "ms": 1000 * one["seconds"], "of a copy's bandwidth": share})
            if "quantise" in name and args.device == "cuda" and share < QUANTISER_SHARE:
                found["failed"].append(f"{name}: {share:.0%} of a copy's bandwidth, the bar is {QUANTISER_SHARE:.0%}")
        if rows:
            table.show(rows, f"{graph}: copy {said['copy'] / 1e9:.0f} GB/s on {said['device']}")


def _methods(args: argparse.Namespace, found: dict[str, Any]) -> None:
    rows = found["methods"] = []
    alone = "nccl" if args.device == "cuda" else "gloo"
    for method in args.methods:
        for transport, ranks in ((alone, 1), ("gloo", args.ranks)):
            if method == "cluster" and ranks > 1:
                continue
            settings = {
                "model.name": "sage",
                "model.hidden": 32,
                **SETTINGS.get(method, {}),
                "baseline.ranks": ranks,
                "baseline.device": args.device,
                "baseline.transport": transport,
            }
            row: dict[str, Any] = {"method": method, "transport": transport, "ranks": ranks}
            try:
                now = measure(method, args.small, settings, args.epochs)
                row |= {"epoch_s": now.epoch_s, "loss": now.result["loss_history"][-1], "device": now.result["device"]}
                if args.device == "cuda":
                    here = settings | {"baseline.device": "cpu", "baseline.transport": "gloo"}
                    row["loss_on_cpu"] = measure(method, args.small, here, args.epochs).result["loss_history"][-1]
                    if abs(row["loss"] - row["loss_on_cpu"]) > SAME_LOSS * abs(row["loss_on_cpu"]):
                        found["failed"].append(
                            f"{method} on {ranks} ranks over {transport}: other losses than the CPU's"
                        )
            except GnnError as error:
                found["failed"].append(f"{method} on {ranks} ranks over {transport}: {error}")
            rows.append(row)
            print(json.dumps(row), flush=True)


def _servers(args: argparse.Namespace, found: dict[str, Any]) -> None:
    rows = found["servers"] = []
    for graph in args.graphs:
        for model in ("gcn", "gat"):
            row: dict[str, Any] = {"graph": graph, "model": model}
            for backend in ("gpu", "cpu"):
                settings = {"model.name": model, "model.layers": LAYERS, "model.hidden": HIDDEN}
                settings |= {"model.heads": HEADS} if model == "gat" else {}
                settings |= {"servers.device": args.device} if backend == "gpu" else {}
                try:
                    row[backend] = _epoch_of_servers(graph, backend, settings, args.epochs)
                except GnnError as error:
                    found[_kind(str(error))].append(f"{model} on {graph}, servers with backend {backend}: {error}")
            rows.append(row)
            table.show([row], "seconds per epoch of graph servers")


def _epoch_of_servers(graph: str, backend: Any, settings: Mapping[str, Any], epochs: int) -> float:
    """Median seconds, without evaluation and without the first epochs, which fill buffers."""
    with tempfile.TemporaryDirectory(prefix="siafu-gpu-") as folder:
        run = train(
            graph, backend=backend, run_dir=f"{folder}/run", epochs=epochs + 3, eval_every=0, settings=dict(settings)
        )
        return median([record["epoch_s"] for record in run.metrics() if record["event"] == "epoch"][3:])


def _tests(args: argparse.Namespace, found: dict[str, Any]) -> None:
    if args.device != "cuda":
        found["skipped"].append("pytest -m gpu: --device cpu")
        return
    command = start.command("pytest", "-q", "-n", "0", "-m", "gpu", *TESTS)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    found["tests"] = (ended.stdout.strip().splitlines() or [""])[-1]
    print(ended.stdout[-20_000:] + ended.stderr[-2000:], flush=True)
    if ended.returncode == 5:  # pytest's own code
        found["skipped"].append("pytest -m gpu: there are no such tests")
    elif ended.returncode:
        found["failed"].append(f"pytest -m gpu: {found['tests']}")


_PARTS = {"kernels": _kernels, "methods": _methods, "tests": _tests, "epochs": _epochs, "servers": _servers}


def _reference(args: argparse.Namespace, found: dict[str, Any], graph: str, what: str, *flags: str) -> dict[str, Any]:
    """What ``tests/gpu_reference.py`` says; {} if it fails, which is noted."""
    shards: Path = prepared.shards_of(Config().replace({"data.source": graph}))
    command = start.command("tests.gpu_reference", what, str(shards), "--device", args.device, *flags)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if ended.returncode:
        why = (ended.stderr.strip().splitlines() or ["no word"])[-1][:200]
        found[_kind(why)].append(f"{what} {' '.join(flags[:4])} on {graph}: {why}")
        return {}
    said: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return said


def _kind(why: str) -> str:
    """A card that is too small for a system is a result of the comparison, and no good one: missed."""
    return "missed" if "OutOfMemory" in why else "failed"


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = table.parser(
        __doc__,
        only=list(_PARTS),
        small=("synthetic:reddit-small?scale=0.02", "what methods run on"),
        methods=list(METHODS),
        ranks=(2, "that share the card"),
        epochs=10,
    )
    full = ["synthetic:reddit-small", "synthetic:ogbn-products"]
    parser.add_argument("--graphs", nargs="+", default=full, metavar="SOURCE")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
