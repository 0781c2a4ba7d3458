"""The archives of heterophilous-graphs (Platonov et al., ICLR 2023): each edge once, ten splits as masks [S, N]."""

from __future__ import annotations

from pathlib import Path

from graph_data.archives import npzfile
from graph_data.archives.found import Found, graph_of
from graph_data.masks import split_of
from siafu.graph import Graph

MASKS = ("train_mask", "val_mask", "test_mask")
NEEDED = ("node_features", "node_labels", "edges")
READ = (*NEEDED, *(f"{mask}s" for mask in MASKS))


def find(file: Path) -> Found | None:
    names = npzfile.names(file) if file.suffix == ".npz" else frozenset[str]()
    # An archive that has more than these arrays is read by graph_data.fields, which drops none.
    if not names.issuperset(NEEDED) or not names.issubset(READ):
        return None
    return Found(file.stem, (file,), file.name)


def load(found: Found, given: dict[str, str]) -> Graph:
    arrays = npzfile.arrays(found.files[0], READ)
    features, labels, edges = (arrays[name] for name in NEEDED)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise ValueError(f"edges is {list(edges.shape)}, must be [E, 2]")
    masks = {mask: arrays[f"{mask}s"].T for mask in MASKS if f"{mask}s" in arrays}
    split = split_of(masks, len(labels), found.shown)
    return graph_of(found, given, (edges[:, 0], edges[:, 1], None), features, labels, split)
