"""The models as torch modules, made of convolutions that are called and keep their weights as PyTorch Geometric's do.

``siafu export`` copies of this file what one model needs, and puts the convolutions of a library before it: ``plain``,
``geometric`` or ``dgl_nn``, which have the same names. ``graph`` is what those convolutions take behind the rows.
"""

from __future__ import annotations

import json
import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from run_coordinator.export.modules.plain import APPNP, GATConv, GCN2Conv, GCNConv, GINConv, RGCNConv, SAGEConv, SGConv

#: What a value is called that is missing.
NOTHING = ("", "None", "nan", "NaT", "<NA>")
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU}


class Layers(nn.Module):
    """Convolutions one after the other; a subclass makes them."""

    def __init__(
        self,
        sizes: list[int],
        *,
        activation: str,
        bias: bool,
        norm: bool = False,
        residual: bool = False,
        jump: str = "none",
        num_classes: int = 0,
        **of_conv: Any,
    ):
        """``sizes``: widths from features to classes. With ``jump``, ``sizes`` ends at the last hidden layer, and
        ``num_classes`` follows."""
        super().__init__()
        self.jump, self.num_layers = jump, len(sizes) - 1
        self.num_hidden = self.num_layers - (jump == "none")
        self.activation = ACTIVATIONS[activation]()
        self.convs = nn.ModuleList(
            self.conv(l, sizes[l], sizes[l + 1], bias, **of_conv) for l in range(self.num_layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in sizes[1 : 1 + self.num_normed() * norm])
        self.residuals = nn.ModuleList(
            nn.Identity() if a == b else nn.Linear(a, b, bias=False) for a, b in pairwise(sizes if residual else [])
        )
        joined = sum(sizes[1:]) if jump == "cat" else sizes[-1]
        self.out = nn.Identity() if jump == "none" else nn.Linear(joined, num_classes, bias=bias)

    def conv(self, layer: int, fan_in: int, fan_out: int, bias: bool, **of_conv: Any) -> nn.Module:
        raise NotImplementedError

    def num_normed(self) -> int:
        return self.num_hidden

    def forward(self, x: Tensor, *graph: Any) -> Tensor:
        hidden = []
        for layer in range(self.num_layers):
            given, x = x, self.sums(layer, x, *graph)
            if len(self.residuals):
                x = x + self.residuals[layer](given)
            x = self.update(layer, x)
            hidden.append(x)
        logits: Tensor = self.out(self.joined(hidden))
        return logits

    def sums(self, layer: int, x: Tensor, *graph: Any) -> Tensor:
        found: Tensor = self.convs[layer](x, *graph)
        return found

    def update(self, layer: int, x: Tensor) -> Tensor:
        return self.activated(layer, x) if layer < self.num_hidden else x

    def activated(self, layer: int, x: Tensor) -> Tensor:
        found: Tensor = self.activation(self.norms[layer](x) if len(self.norms) else x)
        return found

    def joined(self, hidden: list[Tensor]) -> Tensor:
        """The hidden layers' outputs, joined by jumping knowledge."""
        if self.jump == "cat":
            return torch.cat(hidden, 1)
        if self.jump == "max":
            return torch.stack(hidden).amax(0)
        return torch.stack(hidden).sum(0) if self.jump == "sum" else hidden[-1]


class GCN(Layers):
    """Kipf & Welling, ICLR 2017."""

    def conv(self, layer: int, fan_in: int, fan_out: int, bias: bool, **of_conv: Any) -> nn.Module:
        return GCNConv(fan_in, fan_out, bias=bias)


class SAGE(Layers):
    """Hamilton et al., NeurIPS 2017, mean aggregator."""

    def conv(self, layer: int, fan_in: int, fan_out: int, bias: bool, **of_conv: Any) -> nn.Module:
        return SAGEConv(fan_in, fan_out, bias=bias)


class GIN(Layers):
    """Xu et al., ICLR 2019. The convolution sums, (1 + eps) of the vertex's own row included; the MLP is here."""

    def __init__(self, sizes: list[int], *, bias: bool, **options: Any):
        super().__init__(sizes, bias=bias, **options)
        self.first = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in pairwise(sizes))
        self.second = nn.ModuleList(nn.Linear(b, b, bias=bias) for b in sizes[1:])

    def conv(self, layer: int, fan_in: int, fan_out: int, bias: bool, **of_conv: Any) -> nn.Module:
        return GINConv(nn.Identity(), train_eps=True)

    def num_normed(self) -> int:
        return self.num_layers

    def sums(self, layer: int, x: Tensor, *graph: Any) -> Tensor:
        found: Tensor = self.second[layer](self.activated(layer, self.first[layer](super().sums(layer, x, *graph))))
        return found

    def update(self, layer: int, x: Tensor) -> Tensor:
        return self.activation(x) if layer < self.num_hidden else x


