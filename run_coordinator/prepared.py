"""Prepares a run's graph, derives settings from it, and checks that the model and given weights fit it."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.options import Options
from graph_data.prepare import cached
from graph_data.sources.names import absolute, check_files
from run_coordinator import intervals
from siafu import config as configs
from siafu import model_file, models
from siafu.config import Config, Data
from siafu.errors import ConfigError, listed
from siafu.evaluation import usual_eval_every
from siafu.fingerprint import differences
from siafu.graph import TEST_NEGATIVE, TEST_PAIR, TRAIN_NEGATIVE, TRAIN_PAIR, VAL_NEGATIVE, VAL_PAIR
from siafu.models import Model, ModelSpec
from siafu.shards import CLASSES, COLUMNS, EDGE_TYPES, ShardSet, is_prepared, read_names
from siafu.tasks import Lane, is_of_edges

logger = logging.getLogger(__name__)
#: Settings of data that mean nothing but with task link.
OF_LINKS = ("val_edges", "test_edges", "negatives", "eval_negatives")


def check_beforehand(config: Config, in_memory: Any = None) -> None:
    """Checks what is known before a graph is prepared, for one run or many. Raises: ConfigError for an unknown model,
    DatasetError for a missing file of the source."""
    models.named(config.model.name)
    if in_memory is None and not is_prepared(config.data.source):
        check_files(config.data.source)


def shards_of(config: Config, in_memory: Any = None, features_as: str = "") -> Path:
    """The prepared graph: the source itself if it is prepared, else from the cache. ``in_memory``: a graph that is the
    source. ``features_as``: as for ``graph_data.prepare.prepare``. Raises: ConfigError for an unknown model, before
    anything is prepared."""
    models.named(config.model.name)
    data = config.data
    if in_memory is None and is_prepared(data.source):
        return Path(data.source)
    made_of = {"inductive": data.split if data.inductive else None, "features_as": features_as}
    options = Options.of(asdict(data) | made_of)
    return cached(data.source if in_memory is None else in_memory, cache_dir=data.cache_dir, **asdict(options))


def num_parts(config: Config) -> int:
    """The number of parts: a prepared graph's own, whatever ``data.parts`` is. DatasetError for a damaged graph."""
    if is_prepared(config.data.source):
        return ShardSet.open(config.data.source).manifest.num_partitions
    return config.data.parts


def fit(config: Config, shards: ShardSet) -> Config:
    """The config with the values that prepared shards fix. ConfigError if it asks for something else."""
    manifest = shards.manifest
    links, inductive = manifest.edge_types == "links", manifest.edge_types == "inductive"
    held = {
        "parts": manifest.num_partitions,
        "partitioner": manifest.partitioner,
        "order": manifest.order,
        "directed": manifest.directed and not links,
        "feature_norm": manifest.feature_norm,
        "seed": manifest.seed,
        "task": "link" if links else "node",
        "inductive": inductive,
    }
    if inductive:
        held["split"] = manifest.inductive_split
    if links:
        held |= _held_of_links(config.data, shards)
    defaults = Data()
    for key, value in held.items():
        asked = getattr(config.data, key)
        if asked not in (getattr(defaults, key), value):
            told = f"{value:g}" if isinstance(value, float) else value
            raise ConfigError(f"data.{key} = {asked}: {config.data.source} was prepared with {told}")
    for key in OF_LINKS if not links else ():
        if (asked := getattr(config.data, key)) != getattr(defaults, key):
            raise ConfigError(f"data.{key} = {asked}: is for data.task = link")
    every = config.train.eval_every
    fixed = {
        "train.intervals": intervals.of(config, manifest),
        "data.source": _from_anywhere(config.data.source),
        "train.eval_every": every if every >= 0 else usual_eval_every(manifest),
    }
    return config.replace({**{f"data.{key}": value for key, value in held.items()}, **fixed})


def _from_anywhere(source: str) -> str:
    """The source with a path that works in any folder, for later commands: resume, predict, export."""
    return str(Path(source).resolve()) if is_prepared(source) else absolute(source)


