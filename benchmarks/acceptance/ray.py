"""Do servers on a Ray cluster compute what local processes do, and how does a run end when a node is lost?

    python -m benchmarks.acceptance.ray [--source digits] [--epochs 50] [--losses 3] [--json FILE]

Three nodes are simulated on this machine: two graph servers and a parameter server on one each. The first table holds
the final weights of ``pipe`` runs against those of local processes. Then a node that holds a member is lost, again and
again, in the middle of a run: killed, or frozen, so that nobody hangs up for it. The second table says how long it took
from there to the end of ``siafu train``, and its last line.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.acceptance import table
from tests.integration.processes import Training
from tests.simulated_ray import SimulatedRay

PARTS, PARAM_SERVERS = 2, 1
PATIENCE_S = 60.0
GONE_S = 5.0  # from there until no server of the run is left anywhere
PLACES = (
    ("local processes", "cpu", ()),
    ("Ray", "cpu", ("--on", "ray")),
    ("local processes", "lambda", ("--lambda-on", "local")),
    ("Ray", "lambda", ("--on", "ray", "--lambda-on", "local")),
    ("Ray, Lambdas on Ray", "lambda", ("--on", "ray", "--lambda-on", "ray")),
    ("local, Lambdas on Ray", "lambda", ("--lambda-on", "ray")),
)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all weights are those of local processes, and every loss ended its run in time, naming the node."""
    args = table.parser(__doc__, source="digits", epochs=50, losses=(3, "nodes to kill, one run each")).parse_args(argv)
    fleet = (args.source, "--mode", "pipe", "--parts", str(PARTS), "--param-servers", str(PARAM_SERVERS))
    with tempfile.TemporaryDirectory() as folder, SimulatedRay() as cluster:
        base = (*fleet, "--set", f"cloud.ray_address={cluster.address}")
        places = [
            _train(Path(folder) / f"place-{i}", where, backend, (*base, "--epochs", str(args.epochs), *rest))
            for i, (where, backend, rest) in enumerate(PLACES)
        ]
        losses = []
        for i in range(args.losses):
            losses.append(_lose(cluster, Path(folder) / f"killed-{i}", "killed", base))
        losses.append(_lose(cluster, Path(folder) / "frozen", "frozen", base))
    for row in places:
        same = next(other for other in places if other["backend"] == row["backend"])
        row["identical"] = row["weights_digest"] == same["weights_digest"]
    title = f"{args.source}, pipe, {PARTS} graph servers and {PARAM_SERVERS} parameter server"
    table.show([{**row, "weights_digest": row["weights_digest"][:16]} for row in places], title)
    table.show(losses, "A node is lost")
    table.record(args.json, {"places": places, "losses": losses})
    return 0 if all(row["identical"] for row in places) and all(row["named"] for row in losses) else 1


def _train(run_dir: Path, where: str, backend: str, arguments: Sequence[str]) -> dict[str, Any]:
    begun = time.monotonic()
    with Training(run_dir, *arguments, "--backend", backend) as training:
        result = training.result
        if training.wait() != 0:
            raise SystemExit(training.errors)
    return {
        "where": where,
        "backend": backend,
        "weights_digest": result["weights_digest"],
        "test_acc": result["test_acc"],
        "train_seconds": result["train_seconds"],
        "seconds": time.monotonic() - begun,
        "invocations": result["lambda"]["invocations"],
        "billed_ms": result["lambda"]["billed_ms"],
    }


def _lose(cluster: SimulatedRay, run_dir: Path, how: str, base: Sequence[str]) -> dict[str, Any]:
    """One run and one loss; the cluster is whole again afterwards."""
    arguments = (*base, "--backend", "cpu", "--epochs", "1000000", "--restarts", "0", "--on", "ray")
    with Training(run_dir, *arguments) as training:
        training.until(lambda: training.epochs() >= 2, "two epochs")
        lost = next(host for host in cluster.members("graph_server").values() if host != cluster.head)
        act: Callable[[str], None] = cluster.kill if how == "killed" else cluster.freeze
        begun = time.monotonic()
        act(lost)
        code = training.wait(PATIENCE_S)
        took_s = time.monotonic() - begun
        line = training.errors.strip().splitlines()[-1]
    if how == "frozen":
        cluster.kill(lost)
    deadline = time.monotonic() + GONE_S
    while (left := len(cluster.members("graph_server", "param_server"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    cluster.add(lost)
    named = code == 1 and "_server " in line and f"node {lost} " in line
    return {"how": how, "seconds": took_s, "code": code, "named": named, "left": left, "last_line": line}


if __name__ == "__main__":
    sys.exit(main())
