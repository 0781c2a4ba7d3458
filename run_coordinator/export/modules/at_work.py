"""python at_work.py TARGET FOLDER INPUTS.npz LOGITS.npy: the logits of an exported model on a
graph. It imports nothing of siafu.

With "dgl" alone it only tries whether that can be imported. Of "onnx" the model is written first, as FOLDER/model.onnx,
from the torch module beside it, which then goes.
"""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def main(target: str, folder: Path, inputs: Path, out: Path) -> None:
    with np.load(inputs) as file:
        given = dict(file)
    np.save(out, {"dgl": of_dgl, "onnx": of_onnx}.get(target, of_torch)(folder, given))


def of_torch(folder: Path, given: dict[str, Any]) -> Any:
    import torch

    with torch.no_grad():
        return module_in(folder)(*tensors(given)).numpy()


def of_dgl(folder: Path, given: dict[str, Any]) -> Any:
    torch, dgl = importlib.import_module("torch"), imported_dgl()
    source, target = torch.from_numpy(given["edge_index"])
    graph = dgl.graph((source, target), num_nodes=len(given["x"]))
    for name, key in (("weight", "edge_weight"), ("type", "edge_type")):
        if key in given:
            graph.edata[name] = torch.from_numpy(given[key])
    with torch.no_grad():
        return module_in(folder)(torch.from_numpy(given["x"]), graph).numpy()


def of_onnx(folder: Path, given: dict[str, Any]) -> Any:
    import onnxruntime
    import torch

    rows, *edges = tensors(given)
    num_vertices, num_edges = torch.export.Dim("vertices"), torch.export.Dim("edges")
    sizes: list[dict[int, Any]] = [{0: num_vertices}, {1: num_edges}, *({0: num_edges} for _ in edges[1:])]
    names = [name for name in ("x", "edge_index", "edge_type", "edge_weight") if name in given]
    torch.onnx.export(
        module_in(folder).net,  # whose features are normalised already
        (rows, *edges),
        folder / "model.onnx",
        input_names=names,
        output_names=["logits"],
        dynamic_shapes=(sizes[0], tuple(sizes[1:])),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    for name in ("model.py", "weights.safetensors", "settings.json"):
        (folder / name).unlink()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {name: given[name] for name in names})
    return found


def tensors(given: dict[str, Any]) -> list[Any]:
    """The given arrays as tensors, in the order of a module's arguments."""
    import torch

    return [torch.from_numpy(given[n]) for n in ("x", "edge_index", "edge_type", "edge_weight") if n in given]


def module_in(folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # it would stay in the folder
    return importlib.import_module("model").load(folder)


def imported_dgl() -> Any:
    """Imports DGL, even if its sampler has no binaries for this torch: an empty module replaces the sampler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("dgl")
        except (ImportError, FileNotFoundError):
            for name in [name for name in sys.modules if name.partition(".")[0] == "dgl"]:
                del sys.modules[name]
            sampler = types.ModuleType("dgl.graphbolt")
            sampler.__path__ = []
            sys.modules["dgl.graphbolt"] = sampler
            return importlib.import_module("dgl")


if __name__ == "__main__":
    if sys.argv[1:] == ["dgl"]:
        imported_dgl().graph(([0], [1]))
    else:
        main(sys.argv[1], *map(Path, sys.argv[2:5]))