def _held_of_links(asked: Data, shards: ShardSet) -> dict[str, Any]:
    """The settings that link shards were prepared with, from their counts. A share that yields the same count is kept
    as asked."""
    counts = shards.manifest.type_counts
    held: dict[str, Any] = {"negatives": counts[TRAIN_NEGATIVE] // counts[TRAIN_PAIR]}  # a whole number
    edges = counts[TRAIN_PAIR] // 2 + counts[VAL_PAIR] + counts[TEST_PAIR]  # a held-out one is stored once
    for key, found in (("val_edges", counts[VAL_PAIR]), ("test_edges", counts[TEST_PAIR])):
        share = getattr(asked, key)
        held[key] = share if round(share * edges) == found else found / edges
    if (ranked := _false_edges_of_one(shards)) is not None:
        held["eval_negatives"] = ranked
    return held


def _false_edges_of_one(shards: ShardSet) -> int | None:
    """The number of false edges that a held-out edge is ranked among: equal for every vertex that ranks any. None: no
    edges are held out."""
    for part in range(shards.manifest.num_partitions):
        edges = shards.partition(part).in_edges
        for kind in (VAL_NEGATIVE, TEST_NEGATIVE):
            false = np.flatnonzero(np.asarray(edges.type) == kind)
            if len(false):
                row = int(np.searchsorted(edges.indptr, false[0], side="right"))  # one behind it
                return int(np.searchsorted(false, edges.indptr[row]))
    return None


def built(config: Config, shards: ShardSet) -> Model:
    """The model of a fitted config. ConfigError for an impossible model, or a setting that it does not use."""
    model = models.build(ModelSpec.of(config, shards.manifest))
    _check_judged(config, shards)
    name, rest, write = config.model.name, config.train.weight_decay_rest, config.run.write
    if rest >= 0 and not any(model.rest(parameter) for parameter in models.shapes(model.spec)):
        raise ConfigError(f"train.weight_decay_rest = {rest:g}: {name} has no weights that are decayed otherwise")
    if config.lambdas.apply_edge == "lambda" and all(
        s.operator != "attention" for s in model.program(Lane.TRAIN).steps
    ):
        raise ConfigError(f"lambda.apply_edge = lambda: {name} has no coefficients of edges to be computed there")
    for key in model.unused_settings:
        if (value := getattr(config.model, key)) != getattr(configs.Model(), key):
            told = list(value) if isinstance(value, tuple) else value
            raise ConfigError(f"model.{key} = {told}: {name} has one layer, and no hidden one")
    if write and (is_of_edges(write) or all(write not in step.writes for step in model.program(Lane.EVAL).steps)):
        raise ConfigError(f"run.write = {write}: {name} writes no such rows in an evaluation")
    return model


def _check_judged(config: Config, shards: ShardSet) -> None:
    """Raises ConfigError for a setting that stops by validation if nothing is validated."""
    what = "edges" if config.data.task == "link" else "vertices"
    for key in () if shards.manifest.num_validated(config.data.split) else ("patience", "target_acc"):
        if value := getattr(config.train, key):
            raise ConfigError(
                f"train.{key} = {value:g}: {config.data.source} has no validation {what} to stop by; leave it out"
            )


def ready(config: Config, shards: ShardSet) -> tuple[Config, Model]:
    """The config of a run on these shards, as all its roles get it, and its model. Raises: as ``fit`` and ``built``;
    ConfigError or DatasetError for a warm start that does not fit this model."""
    fitted = fit(config, shards)
    model = built(fitted, shards)
    return _with_first_weights(fitted, model, shards), model


def _with_first_weights(config: Config, model: Model, shards: ShardSet) -> Config:
    """The config with the absolute path of the warm start, once its weights are found to fit this graph."""
    if not config.train.warm_start:
        return config
    if config.run.on != "local":
        raise ConfigError(
            f"train.warm_start = {config.train.warm_start}: its file is on this machine, and parameter servers are "
            f"elsewhere (run.on = {config.run.on}): it needs run.on = local"
        )
    model_file.first_weights(model, config.train.warm_start)
    file = model_file.file_of(config.train.warm_start)
    check_columns(file.parent, shards, config.data.source)
    learnt = ((CLASSES, model.spec.target != "links"), (EDGE_TYPES, "typed" in models.operators(model.spec.name)))
    check_labels(file.parent, shards, config.data.source, [key for key, is_learnt in learnt if is_learnt])
    if bool(shards.names().get(COLUMNS)) != bool(read_names(file.parent).get(COLUMNS)):
        logger.warning(
            "train.warm_start = %s: feature columns are taken by position: one of the two has no names for them",
            config.train.warm_start,
        )
    differ = differences(model_file.trained_on(file), shards.manifest.fingerprint)
    if differ == "splits":
        logger.warning(
            "train.warm_start = %s: trained on this graph with other splits: it may have learnt "
            "labels that are scored here",
            config.train.warm_start,
        )
    elif differ:
        logger.warning("train.warm_start = %s: trained on other %s", config.train.warm_start, differ)
    return config.replace({"train.warm_start": str(Path(config.train.warm_start).resolve())})


def check_columns(run_dir: Path, shards: ShardSet, what: str) -> None:
    """Raises: ConfigError if a run's weights are for other feature columns than a graph has,
    or for the same in another order."""
    ours, theirs = read_names(run_dir).get(COLUMNS, ()), shards.names().get(COLUMNS, ())
    if ours and theirs and ours != theirs:
        pairs = zip(ours, theirs, strict=False)
        at = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
        differ = f"{len(theirs)}, not {len(ours)}" if at is None else f"column {at} is {theirs[at]!r}, not {ours[at]!r}"
        raise ConfigError(
            f"{what}: feature columns are not those that {run_dir} was trained on ({differ}): siafu prepare SOURCE "
            f"--features-as {shlex.quote(str(run_dir))} --out DIR takes them by name"
        )


def check_labels(run_dir: Path, shards: ShardSet, what: str, of: Sequence[str]) -> None:
    """Checks names of classes, columns of labels or edge types, as many as a run's, against the run's. Raises:
    ConfigError if only some are the run's, or their order differs; an item without a name counts by its number. Warns
    if all names differ."""
    for key in of:
        which = {CLASSES: "classes or columns of labels", EDGE_TYPES: "types of edges"}[key]
        names = [names.get(key, ()) for names in (read_names(run_dir), shards.names())]
        numbers = tuple(map(str, range(max(map(len, names)))))
        ours, theirs = (named or numbers for named in names)
        if ours == theirs:
            continue
        if set(ours) & set(theirs):
            raise ConfigError(
                f"{what}: {which} are {listed(theirs)}, those that {run_dir} was trained on {listed(ours)}: its "
                "weights would be taken for others of them; give it these, in their order (columns of labels: "
                "--labels FILE#COLUMN,COLUMN)"
            )
        if all(names):
            logger.warning(
                "%s: %s are %s, those of %s %s: taken by position", what, which, listed(theirs), run_dir, listed(ours)
            )
