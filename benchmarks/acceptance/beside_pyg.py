"""siafu beside PyTorch Geometric on the same graphs, as users of both write a GCN: README's table.

    SIAFU_DATA=... python -m benchmarks.acceptance.beside_pyg [--rounds 3] [--only GRAPH ...] [--json FILE]

GCN, 2 layers, 16 hidden units, dropout 0.5, Adam, evaluated after each epoch; all cores. The scripts are ``OURS`` and
``PYG``. Both are started anew in each round, one after the other. Milliseconds are those of all epochs but
the first, over their number; memory is the most that all processes of a run held at one time (PSS), files that are
mapped included. Lines are those of the scripts, without empty lines and what only times them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import siafu
from benchmarks.acceptance import table
from benchmarks.measure.footprint import watch
from siafu import start

#: Graph -> epochs that are timed.
GRAPHS = {
    "digits": 200,
    "cora": 200,
    "amazon_computers": 40,
    "coauthor_physics": 20,
    "synthetic:reddit-small?scale=0.25": 6,
}
OURS = """
import siafu

run = siafu.train({source!r}, epochs={epochs}, hidden=16, dropout=0.5, weight_decay=5e-4, eval_every=1)
print(run.test_acc)
import json  # timing
print(json.dumps({{"seconds": run.result["train_seconds"] - run.metrics()[1]["epoch_s"]}}))  # timing
"""
#: As PyG's examples/gcn.py.
PYG = """
import json  # timing
import sys
import time  # timing

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import RandomNodeSplit, ToUndirected


class GCN(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels, cached=True)
        self.conv2 = GCNConv(hidden_channels, out_channels, cached=True)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index)


data = ToUndirected()(Data.from_dict(torch.load(sys.argv[1])))
if "train_mask" not in data:
    data = RandomNodeSplit("test_rest", num_train_per_class=20, num_val=500)(data)
model = GCN(data.num_features, 16, int(data.y.max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def train():
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()


@torch.no_grad()
def test():
    model.eval()
    pred = model(data.x, data.edge_index).argmax(dim=-1)
    return [float((pred[mask] == data.y[mask]).float().mean()) for mask in (data.val_mask, data.test_mask)]


train()  # timing: what is cached is there
test()  # timing
begun = time.perf_counter()  # timing
best_val = test_acc = 0.0
for _ in range(int(sys.argv[2])):
    train()
    val, acc = test()
    if val > best_val:
        best_val, test_acc = val, acc
seconds = time.perf_counter() - begun  # timing
print(json.dumps({"seconds": seconds, "test_acc": test_acc}))  # timing
"""


@dataclass(frozen=True)
class Row:
    graph: str
    siafu_ms: float
    pyg_ms: float
    siafu_mb: float
    pyg_mb: float

    @property
    def times(self) -> float:
        return self.pyg_ms / self.siafu_ms


def timed(command: Sequence[str], epochs: int, folder: Path) -> tuple[float, float]:
    """(ms per epoch, MB) of a script in the folder."""
    python, script, *rest = command
    log = folder / "log"
    found = watch([python, str(folder / script), *rest], log=log, environment=start.environment())
    said = json.loads(log.read_text().strip().splitlines()[-1])
    return 1000 * said["seconds"] / epochs, found.peak_nbytes / 1e6


def measured(graph: str, epochs: int, rounds: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="siafu-beside-pyg-") as name:
        folder = Path(name)
        siafu.convert(graph, "pyg", folder / "graph")
        (data,) = (folder / "graph").glob("*.pt")
        scripts = {"ours.py": OURS.format(source=graph, epochs=epochs + 1), "pyg.py": PYG}
        for file, text in scripts.items():
            (folder / file).write_text(f"import os  # timing\nos.chdir({name!r})  # timing\n{text}")
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(timed([sys.executable, "ours.py"], epochs, folder))
            theirs.append(timed([sys.executable, "pyg.py", str(data), str(epochs)], epochs, folder))
    (siafu_ms, siafu_mb), (pyg_ms, pyg_mb) = (
        [median(column) for column in zip(*runs, strict=True)] for runs in (ours, theirs)
    )
    return Row(graph, siafu_ms, pyg_ms, siafu_mb, pyg_mb)


def lines_of(script: str) -> int:
    """Of code: without empty ones, and those that only time."""
    return sum(bool(line.strip()) and "# timing" not in line for line in script.splitlines())


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(__doc__, rounds=3, only=list(GRAPHS)).parse_args(argv)
    rows = [measured(graph, GRAPHS[graph], args.rounds) for graph in args.only]
    lines = {"siafu": lines_of(OURS), "pyg": lines_of(PYG)}
    table.record(args.json, {"rows": [{**asdict(row), "times": row.times} for row in rows], "lines": lines})
    table.markdown(
        [
            {
                "graph": row.graph,
                "siafu, ms per epoch": f"{row.siafu_ms:.1f}",
                "PyG, ms per epoch": f"{row.pyg_ms:.1f}",
                "": f"{row.times:.1f} times",
                "siafu, MB": f"{row.siafu_mb:,.0f}",
                "PyG, MB": f"{row.pyg_mb:,.0f}",
            }
            for row in rows
        ]
    )
    print(f"\n{lines['siafu']} lines of code with siafu, {lines['pyg']} with PyG.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
