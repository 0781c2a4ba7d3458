"""The same GCN in PyTorch Geometric and in siafu, on the same graph, with the same split.

python beside_pyg.py [GRAPH]        GRAPH: digits, or a graph fetched with siafu get, such as cora
"""

import statistics
import sys
import time

import siafu
from graph_data.convert import loaded

try:
    import torch
    import torch.nn.functional as F  # noqa: N812
    from torch_geometric.nn import GCNConv
    from torch_geometric.transforms import RandomNodeSplit, ToUndirected
except ModuleNotFoundError as error:
    sys.exit(f"beside_pyg.py needs {error.name}: pip install torch torch_geometric")

EPOCHS, HIDDEN = 60, 16
source = sys.argv[1] if len(sys.argv) > 1 else "digits"

data = ToUndirected()(siafu.to_pyg(loaded(source)))
if "train_mask" not in data:
    data = RandomNodeSplit("test_rest", num_train_per_class=20, num_val=300)(data)

run = siafu.train(data, epochs=EPOCHS, hidden=HIDDEN, dropout=0.5, weight_decay=5e-4, eval_every=1)
ours_s = statistics.median(record["epoch_s"] for record in run.metrics() if record["event"] == "epoch")


class GCN(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = GCNConv(data.num_features, HIDDEN, cached=True)
        self.conv2 = GCNConv(HIDDEN, int(data.y.max()) + 1, cached=True)

    def forward(self) -> torch.Tensor:
        hidden = self.conv1(F.dropout(data.x, 0.5, self.training), data.edge_index).relu()
        return self.conv2(F.dropout(hidden, 0.5, self.training), data.edge_index)


torch.manual_seed(0)
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
best = (0.0, 0.0)  # validation accuracy, test accuracy at that epoch
times = []
for _ in range(EPOCHS):
    begun = time.perf_counter()
    model.train()
    optimizer.zero_grad()
    F.cross_entropy(model()[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model().argmax(dim=1) == data.y).float()
    best = max(best, (float(right[data.val_mask].mean()), float(right[data.test_mask].mean())))
    times.append(time.perf_counter() - begun)

print(f"siafu  test accuracy {run.test_acc:.3f}, {1000 * ours_s:.1f} ms per epoch (median, with evaluation)")
print(f"PyG    test accuracy {best[1]:.3f}, {1000 * statistics.median(times):.1f} ms per epoch")
