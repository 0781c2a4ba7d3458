"""A peer at work: run by the peers' own Python (``run_coordinator.peers``), so it imports nothing of siafu.

    python peer_process.py      then JSON lines, one answer for each (``benchmarks.measure.rounds``)

    {"setup": {"subject": "gather", "contender": "dgl", "graph": DIR, "threads": 2, "width": 64, ...}}  -> {"note": ...}
    {"run": {...}}                                                                        -> {"seconds": ...}
    {"check": {}}                                                                         -> what came out

``graph`` is the folder of a prepared graph's only partition: its .npy files are mapped as they are. Each contender does
what a user of the package would do who knows it well; where it had to be helped, its note says so.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
import types
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

CHECKED_ROWS = 64  # of a product, compared with siafu's
DGL_CUTS = (128, 64)  # columns at a time that are tried for DGL beside whole rows
TRAIN, TEST = 1, 3  # of split.npy


# --- the graph --------------------------------------------------------------------------------------------------------


class Graph:
    """CSR over targets with a self-loop at the end of each row if asked for, features, labels and split."""

    def __init__(self, folder: str, *, loops: bool):
        self.folder = Path(folder)
        indptr, indices = self.load("in_indptr"), self.load("in_indices")  # int64 [n + 1], int32 [m]
        self.n = len(indptr) - 1
        self.degree = np.diff(indptr)  # [n], without self-loop
        self.indptr, self.indices = (indptr, indices) if not loops else _with_loops(indptr, indices)
        if self.indptr[-1] < 2**31:
            self.indptr = self.indptr.astype(np.int32)

    def load(self, name: str) -> Any:
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    def gcn_norm(self) -> Any:
        """1 / sqrt(degree with self-loop), float32 [n]."""
        return (1 / np.sqrt(self.degree + 1.0)).astype(np.float32)

    def gcn_values(self) -> Any:
        """The normalised adjacency's value of each stored edge, float32."""
        norm = self.gcn_norm()
        return np.repeat(norm, self.degree + 1) * norm[self.indices]


def _with_loops(indptr: Any, indices: Any) -> tuple[Any, Any]:
    n = len(indptr) - 1
    wider = indptr + np.arange(n + 1)
    out = np.empty(wider[-1], np.int32)
    last = np.zeros(wider[-1], bool)
    last[wider[1:] - 1] = True
    out[last] = np.arange(n, dtype=np.int32)
    out[~last] = indices
    return wider, out


# --- gather -----------------------------------------------------------------------------------------------------------