class GAT(Layers):
    """Veličković et al., ICLR 2018. A hidden layer's heads stand side by side, the last one's are averaged."""

    def conv(self, layer: int, fan_in: int, fan_out: int, bias: bool, **of_conv: Any) -> nn.Module:
        slope, last = of_conv["slope"], layer == self.num_layers - 1
        heads = of_conv["out_heads"] if last else of_conv["heads"]
        width = fan_out if last else fan_out // heads
        return GATConv(fan_in, width, heads=heads, concat=not last, negative_slope=slope, bias=bias)


class RGCN(Layers):
    """Schlichtkrull et al., ESWC 2018."""

    def conv(self, layer: int, fan_in: int, fan_out: int, bias: bool, **of_conv: Any) -> nn.Module:
        return RGCNConv(fan_in, fan_out, of_conv["num_relations"], num_bases=of_conv["num_bases"], bias=bias)


class GCNII(nn.Module):
    """Chen et al., ICML 2020."""

    def __init__(
        self,
        in_features: int,
        width: int,
        num_classes: int,
        num_layers: int,
        *,
        alpha: float,
        theta: float,
        activation: str,
        bias: bool,
    ):
        super().__init__()
        self.activation = ACTIVATIONS[activation]()
        self.first, self.last = nn.Linear(in_features, width, bias), nn.Linear(width, num_classes, bias)
        self.convs = nn.ModuleList(GCN2Conv(width, alpha, theta, layer + 1) for layer in range(num_layers))

    def forward(self, x: Tensor, *graph: Any) -> Tensor:
        x = initial = self.activation(self.first(x))
        for conv in self.convs:
            x = self.activation(conv(x, initial, *graph))
        logits: Tensor = self.last(x)
        return logits


class APPNPNet(nn.Module):
    """Gasteiger et al., ICLR 2019."""

    def __init__(self, sizes: list[int], *, hops: int, alpha: float, activation: str, bias: bool, norm: bool):
        super().__init__()
        self.activation = ACTIVATIONS[activation]()
        self.layers = nn.ModuleList(nn.Linear(a, b, bias) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in (sizes[1:-1] if norm else []))
        self.propagation = APPNP(hops, alpha)

    def forward(self, x: Tensor, *graph: Any) -> Tensor:
        for layer, linear in enumerate(self.layers):
            x = linear(x)
            if layer < len(self.layers) - 1:
                x = self.activation(self.norms[layer](x) if len(self.norms) else x)
        logits: Tensor = self.propagation(x, *graph)
        return logits


class SGC(nn.Module):
    """Wu et al., ICML 2019."""

    def __init__(self, in_features: int, num_classes: int, *, hops: int, bias: bool):
        super().__init__()
        self.conv = SGConv(in_features, num_classes, hops, bias=bias)

    def forward(self, x: Tensor, *graph: Any) -> Tensor:
        logits: Tensor = self.conv(x, *graph)
        return logits


NETS = {"gcn": GCN, "sage": SAGE, "gin": GIN, "gat": GAT, "rgcn": RGCN, "gcnii": GCNII, "appnp": APPNPNet, "sgc": SGC}


