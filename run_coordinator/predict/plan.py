"""What a prediction needs: a run's model, a graph, a slot of the evaluation, and the config of the servers that make
it.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from graph_data.chosen import as_read
from graph_data.renumbered import Numbers
from run_coordinator import conditions, prepared
from run_coordinator.lambda_emulator import as_asked
from run_coordinator.predict.meanings import Meanings, Names
from run_coordinator.run_directory import is_under_way
from siafu import model_file, models, run_files
from siafu.baseline import BaselineConfig, load
from siafu.checkpoints import FOLDER_NAME
from siafu.checkpoints import load as load_state
from siafu.config import REPARTITIONS, Config, Lambda
from siafu.errors import ConfigError
from siafu.features import STANDARD, Standard
from siafu.fingerprint import Fingerprint, differences, of_run
from siafu.models import ModelSpec
from siafu.run_files import CONFIG
from siafu.shards import CLASSES, Manifest, ShardSet, is_prepared, read_names
from siafu.tasks import Lane
from siafu.training_state import MODEL

logger = logging.getLogger(__name__)

#: What labels are, in words.
KINDS: dict[str, str] = {
    "classes": "one class per vertex",
    "labels": "several classes per vertex",
    "numbers": "numbers",
}
Kind = Literal["probabilities", "labels", "logits", "numbers", "embedding"]  # labels: probabilities, one per label
#: What a run may have asked for that a prediction does not.
WITHOUT: dict[str, Any] = {
    "train.epochs": 0,
    "run.dir": "",
    "run.checkpoint_every": 0,
    "run.budget_usd": 0.0,
    "run.max_seconds": 0.0,
    "run.loggers": (),
    "run.trace": False,
    "lambda.handler": Lambda.handler,  # a run may be somebody else's
}


@dataclass(frozen=True)
class Plan:
    run_dir: Path
    config: Config  # of the servers
    spec: ModelSpec  # of the saved model
    kind: Kind
    layer: int | None  # whose entering activations are asked for; None: the scores
    data: Fingerprint | None = None  # of what the run was trained on, if the graph must be the same
    features_as: str = ""  # whose columns, means and deviations the graph's features must be prepared with; "": its own
    # Of ``fitted``:
    classes: tuple[str, ...] = ()  # what the run calls them; (): by their numbers
    numbers: tuple[Numbers | None, Numbers | None] = (None, None)  # the run's, of the graph's classes and relations

    def of_shards(self, shards: ShardSet) -> Plan:
        """The plan for a graph in memory, named by its shards: servers cannot read a graph in memory."""
        return replace(self, config=self.config.replace({"data.source": str(shards.path)}))

    def fitted(self, shards: ShardSet) -> Plan:
        """The plan with the values that the prepared graph fixes. ConfigError if the model does not fit."""
        manifest, source = shards.manifest, self.config.data.source
        if differ := differences(self.data or {}, manifest.fingerprint):
            raise ConfigError(
                f"{source}: no longer the graph that {self.run_dir} was trained on: its {differ} differ; "
                f"siafu predict {shlex.quote(str(self.run_dir))} --graph {shlex.quote(source)} takes it as it is"
            )
        _check_prepared(self.config, manifest)
        if self.features_as:
            prepared.check_columns(Path(self.features_as), shards, source)
            _check_standard(self.features_as, shards, source)
        _check(self.spec, manifest, source)
        _warn_of_edges(self.run_dir, manifest, source)
        if self.spec.target in ("labels", "numbers") and _judged(manifest):
            prepared.check_labels(self.run_dir, shards, source, (CLASSES,))  # relations are found by their names
        names = self._names(shards)
        meanings = Meanings.of(self.run_dir, self.spec, names)
        numbers = (
            meanings.of_classes(shards, source) if self.spec.target == manifest.target == "classes" else None,
            meanings.of_relations(shards, source) if "typed" in models.operators(self.spec.name) else None,
        )
        changes: dict[str, Any] = {}
        if manifest.num_classes != self.spec.num_classes:
            changes["model.outputs"] = self.spec.num_classes
        if not self.config.data.split < len(manifest.splits):
            changes["data.split"] = 0
        if self.features_as and not is_prepared(source):  # the name with the columns that the shards were made of
            changes["data.source"] = as_read(source, self.features_as)
        classes = meanings.classes if "classes" in names else ()
        return replace(
            self, config=prepared.fit(self.config.replace(changes), shards), classes=classes, numbers=numbers
        )

    def _names(self, shards: ShardSet) -> Names:
        """Names of the run's graph. A run without a file of names has those of its source."""
        own = self.config.data.source == load(self.run_dir / CONFIG).data.source
        return read_names(self.run_dir) or (shards.names() if own else {})


