"""Reads prepared graphs and runs, with their models and checkpoints, in full, and checks that no file is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from siafu import run_files
from siafu.checkpoints import FOLDER_NAME, load
from siafu.config import sections_of
from siafu.errors import ConfigError, DatasetError, counted
from siafu.model_file import load_model
from siafu.run_files import CONFIG
from siafu.shards import MANIFEST, ShardSet, read_names

Found = tuple[str, bool, str]  # what was looked at, whether it is sound, what was found


def examined(path: Path) -> list[Found]:
    """Checks all files at ``path``, and reports on them. Raises: ConfigError if siafu did not make ``path``."""
    looks: list[tuple[str, Path, Callable[[Path], str]]] = []
    if path.suffix == ".safetensors":
        looks = [("model", path, _model)]
    elif FOLDER_NAME.fullmatch(path.name):
        looks = [("checkpoint", path, _checkpoint)]
    elif (path / CONFIG).is_file():
        looks = [(file.stem, file, _model) for file in sorted(path.glob("*.safetensors"))]
        folders = [folder for folder in path.glob("checkpoints/*") if FOLDER_NAME.fullmatch(folder.name)]
        looks += [("checkpoint", folder, _checkpoint) for folder in sorted(folders)]
        looks += [("records", path, _records)]
    elif (path / MANIFEST).is_file():
        looks = [("prepared graph", path, _graph)]
    if not looks:
        raise ConfigError(f"{path}: neither a prepared graph nor a checkpoint, a model or a run that has any")
    return [_found(*look) for look in looks]


def _found(what: str, path: Path, read: Callable[[Path], str]) -> Found:
    try:
        return what, True, f"{path}: {read(path)}"
    except (ConfigError, DatasetError) as error:
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


def _records(run_dir: Path) -> str:
    """Checks the run's other files, and describes them. A full disk or a power loss leaves empty files."""
    if not sections_of(run_dir / CONFIG):
        raise ConfigError(f"{run_dir / CONFIG}: holds no setting")
    names, ended = read_names(run_dir), run_files.result(run_dir) is not None
    run_files.manifest(run_dir)
    run_files.divergence(run_dir)
    lines = run_files.records(run_dir) if ended or (run_dir / run_files.METRICS).is_file() else []
    if ended and not lines:
        raise ConfigError(f"{run_dir / run_files.METRICS}: is empty, and the run has a result")
    return f"{counted(len(lines), 'measurement')}, {counted(len(names), 'kind')} of names"
