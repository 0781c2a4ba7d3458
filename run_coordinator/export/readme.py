"""The README.md of an exported model: how to load it, in five lines."""

from __future__ import annotations

from run_coordinator.export.whole import Inputs
from siafu import __version__
from siafu.models import ModelSpec
from siafu.shards import COLUMNS

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
    "torch": "torch, numpy and safetensors",
    "pyg": "torch, torch_geometric, numpy and safetensors",
    "dgl": "torch, dgl, numpy and safetensors",
    "onnx": "onnxruntime and numpy",
}
MEANING = {
    "x": "{dtype} [N, {width}]: features, {how}",
    "edge_index": (
        "int64 [2, E]: sources, then targets; a vertex gathers from its in-edges, an undirected edge stands there twice"
    ),
    "edge_type": "int64 [E]: the relation of each edge",
    "edge_weight": "float32 [E]: its weight",
}


def readme(spec: ModelSpec, to: str, inputs: Inputs, named: tuple[str, ...] = (), norm: str = "none") -> str:
    """Markdown with one block of Python, to be run in the folder where ``x`` and the others are known.

    named: what names.json has names of; norm: what ``load`` does to features ("row", "standard").
    """
    names = [name for name in MEANING if name in inputs.arrays]
    graph_data = {"weight": inputs.edge_weight, "type": inputs.edge_type}
    weighted = "".join(
        f'\ngraph.edata["{name}"] = edge_{name}' for name, found in graph_data.items() if found is not None
    )
    code = LOADING["torch" if to == "pyg" else to].format(
        arguments=", ".join(names), weighted=weighted, pairs=", ".join(f'"{name}": {name}' for name in names)
    )
    loads = to != "onnx"
    how = "as for training"
    if norm != "none":
        how = f"as they are in the source: `load` normalises them ({norm})" if loads else "normalised as for training"
    meanings = "\n".join(
        f"- `{name}`: {MEANING[name].format(width=spec.in_features, dtype=spec.dtype, how=how)}" for name in names
    )
    return f"""# {spec.name}, trained and exported by siafu {__version__}

It needs {NEEDED[to]}, and not siafu. In this folder, with the graph as {"arrays" if to == "onnx" else "tensors"}:

```python
{code}```

{meanings}
{_files(named, norm, spec.target, loads)}
No edge leads from a vertex to itself: the model adds those that it wants. There is no dropout in it.
`logits` is [N, {spec.num_classes}].
"""


def _files(named: tuple[str, ...], norm: str, target: str, loads: bool) -> str:
    """Lines on what the files beside the model say of columns, between empty lines. loads: whether ``load``, which
    reads these files, loads the model."""
    told = {
        COLUMNS: "the columns of `x`, in their order",
        "classes": "the columns of `logits`, in their order",
        "edge_types": "the relations 0, 1, 2, ...",
    }
    kept = [words for key, words in told.items() if key in named]
    lines = [f"- `names.json` names {'; '.join(kept)}"] if kept else []
    if loads and COLUMNS in named:
        lines.append('- `load(".").features(table)` is `x` of a DataFrame or a dict of columns, by these names')
    if loads and target != "numbers":
        lines.append('- `load(".").classes_of(logits)` lists each vertex\'s class')
    if norm == "standard":
        use = "`load` subtracts and divides by them" if loads else "`x` is (features - mean) / deviation"
        lines.append(f"- `standard.npy`, float64 [2, F], holds means and deviations: {use}")
    return "\n".join(["", *lines, ""]) if lines else ""