def check_run(run_dir: Path) -> None:
    """Raises: ConfigError for a folder without a run, or with a run that has saved nothing yet."""
    model_file.check_name(run_dir)
    if not (run_dir / CONFIG).is_file():
        raise ConfigError(f"{run_dir}: not a finished run: it has no {CONFIG}")
    if not (run_dir / MODEL).is_file() and _checkpoint(run_dir) is None:
        how = "it is under way" if is_under_way(run_dir) else f"siafu resume {shlex.quote(str(run_dir))} finishes it"
        raise ConfigError(f"{run_dir}: its run is not finished and has no checkpoint: {how}")


def _checkpoint(run_dir: Path) -> Path | None:
    """The newest checkpoint."""
    folder = run_dir / "checkpoints"
    entries = folder.iterdir() if folder.is_dir() else ()
    found = [entry for entry in entries if FOLDER_NAME.fullmatch(entry.name)]
    return max(found, key=lambda entry: int(entry.name.partition("-")[2]), default=None)


def model_of(run_dir: Path) -> Path:
    """The file with a run's best weights. For an interrupted run, writes the best weights of its newest checkpoint
    beside it first. DatasetError for a damaged checkpoint."""
    check_run(run_dir)
    if (saved := run_dir / MODEL).is_file() or (newest := _checkpoint(run_dir)) is None:
        return saved
    state, (_, spec) = load_state(newest), model_file.load_model(newest / MODEL)
    best = state.ledger["best"]["epoch"] if state.ledger["best"] else state.version
    version = best if best in state.weights else state.version
    logger.warning("%s: its run is not finished: these are the weights after epoch %d", run_dir, version)
    file = newest.parent / "best.safetensors"
    model_file.save_model(file, dict(state.weights[version]), spec, {"epoch": version})
    return file


def plan_of(
    run_dir: Path,
    *,
    graph: str = "",
    layer: int | None = None,
    scores: str = "probabilities",
    settings: Mapping[str, Any],
) -> Plan:
    """Raises: ConfigError for a folder without a run in it, and for a layer or scores that the model does not have."""
    if scores not in ("probabilities", "logits"):
        raise ConfigError(f"scores = {scores!r}: must be probabilities or logits")
    model = model_of(run_dir)
    _, spec = model_file.load_model(model)
    config = _of_servers(run_dir).replace(WITHOUT)
    config = config.replace({"train.warm_start": str(model.resolve())})
    data = None
    if graph:
        config = config.replace(_another(graph, config, settings))
    elif all(key.removeprefix("data.") in REPARTITIONS for key in settings if key.startswith("data.")):
        data = of_run(run_dir)
    config = config.replace(settings)
    conditions.refuse(config, settings)
    if config.run.on == "aws":
        raise ConfigError("run.on = aws: siafu predict runs on this machine or on Ray: --on local")
    kind: Kind
    if layer is not None or spec.target == "links":
        kind = "embedding"
    elif spec.target == "numbers":
        kind = "numbers"
    elif scores == "logits":
        kind = "logits"
    else:
        kind = "labels" if spec.multilabel else "probabilities"
    config = config.replace({"run.write": _slot(spec, layer)})
    as_run = data is None
    if as_run and config.data.feature_norm == "standard" and not (run_dir / STANDARD).is_file():
        if graph:
            raise ConfigError(
                f"{run_dir}: has no {STANDARD}, by which to standardise: copy it from the run's shards, or train anew"
            )
        as_run = False  # the run's own graph in other parts: its own means are the run's
    return Plan(run_dir, config, spec, kind, layer, data, str(run_dir) if as_run else "")


def _of_servers(run_dir: Path) -> Config:
    """The run's config; for a baseline's run, a config of graph servers with its model and graph, on their own cores.
    Raises: ConfigError for a model that only baselines have."""
    begun = load(run_dir / CONFIG)
    if not isinstance(begun, BaselineConfig):
        return as_asked(begun, run_dir)
    if begun.baseline.norm != "model":
        raise ConfigError(f"{run_dir}: baseline.norm = {begun.baseline.norm}: graph servers do not normalise so")
    if begun.baseline.num_linear:
        raise ConfigError(
            f"{run_dir}: baseline.num_linear = {begun.baseline.num_linear}: graph servers have no such layers"
        )
    sections = {section: values for section, values in begun.to_dict().items() if section != "baseline"}
    config = Config.from_dict(sections).replace({"servers.backend": "cpu"})
    # What was cut into batches and chunks needs no server for each.
    return config if begun.partitions == begun.baseline.ranks else config.replace({"data.parts": 1})


