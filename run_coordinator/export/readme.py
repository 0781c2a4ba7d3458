"""The README.md of an exported model: how to load it, in five lines."""

from __future__ import annotations

from run_coordinator.export.whole import Inputs
from siafu import __version__
from siafu.models import ModelSpec

LOADING = {
    "torch": """from model import load

module = load(".")
logits = module({arguments})
""",
    "dgl": """import dgl
from model import load

graph = dgl.graph((edge_index[0], edge_index[1]), num_nodes=len(x)){weighted}
logits = load(".")(x, graph)
""",
    "onnx": """import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
(logits,) = session.run(None, {{{pairs}}})
""",
}
NEEDED = {
    "torch": "torch and safetensors", "pyg": "torch, torch_geometric and safetensors", "dgl": "torch, dgl and safetensors",
    "onnx": "onnxruntime and numpy",
}  # fmt: skip
MEANING = {
    "x": "{dtype} [N, {width}]: features, normalised as for training",
    "edge_index": "int64 [2, E]: sources, then targets; a vertex gathers from its in-edges, an undirected edge stands there twice",
    "edge_type": "int64 [E]: the relation of each edge",
    "edge_weight": "float32 [E]: its weight",
}


def readme(spec: ModelSpec, to: str, inputs: Inputs) -> str:
    """Markdown with one block of Python, to be run in the folder where ``x`` and the others are known."""
    names = [name for name in MEANING if name in inputs.arrays]
    graph_data = {"weight": inputs.edge_weight, "type": inputs.edge_type}
    weighted = "".join(
        f'\ngraph.edata["{name}"] = edge_{name}' for name, found in graph_data.items() if found is not None
    )
    code = LOADING["torch" if to == "pyg" else to].format(
        arguments=", ".join(names), weighted=weighted, pairs=", ".join(f'"{name}": {name}' for name in names)
    )
    meanings = "\n".join(
        f"- `{name}`: {MEANING[name].format(width=spec.in_features, dtype=spec.dtype)}" for name in names
    )
    return f"""# {spec.name}, trained and exported by siafu {__version__}

It needs {NEEDED[to]}, and not siafu. In this folder, with the graph as {"arrays" if to == "onnx" else "tensors"}:

```python
{code}```

{meanings}

No edge leads from a vertex to itself: the model adds those that it wants. There is no dropout in it. `logits` is [N, {spec.num_classes}].
"""