class Gather:
    """The normalised product of a random matrix [n, width], which every contender draws alike."""

    note = ""

    def __init__(self, setup: dict[str, Any]):
        self.graph = Graph(setup["graph"], loops=True)
        self.rows = np.random.default_rng(0).standard_normal((self.graph.n, setup["width"]), dtype=np.float32)
        self.prepare(setup)
        self.run({"at_least_s": 0})

    def prepare(self, setup: dict[str, Any]) -> None:
        raise NotImplementedError

    def product(self) -> Any:
        raise NotImplementedError

    def run(self, options: dict[str, Any]) -> dict[str, Any]:
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < options["at_least_s"]:
            out = self.product()
            count += 1
        seconds = (time.perf_counter() - start) / count
        self.sample = np.asarray(out[:: max(1, self.graph.n // CHECKED_ROWS)]).copy()
        return {"seconds": seconds}

    def check(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"sample": self.sample.tolist(), "peak_nbytes": peak_nbytes()}


class DGLGather(Gather):
    """copy_u_sum over an int32 graph, scaled before and after; on whole rows or on columns cut, whichever is faster.

    On whole rows of 602 columns its kernel (LIBXSMM) crashes: then ``setup["cut"]`` leaves them out. Without LIBXSMM it
    is 2 to 10 times slower.
    """

    def prepare(self, setup: dict[str, Any]) -> None:
        torch = package("torch")
        self.ops = imported_dgl().ops
        self.g = dgl_graph(self.graph)
        self.H, self.norm = torch.from_numpy(self.rows), torch.from_numpy(self.graph.gcn_norm())[:, None]
        width = setup["width"]
        blocks = [width] * (not setup["cut"]) + [block for block in DGL_CUTS if block < width]
        self.block = min(blocks, key=self._seconds_with)
        crashes = "it crashes on whole rows: " if setup["cut"] else ""
        self.note = f"{crashes}{self.block} columns at a time" if self.block < width else ""

    def _seconds_with(self, block: int) -> float:
        self.block = block
        self.product()  # makes what it needs
        start = time.perf_counter()
        self.product()
        return time.perf_counter() - start

    def product(self) -> Any:
        torch = package("torch")
        scaled = self.H * self.norm
        width = self.H.shape[1]
        if self.block >= width:
            return self.ops.copy_u_sum(self.g, scaled).mul_(self.norm)
        parts = [scaled[:, c : c + self.block].contiguous() for c in range(0, width, self.block)]
        return torch.cat([self.ops.copy_u_sum(self.g, part).mul_(self.norm) for part in parts], 1)


class TorchGather(Gather):
    """torch's sparse CSR product with int32 indices (MKL)."""

    index_dtype = "int32"

    def prepare(self, setup: dict[str, Any]) -> None:
        torch = package("torch")
        self.H = torch.from_numpy(self.rows)
        self.A = torch_csr(self.graph, self.graph.gcn_values(), getattr(torch, self.index_dtype))

    def product(self) -> Any:
        return self.A @ self.H


class PyGGather(TorchGather):
    """torch_geometric.utils.spmm on torch's CSR, which is what its layers call without torch-sparse and pyg-lib."""

    index_dtype = "int64"
    note = "without torch-sparse, pyg-lib"  # there are no wheels of them for this torch

    def product(self) -> Any:
        return package("torch_geometric.utils").spmm(self.A, self.H, reduce="sum")


class SciPyGather(Gather):
    note = "one thread"

    def prepare(self, setup: dict[str, Any]) -> None:
        graph = self.graph
        shape = (graph.n, graph.n)
        self.A = package("scipy.sparse").csr_array((graph.gcn_values(), graph.indices, graph.indptr), shape=shape)

    def product(self) -> Any:
        return self.A @ self.rows


# --- epochs -----------------------------------------------------------------------------------------------------------


class Training:
    """Full-batch training with torch's autograd and Adam from given first weights."""

    note = ""

    def __init__(self, setup: dict[str, Any]):
        torch = package("torch")
        self.setup, self.torch = setup, torch
        torch.manual_seed(0)
        self.graph = Graph(setup["graph"], loops=setup["model"] != "sage")
        self.X = torch.from_numpy(np.array(self.graph.load("features"), np.float32))
        self.labels = torch.from_numpy(np.array(self.graph.load("labels")))
        split = np.array(self.graph.load("split"))[:, 0]
        self.train, self.test = torch.from_numpy(split == TRAIN), torch.from_numpy(split == TEST)
        self.weights = {name: torch.from_numpy(value) for name, value in np.load(setup["weights"]).items()}
        self.num_layers = setup["layers"]
        self.net = self.build()
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=setup["lr"])
        self.losses: list[float] = []
        self.epoch()  # what is cached is made now

    def build(self) -> Any:
        raise NotImplementedError

    def epoch(self) -> None:
        self.net.train()
        self.optimiser.zero_grad()
        logits = self.net(self.X)
        loss = self.torch.nn.functional.cross_entropy(logits[self.train], self.labels[self.train])
        loss.backward()
        self.optimiser.step()
        self.losses.append(float(loss.detach()))

    def run(self, options: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        for _ in range(options["epochs"]):
            self.epoch()
        return {"seconds": (time.perf_counter() - start) / options["epochs"]}

    def check(self, options: dict[str, Any]) -> dict[str, Any]:
        peak = peak_nbytes()  # of training, without this evaluation
        with self.torch.no_grad():
            self.net.eval()
            hit = self.net(self.X)[self.test].argmax(1) == self.labels[self.test]
        return {"losses": self.losses, "test_acc": float(hit.float().mean()), "peak_nbytes": peak}

    def first(self, layer: int, what: str, parameter: Any, *, transposed: bool = False) -> None:
        """Puts the first weights of siafu into a parameter."""
        value = self.weights[f"{layer}.{what}"]
        with self.torch.no_grad():
            parameter.copy_((value.T if transposed else value).reshape(parameter.shape))

    def net_of(self, layers: list[Any], call: Any) -> Any:
        """A module that runs ``call(layer number, layer, H)`` one after the other, with relu between."""
        torch = self.torch

        class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layers = torch.nn.ModuleList(layers)

            def forward(self, H: Any) -> Any:
                for number, layer in enumerate(self.layers):
                    H = call(number, layer, H)
                    if number < len(self.layers) - 1:
                        H = torch.relu(H)
                return H

        return Net()

    def widths(self) -> list[tuple[int, int]]:
        sizes = [self.X.shape[1], *self.setup["widths"], self.setup["num_classes"]]
        return list(pairwise(sizes))


class DGLTraining(Training):
    """dgl.nn's layers as its examples use them, on an int32 graph."""

    def build(self) -> Any:
        imported_dgl()
        self.g = dgl_graph(self.graph, edge_ids=self.setup["model"] == "gat")
        layers = [getattr(self, self.setup["model"])(number, *shape) for number, shape in enumerate(self.widths())]
        return self.net_of(layers, self.call)

    def call(self, number: int, layer: Any, H: Any) -> Any:
        out = layer(self.g, H)
        return out if self.setup["model"] != "gat" else out.flatten(1) if number < self.num_layers - 1 else out.mean(1)

    def gcn(self, number: int, fan_in: int, fan_out: int) -> Any:
        layer = package("dgl.nn").GraphConv(fan_in, fan_out)
        self.first(number, "weight", layer.weight)
        self.first(number, "bias", layer.bias)
        return layer

    def sage(self, number: int, fan_in: int, fan_out: int) -> Any:
        layer = package("dgl.nn").SAGEConv(fan_in, fan_out, "mean")
        self.first(number, "self", layer.fc_self.weight, transposed=True)
        self.first(number, "neighbour", layer.fc_neigh.weight, transposed=True)
        self.first(number, "bias", layer.fc_self.bias if layer.fc_self.bias is not None else layer.bias)
        return layer

    def gat(self, number: int, fan_in: int, fan_out: int) -> Any:
        heads = self.setup["heads"] if number < self.num_layers - 1 else 1
        layer = package("dgl.nn").GATConv(fan_in, fan_out // heads, heads)
        self.first(number, "weight", layer.fc.weight, transposed=True)
        self.first(number, "target", layer.attn_r)
        self.first(number, "source", layer.attn_l)
        self.first(number, "bias", layer.bias)
        return layer


class DGLCached(DGLTraining):
    """The same, given siafu's own trick: layer 0's aggregate of the constant features is made once."""

    note = "layer 0's aggregate cached by hand"

    def build(self) -> Any:
        net = super().build()
        dgl, torch = imported_dgl(), self.torch
        norm = torch.from_numpy(self.graph.gcn_norm())[:, None]
        degree = torch.from_numpy(np.maximum(self.graph.degree, 1).astype(np.float32))[:, None]
        parts = []
        for c in range(0, self.X.shape[1], 64):
            part = self.X[:, c : c + 64].contiguous()
            if self.setup["model"] == "gcn":
                parts.append(dgl.ops.copy_u_sum(self.g, part * norm) * norm)
            else:
                parts.append(dgl.ops.copy_u_sum(self.g, part) / degree)
        self.Z0 = torch.cat(parts, 1)
        if self.setup["model"] == "gcn":
            self.X = self.Z0
        return net

    def call(self, number: int, layer: Any, H: Any) -> Any:
        if number:
            return super().call(number, layer, H)
        if self.setup["model"] == "gcn":
            return self.torch.addmm(layer.bias, self.Z0, layer.weight)
        return layer.fc_self(self.X) + layer.fc_neigh(self.Z0) + (0 if layer.fc_self.bias is not None else layer.bias)


class PyGTraining(Training):
    """torch_geometric.nn's layers on torch's sparse CSR adjacency, as its documentation asks for on CPUs."""

    note = "without torch-sparse, pyg-lib"  # there are no wheels of them for this torch

    def build(self) -> Any:
        torch, graph, model = self.torch, self.graph, self.setup["model"]
        if model == "gat":
            source = torch.from_numpy(np.asarray(graph.indices, np.int64))
            target = torch.from_numpy(np.repeat(np.arange(graph.n), np.diff(graph.indptr)))
            self.adjacency = torch.stack([source, target])
        elif model == "gcn":
            self.adjacency = torch_csr(graph, graph.gcn_values(), torch.int64)
        else:
            self.adjacency = torch_csr(graph, np.ones(len(graph.indices), np.float32), torch.int64)
        layers = [getattr(self, model)(number, *shape) for number, shape in enumerate(self.widths())]
        return self.net_of(layers, lambda number, layer, H: layer(H, self.adjacency))

    def gcn(self, number: int, fan_in: int, fan_out: int) -> Any:
        # normalised once above, which is what cached=True keeps
        layer = package("torch_geometric.nn").GCNConv(fan_in, fan_out, normalize=False)
        self.first(number, "weight", layer.lin.weight, transposed=True)
        self.first(number, "bias", layer.bias)
        return layer

    def sage(self, number: int, fan_in: int, fan_out: int) -> Any:
        layer = package("torch_geometric.nn").SAGEConv(fan_in, fan_out, aggr="mean")
        self.first(number, "self", layer.lin_r.weight, transposed=True)
        self.first(number, "neighbour", layer.lin_l.weight, transposed=True)
        self.first(number, "bias", layer.lin_l.bias)
        return layer

    def gat(self, number: int, fan_in: int, fan_out: int) -> Any:
        heads = self.setup["heads"] if number < self.num_layers - 1 else 1
        # they are in the graph
        layer = package("torch_geometric.nn").GATConv(fan_in, fan_out // heads, heads, add_self_loops=False)
        self.first(number, "weight", layer.lin.weight, transposed=True)
        self.first(number, "target", layer.att_dst)
        self.first(number, "source", layer.att_src)
        self.first(number, "bias", layer.bias)
        return layer


# --- what the packages need -------------------------------------------------------------------------------------------


def package(name: str) -> Any:
    """A module of the peers' environment, which siafu's own has not."""
    return importlib.import_module(name)


def imported_dgl() -> Any:
    """DGL 2.1.0 beside a torch that it has no graphbolt binary for: an empty module stands in, sampling is not used."""
    if "dgl" not in sys.modules:
        stand_in = types.ModuleType("dgl.graphbolt")
        stand_in.__path__ = []
        sys.modules["dgl.graphbolt"] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return package("dgl")


def dgl_graph(graph: Graph, *, edge_ids: bool = False) -> Any:
    """int32; numbered edges where edges have values, which DGL's multi-head kernels ask for."""
    torch = package("torch")
    dgl = imported_dgl()
    indptr, indices = torch.from_numpy(np.array(graph.indptr)), torch.from_numpy(np.array(graph.indices))
    ids = torch.arange(len(indices) if edge_ids else 0, dtype=indptr.dtype)  # none: numbered as they are stored
    return dgl.graph(("csc", (indptr, indices, ids)), num_nodes=graph.n, idtype=torch.int32)


def torch_csr(graph: Graph, values: Any, dtype: Any) -> Any:
    torch = package("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "sparse CSR is in beta state"
        return torch.sparse_csr_tensor(
            torch.from_numpy(np.array(graph.indptr)).to(dtype),
            torch.from_numpy(np.array(graph.indices)).to(dtype),
            torch.from_numpy(values),
            (graph.n, graph.n),
            check_invariants=False,
        )


# --- the process ------------------------------------------------------------------------------------------------------

CONTENDERS: dict[str, dict[str, Any]] = {
    "gather": {"dgl": DGLGather, "torch": TorchGather, "pyg": PyGGather, "scipy": SciPyGather},
    "epoch": {"dgl": DGLTraining, "dgl_cached": DGLCached, "pyg": PyGTraining},
}


def peak_nbytes() -> int:
    """Most memory that this program has held. Not ru_maxrss, which begins with that of the process that started us."""
    with open("/proc/self/status") as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return kilobytes * 1024


def begin(setup: dict[str, Any]) -> Any:
    limit = setup["memory_limit"]  # beyond it, an allocation fails and is reported: nobody else is pushed out
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if setup["contender"] != "scipy":
        package("torch").set_num_threads(setup["threads"])
    return CONTENDERS[setup["subject"]][setup["contender"]](setup)


def serve() -> None:
    sys.path.remove(str(Path(__file__).resolve().parent))  # our neighbours here are no packages of theirs
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the packages print is no answer
    work: Any = None
    for line in sys.stdin:
        ((what, options),) = json.loads(line).items()
        try:
            if what == "setup":
                work = begin(options)
                answer = {"note": work.note}
            else:
                answer = getattr(work, what)(options)
        except Exception as error:  # the process edge: whatever went wrong is the answer
            answer = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
