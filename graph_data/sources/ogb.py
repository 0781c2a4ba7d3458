"""OGB's node property graphs, as its downloads unpack: a folder such as dataset/ogbn_arxiv.

    ogb:NAME[?split=SCHEME&features=FILE]    NAME: ogbn-arxiv, looked for in data folders and in dataset/; or a folder

OGB's package calls a folder ogbn_arxiv; its zips unpack as arxiv, or papers100M-bin. What a folder holds:

    raw/edge.csv.gz, num-node-list.csv.gz, num-edge-list.csv.gz        without header; edges are "source,target"
    raw/node-feat.csv.gz, raw/node-label.csv.gz                        a row per vertex; nan: no label
    raw/data.npz, raw/node-label.npz        instead, for large graphs: edge_index, node_feat, num_nodes_list; node_label
    raw/edge_weight.csv.gz, edge_type.csv.gz                           a row per edge, optional; in data.npz: arrays of
                                                                       these names
    split/SCHEME/train.csv.gz, valid.csv.gz, test.csv.gz               vertex numbers
    split/SCHEME/split_dict.pt                                         instead, as OGB's DatasetSaver writes it

One label column is the class, several are 0 or 1 for each class. Nothing is downloaded, and what OGB caches in
``processed/`` is not read: those are pickles. split_dict.pt is one too, and opened without running what is in it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from graph_data.archives.npzfile import arrays
from graph_data.fields import EDGES, left_out, sorted_out
from graph_data.masks import split_of
from graph_data.objects.arrays import array, from_arrays, labels_of
from graph_data.sources import torchfile
from graph_data.sources.arrow import arrow, first_line_of
from graph_data.sources.beside import options_of
from graph_data.sources.columns import path_and_options
from graph_data.sources.names import data_folders
from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL, Graph, zero_and_one
from siafu.sparse import Array

OPTIONS = ("split", "features")
# arrays that every graph has a use for
READ = ("edge_index", "node_feat", "node_label", "num_nodes_list", "num_edges_list")
DOWNLOADS = "dataset"  # where OGB's loaders put what they download, by default
SAVED = "split_dict.pt"
ROLES = {"train": TRAIN, "valid": VAL, "test": TEST}


def load(argument: str) -> Graph:
    """The whole graph in memory. Raises: DatasetError for missing files, or files that do not fit; ConfigError without
    pyarrow."""
    text, given = options_of(argument, OPTIONS, "ogb:")
    folder = folder_of(text)
    if (folder / "raw" / "relations").is_dir() or (folder / "raw" / "triplet-type-list.csv.gz").is_file():
        raise DatasetError(f"{folder}: has several kinds of vertices (OGB's heterogeneous layout), must have one")
    raw = _binary(folder / "raw") if (folder / "raw" / "data.npz").is_file() else _text(folder / "raw")
    edges, n = raw["edge_index"], int(raw["num_nodes_list"].reshape(-1)[0])
    labels = _labels(raw["node_label"], n, folder)
    more = sorted_out({key: values for key, values in raw.items() if key not in READ}, EDGES, str(folder))
    kind = more.values.get("edge_type")
    if kind is not None and (kind.dtype.kind not in "iuf" or (kind != np.floor(kind)).any()):
        raise DatasetError(f"{folder}: edge types are {kind.dtype}, must be integers from 0 on")
    graph = from_arrays(
        edges,
        given.get("features") or raw.get("node_feat"),
        labels,
        weight=more.values.get("edge_weight"),
        edge_type=None if kind is None else kind.astype(np.int64),
        split=_split(folder, n, given.get("split")),
        num_vertices=n,
        name=str(folder),
    )
    return replace(
        graph,
        name=Path(text).name.replace("_", "-"),
        numbers_said=True,  # OGB's one column is a class, unless it has fractions
        notes=(*left_out(more.left | more.splits, n, str(folder)), *graph.notes),
    )


def folder_of(text: str) -> Path:
    """The folder of a graph. Raises: DatasetError if there is none."""
    tried, elsewhere = [Path(text)], ""
    if "/" not in text:
        plain = text.removeprefix("ogbn-")
        names = list(dict.fromkeys((text.replace("-", "_"), plain, f"{plain}-bin")))
        parents = (*data_folders(), Path(DOWNLOADS))
        tried += [parent / name for parent in parents for name in names]
        elsewhere = f", nor in {' or '.join(names)} of {', '.join(map(str, parents))}"
    for path in tried:
        if (path / "raw").is_dir():
            return path
    raise DatasetError(
        f"ogb:{text}: no folder raw/ in {text}{elsewhere}: unpack OGB's download there, or name its folder"
    )


def _text(raw: Path) -> dict[str, Array]:
    edges = _table(raw / "edge.csv.gz", "int64", 2)
    counts = {name: _table(raw / f"{name}.csv.gz", "int64", 1) for name in ("num-node-list", "num-edge-list")}
    for name, count in counts.items():
        if len(count) != 1:
            raise DatasetError(
                f"{raw / name}.csv.gz: {len(count)} graphs, must be one: a graph of OGB's node properties"
            )
    if int(counts["num-edge-list"][0, 0]) != len(edges):
        raise DatasetError(f"{raw}/edge.csv.gz: {len(edges)} edges, num-edge-list says {counts['num-edge-list'][0, 0]}")
    found = {
        "edge_index": edges.T,
        "num_nodes_list": counts["num-node-list"],
        "node_label": _table(raw / "node-label.csv.gz", "float64"),
    }
    if (raw / "node-feat.csv.gz").is_file():
        found["node_feat"] = _table(raw / "node-feat.csv.gz", "float32")
    known = {f"{name}.csv.gz" for name in ("edge", "num-node-list", "num-edge-list", "node-label", "node-feat")}
    for path in sorted(raw.glob("*.csv.gz")):
        if path.name not in known:
            name = path.name.removesuffix(".csv.gz").replace("-", "_")
            wanted = any(name in names for names in EDGES.values())
            found[name] = _table(path, "float64") if wanted else np.empty(1)  # what is only named in a note is not read
    return found


def _binary(raw: Path) -> dict[str, Array]:
    found = {**arrays(raw / "data.npz"), **arrays(raw / "node-label.npz")}
    for key in ("edge_index", "num_nodes_list", "node_label"):
        if key not in found:
            raise DatasetError(f"{raw}/data.npz and node-label.npz: have no {key!r}, only {', '.join(sorted(found))}")
    if found["edge_index"].ndim != 2 or len(found["edge_index"]) != 2 or found["num_nodes_list"].size != 1:
        raise DatasetError(
            f"{raw}/data.npz: edge_index is {list(found['edge_index'].shape)}, must be [2, E] of one graph"
        )
    return found


def _table(path: Path, kind: str, width: int | None = None) -> Array:
    """The values of a file without header, [rows, columns]; for floats, empty and nan are NaN."""
    pa, csv = arrow("pyarrow"), arrow("pyarrow.csv")
    if not path.is_file():
        raise DatasetError(f"{path}: no such file")
    try:
        read = csv.ReadOptions(autogenerate_column_names=True)
        table = csv.read_csv(str(path), read_options=read)
        nothing = [name for name in table.column_names if pa.types.is_null(table.schema.field(name).type)]
        found = [
            table.column(name).cast(kind if name not in nothing else "float64").to_numpy()
            for name in table.column_names
        ]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(f"{path}: not readable ({first_line_of(error)})") from None
    if width and len(found) != width:
        raise DatasetError(f"{path}: {len(found)} columns, must be {width}")
    values: Array = np.stack(found, axis=1)
    if values.dtype.kind == "f" and kind == "int64":
        row = int(np.argwhere(np.isnan(values))[0][0])
        raise DatasetError(f"{path}: row {row + 1} has no number")
    return values.astype(kind, copy=False)


def _labels(raw: Array, num_vertices: int, folder: Path) -> Array:
    if raw.ndim not in (1, 2) or len(raw) != num_vertices:
        raise DatasetError(f"{folder}: labels are {list(raw.shape)}, must be [{num_vertices}, columns]")
    raw = raw[:, 0] if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if raw.ndim == 2 or raw.dtype.kind in "iu":
        # OGB's several columns are classes
        return labels_of(raw, "labels" if zero_and_one(raw) else "auto", str(folder))
    whole = np.where(np.isnan(raw), -1, raw)
    if not (whole == np.floor(whole)).all():
        return raw.astype(np.float32)
    return whole.astype(np.int64)


def _split(folder: Path, num_vertices: int, scheme: str | None) -> Array:
    """The published split, uint8 [N, 1]. Raises: DatasetError if there is none, or
    several and ``scheme`` names none."""
    there = sorted({path.parent.name for name in ("train.csv.gz", SAVED) for path in folder.glob(f"split/*/{name}")})
    if not there:
        raise DatasetError(f"{folder}: has no split (split/SCHEME/train.csv.gz or {SAVED})")
    scheme = scheme or (there[0] if len(there) == 1 else "")
    if scheme not in there:
        raise DatasetError(f"{folder}: split {scheme!r} is not one of {', '.join(there)}: ogb:{folder}?split=SCHEME")
    inside = folder / "split" / scheme
    listed = sorted(file.name.removesuffix(".csv.gz") for file in inside.glob("*.csv.gz"))
    if unknown := [name for name in listed if name not in ROLES]:
        raise DatasetError(f"{inside}: has no use for {unknown[0]}.csv.gz, only for {', '.join(ROLES)}: leave it out")
    if not (inside / SAVED).is_file():
        return _listed(inside, num_vertices)
    split = split_of(_saved(inside / SAVED), num_vertices, str(inside / SAVED))
    if listed and not np.array_equal(split, _listed(inside, num_vertices)):
        raise DatasetError(
            f"{inside}: {SAVED} and {listed[0]}.csv.gz are two names of one thing, and they differ: keep one of them"
        )
    return split


def _listed(inside: Path, num_vertices: int) -> Array:
    split = np.zeros((num_vertices, 1), np.uint8)
    for name, role in ROLES.items():
        path = inside / f"{name}.csv.gz"
        chosen = _table(path, "int64", 1)[:, 0]
        outside = (chosen < 0) | (chosen >= num_vertices)
        if outside.any():
            raise DatasetError(f"{path}: vertex {chosen[outside][0]}, must be in 0..{num_vertices - 1}")
        if split[chosen].any():
            raise DatasetError(f"{path}: vertex {chosen[split[chosen, 0] > 0][0]} is in another part of the split too")
        split[chosen] = role
    return split


def _saved(path: Path) -> dict[str, Array]:
    """The lists of vertices in a file of DatasetSaver's: a dict of arrays or tensors.
    Raises: ConfigError without torch."""
    multiarray = np.empty(0).__reduce__()[0]
    known = [(multiarray, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]  # of numpy 1 and 2
    integers = [type(np.dtype(kind)) for kind in ("i4", "i8", "u4", "u8", "?")]
    found = torchfile.read(
        path,
        [*known, bytes, np.ndarray, np.dtype, *integers],
        lambda unknown: (
            f"not a dict of lists of vertices ({f'it holds a {unknown}' if unknown else 'not a file of torch.save'})"
        ),
    )
    if not isinstance(found, dict) or not all(part in found for part in ROLES):
        raise DatasetError(f"{path}: not a dict of {', '.join(ROLES)}, as OGB's DatasetSaver writes it")
    for part, chosen in found.items():
        if part not in ROLES or not hasattr(chosen, "shape"):
            raise DatasetError(
                f"{path}: {part!r} is a {type(chosen).__name__}, must be an array of vertices: train, valid or test"
            )
    return {part: array(chosen) for part, chosen in found.items()}


def files(argument: str) -> list[Path]:
    """All files of the folder that are read."""
    folder = folder_of(path_and_options(argument)[0])
    found = [
        *folder.glob("raw/*.csv.gz"),
        *folder.glob("raw/*.npz"),
        *folder.glob("split/*/*.csv.gz"),
        *folder.glob(f"split/*/{SAVED}"),
    ]
    return sorted(found)
