"""A Ray cluster of three nodes on this machine, for tests and figures: each node has an
address of its own, and can be lost.

The nodes are children of a process of their own, ``python -m tests.simulated_ray DIR``, so that neither Ray's daemons
nor its Python touch the tests, and all end when whoever started them does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NODES, CPUS = 3, 2
STORE_BYTES = 80 << 20  # Ray wants 75 MiB at least
#: A killed node is missed after half a second instead of half a minute, so that the next test does not count on it.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 2}
START_S, STOP_S = 60.0, 20.0


class SimulatedRay:
    """Use in a ``with`` block. The driver's machine is the first node, at the machine's own address."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # short: it holds sockets
        self._mark = f"/marked{os.urandom(8).hex()}"  # in the PATH of all that runs on the cluster
        environ = {
            **os.environ,
            "PATH": f"{os.environ['PATH']}{os.pathsep}{self._mark}",
            "RAY_TMPDIR": str(self._folder),
            "TMPDIR": str(self._folder),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        environ.pop("RAY_ADDRESS", None)
        with (self._folder / "cluster.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.simulated_ray", str(self._folder)],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).parent.parent,
            )
        said = self._answer()
        self.address: str = said["address"]
        self.nodes: dict[str, int] = said["nodes"]  # address -> pid of Ray's daemon
        self._frozen: dict[str, list[int]] = {}  # address -> pids

    @property
    def head(self) -> str:
        return self.address.rpartition(":")[0]

    def kill(self, host: str) -> None:
        """As if its plug was pulled, but that the kernel hangs up for it."""
        self.nodes = self._ask("kill", host)["nodes"]
        for pid in self._frozen.pop(host, ()):  # a stopped process hears of nothing
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def add(self, host: str) -> None:
        self.nodes = self._ask("add", host)["nodes"]

    def freeze(self, host: str) -> None:
        """As if its plug was pulled: nothing there answers, and nobody hangs up."""
        self._frozen[host] = self._below(self.nodes[host])
        for pid in self._frozen[host]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def members(self, *modules: str) -> dict[int, str]:
        """Processes on the cluster that run one of the modules -> their node."""
        found = {}
        for pid in self.left():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if any(module in words for module in modules):
                    found[pid] = next((host for host, top in self.nodes.items() if pid in self._below(top)), "")
        return found

    def left(self) -> list[int]:
        """Every process of the cluster, and all that it has brought to life."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{entry}/environ").read_bytes()
                if self._mark.encode() in environ and _stat(int(entry))[0] != "Z":
                    found.append(int(entry))
        return sorted(found)

    def _below(self, top: int) -> list[int]:
        """A process and its descendants, the eldest first."""
        parents = {}
        for pid in self.left():
            with contextlib.suppress(OSError):
                parents[pid] = _stat(pid)[1]
        found = [top]
        for parent in found:
            found += [pid for pid, above in parents.items() if above == parent]
        return found

    def _ask(self, *words: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self._folder / "cluster.log").read_text()
        return json.loads(line)

    def __enter__(self) -> SimulatedRay:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=STOP_S)
            deadline = time.monotonic() + STOP_S
            while (left := self.left()) and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            left = self.left()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self._folder, ignore_errors=True)
        assert not left, f"processes {left} outlived the cluster"


def _stat(pid: int) -> tuple[str, int]:
    """State and parent of a process."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def main(folder: str) -> None:
    """Serves until stdin ends."""
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints
    size = {"num_cpus": CPUS, "object_store_memory": STORE_BYTES}
    own = Path(folder) / "ray"  # where RAY_TMPDIR has it: which cluster is "auto" for others stays as it is
    own.mkdir()
    head = {
        **size,
        "include_dashboard": False,
        "include_log_monitor": False,
        "temp_dir": str(own),
        "_system_config": HEALTH,
    }
    cluster = Cluster(initialize_head=True, connect=False, head_node_args=head)
    nodes = {cluster.head_node.node_ip_address: cluster.head_node}
    try:
        for number in range(2, NODES + 1):
            host = f"127.0.0.{number}"
            nodes[host] = cluster.add_node(**size, wait=False, node_ip_address=host)
        cluster.wait_for_nodes(START_S)
        print(json.dumps({"address": cluster.address, "nodes": _pids(nodes)}), file=answers, flush=True)
        for line in sys.stdin:
            verb, host = line.split()
            if verb == "kill":
                cluster.remove_node(nodes.pop(host), allow_graceful=False)
            else:
                nodes[host] = cluster.add_node(**size, wait=True, node_ip_address=host)
            print(json.dumps({"nodes": _pids(nodes)}), file=answers, flush=True)
    finally:
        cluster.shutdown()


def _pids(nodes: dict[str, Any]) -> dict[str, int]:
    return {host: node.all_processes["raylet"][0].process.pid for host, node in nodes.items()}


if __name__ == "__main__":
    main(sys.argv[1])