class Model(nn.Module):
    """A network with the run's steps before and behind it: it normalises features as for training, and names columns
    and classes.

    columns: those of ``x``, in their order; classes: those of ``logits``; [] where the run's graph has no names.
    """

    mean: Tensor  # float64 [F], and the deviations; of feature_norm "standard" alone
    deviation: Tensor

    def __init__(self, net: nn.Module, feature_norm: str, names: dict[str, list[str]], target: str):
        super().__init__()
        self.net, self.feature_norm, self.target = net, feature_norm, target
        self.columns, self.classes = names.get("features", []), names.get("classes", [])
        self.dtype = next(net.parameters()).dtype

    def forward(self, x: Tensor, *graph: Any) -> Tensor:
        """``x``: features as they are in the source, [N, F]."""
        logits: Tensor = self.net(self.normalised(x), *graph)
        return logits

    def normalised(self, x: Tensor) -> Tensor:
        """Features normalised in the precision of training: float64, then float32."""
        if self.feature_norm == "standard":
            x = ((x.double() - self.mean) / self.deviation).float()
        if self.feature_norm == "row":
            total = x.double().abs().sum(1, keepdim=True)
            x = (x.double() / torch.where(total > 0, total, torch.ones_like(total))).float()
        return x.to(self.dtype)

    def features(self, table: Any) -> Tensor:
        """``x`` of a DataFrame or a dict of columns: the columns of training, by their names. A column of categories is
        one-hot again; a category that training did not have is 0 in all columns, with a warning.

        Raises: KeyError for a column that the table lacks; ValueError for a number that is missing or infinite;
        TypeError if the model has no names of columns.
        """
        if not self.columns:
            raise TypeError("the model's columns have no names: give it x")
        there = {str(name): name for name in getattr(table, "columns", table)}
        x = np.stack([column_of(table, name, there) for name in self.columns], axis=1)
        if not np.isfinite(x).all():
            row, column = np.argwhere(~np.isfinite(x))[0]
            raise ValueError(f"row {row}: column {self.columns[column]!r} is {x[row, column]}, must be a finite number")
        for variable in there:
            hot = [name not in there and name.startswith(f"{variable}=") for name in self.columns]
            rows = zip(table[there[variable]], x[:, hot], strict=True) if any(hot) else ()
            unknown = [value for value, row in rows if not row.any() and str(value) not in NOTHING]
            if unknown:
                said = f"{len(unknown)} rows are of a category that training did not have ({unknown[0]!r}): 0 in all"
                warnings.warn(f"column {variable!r}: {said}", stacklevel=2)
        return torch.from_numpy(x)

    def classes_of(self, logits: Tensor) -> list[Any]:
        """The name of each vertex's class, or its number; where a vertex may have several, a list of them. Raises:
        TypeError for a model that gives numbers."""
        if self.target == "numbers":
            raise TypeError("the model gives numbers, not classes")
        names: list[Any] = [*(self.classes or range(logits.shape[1]))]
        if self.target == "labels":
            return [[names[c] for c in row.nonzero().flatten().tolist()] for row in logits > 0]
        return [names[c] for c in logits.argmax(1).tolist()]


def column_of(table: Any, name: str, there: dict[str, Any]) -> Any:
    """The column of this name, float64 [N]. NAME=CATEGORY: 1 where the column NAME has it; NAME[I]: number I of each
    list. there: the table's names of columns, by their spelling. KeyError for a missing column."""
    if name in there:
        return np.asarray(table[there[name]], np.float64)
    listed = re.fullmatch(r"(.+)\[(\d+)\]", name)
    if listed and listed[1] in there:
        return np.array([row[int(listed[2])] for row in table[there[listed[1]]]], np.float64)
    for variable in there:
        if name.startswith(f"{variable}="):
            wanted, values = name.removeprefix(f"{variable}="), table[there[variable]]
            values = np.asarray(values) if str(getattr(values, "dtype", "")) == "float32" else values  # pandas widens
            return np.array([category(value) == wanted for value in values], np.float64)
    raise KeyError(f"the table has no column {name!r}, which the model was trained with")


def category(value: Any) -> str:
    """A category's name: 1 and 1.0 are one; so are a date and its midnight, true and True."""
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    time = re.fullmatch(r"(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d:\d\d:\d\d(?:\.\d*[1-9])?)(?:\.?0*)(Z|[-+]\d\d:?\d\d)?", text)
    if time:
        date, clock, zone = time.groups("")
        zone = "Z" if zone in ("Z", "+0000", "+00:00") else f"{zone[:3]}:{zone[-2:]}" if zone else ""
        return date if date and clock == "00:00:00" and not zone else f"{date} {clock}{zone}".strip()
    whole = re.fullmatch(r"([-+]?\d+)\.0*", text)
    number = whole[1] if whole else text
    return "0" if number == "-0" else number


def load(folder: str | Path) -> Model:
    """The model with its weights, in evaluation mode: called with features as they are in the source."""
    settings = json.loads((Path(folder) / "settings.json").read_text())
    feature_norm, target = settings.pop("feature_norm", "none"), settings.pop("target", "classes")
    net: nn.Module = NETS[settings.pop("model")](**settings)
    weights = load_file(Path(folder) / "weights.safetensors")
    net.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    file = Path(folder) / "names.json"
    names = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    model = Model(net, feature_norm, names, target)
    if feature_norm == "standard":
        mean, deviation = np.load(Path(folder) / "standard.npy")
        model.register_buffer("mean", torch.from_numpy(mean))
        model.register_buffer("deviation", torch.from_numpy(deviation))  # infinite where a column was constant
    return model.eval()
