"""The models as torch modules, made of convolutions that are called and keep their weights as PyTorch Geometric's do.

``siafu export`` copies of this file what one model needs, and puts the convolutions of a library before it: ``plain``,
``geometric`` or ``dgl_nn``, which have the same names. ``graph`` is what those convolutions take behind the rows.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from run_coordinator.export.modules.plain import APPNP, GATConv, GCN2Conv, GCNConv, GINConv, RGCNConv, SAGEConv, SGConv

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
        """``sizes``: from features to classes; with ``jump`` to the last hidden layer, and ``num_classes`` behind."""
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
        """Jumping knowledge."""
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


def load(folder: str | Path) -> nn.Module:
    """The model with its weights, in evaluation mode."""
    settings = json.loads((Path(folder) / "settings.json").read_text())
    module: nn.Module = NETS[settings.pop("model")](**settings)
    weights = load_file(Path(folder) / "weights.safetensors")
    module.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    return module.eval()
