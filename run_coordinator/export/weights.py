"""Names our weights as exported modules name them, and gives the settings from which those are built.

Torch keeps a product's matrix as [F_out, F_in], we as [F_in, F_out].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from siafu.errors import ConfigError
from siafu.models import ModelSpec
from siafu.sparse import Array

Weights = Mapping[str, Array]
State = dict[str, Array]


def settings(spec: ModelSpec) -> dict[str, Any]:
    """Keyword arguments of the model's class in ``modules.nets``, and its name."""
    form(spec)
    found: dict[str, Any] = {"model": spec.name, "bias": spec.bias}
    sizes = [spec.in_features, *spec.widths]
    if spec.name == "sgc":
        return found | {"in_features": spec.in_features, "num_classes": spec.num_classes, "hops": spec.hops}
    found["activation"] = spec.activation
    if spec.name == "gcnii":
        ends = {"in_features": spec.in_features, "width": spec.widths[0], "num_classes": spec.num_classes}
        return found | ends | {"num_layers": spec.num_layers, "alpha": spec.alpha, "theta": spec.theta}
    found["norm"] = spec.norm == "layer"
    if spec.name == "appnp":
        return found | {"sizes": [*sizes, spec.num_classes], "hops": spec.hops, "alpha": spec.alpha}
    found |= {"sizes": sizes if spec.jump != "none" else [*sizes, spec.num_classes], "residual": spec.residual}
    if spec.jump != "none":
        found |= {"jump": spec.jump, "num_classes": spec.num_classes}
    if spec.name == "rgcn":
        found |= {"num_relations": spec.num_edge_types, "num_bases": spec.bases or None}
    if spec.name == "gat":
        found |= {"heads": spec.heads, "out_heads": spec.out_heads, "slope": spec.slope}
    return found


def state(spec: ModelSpec, weights: Weights, to: str) -> State:
    """The module's ``state_dict``."""
    found = form(spec)(spec, weights)
    if to == "dgl":
        found = _as_dgl(spec, found)
    return {name: np.ascontiguousarray(value) for name, value in found.items()}


def form(spec: ModelSpec) -> Callable[[ModelSpec, Weights], State]:
    """The function that makes the module's ``state_dict`` from a model's weights. Raises ConfigError if the model has
    no module."""
    if spec.name not in FORMS:
        raise ConfigError(f"model {spec.name}: cannot be exported, only {', '.join(FORMS)}")
    return FORMS[spec.name]


def _linear(name: str, weights: Weights, weight: str, bias: str = "") -> State:
    return {f"{name}.weight": weights[weight].T, **({f"{name}.bias": weights[bias]} if bias in weights else {})}


def _layers(spec: ModelSpec, weights: Weights) -> State:
    """Weights of the optional parts around convolutions: norms, residuals, the layer behind a jump."""
    found: State = {}
    for layer in range(spec.num_layers):
        if f"{layer}.gain" in weights:
            found |= {
                f"norms.{layer}.weight": weights[f"{layer}.gain"],
                f"norms.{layer}.bias": weights[f"{layer}.shift"],
            }
        if f"{layer}.residual" in weights:
            found |= _linear(f"residuals.{layer}", weights, f"{layer}.residual")
    if spec.jump != "none":
        last = len(spec.widths)
        found |= _linear("out", weights, f"{last}.weight", f"{last}.bias")
    return found


def _num_convs(spec: ModelSpec) -> int:
    return len(spec.widths) + (spec.jump == "none")


def _gcn(spec: ModelSpec, weights: Weights) -> State:
    found = _layers(spec, weights)
    for layer in range(_num_convs(spec)):
        found |= _linear(f"convs.{layer}.lin", weights, f"{layer}.weight")
        found |= {f"convs.{layer}.bias": weights[f"{layer}.bias"]} if spec.bias else {}
    return found


def _sage(spec: ModelSpec, weights: Weights) -> State:
    found = _layers(spec, weights)
    for layer in range(_num_convs(spec)):
        found |= _linear(f"convs.{layer}.lin_l", weights, f"{layer}.neighbour", f"{layer}.bias")
        found |= _linear(f"convs.{layer}.lin_r", weights, f"{layer}.self")
    return found


