"""Reads prepared graphs and runs, with their models and checkpoints, in full, and checks that no file is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from siafu.checkpoints import FOLDER_NAME, load
from siafu.errors import ConfigError, DatasetError
from siafu.model_file import load_model
from siafu.run_files import CONFIG
from siafu.shards import MANIFEST, ShardSet

Found = tuple[str, bool, str]  # what was looked at, whether it is sound, what was found


def examined(path: Path) -> list[Found]:
    """All that there is at ``path``. Raises: ConfigError if that is nothing of siafu's."""
    looks: list[tuple[str, Path, Callable[[Path], str]]] = []
    if path.suffix == ".safetensors":
        looks = [("model", path, _model)]
    elif FOLDER_NAME.fullmatch(path.name):
        looks = [("checkpoint", path, _checkpoint)]
    elif (path / CONFIG).is_file():
        looks = [(file.stem, file, _model) for file in sorted(path.glob("*.safetensors"))]
        folders = [folder for folder in path.glob("checkpoints/*") if FOLDER_NAME.fullmatch(folder.name)]
        looks += [("checkpoint", folder, _checkpoint) for folder in sorted(folders)]
    elif (path / MANIFEST).is_file():
        looks = [("prepared graph", path, _graph)]
    if not looks:
        raise ConfigError(f"{path}: neither a prepared graph nor a checkpoint, a model or a run that has any")
    return [_found(*look) for look in looks]


def _found(what: str, path: Path, read: Callable[[Path], str]) -> Found:
    try:
        return what, True, f"{path}: {read(path)}"
    except DatasetError as error:
        return what, False, str(error)


def _graph(path: Path) -> str:
    shards = ShardSet.open(path)
    kept = shards.verify()
    manifest = shards.manifest
    files = [*manifest.files.values(), *(entry for part in manifest.partitions for entry in part.files.values())]
    nbytes = sum(entry.bytes for entry in files)
    return f"{manifest.name}, {manifest.num_partitions} part(s), {len(files)} files, {nbytes / 1e6:,.1f} MB" + (
        f", and {kept} kept aggregate(s) of layer 0" if kept else ""
    )


def _checkpoint(path: Path) -> str:
    state = load(path)
    versions = ", ".join(map(str, sorted(state.weights)))
    return f"after {state.version} epochs, with weights of {versions}"


def _model(path: Path) -> str:
    weights, spec = load_model(path)
    return f"{spec.name}, {sum(W.size for W in weights.values()):,} parameters"
