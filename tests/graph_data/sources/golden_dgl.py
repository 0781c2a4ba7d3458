"""Files that DGL 2.1.0 wrote, of a graph that is known:
``python -m tests.graph_data.sources.golden_dgl`` writes them again."""

import contextlib
import io
import shutil
import warnings
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "dgl"
N, E = 12, 40  # vertex 11 has no edge
NUMBERS = np.arange(E)
SRC, DST = (7 * NUMBERS + NUMBERS // 10) % 11, (3 * NUMBERS + 1) % 11
WEIGHT = NUMBERS + 0.5  # tells which edge it is, whatever its number has become
FEATURES = np.arange(3 * N).reshape(N, 3)  # tells the vertex likewise
LABELS = np.arange(N) % 3
TRAIN = np.arange(N) < 5


def write():
    from tests.graph_data.dgl_import import imported_dgl

    dgl = imported_dgl()
    import torch

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    graph = dgl.graph((torch.from_numpy(SRC), torch.from_numpy(DST)), num_nodes=N)
    graph.ndata.update(
        feat=torch.from_numpy(FEATURES).float(), label=torch.from_numpy(LABELS), train_mask=torch.from_numpy(TRAIN)
    )
    graph.edata["w"] = torch.from_numpy(WEIGHT).float()
    for kind in ("coo", "csr", "csc"):
        dgl.save_graphs(str(FOLDER / f"{kind}.dgl"), [graph.formats(kind)])
    relations = dgl.heterograph(
        {
            ("n", "even", "n"): (torch.from_numpy(SRC[::2]), torch.from_numpy(DST[::2])),
            ("n", "odd", "n"): (torch.from_numpy(SRC[1::2]), torch.from_numpy(DST[1::2])),
        },
        num_nodes_dict={"n": N},
    )
    relations.ndata["feat"] = graph.ndata["feat"]
    for kind, first in (("even", 0), ("odd", 1)):
        relations.edges[kind].data["w"] = graph.edata["w"][first::2]
    dgl.save_graphs(str(FOLDER / "relations.dgl"), [relations])
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dgl.distributed.partition_graph(graph, "toy", 2, str(FOLDER / "toy"), part_method="metis")
        dgl.distributed.partition_graph(relations, "typed", 2, str(FOLDER / "typed"), part_method="metis")


if __name__ == "__main__":
    write()
