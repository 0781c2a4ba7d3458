"""Named settings. ``paper``: the hyper-parameters that a model's own paper, or its authors' code, published for a
graph.

To add a preset: add a line to ``PAPER``, with its source and the differences of our run from the paper's. A preset sets
only published values. How far steps overlap, where they run and the seed stay the user's, and explicit flags override
the preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siafu.config import Config
from siafu.errors import ConfigError
from siafu.shards import ShardSet, is_prepared


@dataclass(frozen=True)
class Preset:
    settings: Mapping[str, Any]
    source: str
    differs: str  # what of it is otherwise here


_GCN = Preset(
    {
        "model.layers": 2,
        "model.hidden": 16,
        "model.dropout": 0.5,
        "model.bias": False,
        "model.activation": "relu",
        "train.epochs": 200,
        "train.lr": 0.01,
        "train.optimizer": "adam",
        "train.weight_decay": 5e-4,
        "train.weight_decay_rest": 0.0,
        "train.patience": 10,
        "train.stop_on": "loss",
        "data.feature_norm": "row",
    },
    "Kipf & Welling, ICLR 2017, section 5.2; tkipf/gcn train.py",
    "the epoch of the lowest validation loss instead of the last; their code adds weight decay to that loss and "
    "compares it with the mean of 10 epochs",
)
_GAT = {
    "model.layers": 2,
    "model.hidden": 64,
    "model.heads": 8,
    "model.out_heads": 1,
    "model.activation": "elu",
    "model.dropout": 0.6,
    "model.attn_dropout": 0.6,
    "model.slope": 0.2,
    "train.epochs": 100_000,
    "train.patience": 100,
    "train.stop_on": "both",
    "train.lr": 0.005,
    "train.optimizer": "adam",
    "train.weight_decay": 5e-4,
    "data.feature_norm": "row",
}
_GAT_SOURCE = "Velickovic et al., ICLR 2018, section 3.3; PetarV-/GAT execute_cora.py"
_GAT_DIFFERS = "their code also drops transformed rows, and adds a bias to the scores of vertices"
_GCNII = {
    "model.alpha": 0.1,
    "model.activation": "relu",
    "train.lr": 0.01,
    "train.optimizer": "adam",
    "train.weight_decay": 0.01,
    "train.weight_decay_rest": 5e-4,
    "train.epochs": 1500,
    "train.patience": 100,
    "train.stop_on": "loss",
    "data.feature_norm": "row",
}
_GCNII_SOURCE = "Chen et al., ICML 2020, table 6; chennnM/GCNII semi.sh"
_GCNII_DIFFERS = (
    "first weights are Glorot's and biases 0; their code draws W_l from U(-1, 1) / sqrt(F), and the dense layers and "
    "their biases as torch does"
)
_APPNP = {
    "model.layers": 2,
    "model.hidden": 64,
    "model.hops": 10,
    "model.alpha": 0.1,
    "model.dropout": 0.5,
    "model.bias": False,
    "model.activation": "relu",
    "train.lr": 0.01,
    "train.optimizer": "adam",
    "train.weight_decay": 5e-3,
    "train.weight_decay_rest": 0.0,
    "train.epochs": 10_000,
    "train.patience": 100,
    "train.stop_on": "both",
    "data.feature_norm": "row",
}
_APPNP_SOURCE = "Gasteiger et al., ICLR 2019, section 5 and appendix B; gasteigerjo/ppnp reproduce_results"
_APPNP_DIFFERS = (
    "no dropout of edges; the graph's own split instead of random ones; their validation loss has weight decay in it, "
    "and of the epochs of the highest accuracy they take that of the lowest loss"
)


def _sgc(weight_decay: float, epochs: int = 100) -> Preset:
    return Preset(
        {
            "model.hops": 2,
            "model.dropout": 0.0,
            "train.lr": 0.2,
            "train.optimizer": "adam",
            "train.weight_decay": weight_decay,
            "train.epochs": epochs,
            "data.feature_norm": "row",
        },
        "Wu et al., ICML 2019, section 5.1; Tiiiger/SGC citation.py --tuned",
        "the epoch is chosen by validation accuracy, not the last one",
    )


PAPER: Mapping[tuple[str, str], Preset] = {
    ("gcn", "cora"): _GCN,
    ("gcn", "citeseer"): _GCN,
    ("gcn", "pubmed"): _GCN,
    ("gat", "cora"): Preset(_GAT, _GAT_SOURCE, _GAT_DIFFERS),
    ("gat", "citeseer"): Preset(_GAT, _GAT_SOURCE, _GAT_DIFFERS),
    ("gat", "pubmed"): Preset(
        {**_GAT, "model.out_heads": 8, "train.lr": 0.01, "train.weight_decay": 1e-3}, _GAT_SOURCE, _GAT_DIFFERS
    ),
    ("gcnii", "cora"): Preset(
        {**_GCNII, "model.layers": 64, "model.hidden": 64, "model.dropout": 0.6, "model.theta": 0.5},
        f"{_GCNII_SOURCE}; table 3's other depths: --layers 32",
        _GCNII_DIFFERS,
    ),
    ("gcnii", "citeseer"): Preset(
        {**_GCNII, "model.layers": 32, "model.hidden": 256, "model.dropout": 0.7, "model.theta": 0.6},
        _GCNII_SOURCE,
        _GCNII_DIFFERS,
    ),
    ("gcnii", "pubmed"): Preset(
        {
            **_GCNII,
            "model.layers": 16,
            "model.hidden": 256,
            "model.dropout": 0.5,
            "model.theta": 0.4,
            "train.weight_decay": 5e-4,
        },
        _GCNII_SOURCE,
        _GCNII_DIFFERS,
    ),
    ("appnp", "cora"): Preset(_APPNP, f"{_APPNP_SOURCE}, there for Cora-ML", _APPNP_DIFFERS),
    ("appnp", "citeseer"): Preset(_APPNP, _APPNP_SOURCE, _APPNP_DIFFERS),
    ("appnp", "pubmed"): Preset(_APPNP, _APPNP_SOURCE, _APPNP_DIFFERS),
    ("sgc", "cora"): _sgc(1.3026973714043257e-05),
    ("sgc", "citeseer"): _sgc(2.3545587233182368e-05, epochs=150),
    ("sgc", "pubmed"): _sgc(7.403929623323868e-05),
    ("sage", "reddit"): Preset(
        {
            "model.layers": 2,
            "model.hidden": 128,
            "model.activation": "relu",
            "model.dropout": 0.0,
            "train.lr": 0.01,
            "train.optimizer": "adam",
            "train.weight_decay": 0.0,
            "data.feature_norm": "standard",
        },
        "Hamilton et al., NeurIPS 2017, section 4 and appendix; williamleif/GraphSAGE supervised_train.py",
        "whole neighbourhoods instead of 25 and 10 sampled ones, one step an epoch instead of one per 512 vertices: so "
        "epochs stay yours; one vector per layer instead of two side by side, not normalised to length 1",
    ),
}

#: Models whose papers have no graph that fits, and what they have.
ELSEWHERE = {
    "gin": "its paper classifies whole graphs",
    "rgcn": "its paper's graphs (AIFB, MUTAG, BGS, AM) are not known by name here",
}


def find(name: str, config: Config) -> Preset:
    """The preset for the config's model and graph. ConfigError naming the existing presets if there is none."""
    if name != "paper":
        raise ConfigError(f"preset {name!r}: unknown, must be paper")
    model, graph = config.model.name, graph_of(config.data.source)
    if (model, graph) in PAPER:
        return PAPER[model, graph]
    graphs = [known for of, known in PAPER if of == model]
    if graphs:
        raise ConfigError(f"preset paper: nothing published for {model} on {graph}, only on {', '.join(graphs)}")
    why = f" ({ELSEWHERE[model]})" if model in ELSEWHERE else ""
    models = ", ".join(dict.fromkeys(of for of, _ in PAPER))
    raise ConfigError(f"preset paper: nothing published for {model} on {graph}{why}, only for {models}")


def graph_of(source: str) -> str:
    """The name that a graph is published under: for shards the name in their manifest, else the file's."""
    path = Path(source)
    if is_prepared(path):
        source = ShardSet.open(path).manifest.name
    return Path(source).stem.lower()