def _another(graph: str, config: Config, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Changes to the run's data settings for another graph; prepared shards fix some of them."""
    changes: dict[str, Any] = {"data.source": graph, "data.split": 0, "data.inductive": False}
    if is_prepared(graph):
        made = ShardSet.open(graph).manifest
        fixed = {"parts": made.num_partitions, "partitioner": made.partitioner, "order": made.order, "seed": made.seed}
        changes |= {f"data.{key}": value for key, value in fixed.items()}
        changes["data.inductive"] = made.edge_types == "inductive"
        changes["data.split"] = max(0, made.inductive_split)
    elif config.data.task == "link":  # every edge is there to be seen, none to be guessed
        changes |= {"data.val_edges": 0.0, "data.test_edges": 0.0}
    return {key: value for key, value in changes.items() if key not in settings}


def _check(spec: ModelSpec, manifest: Manifest, source: str) -> None:
    if manifest.num_features != spec.in_features:
        raise ConfigError(f"{source}: it has {manifest.num_features} features, the model takes {spec.in_features}")
    if spec.target == "links" or not _judged(manifest):
        return
    if manifest.target != spec.target:
        raise ConfigError(f"{source}: its labels are {KINDS[manifest.target]}, the model's {KINDS[spec.target]}")
    if spec.target != "classes" and manifest.num_classes != spec.num_classes:
        raise ConfigError(
            f"{source}: it has {manifest.num_classes} {spec.target} per vertex, the model {spec.num_classes}"
        )


def _warn_of_edges(run_dir: Path, manifest: Manifest, source: str) -> None:
    """Warns if edges have weights or types and those of the run's graph have none, or the reverse: sums over neighbours
    differ then, and no shape shows it."""
    ours: Mapping[str, Any] = run_files.manifest(run_dir).get("graph", {})  # older runs do not say
    has = {"weight": manifest.weighted, "type": manifest.edge_types == "relations"}
    for what in has:
        if ours.get(f"{what}s", has[what]) != has[what]:
            differ = ("have", "have none") if has[what] else ("have no", f"do (--{what} COLUMN of edge lists)")
            logger.warning(
                "%s: its edges %s %ss, those that %s was trained on %s: predictions are for other sums over neighbours",
                *(source, differ[0], what, run_dir, differ[1]),
            )


def _judged(manifest: Manifest) -> bool:
    """Whether a vertex is in a split, so that its label is looked at."""
    return any(split.train + split.val + split.test for split in manifest.splits)


def _check_prepared(config: Config, manifest: Manifest) -> None:
    """Raises ConfigError for shards that were prepared differently from the run's: features that look alike mean
    something else."""
    asked = {"feature_norm": config.data.feature_norm} | (
        {"directed": config.data.directed} if config.data.task != "link" else {}
    )
    for key, value in asked.items():
        if (made := getattr(manifest, key)) != value:
            raise ConfigError(
                f"{config.data.source}: it was prepared with {key} = {made}, the run's graph with {value}"
            )


def _check_standard(run_dir: str, shards: ShardSet, source: str) -> None:
    """Raises ConfigError for shards that were standardised differently from the run's: equal values mean something
    else."""
    ours, theirs = Standard.load(Path(run_dir)), Standard.load(shards.path)
    if ours is not None and (theirs is None or not theirs.equals(ours)):
        raise ConfigError(
            f"{source}: its features are not standardised as the run's graph was: siafu prepare --feature-norm "
            f"standard --features-as {shlex.quote(str(run_dir))}"
        )


def _slot(spec: ModelSpec, layer: int | None) -> str:
    """The slot of the evaluation to write. ConfigError if the model has no such layer."""
    model = models.build(spec)
    steps = model.program(Lane.EVAL).steps
    last = next((str(step.gathers) for step in steps if step.operator == "pairs" and step.gathers), steps[-1].writes[0])
    logits = [spec.num_layers] if spec.target != "links" else []
    if layer is None or layer in logits:
        return last
    hidden = range(1, spec.num_layers if model.hidden_slots else 1)
    known = [number for number in hidden if _written(spec, f"H{number}")]
    if layer not in known or isinstance(layer, bool | float):
        layers = ", ".join(map(str, [*known, *logits]))
        raise ConfigError(f"layer = {layer}: model {spec.name} shows what enters layers {layers or '(none)'}")
    return f"H{layer}"


def _written(spec: ModelSpec, slot: str) -> bool:
    """Whether an evaluation can write the slot."""
    program = models.build(replace(spec, write=slot)).program(Lane.EVAL)
    return any(slot in step.writes for step in program.steps)