def _gin(spec: ModelSpec, weights: Weights) -> State:
    found = _layers(spec, weights)
    for layer in range(_num_convs(spec)):
        found |= _linear(f"first.{layer}", weights, f"{layer}.weight", f"{layer}.bias")
        found |= _linear(f"second.{layer}", weights, f"{layer}.second", f"{layer}.second_bias")
        found[f"convs.{layer}.eps"] = weights.get(f"{layer}.eps", np.array([spec.eps], spec.dtype))
    return found


def _gat(spec: ModelSpec, weights: Weights) -> State:
    found = _layers(spec, weights)
    for layer in range(spec.num_layers):
        heads, name = spec.out_heads if layer == spec.num_layers - 1 else spec.heads, f"convs.{layer}"
        found |= _linear(f"{name}.lin", weights, f"{layer}.weight")
        for ours, theirs in (("source", "att_src"), ("target", "att_dst")):
            found[f"{name}.{theirs}"] = weights[f"{layer}.{ours}"].reshape(1, heads, -1)
        found |= {f"{name}.bias": weights[f"{layer}.bias"]} if spec.bias else {}
    return found


def _gcnii(spec: ModelSpec, weights: Weights) -> State:
    last = spec.num_layers + 1
    found = _linear("first", weights, "0.weight", "0.bias") | _linear("last", weights, f"{last}.weight", f"{last}.bias")
    return found | {f"convs.{layer - 1}.weight1": weights[f"{layer}.weight"] for layer in range(1, last)}


def _appnp(spec: ModelSpec, weights: Weights) -> State:
    found = _layers(spec, weights)
    for layer in range(spec.num_layers):
        found |= _linear(f"layers.{layer}", weights, f"{layer}.weight", f"{layer}.bias")
    return found


def _sgc(spec: ModelSpec, weights: Weights) -> State:
    return _linear("conv.lin", weights, "0.weight", "1.bias")


def _rgcn(spec: ModelSpec, weights: Weights) -> State:
    found = _layers(spec, weights)
    for layer in range(spec.num_layers):
        for ours, theirs in (("weight", "weight"), ("mix", "comp"), ("own", "root"), ("bias", "bias")):
            if f"{layer}.{ours}" in weights:
                found[f"convs.{layer}.{theirs}"] = weights[f"{layer}.{ours}"]
    return found


FORMS: dict[str, Callable[[ModelSpec, Weights], State]] = {
    "gcn": _gcn,
    "sage": _sage,
    "gat": _gat,
    "gin": _gin,
    "gcnii": _gcnii,
    "appnp": _appnp,
    "sgc": _sgc,
    "rgcn": _rgcn,
}

#: The ends of names in PyTorch Geometric, what DGL calls the same, and whether it keeps the matrix turned.
DGL_NAMES = {
    "gcn": {"lin.weight": ("weight", True)},
    "sage": {
        "lin_l.weight": ("fc_neigh.weight", False),
        "lin_l.bias": ("fc_self.bias", False),
        "lin_r.weight": ("fc_self.weight", False),
    },
    "gat": {"lin.weight": ("fc.weight", False), "att_src": ("attn_l", False), "att_dst": ("attn_r", False)},
    "sgc": {"lin.weight": ("fc.weight", False), "lin.bias": ("fc.bias", False)},
    "rgcn": {
        "weight": ("linear_r.W", False),
        "comp": ("linear_r.coeff", False),
        "root": ("loop_weight", False),
        "bias": ("h_bias", False),
    },
}


def _as_dgl(spec: ModelSpec, found: State) -> State:
    named: State = {}
    for name, value in found.items():
        conv, _, rest = name.partition(".lin") if ".lin" in name else name.rpartition(".")
        end = f"lin{rest}" if ".lin" in name else rest
        other, turned = DGL_NAMES.get(spec.name, {}).get(end, (end, False)) if "conv" in conv else (end, False)
        named[f"{conv}.{other}"] = value.T if turned else value
    last = f"convs.{spec.num_layers - 1}.bias"
    if spec.name == "gat" and last in named:  # DGL adds it to every head, before their mean
        named[last] = np.tile(named[last], spec.out_heads)
    return named
